"""Texts, names and times mean the same whatever a user's session is set to."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from sqlml import errors

ODD = ["${x}", "it's ${spark.master}", "${env:HOME}", "a\\b", 'say "hi"', "it''s", "z\\n", ""]


@contextmanager
def set_to(spark: Any, key: str, value: str) -> Iterator[None]:
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.unset(key)


@pytest.fixture(params=[{}, {"spark.sql.parser.escapedStringLiterals": "true"}], ids=str)
def settings(spark: Any, request: Any) -> Iterator[None]:
    for key, value in request.param.items():
        with set_to(spark, key, value):
            yield
        return
    yield


@pytest.mark.by_day(2)
@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("kind", [DecisionTreeClassifier, RandomForestClassifier])
def test_odd_labels(con: Any, spark: Any, kind: Any) -> None:
    x = pd.DataFrame({"a": np.arange(float(len(ODD)))})
    model = kind(random_state=0).fit(x, ODD)
    con.create_model("odd", model, verify=False)
    spark.createDataFrame(x).createOrReplaceTempView("x")
    found = con.sql("SELECT predict('odd', *) AS y, predict_proba('odd', *) AS p FROM x ORDER BY a")
    rows = found.collect()
    assert [row.y for row in rows] == list(model.predict(x))
    assert all(sorted(row.p) == sorted(ODD) for row in rows)
    plain = spark.sql("SELECT predict_odd(a) AS y FROM x ORDER BY a").collect()
    assert [row.y for row in plain] == list(model.predict(x))


@pytest.mark.usefixtures("settings")
def test_odd_categories(con: Any, spark: Any) -> None:
    x = pd.DataFrame({"s": ODD})
    model = make_pipeline(OneHotEncoder(), LinearRegression()).fit(x, np.arange(float(len(ODD))))
    con.create_model("odd", model, verify=False)
    spark.createDataFrame(x.assign(id=range(len(ODD)))).createOrReplaceTempView("x")
    found = con.sql("SELECT predict('odd', *) AS y FROM x ORDER BY id").collect()
    assert [row.y for row in found] == pytest.approx(model.predict(x).tolist())
    plain = spark.sql("SELECT predict_odd(s) AS y FROM x ORDER BY id").collect()
    assert [row.y for row in plain] == pytest.approx(model.predict(x).tolist())


def test_names_that_spark_replaces_are_refused(con: Any, spark: Any) -> None:
    x = pd.DataFrame({"": [1.0, 2.0, 3.0], "${x}": [4.0, 9.0, 4.0]})
    con.create_model("odd", RandomForestClassifier(5).fit(x, [0, 1, 2]), verify=False)
    spark.createDataFrame(x).createOrReplaceTempView("x")
    with pytest.raises(errors.BindError, match="rename '\\${x}'"):
        con.sql("SELECT predict('odd', *) FROM x")


def test_variables_of_the_users_query(con: Any, spark: Any, value: Any) -> None:
    with set_to(spark, "my.age", "1"):
        (row,) = con.sql("SELECT predict('value', age := ${my.age}, income := 0)").collect()
    asked = pd.DataFrame({"age": [1.0], "income": [0.0]})
    assert row[0] == pytest.approx(value.predict(asked)[0])


def test_parameters_are_what_they_are(con: Any, spark: Any) -> None:
    for text in ODD:
        assert con.sql("SELECT :p AS p", {"p": text}).collect()[0].p == text
    numbers = [np.float64(0.5), np.int32(-7), np.bool_(True), np.str_("x")]
    assert list(con.sql("SELECT ?, ?, ?, ?", numbers).collect()[0]) == [0.5, -7, True, "x"]
    for whole in (-(2**31), 2**31 - 1, -(2**63), 2**63 - 1, 2**63):
        (own,) = spark.sql("SELECT :p AS p", {"p": whole}).collect() if whole < 2**63 else [None]
        made = con.sql("SELECT :p AS p", {"p": whole})
        assert own is None or made.schema == spark.sql("SELECT :p AS p", {"p": whole}).schema
        assert made.collect()[0].p == whole
    noon = datetime.datetime(2020, 1, 1, 12)
    aware = noon.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=3)))
    with set_to(spark, "spark.sql.session.timeZone", "America/Los_Angeles"):
        spark.createDataFrame([(noon,)], "ts TIMESTAMP").createOrReplaceTempView("times")
        assert con.sql("SELECT count(*) FROM times WHERE ts = :p", {"p": noon}).collect() == [(1,)]
        for time in (noon, aware):
            (own,) = spark.sql("SELECT :p AS p", {"p": time}).collect()
            assert con.sql("SELECT :p AS p", {"p": time}).collect() == [own]


@pytest.mark.by_day(3)
@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE_CI", "UTF8_BINARY_RTRIM"])
def test_collated_strings_are_compared_by_their_bytes(con: Any, spark: Any, collation: str) -> None:
    x = pd.DataFrame({"s": ["x", "y", "X", "x  "]})
    encoder = OneHotEncoder(handle_unknown="ignore")
    for name, model in (
        ("line", make_pipeline(encoder, LinearRegression())),
        ("forest", make_pipeline(encoder, RandomForestClassifier(20, random_state=0))),
    ):
        model.fit(x[:2], [1, 2])
        con.create_model(name, model, verify=False, or_replace=True)
        spark.createDataFrame(x.assign(id=range(4))).createOrReplaceTempView("x")
        found = con.sql(
            f"SELECT predict('{name}', *) AS y FROM (SELECT id, s COLLATE {collation} AS s FROM x) "
            "ORDER BY id"
        )
        want = model.predict(x)
        assert [float(row.y) for row in found.collect()] == pytest.approx(want.tolist())
