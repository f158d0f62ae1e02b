"""Notebooks run: docs/notebook.ipynb, the magics, and JupySQL on a session."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

DOCS = Path(__file__).parents[2] / "docs"

MODEL = """
import pandas as pd, sqlml
from sklearn.linear_model import LogisticRegression
con = sqlml.connect()
con.create_model("m", LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"]), inputs=["a"])
frame = pd.DataFrame({"a": [0.0, 1.0]})
"""


def run(notebook: Any, folder: Path) -> list[str]:
    """What each cell of code shows: its texts, HTML and errors."""
    client = nbclient.NotebookClient(
        notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [
        "\n".join(map(_shown, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"
    ]


def _shown(output: Any) -> str:
    data = output.get("data") or {"": output.get("text") or output.get("evalue")}
    return "\n".join(map(str, data.values()))


def cells(*codes: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in codes])


def test_the_page(tmp_path: Path) -> None:
    notebook = nbformat.read(DOCS / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    shown = run(notebook, tmp_path)
    expected: Sequence[tuple[str, ...]] = (
        ("<table>", "churn", "DuckDB"),
        ("<table>", "input 1", "visits DOUBLE", "Pipeline"),
        (),
        ("<table", "churn", "yes", "no"),
        (),
        ("visits",),
        ("&rarr;", "in SQL", "columns read"),
        ("columns read      visits ", "<pre>"),
        ("<table", "roc_auc", "accuracy"),
        ("<table>", "label, score, proba", "visits, age", "no, yes"),
        ("<table>", "roc_auc", "log_loss"),
        ("<table>", "visits", "\N{FULL BLOCK}", "500 rows, 2 columns"),
    )
    for cell, words in zip(shown, expected, strict=True):
        assert all(word in cell for word in words), (words, cell)


def test_magics(tmp_path: Path) -> None:
    *_, frames, stored, kept, changed, dropped, wrong, opened, found, held, usage = run(
        cells(
            MODEL,
            "%load_ext sqlml",
            "%sqlml con",
            "%%sqlml\nSELECT a, predict('m', *) AS p FROM frame",
            "%%sqlml -o kept\nCREATE TABLE t AS FROM frame;\nFROM t ORDER BY a",
            "kept.fetchall()",
            "%%sqlml\nINSERT INTO t FROM t",
            "%%sqlml\nDROP MODEL m",
            "%%sqlml\nSELECT predict('m', *) FROM frame",
            "%sqlml shop.duckdb",
            "%%sqlml\nSELECT count(*) AS models FROM sqlml.models",
            "import duckdb\nplain = duckdb.connect()\n%sqlml plain",
            "%sqlml frame",
        ),
        tmp_path,
    )
    assert "yes" in frames and "<td>" in frames
    assert stored.strip() == "2 rows"
    assert kept == "[(0.0,), (1.0,)]"
    assert (changed.strip(), dropped.strip()) == ("2 rows", "dropped model m")
    assert "unknown model 'm'" in wrong
    assert "shop.duckdb" in opened and "no models yet" in opened
    assert "sqlml.models" in found or "models" in found
    assert "in memory" in held
    assert "frame: attach takes a DuckDB connection" in usage


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("sql") is None, reason="needs JupySQL")
def test_jupysql(tmp_path: Path) -> None:
    # It asks for grpcio where it finds pyspark.
    without_spark = "import sys\nsys.modules['pyspark'] = None\n"
    *_, scored, models = run(
        cells(
            without_spark + MODEL + "con.execute('CREATE TABLE t AS FROM frame')\n",
            "%load_ext sql",
            "%sql con --alias shop",
            "%sql SELECT predict('m', *) AS p FROM t",
            "%sql SHOW MODELS",
        ),
        tmp_path,
    )
    assert "yes" in scored and "LogisticRegression" in models
