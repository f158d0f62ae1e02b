"""Catalog rows that an attacker or a fault wrote: an error of ours, or a model that works."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from skl2onnx import to_onnx
from sklearn.neighbors import KNeighborsRegressor

import sqlml
from sqlml import errors
from sqlml.ir import store
from sqlml.ir.program import freeze
from tests.support.forged_rows import findings

NIGHTLY = 60_000
"""With 40,000 stored Programs (tests/contract/test_damaged_files.py) a hundred thousand."""


@pytest.mark.parametrize("first", [0])
def test_a_forged_row_is_refused_or_works(first: int) -> None:
    assert findings(first, first + 100) == []


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(200, NIGHTLY, 5980))
def test_many_forged_rows_in_a_process_of_their_own(first: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.forged_rows", str(first), str(first + 5980)],
        capture_output=True,
        text=True,
        timeout=3600,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == ""


def test_a_stored_onnx_graph_reads_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime would read weights from files of the working directory."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    proto = to_onnx(KNeighborsRegressor(3, metric="manhattan").fit(x, x[:, 0]), x[:1])
    database = str(tmp_path / "models.duckdb")
    with sqlml.connect(database) as con:
        con.create_model("m", proto)
        (content,) = con.execute("SELECT content FROM sqlml.catalog_programs").fetchone()
        program = store.loads(content)
        forged = replace(
            program,
            nodes=tuple(
                replace(node, attrs=freeze({**node.attrs, "model": outside(node.attrs["model"])}))
                if node.op == "onnx_graph"
                else node
                for node in program.nodes
            ),
        )
        row = [forged.hash, store.dumps(forged)]
        con.execute("UPDATE sqlml.catalog_programs SET hash = ?, content = ?", row)
        con.execute("UPDATE sqlml.catalog_versions SET program = ?", [forged.hash])
    config = {"enable_external_access": "false"}
    for query in ("SELECT predict('m', 1, 2)", "VERIFY MODEL m USING (SELECT 1 AS X_0, 2 AS X_1)"):
        with sqlml.connect(database, config=config) as con:
            with pytest.raises(errors.ArtifactError, match="weights in other files"):
                con.execute(query).fetchall()


def outside(model: np.ndarray) -> np.ndarray:
    """The bytes of a model whose largest weight is in a file, which is written."""
    proto = onnx.ModelProto.FromString(model.tobytes())
    tensor = max(proto.graph.initializer, key=lambda t: t.ByteSize())
    content = onnx.numpy_helper.to_array(tensor).tobytes()
    Path("secret.bin").write_bytes(content)
    for field in ("raw_data", "float_data", "int64_data"):
        tensor.ClearField(field)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.bin")
    return np.frombuffer(proto.SerializeToString(), np.uint8)
