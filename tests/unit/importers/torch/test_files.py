"""Archives of torch.export: read without torch, nothing unpickled, damaged ones refused."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sqlml
from sqlml.backends import base
from sqlml.errors import (
    ArtifactError,
    ConfigError,
    ModelError,
    ScoringError,
    SqlmlError,
    UnsupportedModelError,
)
from sqlml.importers.registry import import_model
from sqlml.ir import store
from sqlml.ir.builder import Builder
from sqlml.ir.program import freeze
from sqlml.ir.torch_archive import read_exported
from sqlml.passes.lower import lower
from tests.support import oracles
from tests.support.torch_checks import (
    NAMES,
    OPAQUE,
    Apply,
    Mixed,
    archive,
    exported,
    read,
    rows,
    trained,
)

WITHOUT = """
import sys
sys.modules["torch"] = None
import numpy as np
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir import reference
content = open(sys.argv[1], "rb").read()
model = read_artifact(content, format="AUTO", path="m", allow_pickle=False)
program = import_model(model, ["a", "b", "c", "d"]).program
x = np.load(sys.argv[2])
got = reference.run(program, {n: x[:, "abcd".index(n)] for n in program.inputs})
np.save(sys.argv[3], got["label"])
"""


def test_a_file_is_scored_without_torch(tmp_path: Path) -> None:
    module = trained(Mixed().double(), rows()).eval()
    (tmp_path / "m.pt2").write_bytes(archive(exported(module, rows())))
    np.save(tmp_path / "x.npy", rows().numpy())
    files = [str(tmp_path / n) for n in ("m.pt2", "x.npy", "got.npy")]
    subprocess.run([sys.executable, "-c", WITHOUT, *files], check=True, cwd=Path.cwd())
    want = module(rows()).detach().numpy()
    np.testing.assert_allclose(np.load(tmp_path / "got.npy")[:, 0], want, rtol=1e-12)


class Bomb:
    """What a hostile pickle looks like."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def edited(content: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """The archive with its entries changed."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    change(entries)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for name, data in entries.items():
            new.writestr(name, data)
    return out.getvalue()


@pytest.fixture(scope="module")
def plain() -> bytes:
    return archive(exported(nn.Linear(4, 2).double(), rows()))


def graph(entries: dict[str, bytes], change: Callable[[Any], None]) -> None:
    """Change the JSON of the graph."""
    (name,) = [n for n in entries if "/models/" in n]
    document = json.loads(entries[name])
    change(document)
    entries[name] = json.dumps(document).encode()


def test_pickles_in_an_archive_are_refused_and_not_read(plain: bytes, tmp_path: Path) -> None:
    def pickled(entries: dict[str, bytes]) -> None:
        (config,) = [n for n in entries if n.endswith("weights_config.json")]
        document = json.loads(entries[config])
        about = document["config"]["weight"]
        about["use_pickle"] = True
        entries[config] = json.dumps(document).encode()
        weight = config.rpartition("/")[0] + "/" + about["path_name"]
        entries[weight] = pickle.dumps(Bomb(tmp_path / "harm"))

    with pytest.raises(UnsupportedModelError, match="pickled"):
        import_model(read(edited(plain, pickled)))
    saved = io.BytesIO()
    torch.save(nn.Linear(4, 1), saved)
    with pytest.raises(ArtifactError, match=r"net\.pt2.*torch\.export\.save"):
        read(saved.getvalue())
    assert not (tmp_path / "harm").exists()


@pytest.mark.by_day(12)
@pytest.mark.parametrize(
    "target",
    [
        "torch.hub.load", "torch.load", "torch.ops.aten.from_file.default", "_operator.attrgetter",
        "torch.ops.aten.set_.source_Tensor", "torch.ops.aten.as_strided.default", "math.sin",
        "torch.ops.aten.empty.memory_format", "torch._C._pickle_load_obj", "torch.ops.aten..",
        "torch.ops.prim.device.default", "#higher_order", "",
    ],
)  # fmt: skip
def test_an_archive_calls_nothing_but_operators_of_tensors(plain: bytes, target: str) -> None:
    def forge(document: Any) -> None:
        document["graph_module"]["graph"]["nodes"][0]["target"] = target

    content = edited(plain, lambda entries: graph(entries, forge))
    with pytest.raises((UnsupportedModelError, ArtifactError)):
        import_model(read(content))
    # As a stored model, which nobody imported.
    b = Builder()
    attrs = {"archive": np.frombuffer(content, np.uint8), "dtype": "float64", "width": 2}
    value = b.op("torch_module", b.input("x", "float64", 4), **attrs)
    forged = store.loads(store.dumps(b.build({"label": value})))
    with pytest.raises(SqlmlError):
        base.load_backend("torch").compile(forged).run({"x": np.ones((2, 4))})


def test_a_forged_catalog_row_calls_nothing_but_operators_of_tensors(tmp_path: Path) -> None:
    def forge(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        nodes[0]["target"] = "torch.ops.aten.from_file.default"

    database = str(tmp_path / "models.duckdb")
    with sqlml.connect(database) as con:
        con.create_model("m", Apply(OPAQUE["topk"]).double(), inputs=NAMES)
        (content,) = con.execute("SELECT content FROM sqlml.catalog_programs").fetchone()
        program = store.loads(content)
        nodes = []
        for node in program.nodes:
            if node.op == "torch_module":
                archive_bytes = node.attrs["archive"].tobytes()
                edited_bytes = edited(archive_bytes, lambda entries: graph(entries, forge))
                attrs = {**node.attrs, "archive": np.frombuffer(edited_bytes, np.uint8)}
                node = replace(node, attrs=freeze(attrs))
            nodes.append(node)
        forged = replace(program, nodes=tuple(nodes))
        assert forged != program
        row = [forged.hash, store.dumps(forged)]
        con.execute("UPDATE sqlml.catalog_programs SET hash = ?, content = ?", row)
        con.execute("UPDATE sqlml.catalog_versions SET program = ?", [forged.hash])
    with sqlml.connect(database) as con, pytest.raises(SqlmlError, match="from_file"):
        con.execute("SELECT predict('m', 1, 2, 3, 4)").fetchall()


def test_a_graph_that_makes_a_name_twice_is_refused(plain: bytes) -> None:
    def again(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        nodes.append(nodes[-1])

    with pytest.raises(ArtifactError, match="twice"):
        read(edited(plain, lambda entries: graph(entries, again)))


def test_stored_archives_that_are_damaged_end_in_one_error() -> None:
    module = Apply(OPAQUE["topk"]).double()
    node = next(n for n in import_model(module, NAMES).program if n.op == "torch_module")
    for attrs in (
        {"archive": np.zeros(10, np.uint8)},
        {"archive": node.attrs["archive"][:400]},
        {"width": 3},
    ):
        b = Builder()
        value = b.op("torch_module", b.input("x", "float64", 4), **{**node.attrs, **attrs})
        program = b.build({"label": value})
        with pytest.raises((ArtifactError, ScoringError)):
            base.load_backend("torch").compile(program).run({"x": np.ones((2, 4))})


def test_damaged_archives_end_in_one_error(plain: bytes) -> None:
    for content in (plain[:100], plain[:-30], b"PK\x03\x04", b"", b"hello"):
        with pytest.raises(ArtifactError):
            read(content, "TORCH")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/models/model.json", bytes(10 << 20))
    with pytest.raises(ArtifactError, match="unpack"):
        read(bomb.getvalue(), "TORCH")

    def longer(entries: dict[str, bytes]) -> None:
        (config,) = [n for n in entries if n.endswith("weights_config.json")]
        text = entries[config].replace(b'{"as_int": 4}', b'{"as_int": 400000000}')
        assert text != entries[config]
        entries[config] = text

    with pytest.raises(ArtifactError, match="shorter"):
        read(edited(plain, longer))

    def deep(entries: dict[str, bytes]) -> None:
        (name,) = [n for n in entries if "/models/" in n]
        entries[name] = b"[" * 100_000

    with pytest.raises(ArtifactError):
        read(edited(plain, deep))


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_compressed_entry_ends_in_one_error(plain: bytes, method: int) -> None:
    with zipfile.ZipFile(io.BytesIO(plain)) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.comment = b" " * 60_000  # so that the archive is as large as what it unpacks to
        for name, data in entries.items():
            file.writestr(name, data, method if "/models/" in name else zipfile.ZIP_STORED)
    with zipfile.ZipFile(out) as file:
        (model,) = [e for e in file.infolist() if "/models/" in e.filename]
    content = bytearray(out.getvalue())
    start = model.header_offset + 30 + len(model.filename)
    content[start : start + 40] = b"\xff" * 40
    with pytest.raises(ArtifactError):
        read(bytes(content), "TORCH")


@pytest.mark.by_day(2)
@pytest.mark.parametrize("mutants", [100, 1000])
def test_mutated_graphs_are_read_or_refused(mutants: int) -> None:
    rng = np.random.default_rng(3)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Softmax(1)).double()
    content = archive(exported(module, rows()))
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        (name,) = [n for n in file.namelist() if "/models/" in n]
        source = json.loads(file.read(name))
    whole = {k: source[k] for k in ("graph_module", "schema_version", "torch_version")}
    whole["graph_module"] = {k: whole["graph_module"][k] for k in ("graph", "signature")}
    odd = [None, -1, 0, 3, 1 << 70, 1e308, float("nan"), "", "linear", [], {}, True, [[1]]]

    def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        children: Any = []
        if isinstance(value, dict):
            children = value.items()
        elif isinstance(value, list):
            children = enumerate(value)
        return [path, *(p for key, child in children for p in places(child, (*path, key)))]

    found = places(whole)[1:]
    text = json.dumps(whole)
    for _ in range(mutants):
        document = json.loads(text)
        *path, last = found[rng.integers(len(found))]
        at = document
        for key in path:
            at = at[key]
        if rng.random() < 0.3:
            del at[last]
        else:
            at[last] = odd[rng.integers(len(odd))]

        def change(entries: dict[str, bytes], document: Any = document) -> None:
            entries[name] = json.dumps(document).encode()

        try:
            model = read(edited(content, change), "TORCH")
            program = import_model(model, NAMES).program
            ready = lower(program, "gemm")
            inputs = oracles.batch(program, np.ones((2, 4)), NAMES)
            base.load_backend("torch").compile(ready).run(inputs)
        except (ModelError, ConfigError, ScoringError):
            continue


def test_torchscript_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.jit.save(torch.jit.trace(nn.Linear(2, 1), torch.zeros(3, 2)), path)
    with pytest.raises(ArtifactError, match=r"this is TorchScript.*torch\.export\.save") as caught:
        read_exported(path.read_bytes())
    assert "torch.save wrote" not in str(caught.value)
    torch.save(nn.Linear(2, 1).state_dict(), path)
    with pytest.raises(ArtifactError, match="torch.save wrote this file"):
        read_exported(path.read_bytes())
