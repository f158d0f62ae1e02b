"""ONNX files that a converter made for one number of rows: read as open, which is said."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.linear_model import LogisticRegression

import sqlml
from sqlml.backends import base
from sqlml.errors import UnsupportedModelError
from tests.support.onnx_checks import graph, load, node, theirs

X = np.random.default_rng(0).normal(size=(21, 12)).astype(np.float32)


def ours(content: bytes, output: str) -> np.ndarray:
    """What sqlml makes of all rows at once."""
    with pytest.warns(UserWarning, match="exported for .* rows at a time; sqlml imports it for"):
        program = load(content).program
    assert not any(n.op == "onnx_graph" for n in program)
    feed = {name: X[:, i].astype(np.float64) for i, name in enumerate(program.inputs)}
    return base.load_backend("native").compile(program).run(feed)[output]


def by_batches(content: bytes, rows: int) -> np.ndarray:
    """What onnxruntime makes of them, so many at a time."""
    parts = [X[np.arange(start, start + rows) % len(X)] for start in range(0, len(X), rows)]
    return np.concatenate([theirs(content, {"x": part})[0] for part in parts])[: len(X)]


@pytest.mark.parametrize("rows", [1, 8])
def test_their_number_among_the_constants_means_any_number_too(rows: int) -> None:
    nodes = [
        node("Reshape", "x cube", "a"),
        node("ReduceSum", "a axis", "b", keepdims=1),
        node("Expand", "b wide", "c"),
        node("Reshape", "c flat", "y"),
    ]
    constants = {
        "cube": np.array([rows, 3, 4]),
        "axis": np.array([2]),
        "wide": np.array([rows, 3, 2]),
        "flat": np.array([rows, -1]),
    }
    content = graph(nodes, {"x": ("float32", (rows, 12))}, {"y": "float32"}, constants)
    made = ours(content, "transform")
    np.testing.assert_allclose(made, by_batches(content, rows), rtol=1e-5, atol=1e-5)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(12, 8), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.first(x).relu().view(x.size(0), 2, 4)
        return self.last((parts * 2).view(x.size(0), -1))


def test_what_torch_writes() -> None:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter needs no other package, and is old
        torch.onnx.export(
            Net().eval(), (torch.zeros(8, 12),), file, input_names=["x"], dynamo=False
        )
    content = file.getvalue()
    made = ours(content, "transform")
    np.testing.assert_allclose(made, by_batches(content, 8), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 8])
def test_a_classifier_scores_any_rows_and_verifies(rows: int, tmp_path: Path) -> None:
    model = LogisticRegression().fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    kinds = [("x", FloatTensorType([rows, 12]))]
    made: Any = to_onnx(model, initial_types=kinds, options={"zipmap": False})
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    columns = [f"c{i}" for i in range(12)]
    con = sqlml.connect()
    con.register("t", pa.table(dict(zip(columns, X.T, strict=True))))
    declared = ", ".join(f"{c} DOUBLE" for c in columns)
    with pytest.warns(UserWarning, match="exported for"):
        con.execute(f"CREATE MODEL m INPUT ({declared}) FROM '{path}'")
    labels = [r[0] for r in con.execute("SELECT predict('m', *) FROM t").fetchall()]
    assert labels == list(model.predict(X))
    ((library,),) = con.execute("SELECT library FROM sqlml.models").fetchall()
    assert library.endswith(f"made for {rows} rows and read as open")
    con.execute("VERIFY MODEL m USING (FROM t)").fetchall()


def test_a_graph_that_only_onnxruntime_runs_is_opened_too() -> None:
    content = graph(
        [node("Hardmax", "x", "a", axis=1)], {"x": ("float32", (4, 12))}, {"a": "float32"}
    )
    with pytest.warns(UserWarning, match="exported for 4 rows"):
        program = load(content).program
    assert any(n.op == "onnx_graph" for n in program)
    feed = {name: X[:, i].astype(np.float64) for i, name in enumerate(program.inputs)}
    made = base.load_backend("onnxruntime").compile(program).run(feed)["transform"]
    np.testing.assert_array_equal(made, by_batches(content, 4))


def test_other_axes_that_are_fixed_are_refused() -> None:
    """Three numbers may be three rows, or the columns of one."""
    for inputs in (
        {"x": ("float32", (3,))},
        {"x": ("float32", (2, 3)), "z": ("float32", (4, 3))},
    ):
        content = graph([node("Relu", "x", "y")], inputs, {"y": None})
        with pytest.raises(UnsupportedModelError, match="export it with an open first axis"):
            load(content)
