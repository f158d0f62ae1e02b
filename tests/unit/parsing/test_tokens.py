"""Tokens and their positions, for corner cases of DuckDB's syntax."""

from __future__ import annotations

import pytest

from sqlml.dialects import DUCKDB
from sqlml.errors import ParseError
from sqlml.parsing.parse import split_sql
from sqlml.parsing.tokens import tokenize


def kinds(sql: str) -> list[tuple[str, str]]:
    return [(t.kind, t.text) for t in tokenize(sql)]


def test_each_token_knows_its_place() -> None:
    sql = "SELECT predict('it''s', \"a b\".*) -- tail\nFROM t /* x /* y */ z */ WHERE é >= 1.5e3"
    for token in tokenize(sql):
        written = sql[token.start : token.end]
        assert written == token.text or written[0] in "'\""
    assert kinds(sql)[3] == ("string", "it's")
    assert kinds(sql)[5] == ("name", "a b")
    assert "tail" not in [t.text for t in tokenize(sql)]


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("$$it's$$", "it's"),
        ("$tag$a $$ b$tag$", "a $$ b"),
        ("'a;b'", "a;b"),
        ("''", ""),
    ],
)
def test_strings_of_every_spelling(sql: str, text: str) -> None:
    assert kinds(sql) == [("string", text)]


def test_parameters_of_every_spelling() -> None:
    assert kinds("? $1 $name") == [("param", "?"), ("param", "$1"), ("param", "$name")]


def test_several_words_in_one_token_are_split() -> None:
    tokens = tokenize("GROUP   BY a ORDER\nBY b")
    assert [t.text for t in tokens] == ["GROUP", "BY", "a", "ORDER", "BY", "b"]
    assert all("GROUP   BY a ORDER\nBY b"[t.start : t.end] == t.text for t in tokens)


def test_explain_and_prepare_do_not_swallow_the_rest() -> None:
    assert [t.text for t in tokenize("EXPLAIN SELECT 1")] == ["EXPLAIN", "SELECT", "1"]
    assert [t.text for t in tokenize("PREPARE p AS SELECT 1")][-2:] == ["SELECT", "1"]


def test_statements_are_split_at_semicolons_alone() -> None:
    assert split_sql("SELECT ';'; ; SELECT $$;$$ -- ;\n;") == ["SELECT ';'", "SELECT $$;$$"]


def test_commas_inside_brackets_do_not_split() -> None:
    tokens = tokenize("f(a, b), [1, 2], {'k': 1, 'l': 2}, c")
    assert len(tokens.split_commas(0, len(tokens))) == 4


def test_an_unclosed_string_is_an_error() -> None:
    with pytest.raises(ParseError):
        tokenize("SELECT 'abc")


def test_quoting_survives_hostile_names() -> None:
    hostile = 'a"; DROP TABLE t; --'
    (token,) = tokenize(DUCKDB.quote_name(hostile))
    assert (token.kind, token.text) == ("name", hostile)
    hostile = "x'); DROP TABLE t; --\n"
    (token,) = tokenize(DUCKDB.quote_string(hostile))
    assert (token.kind, token.text) == ("string", hostile)
