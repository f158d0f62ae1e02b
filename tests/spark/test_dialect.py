"""Each piece of SQL that a dialect spells means the same in DuckDB and in Spark."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier

from sqlml.dialects import DUCKDB, SPARK, Dialect
from tests.spark.conftest import FEATURES, NUMBERS

ODD = "it's `a` \"b\" \\n \\ é 😀 ''"
NAME = "a`b\"c' d"
NULL = {"duckdb": "CAST(NULL AS VARCHAR)", "spark": "CAST(NULL AS STRING)"}
PIECES: dict[str, tuple[Callable[[Dialect], str], Any]] = {
    "a text": (lambda d: d.quote_string(ODD), ODD),
    "a name": (
        lambda d: "(SELECT {0} FROM (SELECT 3 AS {0}))".format(d.quote_name(NAME)),
        3,
    ),
    "a list": (lambda d: d.array(["1", "2"]), [1, 2]),
    "an element": (lambda d: d.at(d.array(["5", "7"]), 2), 7),
    "an element at a place": (lambda d: d.at(f"({d.array(['5', '7'])})", "1 + 1"), 7),
    "a part": (lambda d: d.part(d.array(["1", "2", "3", "4"]), 2, 3), [2, 3]),
    "some elements": (lambda d: d.pick(d.array(["5", "6", "7"]), d.array(["3", "1"])), [7, 5]),
    "a map": (lambda d: d.map(d.array(["'a'", "'b'"]), d.array(["1", "2"])), {"a": 1, "b": 2}),
    "a field": (lambda d: d.field(d.struct({"a": "1", "b": "'x'"}), "b"), "x"),
    "a value with a name": (lambda d: d.let("p", "2", "p * p + p"), 6),
    "each value": (lambda d: d.each(d.array(["1", "2"]), "p", "p + 1"), [2, 3]),
    "finite": (lambda d: d.is_finite("'1.5'::DOUBLE"), True),
    "not finite": (lambda d: d.is_finite("'inf'::DOUBLE"), False),
    "NaN is not finite": (lambda d: d.is_finite("'nan'::DOUBLE"), False),
    "infinite": (lambda d: d.is_infinite("'-inf'::DOUBLE"), True),
    "NaN is not infinite": (lambda d: d.is_infinite("'nan'::DOUBLE"), False),
    "without a fraction": (lambda d: d.truncated("'-2.7'::DOUBLE", "BIGINT"), -2),
    "half to even": (lambda d: d.rounded_to_even("'2.5'::DOUBLE"), 2.0),
    "half to even, up": (lambda d: d.rounded_to_even("'-3.5'::DOUBLE"), -4.0),
    "the greatest": (lambda d: d.place_of_greatest(d.array(["1", "9", "9", "3"])), 2),
    "a place": (lambda d: d.place_of("'b'", ["'a'", "'b'"]), 1),
    "no place": (lambda d: d.place_of("'c'", ["'a'", "'b'"]), -1),
    "the place of NULL": (lambda d: d.place_of(NULL[d.name], ["'a'"]), -1),
    "bytes": (lambda d: d.bytes("'é'"), "é".encode()),
    "types": (
        lambda d: f"CAST(NULL AS {d.type('STRUCT(t0 BIGINT, t1 MAP(VARCHAR, DOUBLE[]))[]')})",
        None,
    ),
}


def test_a_piece_means_the_same(spark: Any) -> None:
    written = [", ".join(write(d) for write, _ in PIECES.values()) for d in (DUCKDB, SPARK)]
    duck = duckdb.connect().execute(f"SELECT {written[0]}").fetchone()
    (made,) = spark.sql(f"SELECT {written[1]}").collect()
    plain = [bytes(v) if isinstance(v, bytearray) else v for v in made]
    want = {name: value for name, (_, value) in PIECES.items()}
    assert dict(zip(PIECES, duck or (), strict=True)) == want
    assert dict(zip(PIECES, plain, strict=True)) == want


def test_an_error_is_raised_where_it_is_used(spark: Any) -> None:
    asked = f"CASE WHEN id = 7 THEN {SPARK.error(SPARK.text(ODD))} ELSE id END"
    assert len(spark.sql(f"SELECT {asked} FROM range(5)").collect()) == 5
    with pytest.raises(Exception, match="it's `a`"):
        spark.sql(f"SELECT {asked} FROM range(9)").collect()


MODELS = {
    "a sum": LinearRegression(),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "three classes": make_pipeline(StandardScaler(), LogisticRegression()),
    "a tree": DecisionTreeClassifier(max_depth=3, random_state=0),
    "a network": make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=20, random_state=0)),
}
"""Models of numbers that have a form in SQL, to be fitted on labels."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.by_day(4)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_as_an_expression(con: Any, frame: pd.DataFrame, name: str) -> None:
    model, x = MODELS[name], frame[NUMBERS]
    classes = 3 if name == "three classes" else 2
    y = frame.age * 2 if name == "a sum" else np.array(["a", "b'", "c"])[frame.id % classes]
    con.create_model("m", model.fit(x, y), backend="sql", verify=False)
    query = "SELECT predict('m', *) AS y, id FROM customers ORDER BY id"
    assert "in UDF            nothing" in con.explain(query)
    found = [row.y for row in con.sql(query).collect()]
    want = model.predict(x)
    if name == "a sum":
        np.testing.assert_allclose(found, want, rtol=1e-9)
        return
    assert found == list(want)
    query = "SELECT predict_proba('m', *) AS p, id FROM customers ORDER BY id"
    proba = [list(row.p.values()) for row in con.sql(query).collect()]
    np.testing.assert_allclose(proba, model.predict_proba(x), rtol=1e-9, atol=1e-12)


@pytest.mark.nightly
def test_probabilities_in_float32(con: Any, frame: pd.DataFrame) -> None:
    """As XGBoost rounds them, be it in an expression or in the function."""
    x = frame[NUMBERS].astype("float32")
    model = XGBClassifier(n_estimators=3, max_depth=2).fit(x, frame.age > 40)
    con.create_model("m", model, verify=False)
    want = model.predict_proba(x).astype(float).tolist()
    for backend in ("sql", "native"):
        con.sql(f"ALTER MODEL m SET OPTIONS (backend = '{backend}')")
        found = con.sql("SELECT id, predict_proba('m', *) AS p FROM customers ORDER BY id")
        assert [list(row.p.values()) for row in found.collect()] == want
        nothing = "SELECT predict('m', *) FROM (SELECT NULL AS age, income FROM customers) LIMIT 5"
        gone = model.predict(np.array([[np.nan, 1.0]], np.float32))[0]
        assert {row[0] for row in con.sql(nothing).collect()} == {bool(gone)}


@pytest.mark.nightly
def test_categories_as_expressions(con: Any, frame: pd.DataFrame) -> None:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["plan"]), ("passthrough", NUMBERS)
    )
    ordinal = make_column_transformer((OrdinalEncoder(), ["plan"]), ("passthrough", NUMBERS))
    label = np.where(frame.age > 40, "old", "young")
    for name, model in (
        ("one_hot", make_pipeline(encode, LogisticRegression(max_iter=500))),
        ("ordinal", make_pipeline(ordinal, DecisionTreeRegressor(max_depth=4))),
    ):
        y = label if name == "one_hot" else frame.age + 50 * (frame.plan == "pro")
        con.create_model(name, model.fit(frame[FEATURES], y), verify=False)
        want = model.predict(frame[FEATURES])
        for backend in ("sql", "auto"):
            con.sql(f"ALTER MODEL {name} SET OPTIONS (backend = '{backend}')")
            found = con.sql(f"SELECT predict('{name}', *), id FROM customers ORDER BY id").collect()
            assert [row[0] for row in found] == pytest.approx(list(want), nan_ok=False) or [
                row[0] for row in found
            ] == list(want)
    with pytest.raises(Exception, match="category"):
        con.sql("SELECT predict('ordinal', *, plan := 'new') FROM customers").collect()


def test_several_targets(con: Any, frame: pd.DataFrame) -> None:
    labels = np.stack([frame.id % 2, frame.id % 3], axis=1)
    model = MultiOutputClassifier(DecisionTreeClassifier(max_depth=5)).fit(frame[NUMBERS], labels)
    con.create_model("both", model, verify=False)
    found = con.sql(
        "SELECT id, predict('both', *) AS y, predict_proba('both', *) AS p FROM customers "
        "ORDER BY id"
    ).collect()
    assert [row.y for row in found] == model.predict(frame[NUMBERS]).tolist()
    for t, want in enumerate(model.predict_proba(frame[NUMBERS])):
        made = [list(row.p[t].values()) for row in found]
        np.testing.assert_allclose(made, want, rtol=1e-12)
    assert not any(math.isnan(v) for row in found for p in row.p for v in p.values())
