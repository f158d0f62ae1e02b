"""Whether a whole torch module scores each row by itself: tried here, or in a process of its own.

torch is native code, and the operators of a hostile archive may crash it, hang it or fill the
memory. A module of this process has run already; an archive from elsewhere is tried in a child.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from sqlml.child_process import Child, Ended, Failed
from sqlml.errors import UnsupportedModelError, named
from sqlml.ir.operators.torch_module import runner
from sqlml.ir.torch_archive import read_exported

ROWS = 5


def check_rows(archive: bytes, attrs: Mapping[str, Any]) -> None:
    """Run the module of an archive on a few rows, together and one by one.

    Args:
        attrs: the dtype and width that the operator `torch_module` is to have.

    Raises:
        UnsupportedModelError: rows depend on each other, or it calls what sqlml does not run.
        SqlmlError: what scoring raises.
    """
    run = runner(archive, attrs)
    import torch

    rng = np.random.default_rng(0)
    batch = []
    for tensor in read_exported(archive).inputs:
        numbers = rng.integers(0, 2, (ROWS, tensor.width)) + rng.random((ROWS, tensor.width))
        batch.append(torch.from_numpy(numbers).to(getattr(torch, tensor.dtype)))
    with torch.inference_mode():
        together = run(*batch).numpy().astype(np.float64)
        alone = [run(*[t[i : i + 1] for t in batch]).numpy() for i in range(ROWS)]
    apart = np.concatenate(alone).astype(np.float64)
    close = np.isclose(together, apart, rtol=1e-3, atol=1e-4, equal_nan=True)
    if not close.all():
        raise UnsupportedModelError(
            "the torch module's numbers for a row depend on the other rows, and SQL scores rows "
            "in batches of any size; remove what mixes rows, or what is random"
        )


def check_rows_elsewhere(archive: bytes, attrs: Mapping[str, Any]) -> None:
    """Run `check_rows` in a process of its own: a hostile module may crash or hang torch.

    Raises:
        UnsupportedModelError, SqlmlError: as `check_rows`, and where torch ends on the module.
    """
    about = json.dumps({"dtype": str(attrs["dtype"]), "width": int(attrs["width"])}).encode()
    try:
        with Child(f"{__name__}:conversation", about, archive):
            return
    except Ended as how:
        raise UnsupportedModelError(f"a process that tries the torch module {how}") from None
    except Failed as failed:
        raise named(failed.name, failed.message) or UnsupportedModelError(
            f"torch cannot run the module ({failed.name}: {failed.message})"
        ) from None


def conversation(about: bytes, archive: bytes) -> Generator[bytes, bytes, None]:
    """Run in the child: its one answer says that all is well."""
    check_rows(archive, json.loads(about))
    yield b""
