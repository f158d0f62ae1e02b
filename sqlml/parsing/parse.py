"""`parse`: a text as Statements; what is not about models is a Query."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import cast

from sqlml.parsing.cut_statements import pieces_of
from sqlml.parsing.dialect import DIALECTS
from sqlml.parsing.model_statements import ModelStatements
from sqlml.parsing.statements import Explain, Query, Statement


def parse(sql: str, dialect: str = "duckdb") -> tuple[Statement, ...]:
    """The statements of `sql`, in order; those that do not concern models are Query.

    There are none in a text of only comments, and none in a Spark script in BEGIN and END.

    Between them, the Queries of DuckDB hold every character of the text, comments included: each
    ends with its semicolons, where DuckDB cuts as well. Those of Spark, which takes one statement
    at a time, hold only the statement.

    Raises:
        ParseError: a statement about models breaks the grammar (the error shows the place), or the
            text has no tokens.
    """
    pieces = pieces_of(sql, dialect)
    reader = cast(ModelStatements, DIALECTS[dialect].parser())
    found = [reader.model_statement(piece.tokens, sql) for piece in pieces]
    if dialect == "spark" or not pieces:
        return tuple(found)
    cuts = [0, *(piece.end for piece in pieces[:-1]), len(sql)]
    texts = [sql[start:end] for start, end in pairwise(cuts)]
    return tuple(
        replace(one, sql=text) if isinstance(one, Query | Explain) else one
        for one, text in zip(found, texts, strict=True)
    )
