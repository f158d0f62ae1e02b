"""Damage to the files of each format (`small_files.py`), and the outcomes that are allowed.

A damaged file is refused with an SqlmlError, or it is a model like any other: legal, storable,
and one row of it is scored or refused with an SqlmlError. `outcome` says which; whatever else
happens is a finding.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from sqlml.backends import base
from sqlml.errors import ModelError, ProgramError, SqlmlError
from sqlml.importers.file_formats import read_artifact, read_folder
from sqlml.importers.registry import import_model
from sqlml.importers.untrusted_documents import read_ubjson
from sqlml.ir import ops, store
from sqlml.ir.ops import verify
from sqlml.ir.program import Node, Program, freeze
from sqlml.limits import FORMAT_VERSION
from sqlml.types import DTYPES, NESTED, Array
from tests.support import mutations, small_files, spark_folders
from tests.support.mutations import (
    Rng,
    of_archive,
    of_array,
    of_bytes,
    of_json,
    of_lines,
    of_message,
    pick,
)

SECONDS = 2.0
"""Processor time that one file may take, from its bytes to a scored row."""

BYTES = 1 << 30
"""Memory that it may take."""

BACKENDS = ("reference", "native")


def of_ubj(content: bytes, rng: Rng) -> bytes:
    """UBJSON: its bytes, or its document, written again by a writer that checks nothing."""
    if rng.random() < 0.3:
        return of_bytes(content, rng)
    document = mutations.plain(read_ubjson(content))
    return mutations.ubjson(mutations.typed(mutations.of_tree(document, rng), rng))


def of_onnx(content: bytes, rng: Rng) -> bytes:
    """ONNX: its bytes, or a field of its messages."""
    import onnx

    if rng.random() < 0.1:
        return of_bytes(content, rng)
    proto = onnx.ModelProto.FromString(content)
    for _ in range(int(rng.integers(1, 3))):
        of_message(proto, rng)
    made: bytes = proto.SerializeToString()
    return made


def of_program(content: bytes, rng: Rng) -> bytes:
    """A stored Program, changed and sealed with a right checksum, as an attacker would.

    Most changes are to an attribute, an input's type or an edge; the types that follow from them
    are right, so that only an operator's own rule can refuse.
    """
    way = rng.random()
    if way < 0.03:
        return of_bytes(content, rng)
    if way < 0.2:
        _, _, length = struct.unpack_from("<6sHI", content)
        header = store.read_header(content[12 : 12 + length])
        return sealed(mutations.of_tree(header, rng), content[12 + length : -32])
    program = store.loads(content)
    nodes = list(program.nodes)
    for _ in range(int(rng.integers(1, 3))):
        at = pick(rng, [i for i, n in enumerate(nodes) if n.attrs or n.inputs])
        nodes[at] = _changed(nodes[at], at, rng)
    for i, node in enumerate(nodes):
        try:
            kind = ops.infer(node.op, [nodes[j].type for j in node.inputs], node.attrs)
        except (ProgramError, KeyError, IndexError, AttributeError, TypeError, ValueError):
            kind = node.type
        nodes[i] = replace(node, type=kind)
    try:
        return store.dumps(replace(program, nodes=tuple(nodes)))
    except (TypeError, ValueError, UnicodeEncodeError, AttributeError):
        return of_bytes(content, rng)  # it cannot be written at all


def _changed(node: Node, at: int, rng: Rng) -> Node:
    if node.inputs and (not node.attrs or rng.random() < 0.15):
        inputs = list(node.inputs)
        inputs[int(rng.integers(len(inputs)))] = int(rng.integers(at))
        return replace(node, inputs=tuple(inputs))
    attrs = dict(node.attrs)
    key = pick(rng, list(attrs))
    value = attrs[key]
    if node.op == "input":
        key = pick(rng, ("dtype", "width"))
        attrs[key] = pick(rng, sorted(DTYPES) if key == "dtype" else (0, 1, 2, 3, 5, 8, 2**20))
    elif rng.random() < 0.05:
        del attrs[key]
    elif isinstance(value, np.ndarray) and value.dtype == object:
        texts = [pick(rng, mutations.TEXTS[:11]), *value.ravel().tolist()]
        attrs[key] = np.array(texts[int(rng.integers(2)) :], object)
    elif isinstance(value, np.ndarray):
        attrs[key] = of_array(value, rng)
    elif isinstance(value, tuple):
        attrs[key] = tuple(mutations.of_tree(list(value), rng, 1)) if value else (1,)
    elif isinstance(value, str):
        like = [o for c in OPS_STRINGS for o in OPS_STRINGS[c] if value in OPS_STRINGS[c]]
        attrs[key] = pick(rng, like) if like else mutations.altered(value, rng)
    else:
        attrs[key] = mutations.altered(value, rng)
    return replace(node, attrs=freeze(attrs))


OPS_STRINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"dtype": tuple(sorted(DTYPES)), "compare": ("le", "lt")}
)


def sealed(header: Any, payload: bytes) -> bytes:
    """A stored Program with a right checksum; `payload` begins with its size."""
    text = json.dumps(header).encode()
    blob = struct.pack("<6sHI", store.MAGIC, FORMAT_VERSION, len(text)) + text + payload
    return blob + hashlib.sha256(blob).digest()


Files = Callable[[], tuple[bytes, ...]]

FORMATS: Mapping[str, tuple[Files, mutations.Mutation, str]] = MappingProxyType(
    {
        "xgboost-json": (small_files.xgboost_files, of_json, "XGBOOST"),
        "xgboost-ubj": (small_files.ubj_files, of_ubj, "XGBOOST"),
        "lightgbm": (small_files.lightgbm_files, of_lines, "LIGHTGBM"),
        "catboost": (small_files.catboost_files, of_json, "CATBOOST"),
        "onnx": (small_files.onnx_files, of_onnx, "ONNX"),
        "onnx-whole": (small_files.whole_onnx_files, of_onnx, "ONNX"),
        "skops": (small_files.skops_files, of_archive, "SKOPS"),
        "program": (small_files.program_files, of_program, "SQLML"),
        "spark": (spark_folders.folders, spark_folders.damaged, "SPARK"),
        "torch": (small_files.torch_files, of_archive, "TORCH"),
        "torch-whole": (small_files.whole_torch_files, of_archive, "TORCH"),
    }
)
"""Format -> its small files, the damage to do, and how artifacts name it."""


def damaged(name: str, seed: int) -> bytes:
    """Damaged file number `seed` of a format; always the same one."""
    files, mutation, _ = FORMATS[name]
    rng = np.random.default_rng([seed, len(name)])
    return mutation(pick(rng, files()), rng)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """At most BYTES more address space than now, where the system has such limits."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = now + BYTES if hard == resource.RLIM_INFINITY else min(hard, now + BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def outcome(content: bytes, format: str) -> str:
    """ "refused", or what came of scoring: "scored" or "unscored".

    Raises:
        Exception: anything but an SqlmlError, and AssertionError where time runs out.
    """
    for attempt in range(2):
        start = time.process_time()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = _outcome(content, format)
        took = time.process_time() - start
        if took < SECONDS:
            break  # the first attempt may have compiled a kernel
        assert not attempt, f"took {took:.1f} s"
    return found


def findings(name: str, seeds: range, progress: int | None = None) -> list[str]:
    """What happened to damaged files that should not; `progress` is a file for the seed."""
    files, _, format = FORMATS[name]
    for content in files():
        _outcome(content, format)  # what the libraries and kernels keep is not the files' doing
    found = []
    for seed in seeds:
        if progress is not None:
            os.pwrite(progress, f"{name} {seed}\n".ljust(40).encode(), 0)
        content = damaged(name, seed)
        try:
            with bounded_memory():
                outcome(content, format)
        except Exception as error:
            where = traceback.format_exception(error)[-3:]
            found.append(f"{name} {seed}: {''.join(where)}")
    return found


def main() -> None:
    """`python -m tests.support.hostile FORMAT FIRST END FILE`: findings to the standard output."""
    name, first, end, path = sys.argv[1:]
    with open(path, "wb") as file:
        for finding in findings(name, range(int(first), int(end)), file.fileno()):
            print(finding)


def _outcome(content: bytes, format: str) -> str:
    try:
        if format == "SPARK":
            model = read_folder(spark_folders.unpacked(content), "folder")
        else:
            model = read_artifact(content, format=format, path="file", allow_pickle=False)
        # A stored Program may come from a catalog, and then nothing imports it.
        program = model if isinstance(model, Program) else import_model(model).program
    except SqlmlError as error:
        assert str(error)
        return "refused"
    again = store.loads(store.dumps(verify(program)))
    assert again.hash == program.hash
    scored = "scored"
    for row in (0.5, np.nan, 1e30):
        answers = [a for a in (answer(again, name, row) for name in BACKENDS) if a is not None]
        if len(answers) < len(BACKENDS):
            scored = "unscored"
        for made in answers:
            for output in again.outputs:
                assert made[output].shape == (1, again.output_type(output).width)
                if not np.isnan(row):  # checks that stand before an operator keep NaN out
                    same(made[output], answers[0][output])
    return scored


def answer(program: Program, backend: str, row: float) -> dict[str, Array] | None:
    """One row as a backend scores it; None where it says why it cannot."""
    try:
        return dict(base.load_backend(backend).compile(program).run(one_row(program, row)))
    except SqlmlError as error:
        assert str(error)
        return None


def same(ours: Array, theirs: Array) -> None:
    """A kernel that reads beyond its arrays may well not crash, but it finds other numbers."""
    if ours.dtype == object:
        assert ours.tolist() == theirs.tolist()
    else:
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def one_row(program: Program, value: float) -> dict[str, Array]:
    """A row of the Program's inputs: numbers, or a text."""
    made: dict[str, Array] = {}
    for name in program.inputs:
        kind = program.input_type(name)
        if kind.dtype in NESTED:
            row = {"map": '{"a": 0.5}', "pairs": '[["a", 1]]'}.get(kind.dtype, '["a"]')
            made[name] = np.full((1, 1), row if value == 0.5 else "[[", object)
        elif kind.dtype == "string":
            made[name] = np.full((1, kind.width), "a" if value == 0.5 else None, object)
        else:
            with np.errstate(all="ignore"):
                made[name] = np.full((1, kind.width), value, np.float64)
    return made


def refused(content: bytes, format: str, match: str = "...") -> None:
    """An ArtifactError or UnsupportedModelError, within the limits of time and memory."""
    with bounded_memory(), pytest.raises(ModelError, match=match):
        model = read_artifact(content, format=format, path="file", allow_pickle=False)
        import_model(model)


if __name__ == "__main__":
    main()
