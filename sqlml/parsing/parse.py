"""Parse SQL into statements or sqlglot trees, or split it into single statements."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

from sqlglot import exp
from sqlglot.errors import ParseError as GlotError
from sqlglot.tokenizer_core import Token, TokenType

from sqlml.errors import ParseError
from sqlml.parsing.model_statements import ModelStatements
from sqlml.parsing.sqlglot_dialects import DIALECTS
from sqlml.parsing.statements import Explain, Query, Statement
from sqlml.parsing.tokens import raw_tokens


def split_sql(sql: str, dialect: str = "duckdb") -> list[str]:
    """Split SQL text into statements without their semicolons.

    >>> split_sql("SELECT ';'; SELECT 2")
    ["SELECT ';'", 'SELECT 2']
    """
    return [sql[p.tokens[0].start : p.tokens[-1].end + 1] for p in split_tokens(sql, dialect)]


def has_several_statements(sql: str) -> bool:
    """Return whether DuckDB SQL has several statements, or may have if it cannot be tokenized.

    >>> has_several_statements("SELECT ';' ;"), has_several_statements("SELECT 1; SELECT 'x")
    (False, True)
    """
    try:
        return len(split_tokens(sql, "duckdb")) > 1
    except ParseError:
        return ";" in sql


@dataclass
class StatementTokens:
    """The tokens of a statement, and the offset after the statement and its semicolons."""

    tokens: list[Token]
    end: int


def split_tokens(sql: str, dialect: str) -> list[StatementTokens]:
    """Split SQL at semicolons into statements. For a Spark script in BEGIN ... END, return []."""
    tokens = raw_tokens(sql, dialect)
    if dialect == "spark" and tokens and tokens[0].text.upper() == "BEGIN":
        return []
    statements: list[StatementTokens] = []
    starts_new = True
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            starts_new = True
        elif starts_new:
            statements.append(StatementTokens([token], 0))
            starts_new = False
        else:
            statements[-1].tokens.append(token)
        if statements:
            statements[-1].end = token.end + 1
    return statements


_MISSING_OPERAND = re.compile(r"Required keyword: '\w+' missing for <class '[^']*'>")
_TOKEN_REPR = re.compile(r"<Token .*?text: (.*?), line.*?>", re.DOTALL)


def parse_trees(sql: str, dialect: str = "duckdb") -> list[exp.Expr]:
    """Parse SQL into sqlglot trees, whose nodes know their spans (`places.span`).

    RecursionError is raised if the SQL is nested too deeply; see `tokens.run_deeply`.
    """
    tokens = raw_tokens(sql, dialect)
    try:
        trees = DIALECTS[dialect].parser().parse(tokens, sql)
    except GlotError as error:
        error_details = error.errors[0] if error.errors else {}
        description = _TOKEN_REPR.sub(r"'\1'", str(error_details.get("description") or error))
        description = _MISSING_OPERAND.sub("an expression is missing", description)
        prefix = error_details.get("start_context")
        offset = len(prefix) if prefix is not None and sql.startswith(prefix) else None
        raise ParseError(description, sql, offset) from None
    return [tree for tree in trees if tree is not None]


def parse(sql: str, dialect: str = "duckdb") -> tuple[Statement, ...]:
    """Parse SQL into statements, in order; a statement of the engine becomes a `Query`.

    Return () if the SQL has only comments, or is a Spark script in BEGIN ... END. For DuckDB, the
    `sql` of all statements together is the whole text. For Spark, it lacks the comments between
    statements.
    """
    statement_tokens = split_tokens(sql, dialect)
    parser = cast(ModelStatements, DIALECTS[dialect].parser())
    statements = [parser.parse_model_statement(split.tokens, sql) for split in statement_tokens]
    if dialect == "spark" or not statement_tokens:
        return tuple(statements)
    boundaries = [0, *(split.end for split in statement_tokens[:-1]), len(sql)]
    statement_sqls = [sql[start:end] for start, end in pairwise(boundaries)]
    return tuple(
        replace(statement, sql=text) if isinstance(statement, Query | Explain) else statement
        for statement, text in zip(statements, statement_sqls, strict=True)
    )
