"""`operators_of`: SQL expressions over the columns of a step, as operators of a Program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sql_steps.row_values import Column, Date, Null, Text
from sqlml.importers.sql_steps.tree_reader import Reader, listed, shown
from sqlml.parsing.dialect import DIALECTS


def parsed(sql: str) -> exp.Expr:
    """The tree of one expression in DuckDB's SQL.

    Raises:
        UnsupportedModelError: it is none.
    """
    if "np.float" in sql or "np.int" in sql:
        raise UnsupportedModelError(
            f"{sql!r} holds the repr of a number of numpy's; write it with float(..) or str(..)"
        )
    try:
        tree = sqlglot.parse_one(f"SELECT {sql}\n", dialect=DIALECTS["duckdb"])
    except (SqlglotError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise UnsupportedModelError(f"{sql!r} is not an SQL expression: {reason}") from None
    used = {name for name, part in tree.args.items() if part}
    if not isinstance(tree, exp.Select) or used - {"expressions", "kind"}:
        raise UnsupportedModelError(f"{sql!r} is not an SQL expression over one row")
    if len(tree.expressions) != 1:
        raise UnsupportedModelError(f"{sql!r} is not one SQL expression but several")
    made: exp.Expr = tree.expressions[0].unalias()
    return made


def operators_of(expressions: Mapping[str, str], frame: Frame) -> list[Frame]:
    """The columns that a step makes, one by one: what expressions make of those of a frame.

    Numbers are float64, computed in float64, and NULL is NaN; TRUE and FALSE become 1 and 0. A bare
    column is handed on as it is.

    Args:
        expressions: new column -> its expression, which reads the frame's columns by name.

    Raises:
        UnsupportedModelError: it calls what has no operator, or reads no or an unknown column.
    """
    reader = Reader(frame)
    trees = {name: parsed(sql) for name, sql in expressions.items()}
    for tree in trees.values():
        reader.find_kinds(tree)
    made = []
    for name, tree in trees.items():
        try:
            made.append(_column(name, tree, reader))
        except (ProgramError, UnsupportedModelError) as error:
            raise UnsupportedModelError(f"the SQL of its column {name!r}: {error}") from None
    return made


def _column(name: str, tree: exp.Expr, reader: Reader) -> Frame:
    operand, frame = reader.read(tree), reader.frame
    if isinstance(operand, Column):
        taken = frame.take([operand.place])
        return Frame(taken.builder, taken.blocks, (name,))
    if isinstance(operand, Text | Null | Date):
        raise UnsupportedModelError(
            f"{shown(tree)} makes a text, a date or NULL; a step's SQL makes numbers"
        )
    value = reader.number(operand).value
    if not value.type.rowwise:
        raise UnsupportedModelError(
            f"{shown(tree)} reads none of the columns {listed(frame.names)}"
        )
    return Frame.of(frame.builder, value, (name,))


def texts_in(expressions: Iterable[str]) -> list[str]:
    """The text literals of some expressions."""
    found = {
        literal.this: None
        for sql in expressions
        for literal in parsed(sql).find_all(exp.Literal)
        if literal.is_string
    }
    return list(found)
