"""Statements about cascades: how they live and end, what is wrong, and VERIFY MODEL."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from sqlml.errors import (
    ArtifactError,
    BindError,
    CatalogError,
    ConfigError,
    MissingColumnError,
    ParseError,
    UnknownModelError,
)
from sqlml.session.session import Session
from tests.support.cascaded import CALL, LEARN, labels, model


def of(name: str) -> str:
    """`CALL` of another model."""
    return CALL.replace("'m'", f"'{name}'")


@pytest.fixture
def con(cascaded: Session) -> Session:
    return cascaded


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
    assert con.plan(f"SELECT {of('p')} FROM fresh").calls[0].small_call


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
    with pytest.raises(ArtifactError, match="does not fit it; ALTER MODEL ... DROP CASCADE"):
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
        ("label = id", ConfigError, "column 'id' contains 2, which is not a class of model m"),
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


def test_features_that_one_join_brings_cannot_be_separated(con: Session) -> None:
    frame = con.execute("SELECT x, cos(x) AS z, y FROM train").df()
    forest = RandomForestClassifier(5, random_state=0).fit(frame[["x", "z"]], frame.y)
    con.create_model("forest", forest)
    con.execute("CREATE TABLE pairs AS SELECT id, x, cos(x) AS z FROM train")
    con.execute("ALTER TABLE pairs ADD PRIMARY KEY (id)")
    query = "SELECT b.x, b.z, y FROM train LEFT JOIN pairs b ON train.id = b.id"
    with pytest.raises(ConfigError, match=r"are computed together \(join b\), so no small"):
        con.execute(
            f"ALTER MODEL forest ADD CASCADE USING ({query}) "
            "OPTIONS (label = y, accuracy_loss = 0.01)"
        )


@pytest.mark.parametrize("change", ["ADD", "DROP"])
def test_a_version_that_was_dropped_has_no_cascade(con: Session, change: str) -> None:
    con.add_version("m", model()[0])
    con.execute("ALTER MODEL m SET DEFAULT_VERSION = 2")
    con.execute("ALTER MODEL m DROP VERSION 1")
    statement = LEARN.replace("MODEL m", "MODEL m/1")
    if change == "DROP":
        statement = "ALTER MODEL m/1 DROP CASCADE"
    with pytest.raises(UnknownModelError, match="model .m. has no version 1"):
        con.execute(statement)
    with pytest.raises(UnknownModelError, match="model .m. has no version 1"):
        con.execute("SELECT predict('m/1', *, approximate := true) FROM fresh")


def test_a_loss_that_no_small_model_keeps_to(con: Session) -> None:
    """The number says nothing of these rows, and the text everything."""
    con.execute("ALTER MODEL m DROP CASCADE")
    query = "SELECT 0.1 * sin(id) AS x, t, (t LIKE '%yes%')::INT AS y FROM train"
    learn = LEARN.replace("SELECT x, t, y FROM train", query)
    told = dict(con.execute(learn).fetchall())
    assert told["stored"] == "no"
    assert re.match("no small model is sure enough|a query would take 1", told["reason"])


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
