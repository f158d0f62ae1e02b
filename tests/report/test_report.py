"""`con.report`: what the page says is what the rows and the libraries say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.neighbors import KernelDensity, KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml import errors
from sqlml.report import subject as subjects
from sqlml.report.make_report import Report
from tests.report.page import Page
from tests.support.evaluated_models import ROWS, evaluated_models


@pytest.fixture(scope="module")
def zoo() -> Iterator[sqlml.Session]:
    with evaluated_models() as con:
        for name, model in {
            "neighbours": KNeighborsClassifier(3).fit(ROWS[["a", "b"]], ROWS.answer),
            "scaler": StandardScaler().fit(ROWS[["a", "b"]]),
            "density": KernelDensity().fit(ROWS[["a", "b"]]),
        }.items():
            con.create_model(name, model, verify=False)
        yield con


def temporary_tables(con: sqlml.Session) -> int:
    ask = "SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE 'sqlml_report%'"
    (found,) = con.connection.execute(ask).fetchall()
    return int(found[0])


def test_a_trained_classifier(con: sqlml.Session) -> None:
    page = Page(con.report("churn", "customers", by="region").html)
    rows = con.sql(
        "SELECT churned, predict('churn', *), predict_proba('churn', *)['yes'] FROM customers "
        "WHERE churned IS NOT NULL"
    ).fetchall()
    truth, label, score = zip(*rows, strict=True)
    metrics = page.pairs("Metrics")
    assert metrics["ROC AUC"] == f"{roc_auc_score(np.array(truth) == 'yes', score):.4f}"
    assert metrics["Accuracy"] == f"{accuracy_score(truth, label):.4f}"
    assert "7 rows without a label are left out" in page.text
    assert "was trained on rows of customers, so it has seen some of these rows" in page.text
    con.execute("CREATE OR REPLACE TEMP TABLE newer AS FROM customers")
    assert "has seen some" not in Page(con.report("churn", "newer").html).text
    groups = page.columns("Groups")
    assert sorted(groups["region"]) == ["it's", "north", "south"]
    counts = [int(rows.replace(",", "")) for rows in groups["Rows"]]
    assert counts == sorted(counts, reverse=True) and sum(counts) == len(rows)
    confusion = page.columns("Confusion matrix")
    yes_as_no = sum(t == "yes" and p == "no" for t, p in zip(truth, label, strict=True))
    assert confusion["as no"][confusion["Label"].index("yes")] == f"{yes_as_no:,}"
    drifted = page.columns("Drift")
    assert sorted(drifted["Column"]) == ["charges", "plan", "tenure"]
    assert {"Points of the ROC curve", "Contributions", "Columns of the data"} <= set(page.tables)
    assert page.tables["Versions"][1][0] == "1 (this one)"
    assert temporary_tables(con) == 0


@pytest.mark.parametrize(("name", "label"), [("answers", "answer"), ("grades", "grade")])
def test_kept_scores_measure_what_the_forms_of_sql_do(
    zoo: sqlml.Session, name: str, label: str
) -> None:
    with closing(subjects.Tables(zoo)) as tables:
        subject = subjects.load_subject(tables, zoo._models, name, "shop", label, None, print)
        for form in ("evaluate", "roc_curve", "pr_curve", "calibration_curve", "confusion_matrix"):
            rows = [list(row.values()) for row in subject.evaluate(form)]
            found = zoo.sql(f"FROM ml_{form}(MODEL {name}, TABLE shop, label := '{label}')")
            wanted = [list(row) for row in found.fetchall()]
            assert len(rows) == len(wanted), form
            for row, known in zip(rows, wanted, strict=True):
                for value, other in zip(row, known, strict=True):
                    close = isinstance(other, float)  # threads add in an order of their own
                    assert value == (pytest.approx(other, rel=1e-12) if close else other), form


@pytest.mark.by_day(4)
@pytest.mark.parametrize(
    ("name", "label", "tables", "says"),
    [
        ("grades", "grade", {"Metrics of each class", "Bins of the calibration curve"}, ""),
        ("mixture", None, {"Clusters"}, ""),
        ("prices", "price", {"Labels by prediction", "Residuals"}, "did not train this model"),
        ("margins", None, {"Distribution of the score"}, "No column of labels is known"),
        ("groups", None, {"Metrics", "Clusters"}, ""),
        ("density", None, {"Scores"}, "predicts nothing"),
        ("both", ["price", "other"], {"price: Contributions", "other: Residuals"}, ""),
        ("two", ["answer", "grade"], {"Metrics of each target"}, "classifiers of one target"),
        ("neighbours", "answer", {"Contributions"}, "Estimated against a background of 25 rows"),
        ("scaler", None, {"Columns of the data"}, "predicts nothing"),
    ],
)
def test_each_kind_of_model_says_what_applies_and_why_not_the_rest(
    zoo: sqlml.Session, name: str, label: Any, tables: set[str], says: str
) -> None:
    rows = "SELECT * REPLACE (grade::TEXT AS grade) FROM shop" if name == "two" else "shop"
    page = Page(zoo.report(name, rows, label=label).html)
    assert tables <= set(page.tables)
    assert says in page.text
    assert "svg" in page.elements or name == "scaler"
    assert temporary_tables(zoo) == 0


def test_all_numbers_are_of_one_run_of_a_volatile_query(zoo: sqlml.Session) -> None:
    query = "SELECT * FROM shop USING SAMPLE 50 PERCENT (bernoulli)"
    page = Page(zoo.report("answers", query, label="answer", by="Shop's").html)
    matrix, groups = page.columns("Confusion matrix"), page.columns("Groups")
    counted = sum(int(n) for name in ("as no", "as yes") for n in matrix[name])
    assert 0 < counted < 600
    assert sum(map(int, groups["Rows"])) == counted
    assert sum(map(int, page.columns("Predicted classes")["Predicted"])) == counted
    assert sum(map(int, page.columns("Bins of the calibration curve")["Rows"])) == counted
    assert f"on {counted} rows." in page.text and f"Measured on {counted} rows" in page.text


@pytest.mark.parametrize(
    ("name", "data", "more", "error", "says"),
    [
        ("nobody", "shop", {}, errors.UnknownModelError, "unknown model 'nobody'"),
        ("answers", "nowhere", {}, duckdb.CatalogException, "nowhere does not exist"),
        ("answers", "SELEC a FROM shop", {}, errors.ParseError, "neither a query nor the name"),
        ("answers", "FROM shop; FROM shop", {}, errors.ParseError, "not 2 statements"),
        ("answers", "DROP TABLE shop", {}, errors.ParseError, "must be a query, such as"),
        ("answers", " ;", {}, errors.ParseError, "is empty"),
        ("answers", "SELECT a FROM shop", {}, errors.MissingColumnError, "needs columns 'b', 'c'"),
        ("answers", "SELECT zz FROM shop", {}, duckdb.BinderException, '"zz" not found'),
        ("answers", "shop", {"label": "anwser"}, errors.BindError, "did you mean 'answer'?"),
        ("answers", "shop", {"label": "price"}, errors.BindError, "column 'price' is DOUBLE"),
        ("answers", "shop", {"by": "rgn"}, errors.BindError, "no column 'rgn'"),
        ("both", "shop", {"label": "price"}, errors.BindError, "name as many label columns"),
    ],
)
def test_errors_name_the_fix_and_leave_an_open_transaction_as_it_was(
    zoo: sqlml.Session, name: str, data: str, more: dict[str, str], error: Any, says: str
) -> None:
    zoo.execute("BEGIN")
    try:
        zoo.execute("CREATE TABLE mine AS SELECT 1 AS one")
        with pytest.raises(error, match=says.replace("?", r"\?")) as told:
            zoo.report(name, data, **more)
        assert "sqlml_" not in str(told.value) and "LINE 1: \n" not in str(told.value)
        assert zoo.execute("FROM mine").fetchall() == [(1,)]
        assert temporary_tables(zoo) == 0
    finally:
        zoo.execute("ROLLBACK")


def test_rows_of_an_open_transaction_are_reported_and_it_goes_on(zoo: sqlml.Session) -> None:
    zoo.execute("BEGIN")
    zoo.execute("CREATE TABLE mine AS FROM shop LIMIT 50")
    assert "on 50 rows." in zoo.report("answers", "mine", label="answer").html
    zoo.execute("COMMIT")
    assert zoo.execute("SELECT count(*) FROM mine").fetchall() == [(50,)]
    zoo.execute("DROP TABLE mine")


@pytest.mark.by_day(4)
@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("SELECT * FROM shop WHERE false", "The data has no rows."),
        ("SELECT * FROM shop LIMIT 1", "All labels are of one class"),
        ("SELECT * REPLACE (NULL::TEXT AS answer) FROM shop", "No row has both a label and"),
        ("SELECT * FROM shop WHERE answer = 'yes'", "All labels are of one class"),
    ],
)
def test_rows_that_tell_little_are_no_error(zoo: sqlml.Session, data: str, says: str) -> None:
    assert says in Page(zoo.report("answers", data, label="answer", by="Shop's").html).text


@pytest.mark.nightly
def test_odd_types_and_a_table_with_an_odd_name(zoo: sqlml.Session) -> None:
    zoo.execute(
        'CREATE OR REPLACE TABLE "odd; ""name" AS SELECT a::DECIMAL(9, 3) AS A, b::FLOAT AS b, c, '
        "answer::ENUM ('no', 'yes') AS answer, DATE '2026-01-01' + (a * 9)::INTEGER AS day "
        "FROM shop"
    )
    page = Page(zoo.report("ANSWERS", '"odd; ""name"', label="Answer", by="day").html)
    assert page.pairs("Metrics")["ROC AUC"]
    assert page.columns("Groups")["day"][0].startswith("202")
    assert page.pairs("Columns of the data")["A"] == "DECIMAL(9,3)"


def test_names_and_values_of_strangers_are_escaped(hostile: Report) -> None:
    page, read = hostile.html, Page(hostile.html)
    assert not read.elements & {"script", "img", "iframe", "link", "object"}
    assert not [a for a in read.attributes if a.startswith("on") or a in ("src", "srcdoc")]
    assert "{{7*7}}" in read.text and "\u202e" not in page and "\x07" not in page


@pytest.mark.nightly
def test_a_macro_of_the_database_shadows_no_function_of_ours(zoo: sqlml.Session) -> None:
    names = ("avg", "count", "hash", "map_values", "abs", "floor")
    try:
        for name in names:
            zoo.execute(f"CREATE MACRO {name}(a) AS error('not mine')")
        assert "Contributions" in Page(zoo.report("answers", "shop", label="answer").html).tables
    finally:
        for name in names:
            zoo.execute(f"DROP MACRO {name}")


@pytest.mark.nightly
def test_hundreds_of_columns_and_classes_are_cut_to_a_few_with_their_number() -> None:
    draw = np.random.default_rng(1)
    wide = pd.DataFrame(draw.normal(size=(200, 100)), columns=[f"c{n}" for n in range(100)])
    many = pd.DataFrame({"a": draw.integers(0, 60, 1000)})
    many["y"] = [f"class {n}" for n in many.a]
    with sqlml.connect() as con:
        con.register("wide", wide)
        con.register("many", many)
        of_wide = LogisticRegression().fit(wide, wide.c0 > 0)
        con.create_model("of_wide", of_wide, verify=False)
        of_many = DecisionTreeClassifier().fit(many[["a"]], many.y)
        con.create_model("of_many", of_many, verify=False)
        first = con.report("of_wide", "SELECT *, c0 > 0 AS y FROM wide", label="y").html
        second = con.report("of_many", "many", label="y", by="y").html
    page = Page(first)
    assert len(page.tables["Contributions"]) == 21
    assert "80 columns that matter less are left out" in page.text
    page = Page(second)
    assert "the 6 most frequent of 60 classes" in page.text
    assert "40 rarer classes are left out" in page.text
    assert "The 20 largest of 60 groups" in page.text
    assert max(len(first), len(second)) < 300_000


@pytest.mark.nightly
def test_very_many_scores_are_measured_on_an_even_share(
    zoo: sqlml.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subjects, "MAX_SCORES", 600)  # of three for each row
    page = Page(zoo.report("grades", "shop", label="grade").html)
    assert "sampled evenly from 600" in page.text
    counted = int(page.text.split("Measured on ")[1].split(" rows")[0])
    assert 140 < counted < 260
    assert sum(map(int, page.columns("Predicted classes")["Predicted"])) == counted


def test_a_frame_in_sight_in_a_notebook_and_in_a_file(zoo: sqlml.Session, tmp_path: Path) -> None:
    mine = ROWS[ROWS.a > 0]
    made = zoo.report("prices/1", "SELECT * FROM mine WHERE b > ?", parameters=[0.5])
    assert f"on {(mine.b > 0.5).sum()} rows." in made.html
    frame = made._repr_html_()
    assert frame.startswith('<iframe title="prices, version 1" sandbox=""')
    assert frame.count("<") == 2  # the page itself is the value of an attribute
    written = made.save(tmp_path / "page.html")
    assert written.read_text(encoding="utf-8") == made.html
    assert repr(made) == "Report(title='prices, version 1')"


def test_a_calibration_shows_promised_and_measured_coverages() -> None:
    with sqlml.connect() as con:
        con.execute(
            "CREATE TABLE c AS SELECT hash(i) % 7 AS a, a + hash(i, 2) % 100 AS y, "
            "if(hash(i, 3) % 7 < a, 'yes', 'no') AS k, if(i % 2 = 0, 'x', 'y') AS g "
            "FROM range(600) t(i)"
        )
        for name, kind, label in (("m", "linear_reg", "y"), ("q", "logistic_reg", "k")):
            con.execute(
                f"CREATE MODEL {name} OPTIONS (model_type = '{kind}', label = '{label}') AS "
                f"SELECT a, {label} FROM c"
            )
            assert "uncertainty" not in con.report(name, "c").html
        con.execute("ALTER MODEL m CALIBRATE USING (FROM c) OPTIONS (label = 'y', by = 'g')")
        con.execute("ALTER MODEL q CALIBRATE USING (FROM c) OPTIONS (label = 'k')")
        page = Page(con.report("m", "c").html)
        assert "Groups2, the smallest of 300 rows" in page.text.replace("\n", "")
        header, *rows = page.tables["Intervals by promised coverage"]
        assert header == ["Promised", "Mean width", "Labels covered"]
        assert [row[0] for row in rows] == ["50%", "80%", "90%", "95%", "99%"]
        ((covered, width),) = con.execute(
            "SELECT coverage, mean_width FROM ml_evaluate(MODEL m, TABLE c, coverage := 0.8)"
        ).fetchall()
        assert rows[1][2] == f"{covered:.1%}"
        assert float(rows[1][1]) == pytest.approx(width, rel=1e-3)
        unlabelled = Page(con.report("m", "SELECT a, g FROM c").html)
        assert unlabelled.tables["Intervals by promised coverage"][2] == rows[1][:2]
        without_group = Page(con.report("m", "SELECT a, y FROM c").html)
        assert any("lacks a column of the calibration" in note for note in without_group.notes)
        sets = Page(con.report("q", "c").html).tables["Sets by promised coverage"]
        assert sets[0] == ["Promised", "Mean size", "Labels covered"]
