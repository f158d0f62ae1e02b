"""`Text`: whose a text is, and what has to be done about it."""

from __future__ import annotations

import pytest

from sqlml.errors import ParseError
from sqlml.parsing import tokens
from sqlml.parsing.statements import Query
from sqlml.planner.syntax.statement_text import Text, classify_text

CALL = "SELECT predict('m', *) FROM t"


@pytest.mark.parametrize(
    "sql",
    [
        CALL,
        "select Predict /* c */ ('m')",
        "select predict -- c\n('m')",
        "select * from ML . PREDICT(MODEL m, TABLE t)",
        "create model m from 'x'",
        "SHOW MODELS",
        "SET SESSION sqlml_backend = x",
    ],
)
def test_a_few_words_tell_of_models(sql: str) -> None:
    assert classify_text(sql).concerns_models


def test_a_text_without_such_words_is_the_engines_and_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "DIALECTS", {})
    text = classify_text("SELEC nonsense ' ;")
    assert text.is_engine_sql and text.statements == () and not text.defined_functions
    assert not (text.calls_models or text.ends_transaction or text.may_add_models)
    assert classify_text(object()).is_engine_sql


def test_words_of_other_meanings_leave_a_text_to_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "DIALECTS", {})
    text = classify_text(
        "SELECT model, important FROM models; INSERT INTO functions VALUES ('macro')"
    )
    assert not text.is_engine_sql and text.statements == () and not text.defined_functions
    assert not (text.calls_models or text.may_add_models or text.imported_folder)


def test_a_text_is_classified_once() -> None:
    assert classify_text(CALL) is classify_text(CALL) and classify_text(CALL) == Text(CALL)
    assert classify_text(CALL).statements is classify_text(CALL).statements


def test_several_statements_of_the_engine_stay_one_text() -> None:
    assert classify_text("SELECT 1 AS a; EXPLAIN SELECT a FROM model; SHOW MODEL").statements == ()
    first, second = classify_text(f"SELECT 1; {CALL}").statements
    assert first == Query("SELECT 1;") and second == Query(f" {CALL}")


def test_spark_takes_statements_one_by_one() -> None:
    assert classify_text("SELECT 1; SELECT 2", "spark").statements == (
        Query("SELECT 1"),
        Query("SELECT 2"),
    )
    assert classify_text("BEGIN SELECT 1; END", "spark").statements == (
        Query("BEGIN SELECT 1; END"),
    )
    assert classify_text("SELECT 1", "spark").is_engine_sql


def test_what_has_no_tokens_is_for_duckdb_to_refuse() -> None:
    assert classify_text("SHOW MODELS 'x").statements == ()
    with pytest.raises(ParseError):
        assert classify_text("SHOW MODELS 'x", "spark").statements
    with pytest.raises(ParseError, match="expected the end"):
        assert classify_text("DROP MODEL m n").statements


def test_a_macro_of_our_name_in_the_main_schema() -> None:
    sql = 'CREATE MACRO predict(a) AS a; create or replace function db.main."Predict_Proba"() AS 1'
    assert classify_text(sql).defined_functions == ("predict", "predict_proba")
    assert classify_text("CREATE MACRO other.predict(a) AS a").defined_functions == ()
    assert classify_text("SELECT 'CREATE MACRO predict(a)'").defined_functions == ()


def test_what_ends_a_transaction_or_imports() -> None:
    assert classify_text("SELECT 1; end /* a */ transaction ;").ends_transaction
    assert not classify_text("SELECT CASE WHEN a THEN b END").ends_transaction
    assert classify_text("IMPORT -- x\n DATABASE 'it''s'").imported_folder == "it's"
    assert classify_text("SELECT 1; ATTACH 'x'").may_add_models
    assert classify_text("ATTACH 'x'").imported_folder is None
