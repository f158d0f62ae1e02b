"""Each wrong call has a typed error that names the fix, and leaves nothing half-made."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

import sqlml
from sqlml import errors


class Opaque:
    """A model of the user's own."""


def failing(con: sqlml.Session, query: str, params: Any = None) -> str:
    """The message of the SqlmlError that `query` raises."""
    with pytest.raises(errors.SqlmlError) as caught:
        con.execute(query, params).fetchall()
    return str(caught.value)


def test_an_unknown_model_names_the_closest_one(con: sqlml.Session) -> None:
    with pytest.raises(errors.UnknownModelError, match="did you mean 'churn'"):
        con.execute("SELECT predict('chrun', *) FROM customers")
    with pytest.raises(errors.UnknownModelError, match="no version 9; it has 1"):
        con.execute("SELECT predict('churn/9', *) FROM customers")
    with pytest.raises(errors.UnknownModelError, match="no version with the alias 'champion'"):
        con.execute("SELECT predict('churn@champion', *) FROM customers")


def test_an_error_points_at_the_place_in_the_text(con: sqlml.Session) -> None:
    message = failing(con, "SELECT id,\n       predict('nope', *)\nFROM customers")
    assert "LINE 2:        predict('nope', *)" in message
    caret = message.splitlines()[-1]
    line = message.splitlines()[-2]
    assert line[caret.index("^") :].startswith("'nope'")


def test_a_missing_column_lists_what_is_missing_and_what_there_is(con: sqlml.Session) -> None:
    with pytest.raises(errors.MissingColumnError) as caught:
        con.execute(
            "SELECT predict('churn', *) FROM (SELECT id, charges AS chargs, plan FROM customers)"
        )
    message = str(caught.value)
    assert "'tenure'" in message and "'region'" in message
    assert "'charges' (did you mean 'chargs'?)" in message
    assert "chargs, id, plan" in message


def test_an_ambiguous_column_names_both_tables(con: sqlml.Session) -> None:
    with pytest.raises(errors.AmbiguousColumnError) as caught:
        con.execute("SELECT predict('churn', *) FROM customers a JOIN customers b ON a.id = b.id")
    assert "a." in str(caught.value) and "b." in str(caught.value)
    assert "t.*" in str(caught.value)


def test_wrong_arity_says_how_many_and_which(con: sqlml.Session) -> None:
    with pytest.raises(
        errors.ArityError, match=r"takes 4 features .*tenure, charges, plan, region.* got 2"
    ):
        con.execute("SELECT predict('churn', tenure, plan) FROM customers")
    with pytest.raises(errors.ArityError, match="needs the features"):
        con.execute("SELECT predict('churn') FROM customers")


def test_features_in_another_order_are_refused(con: sqlml.Session) -> None:
    with pytest.raises(
        errors.ColumnOrderError, match="another order.*tenure, charges, plan, region"
    ):
        con.execute("SELECT predict('churn', charges, tenure, plan, region) FROM customers")
    with pytest.raises(errors.ColumnOrderError):
        con.execute("SELECT predict('value', c.tenure, c.\"Charges\") FROM customers c")


def test_positional_and_named_arguments_do_not_mix(con: sqlml.Session) -> None:
    assert "do not mix" in failing(
        con, "SELECT predict('value', charges, tenure := 1) FROM customers"
    )
    assert "given twice" in failing(
        con, "SELECT predict('value', tenure := 2, tenure := 1) FROM customers"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("current_date AS tenure", "DATE"),
        ("'12' AS tenure", "VARCHAR"),
        ("12 AS plan", "INTEGER"),
        ("TIMESTAMP '2020-01-01' AS plan", "TIMESTAMP"),
    ],
)
def test_a_wrong_type_says_what_to_cast(con: sqlml.Session, change: str, says: str) -> None:
    with pytest.raises(errors.ColumnTypeError, match=f"is {says}; cast it"):
        con.execute(f"SELECT predict('churn', * REPLACE ({change})) FROM customers")


@pytest.mark.parametrize(
    ("lists", "kind"), [("[3, 4]", r"INTEGER\[\]"), ("[3, 4]::DOUBLE[2]", r"DOUBLE\[2\]")]
)
def test_a_list_for_a_number_is_told_to_give_an_element_or_a_sum(
    con: sqlml.Session, lists: str, kind: str
) -> None:
    source = f"(SELECT *, {lists} AS x FROM customers)"
    with pytest.raises(errors.ColumnTypeError, match=f"is {kind}; give it one number") as caught:
        con.execute(f"SELECT predict('value', *, tenure := x) FROM {source}")
    assert "CAST" not in str(caught.value)
    assert "tenure := x[1] (an element) or list_sum(x)" in str(caught.value).replace('"', "")
    for fix in ("x[1]", "list_sum(x)"):  # what is advised binds
        con.execute(f"SELECT predict('value', *, tenure := {fix}) FROM {source} LIMIT 0")


def test_null_where_the_model_takes_none_names_column_and_step(con: sqlml.Session) -> None:
    for query in (
        "SELECT sum(predict('value', *)) FROM customers",
        "SELECT predict('value', charges := 1.0, tenure := NULL)",
    ):
        with pytest.raises(errors.MissingValueError, match="'tenure' has NULL.*LinearRegression"):
            con.execute(query).fetchall()
        found = con.sql(query)
        assert found is not None
        with pytest.raises(errors.MissingValueError):
            found.fetchall()
    with pytest.raises(errors.MissingValueError, match="infinity"):
        con.execute("SELECT predict('value', charges := 'inf'::DOUBLE, tenure := 1)").fetchall()
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_an_unknown_category_names_its_column(con: sqlml.Session) -> None:
    frame = pd.DataFrame({"plan": ["a", "b", "a", "b"]})
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(frame, [0, 1, 0, 1])
    con.create_model("strict", model)
    assert con.execute("SELECT predict('strict', plan := 'b')").fetchall() == [(1,)]
    with pytest.raises(errors.UnknownCategoryError, match="'plan'.*handle_unknown='ignore'"):
        con.execute("SELECT predict('strict', plan := 'c')").fetchall()


def test_functions_that_do_not_fit_the_model(con: sqlml.Session) -> None:
    assert "gives no probabilities" in failing(
        con, "SELECT predict_proba('value', *) FROM customers"
    )
    assert "use predict" in failing(con, "SELECT transform('churn', *) FROM customers")
    message = failing(con, "SELECT predict_proba('churn', *, class := 'maybe') FROM customers")
    assert "'no', 'yes'" in message
    assert "literal or a parameter" in failing(
        con, "SELECT predict_proba('churn', *, class := plan) FROM customers"
    )
    assert "belongs to predict_proba" in failing(
        con, "SELECT predict('churn', *, class := 'yes') FROM customers"
    )


def test_a_star_without_a_table(con: sqlml.Session) -> None:
    assert "needs a FROM" in failing(con, "SELECT predict('churn', *)")


def test_a_name_from_a_parameter_must_be_given(con: sqlml.Session) -> None:
    assert "is not a string" in failing(con, "SELECT predict(?, *) FROM customers", [3])


def test_engine_errors_stay_the_engines_own(con: sqlml.Session) -> None:
    with pytest.raises(duckdb.CatalogException):
        con.execute("SELECT * FROM nowhere")
    with pytest.raises(duckdb.BinderException):
        con.execute("SELECT predict('churn', *), nope FROM customers")
    with pytest.raises(duckdb.ParserException):
        con.execute("SELEC predict('churn', *) FROM customers")
    with pytest.raises(duckdb.Error):
        con.execute("SELECT 'unclosed predict('churn', *)")


def test_a_bind_error_in_an_argument_shows_the_engines_message(con: sqlml.Session) -> None:
    message = failing(con, "SELECT predict('value', charges := chrges, tenure := 1) FROM customers")
    assert "chrges" in message and "charges" in message


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("CREATE MODEL", None),
        ("CREATE MODEL m", "expected FROM"),
        ("CREATE MODEL m FROM 12", "in single quotes"),
        ("CREATE MODEL m FROM 'x' FORMAT NOPE", "unknown format NOPE"),
        ("CREATE MODEL m FROM 'x' OPTIONS (a = )", "expected a literal value"),
        ("CREATE MODEL m FROM 'x' OPTIONS (a = 1, a = 2)", "given twice"),
        ("CREATE MODEL m FROM 'x' NONSENSE", "expected FORMAT"),
        ("CREATE OR REPLACE MODEL IF NOT EXISTS m FROM 'x'", "exclude each other"),
        ("DROP MODEL churn CASCADE", "expected the end"),
        ("ALTER MODEL churn FLY", "expected ADD VERSION"),
    ],
)
def test_a_malformed_statement_shows_its_place(
    con: sqlml.Session, statement: str, says: str | None
) -> None:
    if says is None:
        with pytest.raises(duckdb.ParserException):
            con.execute(statement)
    else:
        with pytest.raises(errors.ParseError, match="LINE 1") as caught:
            con.execute(statement)
        assert says in str(caught.value)


def test_an_existing_name_needs_or_replace(con: sqlml.Session, value_model: Any) -> None:
    with pytest.raises(errors.ModelExistsError, match="OR REPLACE MODEL.*or_replace=True"):
        con.create_model("CHURN", value_model)
    con.create_model("churn", value_model, if_not_exists=True)
    assert con.execute("SELECT version FROM sqlml.models WHERE name = 'churn'").fetchall() == [(1,)]
    con.create_model("churn", value_model, or_replace=True)
    assert con.execute("SELECT version FROM sqlml.models WHERE name = 'churn'").fetchall() == [(2,)]
    for name in ("", "a/b", "a@b", "a.b.c"):
        with pytest.raises(errors.ConfigError, match="invalid model name"):
            con.create_model(name, value_model)


class Custom(LinearRegression):
    """A subclass may compute anything."""

    def predict(self, X: Any) -> Any:
        return super().predict(X)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (LinearRegression(), "fitted"),
        (
            LinearRegression,
            r"LinearRegression is a class.*model = LinearRegression\(...\); model.fit",
        ),
        (Opaque, r"Opaque is a class.*model = Opaque\(...\)$"),
        (None, "None is not a model"),
        (pd.DataFrame({"a": [1.0]}), "this DataFrame is data, not a fitted object"),
        (np.ones((2, 2)), "this ndarray is data"),
        (Opaque(), r"Opaque; if it is a step of your own.*docs/operators.md.*ONNX"),
        (object(), "does not import builtins.object"),
        ({"a": 1}, "does not import builtins.dict"),
        (
            make_pipeline(FunctionTransformer(lambda x: x), LinearRegression()),
            "FunctionTransformer",
        ),
    ],
)
def test_an_unsupported_object_leaves_nothing_behind(
    con: sqlml.Session, model: Any, says: str
) -> None:
    if hasattr(model, "steps"):
        model.fit(pd.DataFrame({"a": [1.0, 2.0]}), [1.0, 2.0])
    with pytest.raises(errors.UnsupportedModelError, match=says):
        con.create_model("broken", model)
    assert con.execute("SELECT count(*) FROM sqlml.models").fetchall() == [(2,)]
    assert con.execute("SELECT count(*) FROM sqlml.catalog_programs").fetchall() == [(2,)]


def test_a_subclass_is_refused_with_its_base_named(con: sqlml.Session) -> None:
    model = Custom().fit(pd.DataFrame({"a": [1.0, 2.0]}), [1.0, 2.0])
    with pytest.raises(errors.UnsupportedModelError, match="subclass of LinearRegression"):
        con.create_model("custom", model)


def test_names_given_to_a_model_without_names_fit_it(con: sqlml.Session) -> None:
    model = LinearRegression().fit(np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 5.0]]), [1.0, 2.0, 4.0])
    with pytest.raises(errors.ConfigError, match="2 columns"):
        con.create_model("plain", model, inputs=["a"])
    with pytest.raises(errors.ConfigError, match="declared VARCHAR"):
        con.create_model("plain", model, inputs={"a": "DOUBLE", "b": "VARCHAR"})
    con.create_model("plain", model, inputs={"a": "DOUBLE", "b": "DECIMAL(9,2)"})
    expected = model.predict([[1.5, 4.0]])[0]
    assert con.execute("SELECT predict('plain', b := 4, a := 1.5)").fetchall()[0][
        0
    ] == pytest.approx(expected)


def test_unknown_options_are_named(con: sqlml.Session, value_model: Any) -> None:
    with pytest.raises(errors.ConfigError, match="unknown option 'speed'"):
        con.create_model("v2", value_model, speed="fast")
    with pytest.raises(errors.ConfigError, match="unknown backend 'abacus'"):
        con.create_model("v2", value_model, backend="abacus")
    with pytest.raises(errors.ConfigError, match="no strategy 'gemm'"):
        con.create_model("v2", value_model, backend="native", strategy="gemm")
    with pytest.raises(errors.ConfigError, match="unknown device"):
        con.create_model("v2", value_model, device="abacus")
    with pytest.raises(errors.ConfigError, match="on_null cannot be 'skip'"):
        con.create_model("v2", value_model, on_null="skip")


def test_a_pickle_needs_permission(con: sqlml.Session, value_model: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(value_model))
    with pytest.raises(errors.UntrustedArtifactError, match="allow_pickle"):
        con.execute(f"CREATE MODEL p FROM '{path}'")
    with pytest.raises(errors.UntrustedArtifactError, match="allow_pickle"):
        con.execute(f"CREATE MODEL p FROM '{path}' FORMAT PICKLE OPTIONS (allow_pickle = false)")
    assert con.execute("SELECT count(*) FROM sqlml.models").fetchall() == [(2,)]
    con.execute(f"CREATE MODEL p FROM '{path}' OPTIONS (allow_pickle = true)")
    query = (
        "SELECT count(*) FROM customers WHERE tenure > 0 AND predict('p', *) <> predict('value', *)"
    )
    assert con.execute(query).fetchall() == [(0,)]


def test_a_hostile_pickle_is_never_run(con: sqlml.Session, tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "owned",))

    (tmp_path / "bad.pkl").write_bytes(pickle.dumps(Attack()))
    for form in ("", "FORMAT XGBOOST", "FORMAT LIGHTGBM", "FORMAT PICKLE", "FORMAT SQLML"):
        with pytest.raises(errors.ModelError):
            con.execute(f"CREATE MODEL bad FROM '{tmp_path / 'bad.pkl'}' {form}")
    assert not (tmp_path / "owned").exists()


def test_damaged_files_and_wrong_paths(con: sqlml.Session, tmp_path: Path) -> None:
    for name, content in {
        "empty.json": b"",
        "cut.json": b'{"learner": {"gradient_booster": {',
        "deep.json": b"[" * 100_000,
        "noise.bin": bytes(range(256)) * 10,
        "half.sqlml": b"SQLML\0\1\0\xff\xff\xff\xff",
        "text.txt": b"tree\nversion=v4\nnum_class=",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(errors.ModelError):
            con.execute(f"CREATE MODEL broken FROM '{tmp_path / name}'")
    with pytest.raises(errors.ArtifactError, match="exactly one"):
        con.execute(f"CREATE MODEL broken FROM '{tmp_path}/*'")
    assert con.execute("SELECT count(*) FROM sqlml.models").fetchall() == [(2,)]


def test_a_pinned_hash_must_match(con: sqlml.Session, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(b"{}")
    with pytest.raises(errors.ArtifactError, match="does not have the sha256"):
        con.execute(f"CREATE MODEL m FROM '{tmp_path / 'm.json'}' OPTIONS (sha256 = '00')")


def test_a_damaged_catalog_row_is_an_error(con: sqlml.Session, frame: pd.DataFrame) -> None:
    con.execute("UPDATE sqlml.catalog_programs SET content = 'garbage'::BLOB")
    fresh = sqlml.attach(con.connection.cursor())
    with pytest.raises(errors.ArtifactError):
        fresh.execute("SELECT predict('churn', *) FROM customers")


def test_zero_rows_give_zero_rows(con: sqlml.Session) -> None:
    for query in (
        "SELECT predict('churn', *) FROM customers WHERE false",
        "SELECT predict_proba('churn', *) FROM customers WHERE id < 0",
        "SELECT predict('value', *) FROM customers LIMIT 0",
    ):
        assert con.execute(query).fetchall() == []
    assert con.execute(
        "SELECT sum(predict('value', *)) FROM customers WHERE id < 0"
    ).fetchall() == [(None,)]


def test_dropping_what_is_not_there(con: sqlml.Session) -> None:
    with pytest.raises(errors.UnknownModelError):
        con.execute("DROP MODEL nope")
    con.execute("DROP MODEL IF EXISTS nope")
    con.execute("DROP MODEL churn")
    with pytest.raises(errors.UnknownModelError, match="models: value"):
        con.execute("SELECT predict('churn', *) FROM customers")
    assert con.execute("SELECT count(*) FROM sqlml.catalog_programs").fetchall() == [(1,)]
