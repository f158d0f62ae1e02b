"""torch modules to import, their archives, and the check that a Program gives what they give."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from sqlml.backends import base
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir import store
from sqlml.passes.lower import lower
from tests.support import oracles

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
        got = base.load_backend(backend).compile(ready).run(inputs)["label"]
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound)
        for n in (0, 1):
            few = (
                base.load_backend(backend).compile(ready).run({k: v[:n] for k, v in inputs.items()})
            )
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
    return module.eval()


OPAQUE: dict[str, Callable[[Any], Any]] = {
    "topk": lambda x: x.topk(2, 1).values,
    "cumsum": lambda x: x.cumsum(1),
    "norm": lambda x: F.normalize(x),
    "prod": lambda x: x.prod(1),
}
