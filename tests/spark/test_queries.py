"""Models in the queries of Spark answer as their libraries do."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml import errors
from tests.spark.conftest import FEATURES, NUMBERS
from tests.support import cascaded


def rows(con: Any, query: str, args: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in con.sql(query, args).collect()]


def test_an_array_is_its_elements_in_order(con: Any) -> None:
    asked = "SELECT count(*) FROM customers WHERE predict('value', {}) <=> predict('value', *)"
    found = {rows(con, asked.format(f"array({n})"))[0] for n in ("age, income", "age, income + 0")}
    assert found == {rows(con, "SELECT count(*) FROM customers")[0]}
    with pytest.raises(Exception, match="a list has another length"):
        rows(con, "SELECT predict('value', array(age, income, 1.0D)) FROM customers")


def test_labels_probabilities_and_numbers(
    con: Any, frame: pd.DataFrame, churn: Any, value: Any
) -> None:
    got = con.sql(
        "SELECT id, predict('churn', *) AS label, predict_proba('churn', *) AS proba, "
        "predict('value', *) AS v FROM customers ORDER BY id"
    )
    assert got.schema.simpleString() == (
        "struct<id:bigint,label:string,proba:map<string,double>,v:double>"
    )
    found = got.collect()
    assert [row.label for row in found] == list(churn.predict(frame[FEATURES]))
    want = churn.predict_proba(frame[FEATURES])
    made = [[row.proba["it's no"], row.proba["yes"]] for row in found]
    np.testing.assert_allclose(made, want, rtol=1e-12)
    np.testing.assert_allclose([r.v for r in found], value.predict(frame[NUMBERS]), rtol=1e-9)


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "call",
    [
        "predict('churn', *)",
        "predict('churn', c.*)",
        "predict('churn', * EXCEPT (unused, id))",
        "predict('churn', age, income, plan)",
        "predict('churn', plan => plan, income => income, age => age)",
        "predict('churn', `AGE` := age, income := income + 0, plan := concat(plan, ''))",
        "predict('churn', struct(plan, income, age))",
        "predict('churn', named_struct('plan', plan, 'income', income, 'age', age))",
        "predict('churn/1', *)",
        "predict('churn@last', *)",
    ],
)
def test_ways_to_name_the_columns(con: Any, frame: pd.DataFrame, churn: Any, call: str) -> None:
    found = rows(con, f"SELECT {call} FROM customers c ORDER BY id LIMIT 50")
    assert [row[0] for row in found] == list(churn.predict(frame[FEATURES])[:50])


def test_where_a_call_may_stand(con: Any, frame: pd.DataFrame, churn: Any) -> None:
    yes = churn.predict_proba(frame[FEATURES])[:, 1]
    label = churn.predict(frame[FEATURES])
    sure = int((yes > 0.8).sum())
    proba = "predict_proba('churn', *, class := 'yes')"
    assert rows(con, f"SELECT count(*) FROM customers WHERE {proba} > 0.8") == [(sure,)]
    assert rows(con, f"SELECT count(*) FROM customers WHERE {proba} > ?", [0.8]) == [(sure,)]
    assert rows(con, f"SELECT count(*) FROM customers WHERE {proba} > :p", {"p": 0.8}) == [(sure,)]
    grouped = rows(con, "SELECT predict('churn', *) AS y, count(*) FROM customers GROUP BY y")
    assert dict(grouped) == pd.Series(label).value_counts().to_dict()
    joined = rows(
        con,
        "WITH old AS (SELECT * FROM customers WHERE age > 40) SELECT avg(predict_proba('churn', "
        "o.*, class := 'yes')) FROM old o JOIN customers c USING (id) WHERE c.income > 10",
    )
    both = (frame.age > 40) & (frame.income > 10)
    assert joined == [(pytest.approx(yes[both].mean()),)]
    best = rows(con, f"SELECT id FROM customers ORDER BY {proba} DESC, id LIMIT 5")
    order = np.lexsort([frame.id, -yes])[:5]
    assert [row[0] for row in best] == frame.id[order].tolist()


def test_equal_calls_are_found_in_group_by(con: Any) -> None:
    by_name = rows(con, "SELECT predict('churn', *) AS y, count(*) FROM customers GROUP BY y")
    for query in (
        "SELECT {0} AS y, count(*) FROM customers c GROUP BY {1}",
        "SELECT y, n FROM (SELECT {1} AS y, max({2}) AS q, count(*) AS n FROM customers c "
        "GROUP BY {0} HAVING {1} IS NOT NULL)",
    ):
        calls = (
            "predict('churn', *)",
            "predict('churn', c.*)",
            "predict_proba('churn', *, class := 'yes')",
        )
        assert sorted(rows(con, query.format(*calls))) == sorted(by_name)


def test_a_literal_key_of_grouping_sets_is_not_replaced_in_a_model(con: Any, frame: Any) -> None:
    """Spark replaces equal literals by NULL too: an error if the model's SQL contains one."""
    for key in ("ROLLUP (k)", "CUBE (k)", "GROUPING SETS ((k), ())"):
        query = "SELECT {} AS k, max(predict('churn', *)) AS y FROM customers GROUP BY plan, " + key
        ours = "SELECT {} AS k, predict('churn', *) AS y FROM customers GROUP BY ALL"
        assert len(rows(con, query.format("'unused'"))) == 2 * frame.plan.nunique()
        assert len(rows(con, ours.format("'pro'"))) == 2
    query = "SELECT 'pro' AS k, predict('churn', 1, 2, plan) AS y FROM customers GROUP BY plan, "
    with pytest.raises(errors.BindError, match="'pro' is a key of grouping sets"):
        con.sql(f"{query} ROLLUP (k)")


def test_both_in_where_and_select(con: Any, frame: pd.DataFrame, churn: Any) -> None:
    found = rows(
        con,
        "SELECT *, predict('churn', *) AS y FROM customers WHERE predict('churn', *) = 'yes' "
        "AND id < 100 ORDER BY id",
    )
    label = churn.predict(frame[FEATURES])[:100]
    assert [row[0] for row in found] == np.flatnonzero(label == "yes").tolist()
    assert {row[-1] for row in found} == {"yes"} and len(found[0]) == 6


def test_the_table_form(con: Any, frame: pd.DataFrame, churn: Any) -> None:
    found = con.sql("SELECT * FROM ml_predict(MODEL churn, TABLE customers) ORDER BY id LIMIT 20")
    assert found.columns == [*frame.columns, "predicted_label", "predicted_label_probs"]
    label = [row.predicted_label for row in found.collect()]
    assert label == list(churn.predict(frame[FEATURES])[:20])


def test_only_the_models_columns_are_scanned(con: Any) -> None:
    for query in ("SELECT predict('value', *) FROM customers",):
        plan = con.explain(query)
        assert re.search(r"ReadSchema: struct<age:double,income:double>", plan), plan
    both = con.explain("SELECT predict('churn', *), predict_proba('churn', *) FROM customers")
    assert "ReadSchema: struct<age:double,income:double,plan:string>" in both
    assert both.count("one evaluation of label, proba") == 2
    (evaluated,) = re.findall(r"Arguments: \[(sqlml_.*)\], \[pythonUDF", both)
    assert evaluated.count("label_proba") == 1 and "array_position" in both


def test_what_is_wrong_is_said(con: Any) -> None:
    for query, error, says in (
        ("SELECT predict('nope', *) FROM customers", errors.UnknownModelError, "churn, value"),
        ("SELECT predict('churn', age) FROM customers", errors.ArityError, "3 features"),
        (
            "SELECT predict('value', * EXCEPT (age)) FROM customers",
            errors.MissingColumnError,
            "write `age` := <expression>",
        ),
        (
            "SELECT predict('value', *, age := plan) FROM customers",
            errors.ColumnTypeError,
            "takes numbers, but .* is STRING",
        ),
        ("SELECT predict('value', *, aeg := 1) FROM customers", errors.BindError, "'age'"),
        (
            "SELECT predict('value', age, incom) FROM customers",
            errors.BindError,
            "(?s)name `incom` cannot be resolved.*column 30",
        ),
        (
            "SELECT predict_proba('churn', *, class := 'maybe') FROM customers",
            errors.BindError,
            "no class 'maybe'",
        ),
    ):
        with pytest.raises(error, match=says):
            con.sql(query)


@pytest.mark.nightly
def test_several_distincts_beside_a_filter(con: Any, frame: pd.DataFrame, churn: Any) -> None:
    """Spark makes rows without values for each, and calls the function for them, too."""
    found = rows(
        con,
        "SELECT count(DISTINCT plan), count(DISTINCT id), count(*) FILTER (WHERE "
        "predict('churn', *) = 'yes') FROM customers",
    )
    yes = int((churn.predict(frame[FEATURES]) == "yes").sum())
    assert found == [(3, len(frame), yes)]


def test_errors_show_what_the_user_wrote(con: Any, spark: Any) -> None:
    from pyspark.errors import AnalysisException, ParseException

    for query, kind, says in (
        (
            "SELCT predict('churn', *) FROM customers",
            ParseException,
            r"'SELCT'[^\n]*\n\nLINE 1: SELCT",
        ),
        (
            "SELECT id, predict('churn', *) AS y\nFROM customers WHERE y = 'yes'",
            AnalysisException,
            r"`y` cannot[^\n]*\n\nLINE 2: FROM customers WHERE y = 'yes'\n *\^ column 22",
        ),
        (
            "CREATE VIEW v AS SELECT predict('churn', *) AS y FROM customers",
            AnalysisException,
            "CREATE TEMPORARY VIEW",
        ),
        (
            "SELECT predict_proba('churn', *) + ARRAY(1) FROM customers",
            AnalysisException,
            r"^\[DATATYPE_MISMATCH[A-Z_.]+\] Cannot resolve \"... model call ...\" due to",
        ),
        (
            "SELECT * FROM VALUES (predict_proba('churn', 1, 2, 'pro')) AS v",
            AnalysisException,
            'expression "... model call ..." in inline table',
        ),
    ):
        with pytest.raises(kind, match=says) as caught:
            con.sql(query)
        assert "sqlml_" not in str(caught.value) and caught.value.getCondition()
    with pytest.raises(Exception, match="SELECT DISTINCT `plan` FROM ... WHERE `plan` NOT IN"):
        strict = make_pipeline(
            make_column_transformer((OneHotEncoder(), ["plan"]), ("passthrough", NUMBERS)),
            RandomForestRegressor(3),
        )
        known = con.sql("SELECT * FROM customers").toPandas()
        con.create_model("strict", strict.fit(known[FEATURES], known.age), verify=False)
        con.sql("SELECT predict('strict', *, plan := 'new') FROM customers").collect()


def test_explain_has_sparks_modes(con: Any) -> None:
    call = "SELECT predict('churn', *) FROM customers"
    for mode, holds in (
        ("", "physical_plan"),
        ("EXTENDED ", "Analyzed Logical Plan"),
        ("COST ", "sizeInBytes"),
        ("FORMATTED ", "ReadSchema"),
        ("CODEGEN ", "WholeStageCodegen"),
    ):
        assert holds in str(con.sql(f"EXPLAIN {mode}{call}").collect())
    with pytest.raises(errors.ParseError, match="no EXPLAIN ANALYZE"):
        con.sql(f"EXPLAIN ANALYZE {call}")


def test_the_sparksession_itself(con: Any, spark: Any) -> None:
    frame = spark.range(3)
    assert len(con.sql("SELECT * FROM {x}", x=frame).collect()) == 3
    with pytest.raises(errors.ConfigError, match="createOrReplaceTempView"):
        con.sql("SELECT predict('value', id, id) FROM {x}", x=frame)


def test_show_create_is_in_sparks_words(con: Any, tmp_path: Path) -> None:
    con.export_model("churn", tmp_path / "churn.sqlml")
    con.sql(f"CREATE MODEL `it's` FROM '{tmp_path}/churn.sqlml' COMMENT 'it\\'s'")
    (row,) = con.sql("SHOW CREATE MODEL `it's`").collect()
    con.sql("DROP MODEL `it's`")
    con.sql(row.statement)
    assert dict(con.sql("DESCRIBE MODEL `it's`").collect())["comment"] == "it's"


@pytest.mark.nightly
def test_threads_share_a_session(con: Any, frame: pd.DataFrame, churn: Any, value: Any) -> None:
    want = int((churn.predict(frame[FEATURES]) == "yes").sum())

    def work(k: int) -> int:
        con.create_model(f"m_{k}", value, verify=False)
        con.sql("SHOW MODELS").collect()
        query = f"SELECT count(*) FROM customers WHERE predict('churn', *) = 'yes' AND {k} < 99"
        return int(con.sql(query).collect()[0][0])

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == [want] * 6
    assert len(con.sql("SHOW MODELS LIKE 'm_%'").collect()) == 6


def test_a_closed_session_says_so(con: Any) -> None:
    con.close()
    con.close()
    with pytest.raises(errors.BackendError, match="this session has been closed"):
        con.sql("SHOW MODELS")


def test_inside_a_lambda(con: Any, frame: pd.DataFrame, value: Any) -> None:
    """Spark calls no function of Python there, but it evaluates expressions."""
    query = "SELECT transform(array(1, 2), x -> predict('{}', age := x + 1, income := 0{})) AS made"
    asked = pd.DataFrame({"age": [2, 3], "income": [0, 0]})
    tree = DecisionTreeRegressor(max_depth=3).fit(frame[NUMBERS], frame.age)
    con.create_model("tree", tree, verify=False)
    for name, model in (("value", value), ("tree", tree)):
        (row,) = con.sql(query.format(name, "")).collect()
        assert row.made == pytest.approx(model.predict(asked).tolist())
    con.sql("ALTER MODEL churn SET OPTIONS (backend = 'native')")
    with pytest.raises(errors.BindError, match="inside a lambda, .*; unnest the list first"):
        con.sql(query.format("churn", ", plan := 'pro'"))


PIPES = [
    "WHERE {c} = 'yes' |> SELECT id, {c} AS y",
    "SELECT id, {c} AS y |> WHERE y = 'yes'",
    "EXTEND {c} AS y |> WHERE y = 'yes' |> SET plan = 1, age = 'x' |> SELECT id, y",
    "EXTEND age AS a |> DROP age |> EXTEND predict('churn', *, age := a) AS y |> WHERE y = 'yes' "
    "|> SELECT id, y",
    "AS c |> WHERE predict('churn', c.*) = 'yes' |> SELECT c.id, predict('churn', c.*) AS y",
    "SET unused = 1 |> AS c |> WHERE {c} = 'yes' |> SELECT id, predict('churn', c.*) AS y",
    "WHERE id >= 0 |> ORDER BY id |> EXTEND {c} AS y |> AGGREGATE max(y) AS y GROUP BY id |> WHERE "
    "y = 'yes' |> SELECT id, y",
    "AGGREGATE max({c}) AS y GROUP BY id |> WHERE y = 'yes'",
    "AGGREGATE count(*) AS n GROUP BY id, {c} AS y |> WHERE y = 'yes' |> SELECT id, y",
    "SELECT *, -age AS minus |> SELECT * EXCEPT (age), minus AS age |> EXTEND "
    "predict('churn', *, age := -age) AS y |> WHERE y = 'yes' |> SELECT id, y",
    "UNION ALL (SELECT * FROM customers WHERE id < 0) |> SELECT id, {c} AS y |> WHERE y = 'yes'",
]


@pytest.mark.by_day(16)
@pytest.mark.parametrize(
    ("start", "steps"), list(product(["FROM", "TABLE", "SELECT * FROM"], PIPES))
)
def test_pipes(con: Any, frame: pd.DataFrame, churn: Any, start: str, steps: str) -> None:
    """Each step sees what the steps before it made, and nothing of those behind it."""
    call = "predict('churn', *)"
    found = rows(con, f"{start} customers |> {steps.format(c=call)}")
    yes = np.flatnonzero(churn.predict(frame[FEATURES]) == "yes").tolist()
    assert sorted(found) == [(k, "yes") for k in yes]


JOINED = (
    ["JOIN others o ON {t}.id = o.id", "JOIN others o USING (id)"],
    [
        "FROM customers AS x |> {x} |> WHERE {c} = 'yes' |> SELECT x.id",
        "FROM customers |> AS x |> {x} |> WHERE {c} = 'yes' |> SELECT x.id",
        "FROM customers |> WHERE id >= 0 |> AS x |> LIMIT 9999 |> LEFT {x} |> EXTEND {c} AS y |> "
        "WHERE y = 'yes' |> SELECT x.id",
        "SELECT * FROM customers |> AS x |> {x} |> JOIN others AS p ON p.id = x.id |> WHERE {c} = "
        "'yes' |> SELECT x.id",
    ],
)


@pytest.mark.by_day(6)
@pytest.mark.parametrize(("join", "pipe"), list(product(*JOINED)))
def test_tables_that_a_pipe_joins(
    con: Any, spark: Any, frame: pd.DataFrame, churn: Any, join: str, pipe: str
) -> None:
    spark.range(len(frame)).createOrReplaceTempView("others")
    query = pipe.format(x=join.format(t="x"), c="predict('churn', x.*)")
    found = sorted(row[0] for row in con.sql(query).collect())
    assert found == np.flatnonzero(churn.predict(frame[FEATURES]) == "yes").tolist()


def test_a_name_before_other_columns_is_refused(con: Any) -> None:
    """To Spark, c.age is then still the column of the table, and not what SET made of it."""
    with pytest.raises(errors.BindError, match=r"Cannot resolve `c`\.\*"):
        con.sql("FROM customers |> AS c |> SET age = 0D |> EXTEND predict('churn', c.*) AS y")


@pytest.mark.nightly
def test_a_later_step_does_not_round_an_earlier_one(con: Any, frame: pd.DataFrame) -> None:
    """Columns are DOUBLE where the call stands, and FLOAT behind it."""
    model = RandomForestRegressor(30, random_state=0).fit(frame[NUMBERS], frame.age)
    con.create_model("m", model, verify=False)
    found = rows(
        con,
        "FROM customers |> SELECT id, age, income |> EXTEND predict('m', *) AS y |> SET age = "
        "age::FLOAT, income = income::FLOAT |> AGGREGATE max(y) GROUP BY id",
    )
    np.testing.assert_array_equal([y for _, y in sorted(found)], model.predict(frame[NUMBERS]))


@pytest.mark.nightly
def test_columns_called_as_statements_begin(con: Any, frame: pd.DataFrame, value: Any) -> None:
    """They are names like others to Spark, also at the start of brackets."""
    want = value.predict(frame[NUMBERS]) + frame.age
    for name in ("update", "delete", "table", "show", "describe", "pivot", "insert"):
        found = con.sql(
            f"SELECT ({name} + predict('value', c.*, age := {name})) AS v FROM (SELECT id, income, "
            f"age AS {name} FROM customers) c ORDER BY id"
        )
        np.testing.assert_allclose([row.v for row in found.collect()], want, rtol=1e-9)


def test_parameters_without_values_are_named(con: Any) -> None:
    for query, args, says in (
        ("SELECT predict('value', age := :a, income := 0)", None, "no value .* parameter :a"),
        ("SELECT predict('value', age := :a, income := 0)", {"b": 1}, "no value .* parameter :a"),
        ("SELECT predict('value', age := ?, income := ?)", [1], "values given: 1"),
        ("SELECT predict('value', age := ?, income := 0)", None, "values given: 0"),
        ("SELECT predict('value', age := ?, income := 0)", {"a": 1}, "a list of values"),
        ("SELECT predict('value', age := :a, income := 0)", [1], "a list of values"),
    ):
        with pytest.raises(errors.ConfigError, match=says):
            con.sql(query, args)


def test_a_comment_goes_on_behind_a_backslash(con: Any) -> None:
    assert rows(con, "SELECT 1 AS a -- \\\n, predict('nope', *)\n, 2 AS b") == [(1, 2)]
    assert rows(con, "SELECT '-- \\\n' AS a, predict('value', 0, 0) > -1e9 AS b")[0][1]


def test_parameters_beside_signs_and_casts(con: Any) -> None:
    assert rows(con, "SELECT ?::DOUBLE AS a, CAST(? AS INT) AS b", ["12.5", "3"]) == [(12.5, 3)]
    assert rows(con, "SELECT 5-? AS a", [-3]) == [(8,)]
    assert rows(con, "SELECT 5-:a AS a", {"a": -0.5}) == [(5.5,)]


def test_several_statements(con: Any, spark: Any) -> None:
    """Spark takes one at a time, a script in BEGIN and END as one, and no semicolon before it."""
    texts = [
        ";;SELECT 1 AS a; SELECT 2 AS b;",
        "SELECT ';' AS a; -- ;\nSELECT 2 AS b",
        "SELECT 1; SELECT predict('value', 1, 2) > -1e9 AS c; SELECT 2 AS b;;",
        "BEGIN DECLARE b INT DEFAULT 2; SELECT b; END",
    ]
    for text in texts:
        assert rows(con, text) == [(2,)]
    assert rows(con, ";SELECT predict('value', 1, 2) > -1e9 AS c") == [(True,)]


def test_spellings_of_spark_alone(con: Any, frame: pd.DataFrame, churn: Any) -> None:
    label = churn.predict(frame[FEATURES])
    call = "predict('churn', *)"
    found = rows(con, f"SELECT id, {call} FROM customers MINUS SELECT id, 'yes' FROM customers")
    assert sorted(row[0] for row in found) == np.flatnonzero(label != "yes").tolist()
    for names in (" AS (x)", " (x)", ""):
        made = rows(con, f"SELECT stack(2, 'a', {call}){names} FROM customers WHERE id = 3")
        assert made == [("a",), (label[3],)]
    assert (
        len(rows(con, "SELECT explode(predict_proba('churn', *)) FROM customers LIMIT 2")[0]) == 2
    )
    piped = con.sql(f"FROM customers |> SELECT id, {call} AS y |> WHERE y = 'yes' |> SELECT id")
    assert sorted(row.id for row in piped.collect()) == np.flatnonzero(label == "yes").tolist()
    nothing = churn.predict(frame[FEATURES].head(1).assign(plan=None))[0]
    assert rows(con, "SELECT predict('churn', *, plan := NULL) FROM customers WHERE id = 0") == [
        (nothing,)
    ]
    con.sql(
        "CREATE TEMPORARY FUNCTION richer(a DOUBLE, b DOUBLE) RETURNS DOUBLE RETURN "
        "predict('value', age := a, income := b + 1)"
    )
    made = rows(
        con, "SELECT richer(age, income) - predict('value', age, income + 1) FROM customers"
    )
    assert made == [(0.0,)] * len(frame)


def test_a_stream(con: Any, spark: Any, frame: pd.DataFrame, churn: Any, tmp_path: Path) -> None:
    """A stream is scored as tables are, and goes on when its model is dropped."""
    folder = str(tmp_path / "arriving")
    spark.createDataFrame(frame.iloc[:1000]).write.parquet(folder)
    schema = spark.read.parquet(folder).schema
    spark.readStream.schema(schema).parquet(folder).createOrReplaceTempView("arriving")
    scored = con.sql("SELECT id, predict('churn', *) AS y FROM arriving WHERE age > 20")
    assert scored.isStreaming
    query = scored.writeStream.format("memory").queryName("made").start()
    try:
        query.processAllAvailable()
        con.sql("DROP MODEL churn")
        spark.createDataFrame(frame.iloc[1000:1500]).write.mode("append").parquet(folder)
        query.processAllAvailable()
        found = {row.id: row.y for row in spark.sql("SELECT * FROM made").collect()}
    finally:
        query.stop()
    arrived = frame.iloc[:1500]
    arrived = arrived[arrived.age > 20]
    assert found == dict(zip(arrived.id, churn.predict(arrived[FEATURES]), strict=True))


@pytest.mark.nightly
def test_rows_that_the_model_refuses(con: Any, frame: pd.DataFrame, value: Any) -> None:
    with pytest.raises(Exception, match="column 'age' has NULL"):
        con.sql("SELECT predict('value', *, age := NULL) FROM customers").collect()
    fifth = "predict('value', *, age := CASE WHEN id % 5 = 0 THEN NULL ELSE age END)"
    with pytest.raises(Exception, match="column 'age' has NULL"):
        con.sql(f"SELECT {fifth} FROM customers").collect()
    asked = f"SELECT id, CASE WHEN id % 5 > 0 THEN {fifth} END AS v FROM customers ORDER BY id"
    kept = rows(con, asked)
    want = value.predict(frame[NUMBERS])
    assert [row[1] is None for row in kept] == (frame.id % 5 == 0).tolist()
    others = [row for row in kept if row[1] is not None]
    np.testing.assert_allclose([row[1] for row in others], want[[row[0] for row in others]])
    con.sql("ALTER MODEL value SET OPTIONS (on_null = 'null')")
    found = rows(con, "SELECT predict('value', *, age := nullif(id, 3)) FROM customers LIMIT 2000")
    assert sum(row[0] is None for row in found) <= 1
    null = "SELECT predict('value', *, age := NULL) AS v FROM customers LIMIT 3"
    assert rows(con, null) == [(None,)] * 3


def test_what_may_be_approximated_is_exact(con: Any, spark: Any, tmp_path: Path) -> None:
    """Spark would evaluate both models for every row."""
    path = tmp_path / "m.sqlml"
    fresh, labels = cascaded.table(300, 5)
    with sqlml.connect() as made:
        made.create_model("m", cascaded.model()[0])
        frame, told = cascaded.table(6_000, 1)
        made.register("train", frame.assign(y=told))
        made.execute(cascaded.LEARN)
        made.execute(f"EXPORT MODEL m TO '{path}' FORMAT SQLML")
    con.sql(f"CREATE MODEL m FROM '{path}'")
    fresh = fresh.assign(id=range(300), y=labels)
    spark.createDataFrame(fresh).createOrReplaceTempView("fresh")
    query = "SELECT predict('m', *, approximate => true) AS p FROM fresh ORDER BY id"
    want = cascaded.model()[0].predict(fresh[["x", "t"]])
    assert rows(con, query) == [(label,) for label in want]
    assert "no: this engine evaluates both models for every row" in con.explain(query)
    with pytest.raises(errors.ConfigError, match="saves nothing in this engine"):
        con.sql(cascaded.LEARN.replace("FROM train", "FROM fresh"))
