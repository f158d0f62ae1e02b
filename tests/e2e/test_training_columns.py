"""Lists, maps, structs and texts as columns to learn from: models equal those made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import sqlml
from tests.support.trained_by_hand import fitted, rows_of

TABLE = """
    CREATE TABLE t AS SELECT i AS id,
        [hash(i) % 10, hash(i, 1) % 7]::INTEGER[2] AS pair,
        [hash(i, 2) % 9 / 3, i % 4 + 0.5]::DOUBLE[] AS vector,
        CASE WHEN i % 5 > 0 THEN
            list_filter(['red', 'green', 'blue'], lambda x: hash(x, i) % 2 = 0) END AS tags,
        CASE WHEN i % 7 > 0 THEN MAP {'a': i % 3, 'b': i % 4} WHEN i % 14 = 0 THEN MAP {'c': 5}
            END AS counts,
        MAP {'kind': ['x', 'y', NULL][(hash(i, 3) % 3)::INTEGER + 1]} AS kinds,
        {'on': DATE '2024-01-01' + (i % 400)::INTEGER, 'in': {'it''s': 'n' || (i % 3)}} AS s,
        range(i % 4) AS uneven,
        hash(i) % 10 + CASE WHEN list_contains(tags, 'red') THEN 5 ELSE 0 END
            + coalesce(counts['a'], 0) > 7 AS y
    FROM range(600) r(i);
    CREATE TABLE notes AS SELECT i AS id, i % 11 AS a,
        ['gold', 'silver', NULL][(hash(i, 9) % 3)::INTEGER + 1] AS plan,
        CASE WHEN i % 13 > 0 THEN list_aggregate(list_transform(range(6), lambda x:
            ['good', 'bad', 'slow', 'fast', 'kind', 'rude'][(hash(x, i) % 6)::INTEGER + 1]),
            'string_agg', ' ') || ' n' || i END AS review,
        coalesce(review LIKE '%good%', false) AS y
    FROM range(700) r(i);
"""

QUERY = "SELECT * EXCLUDE (id) FROM t"
OPTIONS = "label = 'y', split = 'random', eval_fraction = 0.2, seed = 7"

FLAT = """
    SELECT pair[1] AS pair_1, pair[2] AS pair_2, vector[1] AS vector_1, vector[2] AS vector_2,
        list_contains(tags, 'blue') AS tags_blue, list_contains(tags, 'green') AS tags_green,
        list_contains(tags, 'red') AS tags_red,
        CASE WHEN counts IS NOT NULL THEN coalesce(counts['a'], 0) END AS counts_a,
        CASE WHEN counts IS NOT NULL THEN coalesce(counts['b'], 0) END AS counts_b,
        CASE WHEN counts IS NOT NULL THEN coalesce(counts['c'], 0) END AS counts_c,
        kinds['kind'] AS kinds_kind,
        year(s.on) AS s_on_year, month(s.on) AS s_on_month, day(s.on) AS s_on_day,
        dayofweek(s.on) AS s_on_dayofweek, epoch(s.on) AS s_on_epoch,
        s.in['it''s'] AS "s_in_it's", y
    FROM t
"""


@pytest.fixture(scope="module")
def con() -> Any:
    with sqlml.connect() as made:
        made.execute(TABLE)
        yield made


@pytest.mark.by_day(3)
@pytest.mark.parametrize(
    "options",
    [
        "model_type = 'boosted_tree_classifier', library = 'xgboost', n_estimators = 10",
        "model_type = 'boosted_tree_classifier', library = 'lightgbm', n_estimators = 10",
        "model_type = 'logistic_reg'",
    ],
)
def test_nested_columns_are_their_parts(con: sqlml.Session, options: str) -> None:
    split = "split = 'custom', split_column = 'held'"
    for name, query in (("nested", QUERY), ("flat", FLAT)):
        con.execute(
            f"CREATE OR REPLACE MODEL {name} OPTIONS ({options}, label = 'y', {split}) AS "
            f"SELECT *, hash(row_number() OVER ()) % 5 = 0 AS held FROM ({query})"
        )
    features = "SELECT input, type, null_count FROM ml_feature_info(MODEL {}) ORDER BY ALL"
    parts = con.execute(features.format("nested")).fetchall()
    assert [p[0] for p in parts] == [f[0] for f in con.execute(features.format("flat")).fetchall()]
    assert [p[2] for p in parts] == [f[2] for f in con.execute(features.format("flat")).fetchall()]
    told = con.execute(f"SELECT predict_proba('nested', *)['true'] FROM ({QUERY})").fetchall()
    assert told == con.execute(f"SELECT predict_proba('flat', *)['true'] FROM ({FLAT})").fetchall()
    assert len({p for (p,) in told}) > 20
    missing = con.execute(
        "SELECT predict_proba('nested', NULL::INTEGER[2], NULL::DOUBLE[], NULL::VARCHAR[], "
        "NULL::MAP(VARCHAR, BIGINT), MAP {'kind': 'new'}, s) FROM t LIMIT 1"
    ).fetchall()
    assert missing[0][0] is not None


def test_what_has_no_parts_is_left_out_and_named(con: sqlml.Session) -> None:
    told = con.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'logistic_reg', label = 'y') AS "
        "SELECT uneven, pair, y, [[1, 2]] AS deep, []::VARCHAR[] AS none FROM t"
    ).fetchall()
    assert ("notice", "column 'uneven' is left out: models do not learn from BIGINT[] of "
            "different lengths") in told  # fmt: skip
    names = {text.split("'")[1] for what, text in told if what == "notice"}
    assert names == {"uneven", "deep", "none"}


@pytest.mark.parametrize(
    "options",
    [
        "model_type = 'logistic_reg'",
        "model_type = 'boosted_tree_classifier', library = 'xgboost', n_estimators = 10",
        "model_type = 'boosted_tree_classifier', library = 'lightgbm', n_estimators = 10",
        "model_type = 'random_forest_classifier', library = 'sklearn', n_estimators = 5",
    ],
)
def test_a_model_of_texts_equals_the_librarys_own(con: sqlml.Session, options: str) -> None:
    query = "SELECT * EXCLUDE (id) FROM notes"
    con.execute(f"CREATE OR REPLACE MODEL m OPTIONS ({options}, {OPTIONS}) AS {query}")
    frame, y, held = rows_of(con, query, "y")
    frame["review"] = frame["review"].fillna("")
    frame["plan"] = frame["plan"].astype(object).where(frame["plan"].notna(), np.nan)
    model = con.estimator("m")
    features, estimator = fitted(model, frame, y, held)
    texts = features.named_transformers_["text_0"]
    linear = isinstance(estimator, LogisticRegression)
    steps = [texts] if linear else [step for _, step in texts.steps]
    assert [type(s) for s in steps] == [TfidfVectorizer, TruncatedSVD][: len(steps)]
    wanted = estimator.predict_proba(features.transform(frame))[:, 1]
    ours = con.execute(f"SELECT predict_proba('m', *)['true'] AS p FROM ({query})").df()["p"]
    assert np.allclose(ours, wanted, rtol=1e-6 if "xgboost" in options else 1e-12)
    assert np.mean((wanted > 0.5) == y) > 0.9
    assert not con.execute("SELECT predict('m', a, plan, NULL) FROM notes LIMIT 1").fetchall()[0][0]


def test_names_that_data_bring_do_not_collide(con: sqlml.Session) -> None:
    con.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'logistic_reg', label = 'y') AS SELECT "
        "[CASE WHEN id % 2 = 0 THEN 'Red' ELSE 'red' END] AS tags, id % 3 AS tags_red_2, "
        "'words and ' || review AS a__b, y FROM notes"
    )
    found = con.execute("SELECT input FROM ml_feature_info(MODEL m)").fetchall()
    assert {name for (name,) in found} == {"tags_Red", "tags_red_3", "tags_red_2", "a__b"}
    assert con.execute("SELECT count(predict('m', *)) FROM (SELECT ['Red'] AS tags, 1 AS "
                       "tags_red_2, 'good' AS a__b)").fetchall() == [(1,)]  # fmt: skip


def test_texts_without_null_are_read_as_they_are(con: sqlml.Session) -> None:
    told = con.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'logistic_reg', label = 'y') AS "
        "SELECT review, y FROM notes WHERE review IS NOT NULL"
    ).fetchall()
    assert not [text for what, text in told if what == "notice"]
    assert "made in SQL" not in con.explain("SELECT predict('m', *) FROM notes")


def test_texts_that_are_no_sentences_are_keys(con: sqlml.Session) -> None:
    told = con.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'logistic_reg', label = 'y') AS "
        "SELECT 'north of New York ' || id AS place, 'key-' || id AS key, a, y FROM notes "
        "WHERE id < 300"
    ).fetchall()
    keys = [text for what, text in told if what == "notice" and "like a key" in text]
    assert len(keys) == 1 and "'key'" in keys[0]
    assert "TfidfVectorizer" in str(con.estimator("m"))
