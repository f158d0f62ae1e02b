"""A hint stands beside the engine's error where a call was most likely meant for sqlml alone."""

from __future__ import annotations

import pytest

from sqlml.planner.binding.function_hints import suggest_fix

STAR = "Binder Error: STAR expression is only allowed as the root element of an expression."


def missing(name: str) -> str:
    return f"Catalog Error: Scalar Function with name {name} does not exist!"


def nothing(name: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("predict_prob", "predict_proba"),
        ("PREDICT_PROBS", "predict_proba"),
        ("predicts", "predict"),
        ("predikt", "predict"),
        ("predict_scores", "predict_score"),
        ("transfrom", "transform"),
    ],
)
def test_a_name_close_to_ours_is_named(written: str, meant: str) -> None:
    wanted = f"did you mean {meant}('m', ..)?"
    assert suggest_fix(f"SELECT {written}('m', *) FROM t", STAR, nothing) == wanted
    assert suggest_fix(f"SELECT a, {written} ('m', a) FROM t", missing(written), nothing) == wanted


def test_a_column_that_names_models_has_a_keyword() -> None:
    message = "Binder Error: Macro explain() does not support the supplied arguments."
    wanted = (
        "write the name of a model in single quotes, explain('m', ..); if a column names the "
        "model, write explain(MODEL (column), ..)"
    )
    assert suggest_fix("SELECT explain(m, a, b) FROM t", message, nothing) == wanted
    assert suggest_fix("SELECT explain(m, a, b) FROM t", message, lambda name: True) is None


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("ml_evaluate", "write ml_evaluate(MODEL m, TABLE t)"),
        ("ML_Weight", "write ml_weights(MODEL m)"),
        ("ml_validate_data_drifts", "write ml_validate_data_drift(TABLE t, TABLE u)"),
        ("ml_something", None),
    ],
)
def test_a_table_form_without_its_keywords_is_shown_with_them(
    written: str, wanted: str | None
) -> None:
    message = f"Catalog Error: Table Function with name {written} does not exist!"
    assert suggest_fix(f"FROM {written}('m', 't')", message, nothing) == wanted


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT summ('m', a) FROM t", missing("summ")),  # not close
        ("SELECT predict_prob(a, b) FROM t", missing("predict_prob")),  # names no model
        ("SELECT predict_prob('a' || 'b', c)", missing("predict_prob")),
        ("SELECT predict_prob FROM t", STAR),
        ("SELECT predict_prob('m', a), nope(3)", missing("nope")),  # another function is missing
        ("SELECT predict_prob('m', a)", "Binder Error: column a not found"),
        ("SELECT 'predict_prob(''m'', *)', count_if('x', *)", STAR),  # stands in a string
        ("SELECT predict_prob('m", missing("predict_prob")),  # not even tokens
    ],
)
def test_other_errors_stay_as_they_are(sql: str, message: str) -> None:
    assert suggest_fix(sql, message, nothing) is None


def test_a_function_that_the_engine_has_is_not_ours() -> None:
    assert (
        suggest_fix("SELECT list_transform('m', *)", STAR, lambda name: name == "list_transform")
        is None
    )
    assert (
        suggest_fix("SELECT predict('m', a), list_transform('m', *)", STAR, lambda name: True)
        is None
    )


def test_a_misspelt_call_is_named_before_a_right_one() -> None:
    sql = "SELECT predict('m', *), predict_scors('m', *) FROM t"
    assert suggest_fix(sql, STAR, nothing) == "did you mean predict_score('m', ..)?"
    where = suggest_fix("predict('m', *)", STAR, nothing)
    assert where is not None and "not in a relation's own methods" in where


SYNTAX = 'Parser Error: syntax error at or near "{}"'


@pytest.mark.parametrize(
    ("sql", "near", "wanted"),
    [
        ("RETRAN MODEL m", "RETRAN", "write ALTER MODEL m RETRAIN"),
        ("RETRAIN MODEL m", "RETRAIN", "write ALTER MODEL m RETRAIN"),
        ("SELECT 1;\n crate model m from 'x'", "crate", "did you mean CREATE MODEL?"),
        ("DROP MODLE m", "MODLE", "did you mean DROP MODEL?"),
        ("SELECT * FROM ml_predict('m', TABLE t)", "TABLE", "write ml_predict(MODEL m, TABLE t)"),
        ('FROM ML_evaluate("m", TABLE t)', "TABLE", "write ml_evaluate(MODEL m, TABLE t)"),
        ("SELEC 1", "SELEC", None),
        ("CREATE TABLE t (a INT, TABLE)", "TABLE", None),
        ("DROP MODEL m m", "m", None),
    ],
)
def test_a_misspelt_statement_is_named(sql: str, near: str, wanted: str | None) -> None:
    assert suggest_fix(sql, SYNTAX.format(near), nothing) == wanted
