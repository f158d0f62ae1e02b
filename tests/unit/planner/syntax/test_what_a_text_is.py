"""`Text`: whose a text is, and what has to be done about it."""

from __future__ import annotations

import pytest

from sqlml.errors import ParseError
from sqlml.parsing import tokens
from sqlml.parsing.statements import Query
from sqlml.planner.syntax.statement_text import Text, text_of

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
    assert text_of(sql).concerns_models


def test_a_text_without_such_words_is_the_engines_and_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "DIALECTS", {})
    text = text_of("SELEC nonsense ' ;")
    assert text.is_engine_sql and text.statements == () and not text.defined_functions
    assert not (text.calls_models or text.ends_transaction or text.may_add_models)
    assert text_of(object()).is_engine_sql


def test_words_of_other_meanings_leave_a_text_to_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "DIALECTS", {})
    text = text_of("SELECT model, important FROM models; INSERT INTO functions VALUES ('macro')")
    assert not text.is_engine_sql and text.statements == () and not text.defined_functions
    assert not (text.calls_models or text.may_add_models or text.imported_folder)


def test_a_text_is_classified_once() -> None:
    assert text_of(CALL) is text_of(CALL) and text_of(CALL) == Text(CALL)
    assert text_of(CALL).statements is text_of(CALL).statements


def test_several_statements_of_the_engine_stay_one_text() -> None:
    assert text_of("SELECT 1 AS a; EXPLAIN SELECT a FROM model; SHOW MODEL").statements == ()
    first, second = text_of(f"SELECT 1; {CALL}").statements
    assert first == Query("SELECT 1;") and second == Query(f" {CALL}")


def test_spark_takes_statements_one_by_one() -> None:
    assert text_of("SELECT 1; SELECT 2", "spark").statements == (
        Query("SELECT 1"),
        Query("SELECT 2"),
    )
    assert text_of("BEGIN SELECT 1; END", "spark").statements == (Query("BEGIN SELECT 1; END"),)
    assert text_of("SELECT 1", "spark").is_engine_sql


def test_what_has_no_tokens_is_for_duckdb_to_refuse() -> None:
    assert text_of("SHOW MODELS 'x").statements == ()
    with pytest.raises(ParseError):
        assert text_of("SHOW MODELS 'x", "spark").statements
    with pytest.raises(ParseError, match="expected the end"):
        assert text_of("DROP MODEL m n").statements


def test_a_macro_of_our_name_in_the_main_schema() -> None:
    sql = 'CREATE MACRO predict(a) AS a; create or replace function db.main."Predict_Proba"() AS 1'
    assert text_of(sql).defined_functions == ("predict", "predict_proba")
    assert text_of("CREATE MACRO other.predict(a) AS a").defined_functions == ()
    assert text_of("SELECT 'CREATE MACRO predict(a)'").defined_functions == ()


def test_what_ends_a_transaction_or_imports() -> None:
    assert text_of("SELECT 1; end /* a */ transaction ;").ends_transaction
    assert not text_of("SELECT CASE WHEN a THEN b END").ends_transaction
    assert text_of("IMPORT -- x\n DATABASE 'it''s'").imported_folder == "it's"
    assert text_of("SELECT 1; ATTACH 'x'").may_add_models
    assert text_of("ATTACH 'x'").imported_folder is None
