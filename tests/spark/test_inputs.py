"""What columns feed a model on Spark: texts, lists, maps, structs, and thousands of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from feature_engine.datetime import DatetimeFeatures
from scipy.sparse import issparse
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer

from sqlml import errors

NAN = float("nan")


def test_texts_beside_numbers(con: Any, spark: Any) -> None:
    rng = np.random.default_rng(0)
    words = ["spark", "duck", "it's", "naïve", '\\ "q"', "😀 smile", "", "a, b"]
    said = [" ".join(rng.choice(words, 6)) for _ in range(400)]
    frame = pd.DataFrame({"id": range(400), "said": said, "size": rng.normal(size=400)})
    model = make_pipeline(
        make_column_transformer((TfidfVectorizer(), "said"), ("passthrough", ["size"])),
        LogisticRegression(),
    ).fit(frame, ["duck" in text for text in said])
    spark.createDataFrame(frame).createOrReplaceTempView("said")
    con.create_model("mood", model, verify=False)
    found = con.sql(
        "SELECT id, predict('mood', *) AS y, predict_proba('mood', *, class := true) AS p FROM said"
        " WHERE predict_proba('mood', *, class := true) >= 0 ORDER BY id"
    ).collect()
    assert [row.y for row in found] == model.predict(frame).tolist()
    np.testing.assert_allclose([r.p for r in found], model.predict_proba(frame)[:, 1], rtol=1e-9)


LISTS = {
    "STRING": [["a", "b"], ["b"], [], ["it's", 'q"\\', "c"], ["NaN", "null"]],
    "BIGINT": [[1, 2], [3], [], [2], [1, 3]],
    "DOUBLE": [[1.5, 2.0], [0.1], [], [float("inf")], [1e300, 5e-324]],
}


@pytest.mark.by_day(3)
@pytest.mark.parametrize("kind", LISTS)
def test_lists(con: Any, spark: Any, kind: str) -> None:
    values: list[Any] = LISTS[kind]
    model = MultiLabelBinarizer().fit(values)
    con.create_model("tags", model, inputs=["tags"], verify=False)
    rows = spark.createDataFrame(list(enumerate(values)), f"id INT, tags ARRAY<{kind}>")
    rows.createOrReplaceTempView("lists")
    found = con.sql("SELECT transform('tags', *) AS t FROM lists ORDER BY id").collect()
    np.testing.assert_array_equal([row.t for row in found], model.transform(values))


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("MAP<STRING, DOUBLE>", [{"a": 1.5, 'b"\\': -2.0}, {}, {"NaN": 0.1, "c": 1e17}]),
        ("MAP<STRING, FLOAT>", [{"a": np.float32(0.1).item()}, {"a": 16777216.0}, {"b": 3.0}]),
        ("MAP<STRING, STRING>", [{"a": "NaN", "b": "it's"}, {"b": 'x":"NaN"'}, {"c": ""}]),
        ("MAP<STRING, INT>", [{"a": 1}, {"a": -7, "b": 3}, {}]),
        ("STRUCT<`x y`: DOUBLE, `q``'s`: STRING>", [{"x y": 2.5, "q`'s": "NaN"}] * 3),
    ],
)
def test_maps_and_structs(con: Any, spark: Any, kind: str, values: list[Any]) -> None:
    model = FeatureHasher(16)
    con.create_model("hashed", model, inputs=["f"], verify=False)
    rows = spark.createDataFrame(list(enumerate(values)), f"id INT, f {kind}")
    rows.createOrReplaceTempView("maps")
    found = con.sql("SELECT transform('hashed', f) AS t FROM maps ORDER BY id").collect()
    want = model.transform(values)
    np.testing.assert_array_equal([r.t for r in found], want.toarray() if issparse(want) else want)


def test_what_is_not_finite_stays_a_number(con: Any, spark: Any) -> None:
    """Spark's own to_json would make it a text, of which the hasher takes the name and 1."""
    model = FeatureHasher(4)
    con.create_model("hashed", model, inputs=["f"], verify=False)
    values = [{"a": NAN}, {"a": float("inf")}, {"a": float("-inf")}]
    rows = spark.createDataFrame(list(enumerate(values)), "id INT, f MAP<STRING, DOUBLE>")
    rows.createOrReplaceTempView("odd")
    found = con.sql("SELECT transform('hashed', f) AS t FROM odd ORDER BY id").collect()
    np.testing.assert_array_equal([row.t for row in found], model.transform(values).toarray())


def test_types_that_feed_nothing_are_told_in_sparks_words(con: Any) -> None:
    for given, says in (
        ("age := array(age)", r"ARRAY<DOUBLE>; .*\(array\(age\)\)\[0\] .*or aggregate\("),
        ("age := current_date()", r"unix_timestamp\(\(current_date\(\)\)\)"),
        ("age := plan", r"is STRING; cast it, for instance `age` := CAST\(plan AS DOUBLE\)"),
    ):
        with pytest.raises(errors.ColumnTypeError, match=says):
            con.sql(f"SELECT predict('value', *, {given}) FROM customers")


@pytest.mark.nightly
def test_two_thousand_columns(con: Any, spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = [f"c{k}" for k in range(2000)]
    frame = pd.DataFrame(rng.normal(size=(300, 2000)), columns=names)
    label = np.where(frame.c3 + frame.c1999 > 0, "up", "down")
    frame.assign(id=range(300)).to_parquet(tmp_path / "wide.parquet")
    spark.read.parquet(str(tmp_path / "wide.parquet")).createOrReplaceTempView("wide")
    for name, model in (
        ("forest", RandomForestClassifier(40, random_state=0).fit(frame, label)),
        ("ridge", Ridge().fit(frame, frame.c3)),
    ):
        con.create_model(name, model, verify=False)
        found = con.sql(f"SELECT id, predict('{name}', *) AS y FROM wide ORDER BY id").collect()
        want = model.predict(frame).tolist()
        assert [row.y for row in found] == (want if name == "forest" else pytest.approx(want))
    needed = con.sql("SELECT predict('forest', *) FROM wide").inputFiles()
    assert len(needed) == 1


def test_dates_and_timestamps_are_local_times(spark: Any, con: Any) -> None:
    """As people read them, whatever the session's time zone and daylight saving."""
    rows = pd.DataFrame(
        {"at": pd.date_range("2024-03-30 22:30", periods=60, freq="47min"), "x": range(60)}
    )
    rows.loc[5, "at"] = pd.NaT
    step = DatetimeFeatures("at", features_to_extract=["day_of_week", "hour", "minute"])
    step.set_params(missing_values="ignore")
    model = make_pipeline(step, SimpleImputer(), LinearRegression()).fit(rows, rows["x"] % 7)
    con.create_model("dated", model)
    texts = rows.assign(at=rows["at"].dt.strftime("%Y-%m-%d %H:%M:%S"))
    spark.createDataFrame(texts).createOrReplaceTempView("texts")
    for kind in ("TIMESTAMP_NTZ", "TIMESTAMP"):
        query = f"SELECT x, predict('dated', at := CAST(at AS {kind}), x := x) AS p FROM texts"
        told = {row.x: row.p for row in con.sql(query).collect()}
        assert [told[x] for x in range(60)] == pytest.approx(model.predict(rows), rel=1e-12)
    days = rows.assign(at=rows["at"].dt.normalize())
    query = "SELECT x, predict('dated', at := CAST(at AS DATE), x := x) AS p FROM texts"
    told = {row.x: row.p for row in con.sql(query).collect()}
    assert [told[x] for x in range(60)] == pytest.approx(model.predict(days), rel=1e-12)
