"""Cascades in SQL: ADD CASCADE, calls that may be approximated, and all others as they were."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.cascades.parts import CONFIDENCE
from sqlml.cascades.small_model import confident
from sqlml.catalog.model import Reference
from sqlml.catalog.small_models import Cascade, CascadeFacts
from sqlml.errors import (
    ArtifactError,
    BindError,
    CatalogError,
    ConfigError,
    MissingColumnError,
    ParseError,
)
from sqlml.importers.registry import import_model
from sqlml.ir.builder import Builder
from sqlml.session.session import Session
from tests.cascaded import model, table

LEARN = (
    "ALTER MODEL m ADD CASCADE USING (SELECT x, t, y FROM train) "
    "OPTIONS (label = 'y', accuracy_loss = 0.01)"
)
CALL = "predict('m', *, approximate := true)"


def of(name: str) -> str:
    """`CALL` of another model."""
    return CALL.replace("'m'", f"'{name}'")


EXACT = "SELECT id, predict('m', *) AS p FROM fresh ORDER BY id"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a model, its cascade, and rows."""
    made = tmp_path_factory.mktemp("cascades") / "c.duckdb"
    with sqlml.connect(str(made)) as con:
        con.create_model("m", model()[0])
        for name, rows, seed in (("train", 6_000, 1), ("fresh", 5_000, 99)):
            frame, labels = table(rows, seed)
            con.register("frame", frame.assign(id=range(rows), y=labels))
            con.execute(f"CREATE TABLE {name} AS FROM frame")
        con.execute(LEARN)
    return made


@pytest.fixture
def con(path: Path, tmp_path: Path) -> Iterator[Session]:
    """A copy of that database."""
    copy = tmp_path / "c.duckdb"
    copy.write_bytes(path.read_bytes())
    with sqlml.connect(str(copy)) as made:
        yield made


def small_says(con: Session) -> np.ndarray:
    """The labels of the small model; NaN where it is not sure."""
    labels(con, CALL)  # which registers its function
    text = con.plan(f"SELECT {CALL} FROM fresh").calls[0].small.sql
    rows = con.execute(f"SELECT {text} FROM fresh ORDER BY id").fetchnumpy()
    return np.ma.filled(next(iter(rows.values())).astype(float), np.nan)


def facts() -> CascadeFacts:
    """What might be known of a cascade."""
    return CascadeFacts(
        query="FROM t",
        label="y",
        accuracy_loss=0.01,
        threshold=0.8,
        confident=0.4,
        accuracy=0.9,
        loss=0.0,
        most_loss=0.01,
        trained=300,
        held_out=100,
        exact_ns=200.0,
        expected_ns=100.0,
        groups=(),
    )


def labels(con: Session, call: str) -> list[int]:
    return [p for (p,) in con.execute(f"SELECT {call} FROM fresh ORDER BY id").fetchall()]


# -- what is answered


def test_rows_that_the_small_model_is_not_sure_of_are_answered_by_the_full_one(
    con: Session,
) -> None:
    exact, fast = labels(con, "predict('m', *)"), labels(con, CALL)
    small = small_says(con)
    unsure = np.isnan(small)
    assert 0.1 < unsure.mean() < 0.9
    assert fast == [int(s) if s == s else e for s, e in zip(small, exact, strict=True)]
    truth = [y for (y,) in con.execute("SELECT y FROM fresh ORDER BY id").fetchall()]
    right = [np.mean(np.array(p) == truth) for p in (exact, fast)]
    assert right[0] - right[1] <= 0.01


def test_exact_calls_stay_exact(con: Session) -> None:
    before = con.execute(EXACT).fetchall()
    plan = con.plan(EXACT)
    con.execute("ALTER MODEL m DROP CASCADE")
    assert con.execute(EXACT).fetchall() == before
    after = con.plan(EXACT)
    assert (plan.sql, plan.calls[0].spec) == (after.sql, after.calls[0].spec)
    assert plan.calls[0].small is None and "approximate" not in str(plan)


def test_a_session_or_a_model_may_ask_for_it_and_a_call_decides(con: Session) -> None:
    exact, fast = labels(con, "predict('m', *)"), labels(con, CALL)
    assert exact != fast
    con.execute("SET sqlml_approximate = true")
    assert labels(con, "predict('m', *)") == fast
    assert labels(con, "predict('m', *, approximate := false)") == exact
    con.execute("RESET sqlml_approximate")
    assert labels(con, "predict('m', *)") == exact
    con.execute("ALTER MODEL m SET OPTIONS (approximate = true)")
    assert labels(con, "predict('m', *)") == fast
    con.execute("SET sqlml_approximate = false")
    assert labels(con, "predict('m', *)") == exact


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT sum({CALL}) FROM fresh",
        f"SELECT count(*) FROM fresh WHERE {CALL} = 1",
        f"SELECT count(*) FROM (SELECT {CALL} AS p FROM fresh) WHERE p = 1",
        f"WITH s AS (SELECT *, {CALL} AS p FROM fresh) SELECT sum(p) FROM s WHERE id >= 0",
        "SELECT sum(predict('m', x := x, t := t, approximate := true)) FROM fresh",
        "SELECT sum(predict('m', f.*, approximate := true)) FROM fresh f",
        "SELECT sum(predict('m', x, t, approximate := true)) FROM fresh",
        "SELECT sum(predict('m', {'x': x, 't': t}, approximate := true)) FROM fresh",
        "SELECT sum(predict(?, *, approximate := true)) FROM fresh",
    ],
)
def test_forms_of_a_call(con: Session, query: str) -> None:
    wanted = sum(labels(con, CALL))
    parameters = ["m"] if "?" in query else None
    assert con.execute(query, parameters).fetchall() == [(wanted,)]


@pytest.mark.parametrize(
    ("small", "backend"),
    [(DecisionTreeClassifier(max_depth=2), "sql"), (LogisticRegression(), "native")],
)
@pytest.mark.parametrize("classes", [("no", "yes"), (3, 7), (False, True)])
def test_a_small_model_of_each_form(small: Any, backend: str, classes: tuple[Any, Any]) -> None:
    """An expression of SQL and a function, and labels of each kind."""
    random = np.random.default_rng(0)
    x = random.normal(size=(500, 2))
    places = (x[:, 0] + random.normal(size=500) / 2 > 0).astype(int)
    full = RandomForestClassifier(9, max_depth=4, random_state=0).fit(x, np.array(classes)[places])
    program = import_model(small.fit(x[:, :1], places), ["a"]).program
    b = Builder(program.nodes)
    sure = b.op("max", b.value(program.outputs["proba"]), axis=1)
    made = b.build({"label": b.value(program.outputs["label"]), CONFIDENCE: sure})
    with sqlml.connect() as con:
        con.create_model("m", full, inputs=["a", "b"])
        stored = con._catalog.get(Reference("m"))
        con._models.versions.add_small_model(
            stored, Cascade(confident(made, 0.8, stored.program.labels), facts())
        )
        con.execute("CREATE TABLE fresh (id INTEGER, a DOUBLE, b DOUBLE)")
        con.executemany("INSERT INTO fresh VALUES (?, ?, ?)", [[i, *r] for i, r in enumerate(x)])
        got = labels(con, CALL)
        assert con.plan(f"SELECT {CALL} FROM fresh").calls[0].small.choice.backend == backend
    is_sure = small.predict_proba(x[:, :1]).max(axis=1) > 0.8
    assert 0.2 < is_sure.mean() < 0.9
    wanted = np.where(is_sure, np.array(classes)[small.predict(x[:, :1])], full.predict(x))
    assert got == wanted.tolist()


def test_rows_keep_their_order(con: Session) -> None:
    ids = [i for (i, _) in con.execute(f"SELECT id, {CALL} FROM fresh").fetchall()]
    assert ids == sorted(ids)


def test_several_calls_of_one_row(con: Session) -> None:
    """An exact probability, an exact and an approximate label: each as if it were alone."""
    proba = "predict_proba('m', *, class := 1)"
    rows = con.execute(
        f"SELECT {proba}, predict('m', *), {CALL} FROM fresh WHERE {CALL} >= 0 ORDER BY id"
    ).fetchall()
    assert [r[1] for r in rows] == labels(con, "predict('m', *)")
    assert [r[2] for r in rows] == labels(con, CALL)
    assert [r[0] for r in rows] == labels(con, proba)


def test_an_expensive_argument_is_computed_for_unsure_rows_alone(con: Session) -> None:
    """A function of Python that makes the text sees only the rows that need it."""
    seen: list[int] = []

    def fetched(place: int) -> str:
        seen.append(place)
        return texts[place]

    texts = [t for (t,) in con.execute("SELECT t FROM fresh ORDER BY id").fetchall()]
    con.create_function("fetched", fetched, ["BIGINT"], "VARCHAR")
    got = labels(con, "predict('m', x := x, t := fetched(id), approximate := true)")
    assert got == labels(con, CALL)
    unsure = np.flatnonzero(np.isnan(small_says(con)))
    assert sorted(seen) == unsure.tolist()


ROWS = "(SELECT id, x, y FROM fresh) AS r"


@pytest.mark.parametrize(
    ("query", "idle"),
    [
        (f"SELECT r.id, {CALL} FROM {ROWS} LEFT JOIN texts ON r.id = texts.id", "join texts"),
        (f"SELECT id, {CALL} FROM (SELECT r.*, fetched(id) AS t FROM {ROWS})", "fetched(id)"),
        (
            f"WITH q AS (SELECT r.*, unnest(parts(id)) FROM {ROWS}) SELECT id, {CALL} FROM q",
            "parts(id)",
        ),
        (
            f"SELECT id, {CALL} FROM (SELECT r.*, texts.t FROM {ROWS} LEFT JOIN texts "
            "ON r.id = texts.id)",
            "join texts",
        ),
        (f"SELECT id, t, {CALL} FROM (SELECT r.*, fetched(id) AS t FROM {ROWS})", None),
        (f"SELECT r.id, {CALL} FROM {ROWS} LEFT JOIN several ON r.id = several.id", None),
        (f"SELECT id, {CALL} FROM {ROWS} LEFT JOIN texts USING (id)", "join texts"),
        (
            f'SELECT id, {CALL} FROM {ROWS} LEFT JOIN main.texts AS "more" using\n( "ID" )'
            " WHERE id >= 0",
            "join more",
        ),
        (
            f"SELECT id, {CALL} FROM (FROM {ROWS} LEFT JOIN texts /* t */ USING (id)) AS q",
            None,  # a comment stands where the ON would
        ),
        (
            f"SELECT q.id, {CALL} FROM (SELECT * FROM {ROWS} LEFT JOIN texts USING (id)) q",
            "join texts",
        ),
        (
            f"SELECT id, {CALL} FROM {ROWS} LEFT JOIN (SELECT id, max(t) AS t FROM several "
            "GROUP BY id) USING (id)",
            None,  # without a name nothing can be equated
        ),
        (
            f"SELECT id, {CALL} FROM {ROWS} LEFT JOIN (SELECT id, y, max(t) AS t FROM fresh "
            "GROUP BY id, y) u USING (id, y)",
            "join u",
        ),
        (
            f"WITH q(id, x, y, t) AS (FROM {ROWS} LEFT JOIN texts USING (id)) "
            f"SELECT id, {CALL} FROM q",
            None,  # columns are named by place
        ),
        (f"SELECT id, texts.id, {CALL} FROM {ROWS} LEFT JOIN texts USING (id)", None),
        (f"SELECT id, {CALL} FROM {ROWS} LEFT JOIN several USING (id)", None),
    ],
)
def test_joins_and_functions_are_for_unsure_rows_alone(
    con: Session, query: str, idle: str | None
) -> None:
    """Whatever the shape of the query, each row is answered as it is from the table."""
    con.execute("CREATE TABLE texts (id BIGINT PRIMARY KEY, t VARCHAR)")
    con.execute("INSERT INTO texts SELECT id, t FROM fresh")
    con.execute("CREATE TABLE several AS SELECT id, t FROM fresh")
    seen: list[int] = []

    def fetched(place: int) -> str:
        seen.append(place)
        return texts[place]

    texts = [t for (t,) in con.execute("SELECT t FROM fresh ORDER BY id").fetchall()]
    con.create_function("fetched", fetched, ["BIGINT"], "VARCHAR")
    kind = "STRUCT(t VARCHAR, more INTEGER)"
    con.create_function("parts", lambda i: {"t": fetched(i), "more": 1}, ["BIGINT"], kind)
    rows = sorted(con.execute(query).fetchall())
    assert [r[-1] for r in rows] == labels(con, CALL)
    assert con.plan(query).calls[0].idle == (() if idle is None else (idle,))
    unsure = np.flatnonzero(np.isnan(small_says(con))).tolist()
    if "(" in (idle or ""):
        assert sorted(seen) == unsure


def test_groups_are_what_a_query_joins_and_calls(con: Session) -> None:
    con.execute("CREATE TABLE texts (id BIGINT PRIMARY KEY, t VARCHAR)")
    con.execute("INSERT INTO texts SELECT id, t FROM train")
    options = "OPTIONS (label = y, accuracy_loss = 0.01)"
    query = "SELECT x, texts.t, y FROM train LEFT JOIN texts ON train.id = texts.id"
    con.execute(f"ALTER MODEL m ADD CASCADE USING ({query}) {options}").fetchall()
    (call,) = con.plan(f"SELECT {CALL} FROM fresh").calls
    assert [g.name for g in call.cascade.groups] == ["x", "join texts, characters of t"]


def test_other_outputs_are_exact_and_explain_says_so(con: Session) -> None:
    exact = labels(con, "predict_score('m', *)")
    assert labels(con, "predict_score('m', *, approximate := true)") == exact
    text = con.explain("SELECT predict_score('m', *, approximate := true) FROM fresh")
    assert "no: version 1 has no top-K filter for its order: ALTER MODEL" in " ".join(text.split())


def test_a_view_is_approximated_for_everyone(con: Session, tmp_path: Path) -> None:
    con.execute(f"CREATE VIEW v AS SELECT id, {CALL} AS p FROM fresh")
    wanted = con.execute("SELECT sum(p) FROM v").fetchall()
    con.close()
    with sqlml.connect(str(tmp_path / "c.duckdb")) as again:
        assert again.execute("SELECT sum(p) FROM v").fetchall() == wanted


def test_the_page_about_cascades_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cascades.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    exec(compile(block, "cascades.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "'small model reads': 'stars'" in printed
    assert "% of 12,000 rows; 80" in printed.replace("79", "80").replace("81", "80")


# -- what is told


def test_explain_names_groups_guarantee_and_gain(con: Session) -> None:
    text = " ".join(con.explain(f"SELECT {CALL} FROM fresh").split())
    assert "approximate a small model first, " in text and "which reads x DOUBLE" in text
    assert "only if unsure characters of t, for " in text
    assert "guarantee accuracy falls by at most 0.01 (97.5% sure); " in text
    assert "times as fast" in text
    made = con.plan(f"SELECT {CALL} FROM fresh").to_dict()["calls"][0]["cascade"]
    assert made["small"]["columns_read"] == {"x": "DOUBLE"}
    assert [g["name"] for g in made["facts"]["groups"]] == ["x", "characters of t"]


def test_explain_analyze_compares_confident_rows_with_the_expected(con: Session) -> None:
    plan = con.plan(f"SELECT {CALL} FROM fresh", analyze=True)
    (call,) = plan.calls
    unsure = int(np.isnan(small_says(con)).sum())
    assert plan.analysis.functions[call.spec.name].rows == unsure
    assert plan.analysis.functions[call.small.spec.name].rows == 5_000
    share, expected = 1 - unsure / 5_000, call.cascade.confident
    assert f"confident         {share:.1%} of 5,000 rows; {expected:.1%} expected" in str(plan)


def test_statements_about_the_model_show_it(con: Session) -> None:
    told = dict(con.execute("DESCRIBE MODEL m").fetchall())
    assert told["cascade: small model reads"] == "x"
    assert told["cascade: only the full model reads"] == "characters of t"
    assert told["estimator"] == "LogisticRegression(C=100.0, max_iter=500)"
    explained = dict(con.execute("EXPLAIN MODEL m").fetchall())
    assert explained["cascade: guarantee"] == told["cascade: guarantee"]


def test_what_was_learned_is_the_answer_of_the_statement(con: Session) -> None:
    told = dict(con.execute(LEARN).fetchall())
    assert told["stored"] == "yes"
    assert told["small model reads"] == "x"
    assert told["group 1"].startswith("x: 0 ns a row, importance 0.")
    assert told["group 2"].startswith("characters of t: ")
    assert con.execute("SELECT count(*) FROM sqlml.catalog_small_models").fetchall() == [(1,)]


def test_nothing_is_stored_where_nothing_is_gained(con: Session) -> None:
    con.execute("ALTER MODEL m DROP CASCADE")
    query = "SELECT 0.0 AS x, CASE WHEN y = 1 THEN 'yes' ELSE 'no' END AS t, y FROM train"
    told = dict(
        con.execute(
            f"ALTER MODEL m ADD CASCADE USING ({query}) OPTIONS (label = y, accuracy_loss = 0.01)"
        ).fetchall()
    )
    assert told["stored"] == "no" and told["reason"]
    text = con.explain(f"SELECT {CALL} FROM fresh")
    assert "no: version 1 has no cascade: ALTER MODEL .. ADD CASCADE" in text
    assert labels(con, CALL) == labels(con, "predict('m', *)")


# -- the life of a cascade


def test_a_file_brings_it(con: Session, tmp_path: Path) -> None:
    """EXPORT MODEL .. FORMAT SQLML, and CREATE MODEL of that file, also as a further version."""
    fast = labels(con, CALL)
    file = tmp_path / "m.sqlml"
    con.execute(f"EXPORT MODEL m TO '{file}'")
    con.execute(f"CREATE MODEL n FROM '{file}'")
    assert labels(con, of("n")) == fast
    con.execute("ALTER MODEL n DROP CASCADE")
    con.execute(f"ALTER MODEL n ADD VERSION FROM '{file}'")
    assert labels(con, of("n/2")) == fast
    assert "version 1 has no cascade" in con.explain(f"SELECT {of('n')} FROM fresh")


def test_show_create_learns_it_again(con: Session, tmp_path: Path) -> None:
    """What SHOW CREATE MODEL writes of a model whose file says nothing of a cascade."""
    file = tmp_path / "m.pkl"
    file.write_bytes(pickle.dumps(model()[0]))
    con.execute(f"CREATE MODEL p FROM '{file}' OPTIONS (allow_pickle = true)")
    con.execute(LEARN.replace("MODEL m", "MODEL p"))
    ((_, text),) = con.execute("SHOW CREATE MODEL p").fetchall()
    assert text.splitlines()[-2:] == [
        'ALTER MODEL "p" ADD CASCADE USING (SELECT x, t, y FROM train)',
        "OPTIONS (label = 'y', accuracy_loss = 0.01);",
    ]
    con.execute("DROP MODEL p")
    con.execute(text.replace("(sha256", "(allow_pickle = true, sha256")).fetchall()
    assert con.plan(f"SELECT {of('p')} FROM fresh").calls[0].small


def programs(con: Session) -> int:
    return con.execute("SELECT count(*) FROM sqlml.catalog_programs").fetchall()[0][0]


def test_a_cascade_goes_with_its_version(con: Session) -> None:
    fast = labels(con, CALL)
    con.create_model("m", DecisionTreeClassifier(max_depth=2).fit([[0.0], [1.0]], [0, 1]),
                     inputs=["x"], or_replace=True)  # fmt: skip
    exact = labels(con, "predict('m', *)")
    assert labels(con, CALL) == exact
    assert "version 2 has no cascade" in con.explain(f"SELECT {CALL} FROM fresh")
    assert labels(con, "predict('m/1', *, approximate := true)") == fast
    assert programs(con) == 3
    con.execute("ALTER MODEL m DROP VERSION 1")
    assert programs(con) == 1
    assert con.execute("SELECT count(*) FROM sqlml.catalog_small_models").fetchall() == [(0,)]


def test_a_cascade_goes_with_its_model(con: Session) -> None:
    fast = labels(con, CALL)
    con.execute("ALTER MODEL m RENAME TO n")
    assert labels(con, of("n")) == fast
    con.execute("DROP MODEL n")
    assert programs(con) == 0
    assert con.execute("SELECT count(*) FROM sqlml.catalog_small_models").fetchall() == [(0,)]


def test_dropping_it(con: Session) -> None:
    con.execute("ALTER MODEL m DROP CASCADE")
    assert programs(con) == 1
    assert labels(con, CALL) == labels(con, "predict('m', *)")
    with pytest.raises(CatalogError, match="model 'm' has no cascade for its version 1"):
        con.execute("ALTER MODEL m DROP CASCADE")


def test_learning_it_is_part_of_the_transaction(con: Session) -> None:
    con.execute("ALTER MODEL m DROP CASCADE")
    con.execute("BEGIN")
    con.execute(LEARN)
    assert labels(con, CALL) != labels(con, "predict('m', *)")
    con.execute("ROLLBACK")
    assert labels(con, CALL) == labels(con, "predict('m', *)")


def test_a_file_of_an_older_sqlml_has_no_table_of_cascades(con: Session) -> None:
    con.execute("ALTER MODEL m DROP CASCADE")
    con.execute("DROP TABLE sqlml.catalog_small_models")
    assert labels(con, CALL) == labels(con, "predict('m', *)")
    con.execute(LEARN)
    assert labels(con, CALL) != labels(con, "predict('m', *)")


# -- what is wrong


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("'{}'", "the cascade of model 'm' is damaged"),
        ("'nonsense'", "the cascade of model 'm' is damaged"),
        ('replace(facts, \'"label": "y"\', \'"label": 3\')', "label cannot be 3"),
        (
            "regexp_replace(facts, '\"expected_ns\": [0-9.]+', '\"expected_ns\": 0')",
            "expected_ns cannot be 0",
        ),
        (
            "regexp_replace(facts, '\"exact_ns\": [0-9.]+', '\"exact_ns\": 1' || repeat('0', 400))",
            "too large to convert",
        ),
        (
            "regexp_replace(facts, '\"exact_ns\": [0-9.]+', '\"exact_ns\": NaN')",
            "exact_ns cannot be nan",
        ),
        ('replace(facts, \'"chosen": true\', \'"chosen": "x"\')', "chosen cannot be 'x'"),
    ],
)
def test_damaged_facts_are_refused(con: Session, facts: str, message: str) -> None:
    con.execute(f"UPDATE sqlml.catalog_small_models SET facts = {facts}")
    with pytest.raises(ArtifactError, match=message):
        labels(con, CALL)
    assert labels(con, "predict('m', *)")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query", "SELECT 1) OPTIONS (label = y); DROP TABLE fresh; --"),
        ("query", "SELECT 1 /*"),
        ("label", "y'); DROP TABLE fresh; --"),
    ],
)
def test_show_create_prints_no_statement_of_a_stranger(
    con: Session, tmp_path: Path, name: str, value: str
) -> None:
    file = tmp_path / "m.pkl"
    file.write_bytes(pickle.dumps(model()[0]))
    con.execute(f"CREATE MODEL p FROM '{file}' OPTIONS (allow_pickle = true)")
    con.execute(LEARN.replace("MODEL m", "MODEL p"))
    con.execute(
        "UPDATE sqlml.catalog_small_models SET facts = json_merge_patch(facts, json_object(?, ?))",
        [name, value],
    )
    try:
        ((_, text),) = con.execute("SHOW CREATE MODEL p").fetchall()
    except ArtifactError as error:
        assert "ALTER MODEL p DROP CASCADE removes it" in str(error).replace('"', "")
    else:
        assert "'y''); DROP TABLE fresh; --'" in text


def test_a_foreign_program_is_refused(con: Session) -> None:
    frame = pd.DataFrame({"q": [0.0, 1.0]})
    con.create_model("other", LogisticRegression().fit(frame, ["a", "b"]))
    con.execute(
        "UPDATE sqlml.catalog_small_models SET program = (SELECT program "
        "FROM sqlml.catalog_versions WHERE key = 'other')"
    )
    with pytest.raises(ArtifactError, match="does not fit it; ALTER MODEL .. DROP CASCADE"):
        labels(con, CALL)
    con.execute("ALTER MODEL m DROP CASCADE")
    assert labels(con, CALL) == labels(con, "predict('m', *)")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("label = 'z'", MissingColumnError, "no column 'z' with the labels; it has x, t, y, id"),
        ("", ConfigError, "name the column of the query with the true labels"),
        ("label = y, loss = 1", ConfigError, "unknown option 'loss'; options of ADD CASCADE: "),
        ("label = y, accuracy_loss = 0", ConfigError, "must lie between 0 and 1"),
        ("label = y, accuracy_loss = true", ConfigError, "must lie between 0 and 1"),
        ("label = y, accuracy_loss = 0.0001", ConfigError, "6,000 rows cannot show a loss"),
        ("label = id", ConfigError, "column 'id' holds 2, which is not a class of model m"),
    ],
)
def test_options_that_make_no_sense(
    con: Session, options: str, error: type[Exception], message: str
) -> None:
    query = "SELECT x, t, y, id FROM train"
    with pytest.raises(error, match=message):
        con.execute(f"ALTER MODEL m ADD CASCADE USING ({query}) OPTIONS ({options})")


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT x, y FROM train", MissingColumnError, "'t'"),
        ("SELECT x, t, y FROM train LIMIT 0", ConfigError, "0 rows cannot show"),
        ("SELECT *, predict('m', *) FROM train", ParseError, "without model calls"),
        ("DROP TABLE train", ParseError, "takes one query"),
    ],
)
def test_queries_that_do_not_fit(
    con: Session, query: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        con.execute(f"ALTER MODEL m ADD CASCADE USING ({query}) OPTIONS (label = y)")
    assert con.execute("SELECT count(*) FROM train").fetchall() == [(6_000,)]


def test_models_that_have_no_cascade(con: Session) -> None:
    frame = con.execute("SELECT x, y FROM train").df()
    con.create_model("r", LinearRegression().fit(frame[["x"]], frame.y))
    con.create_model("one", LogisticRegression().fit(frame[["x"]], frame.y))
    using = "ADD CASCADE USING (SELECT x, y FROM train) OPTIONS (label = y, accuracy_loss = 0.01)"
    with pytest.raises(ConfigError, match=r"r \(version 1\) does not predict classes"):
        con.execute(f"ALTER MODEL r {using}")
    with pytest.raises(ConfigError, match=r"are computed together \(x\)"):
        con.execute(f"ALTER MODEL one {using}")


def test_rows_without_a_label_are_left_out(con: Session) -> None:
    query = "SELECT x, t, CASE WHEN id < 5000 THEN y END AS y FROM train"
    con.execute(
        f"ALTER MODEL m ADD CASCADE USING ({query}) OPTIONS (label = y, accuracy_loss = 0.01)"
    )
    told = dict(con.execute("DESCRIBE MODEL m").fetchall())
    assert "on 1,250 rows held out" in told["cascade: measured"]


@pytest.mark.parametrize("value", ["1", "'true'", "?", "x > 0"])
def test_approximate_takes_true_or_false(con: Session, value: str) -> None:
    with pytest.raises(BindError, match="approximate := takes true or false"):
        con.execute(
            f"SELECT predict('m', *, approximate := {value}) FROM fresh", ["x"] * (value == "?")
        )


def test_a_feature_may_be_called_approximate(con: Session) -> None:
    frame = pd.DataFrame({"approximate": [0.0, 1.0, 2.0]})
    con.create_model("a", LinearRegression().fit(frame, [0.0, 2.0, 4.0]))
    got = con.execute("""SELECT predict('a', "approximate" := 3.0)""").fetchall()
    assert got == [(pytest.approx(6.0),)]


def test_a_setting_that_is_neither(con: Session) -> None:
    with pytest.raises(ConfigError, match="sqlml_approximate takes true, false"):
        con.execute("SET sqlml_approximate = 'maybe'")
    with pytest.raises(ConfigError, match="option approximate must be true or false"):
        con.execute("ALTER MODEL m SET OPTIONS (approximate = 1)")


# -- VERIFY MODEL


def test_verify_measures_what_a_cascade_really_loses(con: Session) -> None:
    exact, fast = labels(con, "predict('m', *)"), labels(con, CALL)
    truth = [y for (y,) in con.execute("SELECT y FROM fresh ORDER BY id").fetchall()]
    lost = np.mean(np.equal(exact, truth)) - np.mean(np.equal(fast, truth))
    flips = int(np.not_equal(exact, fast).sum())
    found = con.execute("VERIFY MODEL m USING (FROM fresh)").fetchall()
    assert found == [("cascade", 5_000, pytest.approx(lost), None, 0.01, flips, True)]
    some = "FROM fresh SELECT x, t, CASE WHEN id < 4000 THEN y END AS Y"  # no label, no vote
    assert con.execute(f"VERIFY MODEL m USING ({some})").fetchall()[0][1] == 4_000


def test_verify_finds_that_a_cascade_loses_more_than_it_may(con: Session) -> None:
    """Where texts say more than those that it saw, rows of which it is sure go wrong."""
    texts = "repeat(CASE WHEN x > 0 THEN 'no ' ELSE 'yes ' END, 20)"
    con.execute(f"CREATE TABLE texts AS SELECT x, {texts} AS t FROM fresh")
    con.execute("CREATE TABLE drifted AS SELECT *, predict('m', *) AS y FROM texts")
    wrong = len(con.execute(f"FROM drifted WHERE {CALL} <> y").fetchall())
    (found,) = con.execute("VERIFY MODEL m USING (FROM drifted)").fetchall()
    assert found[:3] == ("cascade", 5_000, pytest.approx(wrong / 5_000))
    assert wrong > 5_000 * 0.02
    assert found[5:] == (wrong, False)


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT x, t FROM fresh", ConfigError, "no column y with the true labels"),
        ("SELECT x, t, NULL AS y FROM fresh", ConfigError, "all labels in column y are NULL"),
        ("SELECT x, t, 'odd' AS y FROM fresh", ConfigError, "'odd', which is not a class of"),
        ("SELECT x, y FROM fresh", MissingColumnError, "needs t"),
    ],
)
def test_rows_by_which_no_cascade_is_measured(
    con: Session, query: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        con.execute(f"VERIFY MODEL m USING ({query})")
