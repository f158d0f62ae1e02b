"""torch modules: the same numbers as eager torch, files read without torch, nothing unpickled."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.compose import make_column_transformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from sqlml.backends import base
from sqlml.errors import (
    ArtifactError,
    BackendError,
    ConfigError,
    MissingValueError,
    ModelError,
    ScoringError,
    SqlmlError,
    UnknownCategoryError,
    UnsupportedModelError,
)
from sqlml.importers.artifact import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir import reference, store
from sqlml.ir.builder import Builder
from sqlml.passes.lower import lower
from sqlml.planner.choice import choose
from tests import oracles

NAMES = ["a", "b", "c", "d"]
BOUND = {torch.float32: 2e-5, torch.float64: 1e-12}


def rows(count: int = 60, dtype: torch.dtype = torch.float64) -> Any:
    """Numbers of both signs, zeros, large ones, and a last column of small whole numbers."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(count, 4)) * rng.choice([0.0, 0.1, 1.0, 1.0, 30.0], (count, 1))
    x[:, 3] = rng.integers(0, 7, count)
    return torch.from_numpy(x).to(dtype)


def read(content: bytes, format: str = "auto") -> Any:
    return read_artifact(content, format=format, path="net.pt2", allow_pickle=False)


def exported(module: nn.Module, *examples: Any) -> Any:
    batch = torch.export.Dim("rows", min=1)
    shapes = tuple({0: batch} for _ in examples)
    return torch.export.export(module.eval(), examples, dynamic_shapes=shapes)


def archive(program: Any) -> bytes:
    content = io.BytesIO()
    torch.export.save(program, content)
    return content.getvalue()


def assert_same(model: Any, module: nn.Module, x: Any, *, opaque: bool = False) -> Any:
    """The reference and torch backends give what the module gives."""
    imported = import_model(model, NAMES)
    program = imported.program
    assert ("torch_module" in {n.op for n in program}) == opaque
    assert store.loads(store.dumps(program)).hash == program.hash
    with torch.no_grad():
        want = module.eval()(x).numpy().reshape(len(x), -1)
    inputs = oracles.batch(program, x.numpy(), NAMES)
    bound = BOUND[x.dtype]
    for backend in ("reference", "torch") if opaque else ("reference", "native", "torch"):
        ready = lower(program, "gemm") if backend == "torch" else program
        got = base.load(backend).compile(ready).run(inputs)["label"]
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound)
        for n in (0, 1):
            few = base.load(backend).compile(ready).run({k: v[:n] for k, v in inputs.items()})
            assert few["label"].shape == (n, want.shape[1])
            np.testing.assert_allclose(few["label"], got[:n], rtol=bound, atol=bound)
    return imported


class Apply(nn.Module):
    """A linear layer and a function behind it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.layer(x))


COVERED: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu, "relu6": F.relu6, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    "elu": lambda x: F.elu(x, 0.7), "selu": F.selu, "celu": lambda x: F.celu(x, 1.3),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "softplus": lambda x: F.softplus(x, 2, 5),
    "hardtanh": F.hardtanh, "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish,
    "mish": F.mish, "logsigmoid": F.logsigmoid, "softsign": F.softsign,
    "softmax": lambda x: F.softmax(x, 1), "log_softmax": lambda x: F.log_softmax(x, -1),
    "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(-1, keepdim=True),
    "max": lambda x: x.amax(1), "min": lambda x: x.amin(1, keepdim=True),
    "argmax": lambda x: x.argmax(1), "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp one side": lambda x: x.clamp(min=0.1), "where": lambda x: torch.where(x > 0, x, x * x),
    "where a number": lambda x: torch.where(x > 0, 1.0, x),
    "arithmetic": lambda x: (2 * x - 1) / (x.abs() + 1) ** 2 + x[:, :1] * x[:, -1:],
    "columns": lambda x: x[:, 1] - x[:, 0].tanh(),
    "stack": lambda x: torch.stack([x[:, 0], x[:, 1]], 1), "flatten": lambda x:
    x.unsqueeze(1).flatten(1), "view": lambda x: x.view(x.size(0), 2, 2).sum(2),
    "chunk": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), "unbind": lambda x: x.unbind(1)[2],
    "sign": torch.sign, "rsqrt": lambda x: torch.rsqrt(x.square() + 1), "cosine": torch.cos,
    "compare": lambda x: (x > 0) & (x <= 1), "float of bool": lambda x: (x >= 0).float(),
    "whole numbers": lambda x: (x * 3).to(torch.int64) + 1, "rsub": lambda x: 1 - x,
    "power": lambda x: (x**3).tanh() + 1 / (x.abs() + 1),
}  # fmt: skip


class Everything(nn.Module):
    """What all the functions make of one linear layer, side by side."""

    def __init__(self, functions: dict[str, Callable[[Any], Any]]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.functions = functions

    def forward(self, x: Any) -> Any:
        h = self.layer(x)
        made = [f(h).to(x.dtype) for f in self.functions.values()]
        return torch.cat([m.unsqueeze(1) if m.dim() == 1 else m for m in made], 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_become_operators_that_every_backend_runs(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Everything(COVERED).to(dtype)
    assert_same(module, module, rows(dtype=dtype))


def test_operators_in_place_are_taken_where_nobody_sees_it() -> None:
    torch.manual_seed(0)
    module = Apply(lambda h: F.relu_(h)).double()
    assert_same(module, module, rows())
    seen = Apply(lambda h: h[:, 0] + F.relu_(h)[:, 1]).double()
    program = import_model(seen, NAMES).program
    got = reference.run(program, oracles.batch(program, rows().numpy(), NAMES))["label"]
    np.testing.assert_allclose(got[:, 0], seen(rows()).detach(), rtol=1e-12)


OPAQUE: dict[str, Callable[[Any], Any]] = {
    "topk": lambda x: x.topk(2, 1).values,
    "cumsum": lambda x: x.cumsum(1),
    "norm": lambda x: F.normalize(x),
    "prod": lambda x: x.prod(1),
}


def test_other_functions_stay_whole_and_run_on_torch_alone() -> None:
    torch.manual_seed(0)
    module = Everything(OPAQUE).double()
    imported = assert_same(module, module, rows(), opaque=True)
    assert choose(imported.program, {}).backend == "torch"
    assert base.load("torch").supports(imported.program) is None
    with pytest.raises(BackendError, match="'torch'"):
        base.load("native").compile(imported.program)


class Mixed(nn.Module):
    """A bit of everything: an embedding, normalisation of both kinds, dropout, a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.first = nn.Linear(6, 5)
        self.batch = nn.BatchNorm1d(5)
        self.layer = nn.LayerNorm(5)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(5, 1)

    def forward(self, x: Any) -> Any:
        h = torch.cat([x[:, :3], self.embedding(x[:, 3].long())], dim=1)
        h = self.layer(self.drop(F.relu(self.batch(self.first(h)))))
        return torch.sigmoid(self.last(F.gelu(h))).squeeze(-1)


def trained(module: nn.Module, x: Any) -> nn.Module:
    """With running statistics that are not those of a new module."""
    module.train()
    for _ in range(5):
        module(x)
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = rows(dtype=dtype)
    mixed = trained(Mixed().to(dtype), x)
    deep = nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(16, 16, bias=False), nn.PReLU(16), nn.Linear(16, 3), nn.Softmax(dim=-1),
    )  # fmt: skip
    deep = trained(deep.to(dtype), x)
    for module in (mixed, deep):
        assert_same(module, module, x)
        if dtype == torch.float32:
            continue
        program = exported(module, x)
        assert_same(read(archive(program)), module, x)
        assert_same(program.run_decompositions(), module, x)


def test_training_mode_is_left_as_it_was() -> None:
    x = rows()
    module = trained(Mixed().double(), x)
    before = [m.training for m in module.modules()]
    statistics = module.batch.running_mean.clone()
    import_model(module, NAMES)
    assert [m.training for m in module.modules()] == before
    assert torch.equal(module.batch.running_mean, statistics)


def test_layers_with_several_axes_stay_whole() -> None:
    torch.manual_seed(0)
    convolution = nn.Sequential(
        nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(9, 1)
    )
    attention = nn.Sequential(
        nn.Unflatten(1, (4, 1)), nn.Linear(1, 4),
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip
    for module in (convolution.double(), attention.double()):
        assert_same(module, module, rows(), opaque=True)


def test_what_a_module_returns_is_the_label() -> None:
    x = rows()
    for width in (1, 3):
        module = nn.Linear(4, width).double()
        program = import_model(module, NAMES).program
        assert tuple(program.outputs) == ("label",)
        assert program.output_type("label").width == width
        assert not program.labels
    flags = Apply(lambda h: h[:, 0] > 0).double()
    program = import_model(flags, NAMES).program
    assert program.output_type("label").dtype == "float64"
    got = reference.run(program, oracles.batch(program, x.numpy(), NAMES))["label"]
    assert set(got.ravel()) == {0.0, 1.0}


def test_number_of_columns_comes_from_the_first_layer_or_from_the_user() -> None:
    imported = import_model(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    assert [f.name for f in imported.features] == ["x0", "x1", "x2"]
    assert not imported.named
    assert imported.library == f"torch {torch.__version__.partition('+')[0]}" or (
        imported.library.startswith("torch ")
    )
    with pytest.raises(ConfigError, match="inputs"):
        import_model(Mixed())
    assert import_model(Mixed(), NAMES).named
    with pytest.raises(UnsupportedModelError, match="for 2 columns"):
        import_model(nn.Linear(3, 1), ["a", "b"])


class Two(nn.Module):
    """Two inputs: numbers, and codes for an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 2)
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Any, codes: Any) -> Any:
        return self.layer(torch.cat([x, self.embedding(codes).flatten(1)], 1))


def test_several_inputs_take_the_columns_in_their_order() -> None:
    module = Two().double()
    x = rows()
    numbers, codes = x[:, :2], x[:, 3:].long()
    program = exported(module, numbers, codes)
    for model in (program, read(archive(program))):
        imported = import_model(model, ["p", "q", "code"])
        batch = {"p": numbers[:, 0], "q": numbers[:, 1], "code": codes[:, 0]}
        inputs = {k: v.numpy() for k, v in batch.items()}
        got = reference.run(imported.program, inputs)["label"]
        np.testing.assert_allclose(got, module(numbers, codes).detach(), rtol=1e-12)
        with pytest.raises(UnknownCategoryError):
            reference.run(imported.program, {**inputs, "code": inputs["code"] + 7})
        with pytest.raises(MissingValueError, match="code"):
            gone = np.full(len(x), np.nan)
            reference.run(imported.program, {**inputs, "code": gone})


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_columns_are_cast_to_what_the_module_reads(dtype: str) -> None:
    module = nn.Linear(4, 1).double()
    x = np.abs(rows().numpy()).astype(dtype)
    program = import_model(module, NAMES).program
    got = reference.run(program, oracles.batch(program, x, NAMES))["label"]
    want = module(torch.from_numpy(x.astype(np.float64))).detach()
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_nan_and_infinity_go_through_as_in_torch() -> None:
    x = rows(8)
    x[0, 0], x[1, 1], x[2, 2] = np.nan, np.inf, -np.inf
    for function in (F.relu, torch.tanh, F.gelu, lambda h: h.clamp(0, 1), torch.sign, F.elu):
        module = Apply(function).double()
        program = import_model(module, NAMES).program
        got = reference.run(program, oracles.batch(program, x.numpy(), NAMES))["label"]
        np.testing.assert_allclose(got, module(x).detach(), rtol=1e-9, atol=1e-12)


def test_a_module_is_the_last_step_of_a_pipeline() -> None:
    torch.manual_seed(0)
    table = oracles.mixed_frame(300, nulls=0)
    columns = ["age", "income", "city"]
    prepare = make_column_transformer(
        (StandardScaler(), ["age", "income"]), (OneHotEncoder(), ["city"])
    )
    wide = prepare.fit_transform(table[columns])
    wide = torch.from_numpy(np.asarray(wide.todense() if hasattr(wide, "todense") else wide))
    for module in (
        nn.Sequential(nn.Linear(wide.shape[1], 8), nn.ReLU(), nn.Linear(8, 1)).double(),
        nn.Sequential(nn.Linear(wide.shape[1], 8), Apply2()).double(),
    ):
        pipeline = Pipeline([("prepare", prepare), ("net", module)])
        imported = import_model(pipeline)
        assert imported.named
        got = reference.run(imported.program, oracles.batch(imported.program, table))["label"]
        np.testing.assert_allclose(got, module(wide).detach(), rtol=1e-9, atol=1e-12)
    with pytest.raises(UnsupportedModelError, match="step 'linear'"):
        import_model(make_pipeline(StandardScaler().fit(wide), nn.Linear(99, 1)))


class Apply2(nn.Module):
    """What the IR has no operator for."""

    def forward(self, x: Any) -> Any:
        return x.topk(2, 1).values


# What is refused


class Across(nn.Module):
    def forward(self, x: Any) -> Any:
        return x - x.mean(0)


class Dice(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + torch.rand_like(x)


class Branch(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


class Pair(nn.Module):
    def forward(self, x: Any) -> Any:
        return x, x + 1


REFUSED = {
    "depend on each|other rows": Across(),
    "rand": Dice(),
    "cannot trace": Branch(),
    "one tensor": Pair(),
    r"\.float\(\)": nn.Linear(4, 1).half(),
    "TorchScript": torch.jit.trace(nn.Linear(4, 1), torch.zeros(2, 4)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_sql_cannot_say_is_refused_with_the_reason(reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(REFUSED[reason], NAMES)


def test_an_export_for_a_fixed_number_of_rows_names_the_fix() -> None:
    program = torch.export.export(nn.Linear(4, 1), (torch.zeros(3, 4),))
    with pytest.raises(UnsupportedModelError, match="dynamic_shapes"):
        import_model(program, NAMES)


# Files

WITHOUT = """
import sys
sys.modules["torch"] = None
import numpy as np
from sqlml.importers.artifact import read_artifact
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
        base.load("torch").compile(forged).run({"x": np.ones((2, 4))})


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
            base.load("torch").compile(program).run({"x": np.ones((2, 4))})


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


def test_mutated_graphs_are_read_or_refused() -> None:
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
    for _ in range(400):
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
            base.load("torch").compile(ready).run(inputs)
        except (ModelError, ConfigError, ScoringError):
            continue


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_modules_run_on_a_gpu() -> None:
    x = rows()
    for module in (trained(Mixed().double(), x).eval(), Apply(OPAQUE["topk"]).double()):
        program = import_model(module, NAMES).program
        inputs = oracles.batch(program, x.numpy(), NAMES)
        got = base.load("torch").compile(lower(program, "gemm"), device="cuda").run(inputs)
        want = module(x).detach().numpy().reshape(len(x), -1)
        np.testing.assert_allclose(got["label"], want, rtol=1e-9, atol=1e-12)
