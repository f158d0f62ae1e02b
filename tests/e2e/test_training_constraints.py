"""Constraints by feature, weights by class, and what RETRAIN compares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sqlml
from sqlml import errors

TREE = "model_type = 'boosted_tree_classifier', n_estimators = 8, label = 'y', split = 'none'"


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as made:
        made.execute(
            "CREATE TABLE t AS SELECT ['u', 'v'][(hash(i, 3) % 2)::INTEGER + 1] AS c, "
            "(hash(i, 1) % 100)::DOUBLE AS a, (hash(i, 2) % 100)::DOUBLE AS x, "
            "(a - x + hash(i, 4) % 60 > 0)::INTEGER AS y FROM range(600) r(i)"
        )
        yield made


def falls(con: sqlml.Session, column: str) -> bool:
    """Whether a probability falls anywhere as a column rises."""
    other = "x" if column == "a" else "a"
    told = con.execute(
        f"SELECT predict_proba('m', c := 'u', {column} := i::DOUBLE, {other} := 50.0)[1] "
        "FROM range(100) r(i) ORDER BY i"
    ).fetchall()
    values = [value for (value,) in told]
    return any(later < earlier for earlier, later in zip(values, values[1:], strict=False))


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "constraints",
    ["[0, 0, 1]", "'(0, 0, 1)'", "{'x': 1}", "MAP {'x': 1}", "[('x', 1)]"],
)
def test_constraints_are_those_of_the_querys_features(con: sqlml.Session, constraints: str) -> None:
    con.execute(f"CREATE MODEL m OPTIONS ({TREE}, max_depth = 4) AS FROM t")
    assert falls(con, "x")
    options = f"{TREE}, max_depth = 4, monotone_constraints = {constraints}"
    con.execute(f"CREATE OR REPLACE MODEL m OPTIONS ({options}) AS FROM t")
    assert not falls(con, "x") and falls(con, "a")
    ((_, text),) = con.execute("SHOW CREATE MODEL m").fetchall()
    con.execute(text.replace("CREATE MODEL", "CREATE OR REPLACE MODEL"))
    assert not falls(con, "x")


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("lightgbm", "monotone_constraints"),
        ("catboost", "monotone_constraints"),
        ("sklearn", "monotonic_cst"),
    ],
)
def test_all_libraries_take_constraints_by_name(
    con: sqlml.Session, library: str, name: str
) -> None:
    options = f"{TREE}, max_depth = 4, library = '{library}', {name} = {{'x': 1}}"
    con.execute(f"CREATE MODEL m OPTIONS ({options}) AS FROM t")
    assert not falls(con, "x")


@pytest.mark.parametrize(
    ("constraints", "says"),
    [
        ("[1, 0]", "has 2 values, and the model has 3 features: c, a, x"),
        ("{'z': 1}", "the model has no feature 'z'; features: c, a, x"),
        ("{'c': 1}", "column 'c' is a category"),
        ("{'a': 2}", r"must be -1, 0 or 1 for each feature.*not \[\['a', 2\]\]"),
        ("3", "must be -1, 0 or 1 for each feature"),
    ],
)
def test_constraints_that_fit_no_feature(con: sqlml.Session, constraints: str, says: str) -> None:
    options = f"{TREE}, monotone_constraints = {constraints}"
    with pytest.raises(errors.ConfigError, match=says):
        con.execute(f"CREATE MODEL m OPTIONS ({options}) AS FROM t")


@pytest.mark.by_day(3)
@pytest.mark.parametrize("kind", ["INTEGER", "DOUBLE", "DECIMAL(4, 1)"])
@pytest.mark.parametrize("spelled", ["[('0', 5), ('1', 1)]", "[(0, 5)]", "{'0': 5}", "[(0.0, 5)]"])
def test_a_class_may_be_written_as_any_number(con: sqlml.Session, kind: str, spelled: str) -> None:
    query = f"SELECT a, x, y::{kind} AS y FROM t"
    con.execute(
        f"CREATE MODEL m OPTIONS ({TREE}, max_depth = 1, class_weights = {spelled}) AS {query}"
    )
    (weighted,) = con.execute("SELECT avg(predict('m', *)) FROM t").fetchall()
    con.execute(f"CREATE MODEL n OPTIONS ({TREE}, max_depth = 1) AS {query}")
    assert weighted < con.execute("SELECT avg(predict('n', *)) FROM t").fetchall()[0]


def test_a_class_that_is_not_there_is_named_with_the_others(con: sqlml.Session) -> None:
    says = "unknown class '7'; classes: 0, 1"
    with pytest.raises(errors.ConfigError, match=says):
        con.execute(
            f"CREATE MODEL m OPTIONS ({TREE}, class_weights = [(7, 2)]) AS "
            "SELECT a, y::DOUBLE AS y FROM t"
        )


def test_promote_if_without_rows_held_out_is_told_before_the_work(con: sqlml.Session) -> None:
    con.execute(f"CREATE MODEL m OPTIONS ({TREE}) AS FROM t")
    says = "PROMOTE IF compares metrics on held-out rows, .* leave out PROMOTE IF, .* split = 'ra"
    with pytest.raises(errors.ConfigError, match=says):
        con.execute(
            "ALTER MODEL m RETRAIN AS SELECT *, error('read') AS z FROM t PROMOTE IF roc_auc > 0.1"
        )
    con.execute("ALTER MODEL m RETRAIN")
    few = TREE.replace("'none'", "'auto'")
    con.execute(f"CREATE MODEL n OPTIONS ({few}) AS FROM t LIMIT 400")
    with pytest.raises(errors.ConfigError, match=says):
        con.execute("ALTER MODEL n RETRAIN PROMOTE IF roc_auc > 0.1")
    assert len(con.execute("SHOW VERSIONS IN MODEL n").fetchall()) == 1
