"""torch modules: the same numbers as eager torch on every backend that runs them."""

from __future__ import annotations

from collections.abc import Callable
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
    BackendError,
    ConfigError,
    MissingValueError,
    UnknownCategoryError,
    UnsupportedModelError,
)
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from sqlml.passes.lower import lower
from sqlml.planner.program.choose import choose_way
from tests.support import oracles
from tests.support.torch_checks import (
    NAMES,
    OPAQUE,
    Apply,
    Mixed,
    archive,
    assert_same,
    exported,
    read,
    rows,
    trained,
)

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
    "transpose": lambda x: x.view(-1, 2, 2).transpose(1, 2).flatten(1),
    "permute": lambda x: x.view(x.size(0), 1, 2, 2).permute(0, 3, 1, 2).reshape(-1, 4),
    "deep cat": lambda x: torch.cat([x.view(-1, 2, 2)] * 2, 2).sum((1, 2), keepdim=True).squeeze(2),
    "deep stack": lambda x: torch.stack([x, -x, x * x], -1)[:, 1:3, 1:].flatten(1),
    "deep mean": lambda x: x.view(-1, 2, 2).mean((1, 2)), "deep max": lambda x:
    x.view(-1, 2, 2).amax(1), "deep argmax": lambda x: x.view(-1, 2, 2).argmax(2),
    "broadcast": lambda x: (x.view(-1, 2, 2) * x.view(-1, 2, 2)[:, :1] - 1).select(2, -1),
    "deep where": lambda x: torch.where(x.view(-1, 2, 2) > 0, x.unsqueeze(1)[:, :, :1], 0).sum(2),
    "deep prelu": lambda x: F.prelu(x.view(-1, 2, 2), x.new_tensor([0.1])).amin(2),
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


@pytest.mark.by_day(2)
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


def relu_of(x: Any) -> Any:
    """What a dropout that is off returns is `x` itself, so this overwrites `x`."""
    return F.relu_(F.dropout(x, training=False))


def overwritten(x: Any) -> Any:
    dropped = F.dropout(x, training=False)
    F.relu_(x)
    return dropped


@pytest.mark.nightly
def test_a_dropout_that_is_off_shares_its_memory_with_operators_in_place() -> None:
    torch.manual_seed(0)
    alone = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.ReLU(inplace=True)).double()
    alone.eval()
    assert_same(alone, alone, rows())
    for function in (lambda h: relu_of(h) + h, overwritten):
        module = Apply(function).double()
        assert_same(module, module, rows(), opaque=True)
        assert_same(read(archive(exported(module, rows()))), module, rows(), opaque=True)


def test_other_functions_stay_whole_and_run_on_torch_alone() -> None:
    torch.manual_seed(0)
    module = Everything(OPAQUE).double()
    imported = assert_same(module, module, rows(), opaque=True)
    assert choose_way(imported.program, {}).backend == "torch"
    assert base.load_backend("torch").supports(imported.program) is None
    with pytest.raises(BackendError, match="'torch'"):
        base.load_backend("native").compile(imported.program)


@pytest.mark.by_day(2)
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


def test_a_module_that_answers_otherwise_in_training_is_taken_after_eval_alone() -> None:
    for layer in (nn.BatchNorm1d(4), nn.Dropout(0.1), nn.RReLU(), nn.AlphaDropout()):
        module = nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 1)).double()
        with pytest.raises(UnsupportedModelError, match=r"training mode.*call its eval\(\)"):
            import_model(module, NAMES)
        if not isinstance(layer, nn.RReLU):
            assert_same(module.eval(), module, rows())
    for layer in (nn.LayerNorm(4), nn.Dropout(0.0)):
        module = nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 1)).double()
        assert_same(module, module, rows())


def test_training_mode_is_left_as_it_was() -> None:
    x = rows()
    module = trained(Mixed().double(), x)
    module.layer.train()
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
    for module in (convolution.double(), attention.double().eval()):
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
    assert not imported.is_named
    assert imported.library == f"torch {torch.__version__.partition('+')[0]}" or (
        imported.library.startswith("torch ")
    )
    with pytest.raises(ConfigError, match="inputs"):
        import_model(Mixed().eval())
    assert import_model(Mixed().eval(), NAMES).is_named
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
        assert imported.is_named
        got = reference.run(imported.program, oracles.batch(imported.program, table))["label"]
        np.testing.assert_allclose(got, module(wide).detach(), rtol=1e-9, atol=1e-12)
    with pytest.raises(UnsupportedModelError, match="step 'linear'"):
        import_model(make_pipeline(StandardScaler().fit(wide), nn.Linear(99, 1)))


class Apply2(nn.Module):
    """What the IR has no operator for."""

    def forward(self, x: Any) -> Any:
        return x.topk(2, 1).values


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


class Raises(nn.Module):
    def forward(self, x: Any) -> Any:
        raise ValueError


REFUSED = {
    "depend on each|other rows": Across(),
    "rand": Dice(),
    "cannot trace": Branch(),
    "one tensor": Pair(),
    r"\.float\(\)": nn.Linear(4, 1).half(),
    "TorchScript": torch.jit.trace(nn.Linear(4, 1), torch.zeros(2, 4)),
    r"ValueError: without a message": Raises(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_sql_cannot_say_is_refused_with_the_reason(reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(REFUSED[reason], NAMES)


def test_an_export_for_a_fixed_number_of_rows_names_the_fix() -> None:
    program = torch.export.export(nn.Linear(4, 1), (torch.zeros(3, 4),))
    with pytest.raises(UnsupportedModelError, match="dynamic_shapes"):
        import_model(program, NAMES)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_modules_run_on_a_gpu() -> None:
    x = rows()
    for module in (trained(Mixed().double(), x).eval(), Apply(OPAQUE["topk"]).double()):
        program = import_model(module, NAMES).program
        inputs = oracles.batch(program, x.numpy(), NAMES)
        got = base.load_backend("torch").compile(lower(program, "gemm"), device="cuda").run(inputs)
        want = module(x).detach().numpy().reshape(len(x), -1)
        np.testing.assert_allclose(got["label"], want, rtol=1e-9, atol=1e-12)
