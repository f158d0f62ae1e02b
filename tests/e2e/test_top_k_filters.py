"""Top-K filters in SQL: the best rows by a model, of which the full model ranks only some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

import sqlml
from sqlml.errors import CatalogError, ConfigError
from sqlml.session.session import Session

K = 10
SLOW = "list_sum(list_transform(range(200), lambda i: sin(i + a)))"
LEARN = (
    f"ALTER MODEL m ADD TOP_K FILTER USING (SELECT a, b, far + 0 * {SLOW} AS far FROM train "
    f"LEFT JOIN more ON train.id = more.id) OPTIONS (k = {K}, precision = 0.9)"
)
"""It takes so long to make `far` that much is gained, however busy the machine is."""

SCORE = "predict('m', *, approximate := true)"
JOINED = "fresh LEFT JOIN more ON fresh.id = more.id"
GROUPED = (
    "fresh LEFT JOIN (SELECT id, max(far) AS far FROM more GROUP BY id) AS t ON fresh.id = t.id"
)
LATERAL = "fresh, LATERAL (SELECT max(far) AS far FROM more WHERE more.id = fresh.id) AS l"
WHOLE = f"SELECT fresh.*, far FROM {JOINED}"


def frame(n: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(random.normal(size=(n, 3)), columns=["a", "b", "far"])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression and a classifier of three columns, one of which comes from another table."""
    made = tmp_path_factory.mktemp("top_k") / "k.duckdb"
    rows = frame(3_000, 0)
    value = 3 * rows.a + rows.b**2 + 0.3 * rows.far
    with sqlml.connect(str(made)) as con:
        con.create_model("m", GradientBoostingRegressor(random_state=0).fit(rows, value))
        kind = np.where(value > 2, "high", "low")
        con.create_model("c", GradientBoostingClassifier(random_state=0).fit(rows, kind))
        con.register("rows", frame(41_000, 1).assign(id=range(41_000)))
        con.execute("CREATE TABLE train AS SELECT id, a, b FROM rows WHERE id < 36000")
        con.execute("CREATE TABLE fresh AS SELECT id, a, b FROM rows WHERE id >= 36000")
        con.execute("CREATE TABLE more (id BIGINT PRIMARY KEY, far DOUBLE)")
        con.execute("INSERT INTO more SELECT id, far FROM rows")
        told = dict(con.execute(LEARN).fetchall())
        assert told["stored"] == "yes", told
    return made


@pytest.fixture
def con(path: Path, tmp_path: Path) -> Iterator[Session]:
    copy = tmp_path / "k.duckdb"
    copy.write_bytes(path.read_bytes())
    with sqlml.connect(str(copy)) as made:
        yield made


def best(con: Session, query: str) -> list[tuple[object, ...]]:
    return con.execute(query).fetchall()


def test_the_best_rows_are_ranked_by_the_full_model(con: Session) -> None:
    query = "SELECT fresh.id, {} AS p FROM " + JOINED + f" ORDER BY p DESC LIMIT {K}"
    exact = best(con, query.format("predict('m', *)"))
    fast = best(con, query.format(SCORE))
    assert len(set(exact) & set(fast)) >= 9
    values = [p for _, p in fast]
    assert values == sorted(values, reverse=True)


def test_few_rows_meet_the_full_model(con: Session) -> None:
    plan = con.plan(f"SELECT fresh.id FROM {JOINED} ORDER BY {SCORE} DESC LIMIT {K}", analyze=True)
    (call,) = plan.calls
    assert call.idle_parts == ("join more",)
    facts = call.filtered
    left = max(np.ceil(facts.ratio * K), np.ceil(5_000 * facts.ratio * K / facts.rows))
    assert plan.analysis.functions[call.spec.name].rows == left < 2_500
    text = " ".join(str(plan).split())
    assert "approximate a small model ranks all rows" in text
    assert "only of the best join more, for" in text


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT fresh.id FROM {JOINED} WHERE b > 0 ORDER BY {{}} DESC LIMIT 5",
        f"SELECT fresh.id FROM {JOINED} ORDER BY {{}} DESC, fresh.id LIMIT 5 OFFSET 5",
        f"SELECT id FROM ({WHOLE}) q ORDER BY {{}} DESC LIMIT 10",
        f"WITH w AS ({WHOLE}) SELECT id FROM w ORDER BY {{}} DESC LIMIT 10",
        f"SELECT count(*) FROM (SELECT fresh.id FROM {JOINED} ORDER BY {{}} DESC LIMIT 10)",
        f"SELECT fresh.id FROM {GROUPED} WHERE b > 0 AND a < 9 ORDER BY {{}} DESC LIMIT 10",
        f"SELECT id FROM (SELECT fresh.*, far FROM {GROUPED}) q ORDER BY {{}} DESC LIMIT 5",
        f"SELECT fresh.id FROM {LATERAL} ORDER BY {{}} DESC LIMIT 10",
    ],
)
def test_forms_of_a_query(con: Session, query: str) -> None:
    exact, fast = query.format("predict('m', *)"), query.format(SCORE)
    plan = con.plan(fast)
    assert plan.calls[0].filtered is not None
    assert ("far FROM more WHERE id IN" in plan.sql) == (GROUPED in query)
    found, wanted = best(con, fast), best(con, exact)
    assert len(found) == len(wanted)
    if "count" not in query:
        assert len(set(found) & set(wanted)) >= len(wanted) - 1


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (f"SELECT fresh.id FROM {JOINED} ORDER BY {SCORE} LIMIT 5", "ORDER BY <the call> DESC"),
        (f"SELECT fresh.id FROM {JOINED} ORDER BY {SCORE} DESC LIMIT 11", "it requests 11 rows"),
        (
            f"SELECT fresh.id FROM {JOINED} ORDER BY {SCORE} DESC LIMIT 5 OFFSET 9",
            "it requests 14 rows",
        ),
        (
            f"SELECT fresh.id FROM {JOINED} WHERE far > 0 ORDER BY {SCORE} DESC LIMIT 5",
            "read more than the first table",
        ),
        (
            f"SELECT fresh.id FROM {JOINED} WHERE b > random() - 9 ORDER BY {SCORE} DESC LIMIT 5",
            "may have another result when it is evaluated again",
        ),
        (
            "SELECT fresh.id FROM fresh LEFT JOIN (FROM more) more ON fresh.id = more.id "
            f"ORDER BY {SCORE} DESC LIMIT 5",
            "no key that is known to be unique",
        ),
        (f"SELECT max({SCORE}) FROM {JOINED}", "ORDER BY <the call> DESC"),
    ],
)
def test_queries_that_are_answered_exactly(con: Session, query: str, why: str) -> None:
    assert why in " ".join(con.explain(query).split())
    exact = query.replace(SCORE, "predict('m', *)")
    assert best(con, query) == best(con, exact)


def test_probabilities_of_a_class(con: Session) -> None:
    learn = LEARN.replace("MODEL m", "MODEL c").replace("(k =", "(class = high, k =")
    con.execute(learn).fetchall()
    query = f"SELECT fresh.id FROM {JOINED} ORDER BY {{}} DESC LIMIT 10"
    call = "predict_proba('c', *, class := '{}', approximate := true)"
    plan = con.plan(query.format(call.format("high")))
    assert plan.calls[0].filtered is not None
    text = con.explain(query.format(call.format("low")))
    assert "ranks rows by another class or output" in text
    told = dict(con.execute("DESCRIBE MODEL c").fetchall())
    assert told["top_k filter: guarantee"].startswith("of the best 10 rows at least 90%")


def test_exact_queries_stay_exact(con: Session) -> None:
    query = f"SELECT fresh.id FROM {JOINED} ORDER BY predict('m', *) DESC LIMIT {K}"
    before, sql = best(con, query), con.plan(query).sql
    con.execute("ALTER MODEL m DROP TOP_K FILTER")
    assert (best(con, query), con.plan(query).sql) == (before, sql)
    assert best(con, query.replace("predict('m', *)", SCORE)) == before
    with pytest.raises(CatalogError, match="has no top_k filter for its version 1"):
        con.execute("ALTER MODEL m DROP TOP_K FILTER")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("k = 0", "option k must be a number of rows"),
        ("k = 2.5", "option k must be a number of rows"),
        ("precision = 2", "precision must lie between 0 and 1"),
        ("class = x", "predicts a number and has no classes"),
        ("label = x", "unknown option 'label'; options of ADD TOP_K FILTER: k, precision, class"),
        ("k = 100", "too few to try top-100 queries"),
    ],
)
def test_options_that_make_no_sense(con: Session, options: str, message: str) -> None:
    using = "USING (SELECT a, b, far FROM train LEFT JOIN more ON train.id = more.id)"
    with pytest.raises(ConfigError, match=message):
        con.execute(f"ALTER MODEL m ADD TOP_K FILTER {using} OPTIONS ({options})")


def test_on_plain_connections_nothing_is_approximated(path: Path) -> None:
    if duckdb.__version__ < "2":
        pytest.skip("1.5 makes no such files")
    with duckdb.connect(str(path), read_only=True) as plain:
        rows = plain.execute("SELECT kind FROM sqlml.catalog_small_models").fetchall()
    assert rows == [("top_k",)]


def test_verify_tells_how_many_of_the_best_rows_are_right(con: Session) -> None:
    con.execute(f"CREATE TABLE joined AS {WHOLE}")
    query = "SELECT a, b, far FROM joined ORDER BY {} DESC LIMIT 10"
    exact = best(con, query.format("predict('m', *)"))
    fast = best(con, query.format(SCORE))
    wrong = K - len(set(exact) & set(fast))
    found = con.execute("VERIFY MODEL m USING (FROM joined)").fetchall()
    told = ("top_k filter", 5_000, wrong / K, None, pytest.approx(0.1), wrong, True)
    assert found == [told]
