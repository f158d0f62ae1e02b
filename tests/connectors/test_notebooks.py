"""Notebooks run: docs/notebook.ipynb, the magics, and JupySQL on a session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import pytest

import sqlml

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


def html_of(notebook: Any, cell: int) -> str:
    """Return the last output of a cell as HTML."""
    html: str = notebook.cells[cell].outputs[-1]["data"]["text/html"]
    return html


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
        ("columns read      visits ", "<pre "),
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


WIDE = """
import numpy as np
X = np.arange(60.0).reshape(-1, 1)
con.create_model("wide", SGDClassifier(loss="log_loss").fit(X, [f"class {i}" for i in range(60)]),
                 inputs=["a"])
con.execute("CREATE TABLE t AS FROM range(3) r(a)")
"""


TRAIN = """
from sqlml import long_work
from sqlml.training import progress
long_work.PATIENCE = progress.MIN_SECONDS = 0.0
con.execute("CREATE TABLE r AS SELECT hash(i) % 97 AS a, hash(i, 2) % 2 AS y FROM range(3000) t(i)")
con.train("f", "random_forest_classifier", "FROM r", label="y", n_estimators=20)
con.train("b", "boosted_tree_classifier", "FROM r", label="y", n_estimators=20)
None
"""

CHROMIUM = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_a_plan_is_readable_in_an_exported_page() -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    with sqlml.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 1.0 AS a")
        pages = [
            con.sql("EXPLAIN SELECT a FROM t")._repr_mimebundle_()["text/html"],
            con.explain("SELECT a FROM t")._repr_html_(),
        ]
    style = "<style>* { font-family: serif } pre { white-space: pre-wrap }</style>"
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        for html in pages:
            page.set_content(style + html)
            computed = "getComputedStyle(document.querySelector('pre'))"
            assert page.evaluate(f"{computed}.fontFamily") == "monospace"
            assert page.evaluate(f"{computed}.whiteSpace") == "pre"
        browser.close()


def test_what_cells_show(tmp_path: Path) -> None:
    notebook = cells(
        MODEL + "from sklearn.linear_model import SGDClassifier" + WIDE,
        "con.execute('SHOW MODELS')\ncon.sql('SELECT predict(\\'m\\', *) AS p FROM t')",
        "con.sql('EXPLAIN SELECT predict(\\'m\\', *) FROM t')",
        "con.sql(' explain SELECT a FROM t')",
        "con.sql('SELECT predict_proba(\\'wide\\', *) AS p FROM t')",
        "sqlml.compile(SGDClassifier(loss='log_loss').fit(X[:2], ['no', 'yes']), inputs=['a'])",
        "print(repr(_))",
        "%load_ext sqlml\n%sqlml con",
        "%%sqlml\nSELECT 1;\n\nSELECT predict('m', b := 1)",
        "%%sqlml\nSELECT nope FROM t",
        "%%sqlml\nSELECT predict('m', *) FROM t",
        TRAIN,
    )
    _, shown, _, plain, _, _, scorer, _, wrong, foreign, healed, trained = run(notebook, tmp_path)
    assert "no" in shown and "Resource" not in shown
    table = html_of(notebook, 4)
    visible = re.sub(r'title="[^"]*"', "", table)
    assert "class 0" in visible and "class 59" not in visible and "class 59" in table
    assert "<pre" in plain and "columns read" in html_of(notebook, 2)
    assert "Scorer(features=['a'], outputs=[" in scorer and "classes=['no', 'yes']" in scorer
    assert "<td" in healed
    assert "b" in wrong and "nope" in foreign
    for cell, name, words in ((8, "BindError", "in line 3 of the cell"), (9, "Binder", "nope")):
        (error,) = [o for o in notebook.cells[cell].outputs if o.output_type == "error"]
        trace = "\n".join(error["traceback"])
        assert trace.startswith(name) and words in trace
        assert len(trace.splitlines()) < 12 and "ipython_magic" not in trace
    outputs = notebook.cells[11].outputs
    assert not [o for o in outputs if o.get("name") == "stderr"], outputs
    assert "IProgress" not in trained


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
