"""The statements of the SQL surface, parsed into values."""

from __future__ import annotations

import pytest

from sqlml.errors import ParseError
from sqlml.parsing.parse import parse
from sqlml.parsing.statements import (
    Call,
    CreateModel,
    DescribeModel,
    Description,
    DropModel,
    Explain,
    ExportModel,
    ModelName,
    Query,
    ShowModels,
    Statement,
    Training,
    TrainModel,
)


def one(sql: str) -> Statement:
    (statement,) = parse(sql)
    return statement


def test_create_model_with_everything() -> None:
    statement = one(
        """CREATE OR REPLACE MODEL shop."churn model"
           INPUT (tenure DOUBLE, "a b" DECIMAL(9, 2)) FROM 's3://b/m.json' FORMAT xgboost
           WITH (backend = 'torch', n = -1.5, flag = true, classes = ['a', 2], device := cpu)
           COMMENT 'it''s'"""
    )
    assert isinstance(statement, CreateModel)
    assert statement.name == ModelName("churn model", "shop")
    artifact = statement.artifact
    assert artifact.inputs == (("tenure", "DOUBLE"), ("a b", "DECIMAL(9, 2)"))
    assert (artifact.source, artifact.format) == ("s3://b/m.json", "XGBOOST")
    assert artifact.description.comment == "it's"
    assert dict(artifact.options) == {
        "backend": "torch",
        "n": -1.5,
        "flag": True,
        "classes": ("a", 2),
        "device": "cpu",
    }
    assert statement.or_replace and not statement.if_not_exists


def test_using_is_a_synonym_of_from() -> None:
    statement = one("create model if not exists m using 'x'")
    assert (
        isinstance(statement, CreateModel)
        and statement.if_not_exists
        and statement.artifact.source == "x"
    )


def test_the_short_statements() -> None:
    assert isinstance(one("DROP MODEL IF EXISTS m"), DropModel)
    assert isinstance(one("show models"), ShowModels)
    shown = one("SHOW MODELS LIKE 'a%'")
    assert isinstance(shown, ShowModels) and shown.like == "a%"
    assert isinstance(one("DESC MODEL m"), DescribeModel)
    explained = one("EXPLAIN ANALYZE SELECT predict('m', *) FROM t")
    assert isinstance(explained, Explain) and explained.analyze
    assert explained.query == "SELECT predict('m', *) FROM t"


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE model (a INT)",
        "CREATE OR REPLACE VIEW models AS SELECT 1",
        "DROP TABLE model",
        "DESCRIBE model",
        "SELECT * FROM models",
        "COMMENT ON TABLE model IS 'x'",
        "ALTER TABLE model ADD COLUMN a INT",
        "EXPLAIN (FORMAT json) SELECT 1 AS model",
        "SHOW TABLES FROM model",
    ],
)
def test_tables_called_model_are_the_engines_business(sql: str) -> None:
    assert one(sql) == Query(sql)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ('"my model"', ModelName("my model")),
        ('shop."my model"', ModelName("my model", "shop")),
        ("main.m", ModelName("m")),
        ("`my model`", ModelName("my model")),
        ("shop.`m`", ModelName("m", "shop")),
        ("'my model'", ModelName("my model")),
        ("'shop.m'", ModelName("m", "shop")),
        ("ıf", ModelName("ıf")),
        ("model", ModelName("model")),
    ],
)
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_models_are_named_as_people_write_names(
    written: str, name: ModelName, dialect: str
) -> None:
    written = written.replace('"', "`") if dialect == "spark" else written
    for words in ("DROP", "DESCRIBE", "SHOW CREATE", "EXPLAIN", "ALTER"):
        rest = " RENAME TO n" if words == "ALTER" else ""
        (statement,) = parse(f"{words} MODEL {written}{rest}", dialect)
        assert not isinstance(statement, Query | ShowModels | Explain) and statement.name == name


def test_a_text_of_spark_may_hold_its_quotes() -> None:
    (statement,) = parse("CREATE MODEL m FROM 'it''s' OPTIONS (n = 10L, x = 1.5D)", "spark")
    assert isinstance(statement, CreateModel) and statement.artifact.source == "it's"
    assert dict(statement.artifact.options) == {"n": 10, "x": 1.5}


def test_explain_has_a_mode_on_spark_alone() -> None:
    (statement,) = parse("EXPLAIN COST SELECT 1", "spark")
    assert statement == Explain("EXPLAIN COST SELECT 1", "SELECT 1", False, "COST")
    assert one("EXPLAIN COST") == Explain("EXPLAIN COST", "COST", False)


def test_a_model_is_trained_on_a_query() -> None:
    statement = one(
        "CREATE OR REPLACE MODEL m TRANSFORM (a, f(b, c) AS d) OPTIONS (Model_Type = 'x', "
        "w = [('yes', 2.0)], depth = hparam_range(2, 8)) COMMENT 'c' "
        "AS\n SELECT * FROM t WHERE a < ?"
    )
    assert (
        isinstance(statement, TrainModel) and statement.or_replace and not statement.if_not_exists
    )
    training = statement.training
    assert training.query == "SELECT * FROM t WHERE a < ?"
    assert training.transform == ("a", "f(b, c) AS d") and training.description.comment == "c"
    assert dict(training.options) == {
        "model_type": "x",
        "w": (("yes", 2.0),),
        "depth": Call("hparam_range", (2, 8)),
    }
    assert one("CREATE MODEL m AS FROM t") == TrainModel(
        "CREATE MODEL m AS FROM t", ModelName("m"), Training("FROM t")
    )


def test_a_file_is_named_as_in_bigquery() -> None:
    for rest in ("", "INPUT (a FLOAT64) OUTPUT (y int64) "):
        sql = f"CREATE MODEL m {rest}OPTIONS (MODEL_TYPE = 'onnx', model_path = 'm.onnx', "
        statement = one(f"{sql} on_null = 'null', labels = [('a', 'b')], description = 'd')")
        assert isinstance(statement, CreateModel)
        artifact = statement.artifact
        assert (artifact.source, artifact.format) == ("m.onnx", "ONNX")
        assert artifact.inputs == ((("a", "DOUBLE"),) if rest else None)
        assert artifact.output == ((("y", "BIGINT"),) if rest else None)
        assert artifact.options == {"on_null": "null"}
        assert artifact.description == Description("d", {"a": "b"}, True, True)


def test_a_file_is_exported_as_in_bigquery() -> None:
    statement = one("EXPORT MODEL db.m OPTIONS (URI = 'm.onnx')")
    assert isinstance(statement, ExportModel) and statement.path == "m.onnx"
    for options in ("", "uri = 1", "uri = 'a', trial_id = 1"):
        with pytest.raises(ParseError, match=r"expected OPTIONS \(uri = '<path>'\)"):
            parse(f"EXPORT MODEL m OPTIONS ({options})")


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("REMOTE WITH CONNECTION `a.b` OPTIONS (endpoint = 'x')", "sqlml calls no remote models"),
        ("INPUT (a INT) OUTPUT (b INT) REMOTE WITH CONNECTION c", "sqlml calls no remote models"),
        ("OPTIONS (model_path = 1)", "expected model_path = '<path of a model file>'"),
        ("INPUT (a DOUBLE) OPTIONS (model_type = 'onnx')", "expected model_path ="),
        ("OPTIONS (model_path = 'x', model_type = 'TENSORFLOW')", "convert the model to ONNX"),
        (
            "OPTIONS (model_path = 'x', model_type = 'kmeans')",
            "unknown model_type KMEANS of a file",
        ),
        ("OPTIONS (description = 'a') COMMENT 'b' AS FROM t", "one string, without COMMENT"),
        ("AS", "expected the query"),
        ("OPTIONS (a = 1)", "expected AS and the query"),
        ("OPTIONS (a = 1) OPTIONS (b = 2) AS FROM t", "OPTIONS is given twice"),
        ("OPTIONS (a = 1) FROM 'x'", "goes after FROM"),
        ("TRANSFORM () AS FROM t", "expected an expression"),
        ("TRANSFORM (a,) AS FROM t", "expected an expression"),
        ("TRANSFORM (a AS FROM t", "not closed"),
    ],
)
def test_training_that_is_malformed(rest: str, says: str) -> None:
    with pytest.raises(ParseError, match=says):
        parse(f"CREATE MODEL m {rest}")


def test_several_statements_keep_their_own_text() -> None:
    statements = parse("SELECT 1; DROP MODEL m ;SELECT predict('m', ';') FROM t;")
    assert [type(s) for s in statements] == [Query, DropModel, Query]
    assert isinstance(statements[0], Query) and statements[0].sql == "SELECT 1;"
    assert (
        isinstance(statements[2], Query) and statements[2].sql == "SELECT predict('m', ';') FROM t;"
    )


def test_no_byte_of_the_engines_statements_is_left_out() -> None:
    sql = "/* a */ SELECT predict('m', *); -- b\n;\n EXPLAIN SELECT 'é' /* c */ ; -- d"
    statements = parse(sql)
    assert [type(s) for s in statements] == [Query, Explain]
    assert "".join(s.sql for s in statements) == sql


def test_spark_takes_one_statement_at_a_time() -> None:
    call = "SELECT predict('m', ';') -- ;\n FROM t"
    for sql in (f"; {call};", f"SELECT 1; -- a\n{call} ; -- b", f"DROP MODEL m;{call}"):
        last = parse(sql, "spark")[-1]
        assert isinstance(last, Query) and last.sql == call
    for sql in ("-- predict('m', *)", "/* SHOW MODELS */ ;", f"BEGIN {call}; END"):
        assert parse(sql, "spark") == ()


def test_an_error_shows_line_and_column() -> None:
    with pytest.raises(ParseError, match=r"LINE 2:   FRM 'x'\n *\^ column 3"):
        parse("CREATE MODEL m\n  FRM 'x'")
