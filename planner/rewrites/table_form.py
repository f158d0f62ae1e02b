"""Replace each call of a table function with the subquery that it stands for.

::

    FROM ml_predict(MODEL m, TABLE t)
    FROM (SELECT *, predict('m', *) AS predicted_label,
                 predict_proba('m', *) AS predicted_label_probs FROM t)

    FROM ml_training_info(MODEL m)
    FROM (SELECT ... FROM (VALUES (1, 0.52, 0.53, 0.01), ...))

The rules that follow treat the calls of models in the subquery like the user's own: they bind and
prune columns, share one evaluation, and compute only what the query around them reads. The
subqueries come from `planner/table_functions/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from sqlml.errors import BindError, SqlmlError
from sqlml.parsing.places import Span
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.rewrites.cascaded_calls import called_models
from sqlml.planner.rewrites.draft import Draft, ExpandedStatement, TextPiece
from sqlml.planner.syntax.outline import ModelCall
from sqlml.planner.syntax.parameters import Parameters
from sqlml.planner.syntax.read_outline import read_outline
from sqlml.planner.syntax.table_forms import (
    TableForm,
    find_defined_names,
    find_names,
    find_table_forms,
)
from sqlml.planner.table_functions.table_function_call import ColumnTypes, TableFunctionCall
from sqlml.planner.table_functions.table_function_registry import build_table_function
from sqlml.types import fold


def table_form(draft: Draft) -> Draft:
    """Replace each table form, such as `ml_predict(MODEL m, TABLE t)`, with a subquery."""
    sql, context = draft.text, draft.context
    forms = find_table_forms(sql, draft.dialect.name)
    if not forms:
        return draft
    for form in forms:
        if form.span.start in draft.outline.scalar_forms:
            message = (
                "the table form returns rows and belongs in FROM; for one value per row write "
                "predict('model', *)"
            )
            raise BindError(message, sql, form.span.start)
    describe = partial(_describe_rows, sql, context)

    def expand_form(form: TableForm) -> Sequence[str]:
        rows_sql = tuple(sql[span.start : span.end] for span in form.rows)
        return build_table_function(TableFunctionCall(form, context, sql, rows_sql, describe))

    pieces = _build_pieces(sql, forms, Span(0, len(sql)), expand_form)
    expanded = ExpandedStatement(sql, tuple(pieces), draft.expanded)
    try:
        outline = read_outline(expanded.sql, draft.dialect.name)
    except SqlmlError as error:
        raise expanded.locate_error(error) from None
    return draft.with_expanded(expanded, outline)


def check_new_column(draft: Draft, call: ModelCall, columns: Iterable[str]) -> None:
    """Raise BindError if one of the rows' `columns` has the same name as the result of a call.

    Of two columns with the same name, the engine would read the first, which comes from the rows.
    """
    new_column = fold((call.items[0].name if call.items else None) or "")
    conflict = next((name for name in columns if new_column and fold(name) == new_column), None)
    if conflict is not None:
        star = draft.dialect.star_without([draft.dialect.quote_name(conflict)])
        message = (
            f"the rows already have a column {conflict!r}, which would hide the new one; leave it "
            f"out, as in ml_predict(MODEL m, (SELECT {star} FROM ..)), or rename it there"
        )
        raise BindError(message, draft.text, call.span.start)


def replace_table_forms(sql: str) -> str:
    """Replace each table form with a subquery over the rows, so that engines can parse `sql`."""

    def expand_form(form: TableForm) -> list[str]:
        if not form.rows:
            return ["(SELECT 1)"]
        return ["(SELECT * FROM ", *([", "] * (len(form.rows) - 1)), ")"]

    pieces = _build_pieces(sql, find_table_forms(sql), Span(0, len(sql)), expand_form)
    return "".join(piece.text for piece in pieces)


def _build_pieces(
    sql: str, forms: Sequence[TableForm], span: Span, expand: Callable[[TableForm], Sequence[str]]
) -> Iterator[TextPiece]:
    """Yield the pieces of the text at a span with expanded table forms.

    `expand` returns the SQL before the first relation of a form, and the SQL after each relation.
    """
    start = span.start
    for form in forms:
        if not start <= form.span.start < span.end:
            continue  # This form is inside the rows of another form.
        offset = form.span.start
        yield TextPiece(sql[start:offset], start, True)
        prefix, *suffixes = expand(form)
        yield TextPiece(prefix, offset, False)
        for rows_span, suffix in zip(form.rows, suffixes, strict=True):
            yield from _build_pieces(sql, forms, rows_span, expand)
            yield TextPiece(suffix, offset, False)
        start = form.span.end
    yield TextPiece(sql[start : span.end], start, True)


def _describe_rows(sql: str, context: Context, rows: str) -> ColumnTypes:
    """Return the column types of `rows`, a table or query in `sql`, or None if not known yet.

    The types are not known if `rows` reads a CTE or contains an error, which is reported later.
    """
    dialect, known_columns = context.dialect.name, context.known_columns
    if find_defined_names(sql, dialect) & find_names(rows, dialect):
        return None
    if rows not in known_columns:
        try:
            outline = read_outline(f"SELECT * FROM {rows}", dialect)
            parameters = Parameters(outline.parameters, None)
            draft = table_form(Draft(outline=outline, context=context, parameters=parameters))
            columns = context.describe(called_models(draft).probe)
            known_columns[rows] = {column.name: column.type for column in columns}
        except (ProbeError, SqlmlError):
            known_columns[rows] = None
    return known_columns[rows]
