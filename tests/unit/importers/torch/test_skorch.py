"""Nets of skorch: the same labels and probabilities on every backend that runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import skorch
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import sqlml
from sqlml.backends import base
from sqlml.errors import UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.passes.lower import lower

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4)).astype(np.float32)
PLACES = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0.5)
QUIET = {"verbose": 0, "max_epochs": 3, "lr": 0.2}


def module(width: int, *last: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, width), *last)


class Flat(nn.Module):
    """A number a row, (n,), as BCELoss takes it, of rows of any dtype."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.inner = module(1, last)

    def forward(self, x: Any) -> Any:
        return self.inner(x.float()).squeeze(-1)


TWO = (PLACES > 0).astype(np.float32)
NETS: dict[str, Any] = {
    "softmax": lambda: skorch.NeuralNetClassifier(
        module(3), criterion=nn.CrossEntropyLoss, **QUIET
    ).fit(X, PLACES),
    "probabilities": lambda: skorch.NeuralNetClassifier(module(3, nn.Softmax(-1)), **QUIET).fit(
        X, PLACES
    ),
    "binary": lambda: skorch.NeuralNetBinaryClassifier(module(1), threshold=0.6, **QUIET).fit(
        X, TWO
    ),
    "bce": lambda: skorch.NeuralNetBinaryClassifier(
        Flat(nn.Sigmoid()), criterion=nn.BCELoss, **QUIET
    ).fit(X, TWO),
    "regressor": lambda: skorch.NeuralNetRegressor(module(2), **QUIET).fit(X, X[:, 2:] * 3),
    "no nonlinearity": lambda: skorch.NeuralNetClassifier(
        module(3), criterion=nn.CrossEntropyLoss, predict_nonlinearity=None, **QUIET
    ).fit(X, PLACES),
}


@pytest.mark.parametrize("name", NETS)
def test_a_net_answers_as_skorch_does(name: str) -> None:
    net = NETS[name]()
    program = import_model(net).program
    inputs = {f.name: X[:, i] for i, f in enumerate(program.features)}
    for backend in ("reference", "native", "torch"):
        ready = lower(program, "gemm") if backend == "torch" else program
        made = base.load_backend(backend).compile(ready).run(inputs)
        assert ("proba" in made) == (name != "regressor")
        label = made["label"]
        if program.labels:
            label = np.asarray(program.labels[0].values)[label]
        wanted = net.predict(X).reshape(len(X), -1)
        np.testing.assert_allclose(label, wanted, rtol=2e-5, atol=1e-6)
        if "proba" in made:
            np.testing.assert_allclose(made["proba"], net.predict_proba(X), rtol=2e-5, atol=1e-6)


def test_a_pipeline_with_a_net_scores_in_sql() -> None:
    net = skorch.NeuralNetBinaryClassifier(Flat(nn.Identity()), **QUIET)
    pipeline = make_pipeline(StandardScaler(), net).fit(X.astype(np.float64), TWO)
    with sqlml.connect() as con:
        con.register("t", pd.DataFrame(X, columns=list("abcd")))
        con.create_model("m", pipeline, inputs=list("abcd"))
        con.create_model("net", NETS["softmax"](), inputs=list("abcd"))  # checked against skorch
        labels = con.execute("SELECT predict('m', *) FROM t").fetchnumpy()
    np.testing.assert_array_equal(next(iter(labels.values())), pipeline.predict(X))


@pytest.mark.parametrize(
    ("net", "says"),
    [
        (skorch.NeuralNetClassifier(module(3)), "is not fitted"),
        (
            skorch.NeuralNetClassifier(
                module(3), predict_nonlinearity=torch.exp, criterion=nn.CrossEntropyLoss
            ).initialize(),
            "predict_nonlinearity .* is a Python function",
        ),
        (skorch.NeuralNetClassifier(module(1)).initialize(), "use NeuralNetBinaryClassifier"),
        (
            skorch.NeuralNetBinaryClassifier(module(1), criterion=nn.MSELoss).initialize(),
            "supported criteria: BCEWithLogitsLoss, BCELoss",
        ),
    ],
)
def test_what_is_refused(net: Any, says: str) -> None:
    with pytest.raises(UnsupportedModelError, match=says):
        import_model(net)
