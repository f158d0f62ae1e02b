"""CatBoost's binary format, which CatBoost itself converts to JSON in a child process."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Generator
from pathlib import Path

from sqlml.child_process import Child, ChildEnded, ChildFailed
from sqlml.errors import ArtifactError, MissingDependencyError, UnsupportedModelError

MAGIC = b"CBM1"


def convert_to_json(content: bytes) -> bytes:
    """Convert a binary file to a JSON document, in a child process."""
    try:
        with Child(f"{__name__}:conversation", content) as child:
            return child.first
    except ChildEnded as how:
        raise ArtifactError(
            f"a process in which CatBoost reads this file {how}; the file is damaged or hostile"
        ) from None
    except ChildFailed as failed:
        if failed.name in ("ImportError", "ModuleNotFoundError"):
            raise MissingDependencyError(
                "this file is in CatBoost's binary format, which CatBoost itself reads: "
                "pip install 'sqlml[catboost]'"
            ) from None
        if only := re.search(r"with (text|embedding) features only", failed.message):
            raise UnsupportedModelError(
                f"CatBoost's {only[1]} features are not supported"
            ) from None
        raise ArtifactError(
            f"CatBoost cannot read this file, or write it as JSON ({failed.message}); where it was "
            "trained, write save_model('model.json', format='json', pool=train_pool)"
        ) from None


def conversation(content: bytes) -> Generator[bytes, bytes, None]:
    """Yield the document; this runs in the child process."""
    import catboost

    with tempfile.TemporaryDirectory() as folder:
        binary, document = Path(folder) / "model.cbm", Path(folder) / "model.json"
        binary.write_bytes(content)
        model = catboost.CatBoost()
        model.load_model(str(binary))
        model.save_model(str(document), format="json")
        yield document.read_bytes()
