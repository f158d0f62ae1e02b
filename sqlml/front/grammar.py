"""The statements about models, read by recursive descent over the tokens of one statement.

A rule returns None for a statement of the engine that begins with the same word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from sqlml.front.alter import alter
from sqlml.front.artifact import artifact
from sqlml.front.cursor import Cursor
from sqlml.front.statements import (
    CommentOn,
    CreateModel,
    DescribeModel,
    DropModel,
    Explain,
    ExplainModel,
    ExportModel,
    Query,
    Reserved,
    SetOption,
    ShowCreate,
    ShowModels,
    ShowVersions,
    Statement,
    VerifyModel,
)
from sqlml.parsing.tokens import Token, closing
from sqlml.types import fold

EXPORT_FORMATS = ("ONNX", "SQLML", "SQL")

_OPTION = "SQLML_"


def read_statement(sql: str, tokens: Sequence[Token]) -> Statement:
    """The statement that `tokens` of the text `sql` are.

    Raises:
        ParseError: it is about models and breaks the grammar; the error shows the place.
    """
    cursor = Cursor(sql, tokens)
    rule = _RULES.get(cursor.word())
    found = None if rule is None else rule(cursor)
    return Query(cursor.sql) if found is None else found


def _create(c: Cursor) -> Statement | None:
    c.expect("CREATE")
    or_replace = c.accept("OR", "REPLACE")
    if not c.is_about_a_model(0):
        return None
    c.expect("MODEL")
    if_not_exists = c.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        raise c.fail("OR REPLACE and IF NOT EXISTS exclude each other")
    name = c.model_name()
    found = artifact(c)
    if found is None:
        return Reserved(c.sql, "CREATE MODEL .. AS SELECT (training)", name)
    return CreateModel(c.sql, name, found, or_replace, if_not_exists)


def _drop(c: Cursor) -> Statement | None:
    if not c.is_about_a_model():
        return None
    c.at += 2
    if_exists = c.accept("IF", "EXISTS")
    name = c.model_name()
    if c.peek() is not None and (c.symbol("/") or c.symbol("@")):
        c.at -= 1
        raise c.fail(f"a version is dropped with ALTER MODEL {name} DROP VERSION ..")
    c.end()
    return DropModel(c.sql, name, if_exists)


def _show(c: Cursor) -> Statement | None:
    if c.accept("SHOW", "MODELS"):
        like = database = None
        while c.peek() is not None:
            if like is None and c.accept("LIKE"):
                like = c.string("a pattern")
            elif database is None and (c.accept("FROM") or c.accept("IN")):
                database = c.identifier("the name of a database")
            else:
                raise c.fail("expected LIKE '..', FROM database or the end")
        return ShowModels(c.sql, like, database)
    if c.accept("SHOW", "VERSIONS", "IN", "MODEL"):
        name = c.model_name()
        c.end()
        return ShowVersions(c.sql, name)
    if c.word(1) == "CREATE" and c.is_about_a_model(2):
        c.at += 3
        name = c.model_version()
        c.end()
        return ShowCreate(c.sql, name)
    return None


def _describe(c: Cursor) -> Statement | None:
    if not c.is_about_a_model():
        return None
    c.at += 2
    name = c.model_version()
    c.end()
    return DescribeModel(c.sql, name)


def _explain(c: Cursor) -> Statement | None:
    if c.is_about_a_model():
        c.at += 2
        name = c.model_version()
        c.end()
        return ExplainModel(c.sql, name)
    c.expect("EXPLAIN")
    analyze = c.accept("ANALYZE")
    token = c.peek()
    if token is None or token.is_symbol("("):  # EXPLAIN (FORMAT json) ..: the engine's own
        return None
    return Explain(c.sql, c.text[token.start : c.tokens[-1].end], analyze)


def _export(c: Cursor) -> Statement | None:
    if not c.is_about_a_model():
        return None
    c.at += 2
    name = c.model_version()
    c.expect("TO")
    path = c.string("the path of the file to write")
    bracket = c.symbol("(")  # as COPY .. TO .. (FORMAT x) has it
    form: str | None = None
    if bracket or c.peek() is not None:
        c.expect("FORMAT")
        form = c.identifier("a format").upper()
        if form not in EXPORT_FORMATS:
            c.at -= 1
            *others, last = EXPORT_FORMATS
            raise c.fail(f"models are exported to {', '.join(others)} and {last}")
    if bracket:
        c.expect_symbol(")")
    c.end()
    return ExportModel(c.sql, name, path, form)


def _set(c: Cursor) -> Statement | None:
    scoped = c.word(1) in ("SESSION", "LOCAL", "GLOBAL")
    name = c.word(1 + scoped)
    if not name.startswith(_OPTION):
        return None
    if c.word(1) == "GLOBAL":
        c.at += 1
        raise c.fail("options of sqlml are the session's own; leave GLOBAL out")
    reset = c.word() == "RESET"
    c.at += 2 + scoped
    if reset:
        value = None
    else:
        if not (c.symbol("=") or c.accept("TO")):
            raise c.fail("expected = and a value")
        if c.word() == "NULL":
            raise c.fail("expected a value; RESET takes it back")
        value = None if c.accept("DEFAULT") else c.literal()
    c.end()
    return SetOption(c.sql, fold(name.removeprefix(_OPTION)), value)


def _verify(c: Cursor) -> Statement | None:
    if not c.is_about_a_model():
        return None
    c.at += 2
    name = c.model_version()
    c.expect("USING")
    opening = c.at
    c.expect_symbol("(")
    close = closing(c.tokens, opening)
    if close is None:
        raise c.fail("this bracket is not closed")
    query = c.text[c.tokens[opening].end : c.tokens[close].start]
    c.at = close + 1
    against = c.string("the path of the original artifact") if c.accept("AGAINST") else None
    c.end()
    return VerifyModel(c.sql, name, query, against)


def _comment(c: Cursor) -> Statement | None:
    if not (c.word(1) == "ON" and c.is_about_a_model(2)):
        return None
    c.at += 3
    name = c.model_version()
    c.expect("IS")
    comment = None if c.accept("NULL") else c.string("a comment")
    c.end()
    return CommentOn(c.sql, name, comment)


_RULES: Mapping[str, Callable[[Cursor], Statement | None]] = MappingProxyType(
    {
        "CREATE": _create,
        "DROP": _drop,
        "SHOW": _show,
        "DESCRIBE": _describe,
        "DESC": _describe,
        "EXPLAIN": _explain,
        "ALTER": alter,
        "EXPORT": _export,
        "SET": _set,
        "RESET": _set,
        "VERIFY": _verify,
        "COMMENT": _comment,
    }
)
