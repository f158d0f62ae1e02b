"""The models that the rows of a query name.

The names are read when the query is planned, as PIVOT reads its columns, since the models decide
which columns to bind and which type the result has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from sqlml.errors import BindError, SqlmlError, UnknownModelError
from sqlml.parsing.places import Span
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError, iterate_value_queries
from sqlml.planner.binding.requested_output import Target, find_target
from sqlml.planner.syntax.outline import ModelCall, ModelColumn, Outline, splice
from sqlml.planner.syntax.parameters import Parameters

MAX_NAMES = 10_000
"""The maximum number of models that the rows of one query may name."""

_MAX_SUGGESTIONS = 10
"""The number of unknown names whose errors suggest a similar model, since each needs a lookup."""


class _ProbedQuery(NamedTuple):
    """A query, and the query without calls and parameters that shows whether it binds."""

    probe: str
    query: str


@dataclass(frozen=True)
class ModelsOfRows:
    """The models that rows name, with the requested output of each.

    Attributes:
        targets: model name -> what the call computes. All results have the same type.
        errors: model name -> the error to raise if a row with this name is scored.
        nulls: the unknown names for whose rows the result is NULL.
        range_query: the query for the numbers of the first and last row with each name, or None.
    """

    targets: Mapping[str, Target]
    errors: Mapping[str, SqlmlError]
    nulls: frozenset[str] = frozenset()
    range_query: _ProbedQuery | None = None


def read_models_of_rows(
    call: ModelCall,
    column: ModelColumn,
    outline: Outline,
    parameters: Parameters,
    context: Context,
    nulls: Mapping[ModelCall, str],
) -> ModelsOfRows | None:
    """Return the models that the rows of `call` name in `column`, or None if there are no rows.

    `nulls` maps the calls on which this call depends to their replacements in probes. Raises
    BindError if the names cannot be read, if no model fits, or if the results differ in type, and
    UnknownModelError if all names are unknown.
    """
    reader = _NameReader(call, column.span, outline, context)
    reader.check_position()
    list_queries = partial(reader.list_queries, parameters, nulls)
    names = reader.read_names(list_queries())
    unknown_names = [name for name, stamp in context.models(tuple(names)).items() if stamp is None]
    max_suggestions = 0 if call.skips_unknown else _MAX_SUGGESTIONS
    names_without_hint = frozenset(unknown_names[max_suggestions:])
    targets: dict[str, Target] = {}
    errors: dict[str, SqlmlError] = {}
    for name in names:
        try:
            if name in names_without_hint:
                raise UnknownModelError(f"unknown model {name!r}", outline.sql, column.span.start)
            target = find_target(replace(call, model=name), outline.sql, parameters, context)
        except SqlmlError as error:
            errors[name] = error
        else:
            if target is not None:
                targets[name] = target
    unresolved_names = frozenset(n for n, e in errors.items() if isinstance(e, UnknownModelError))
    other_errors = {n: e for n, e in errors.items() if n not in unresolved_names}
    if call.skips_unknown:
        errors = other_errors
    if not targets and errors:
        raise next(iter((other_errors or errors).values()))
    if not targets:
        return None
    key = next((target.key for target in targets.values() if target.key), "")
    if call.key is not None and key:  # The key is not a class of every model.
        targets = {n: t if t.key else replace(t, chosen=None, key=key) for n, t in targets.items()}
    _require_same_type(call, targets, outline.sql)
    null_names = unresolved_names if call.skips_unknown else frozenset()
    return ModelsOfRows(targets, errors, null_names, reader.make_range_query(list_queries))


def _require_same_type(call: ModelCall, targets: Mapping[str, Target], sql: str) -> None:
    (first_name, first_target), *other_targets = targets.items()
    for name, target in other_targets:
        if target.type + target.key != first_target.type + first_target.key:
            message = (
                f"the models of one {call.function} must give one type: {first_name!r} gives "
                f"{first_target.type}, and {name!r} gives {target.type}; score them in two queries"
            )
            raise BindError(message, sql, call.model_span.start)


@dataclass(frozen=True, slots=True)
class _NameReader:
    """A reader of the model names that the expression `column` computes in a call's rows."""

    call: ModelCall
    column: Span
    outline: Outline
    context: Context

    def error(self, message: str) -> BindError:
        return BindError(message, self.outline.sql, self.column.start)

    def list_queries(
        self, parameters: Parameters, nulls: Mapping[ModelCall, str], first_items: str = ""
    ) -> Iterator[_ProbedQuery]:
        """Return queries for the names in the call's rows.

        `first_items` come before the name, and end with a comma.
        """
        call, outline, context = self.call, self.outline, self.context
        literals = {
            parameter.span: context.literal(boxed[0])
            for parameter in outline.parameters
            if (boxed := parameters.find_value(parameter))
        }
        nulled_call = {call: "NULL"}  # A recursive CTE may contain this call.
        patches = {**parameters.stand_ins, **literals}
        probe_text = partial(splice, outline.sql, {**nulls, **nulled_call}, patches)
        final_text = partial(splice, outline.sql, nulled_call, literals)
        where = None if call.block is None else call.block.where
        if where is not None and (
            any(where.contains(model_call.span) for model_call in outline.calls)
            or self.find_nondeterministic_function(where) is not None
        ):
            where = None  # The names in additional rows do no harm.
        probes, queries = (
            iterate_value_queries(self.column, call.block, text, where, first_items)
            for text in (probe_text, final_text)
        )
        return map(_ProbedQuery, probes, queries)

    def read_names(self, queries: Iterator[_ProbedQuery]) -> Sequence[str]:
        """Return the distinct names of the first of the `queries` that binds, without NULL."""
        failure = "it depends on rows of another query"
        for probe, query in queries:
            try:
                (column,) = self.context.describe(probe)[-1:]
            except ProbeError as error:
                failure = str(error)
                continue
            if column.type != "VARCHAR" and not column.type.startswith("ENUM("):
                raise self.error(
                    "the name of a model is a VARCHAR, and "
                    f"{self.outline.sql[self.column.start : self.column.end]} is {column.type}; "
                    "cast it"
                )
            return self.read_model_names(query)
        column_sql = self.outline.sql[self.column.start : self.column.end]
        raise self.error(self.explain_failure(column_sql, failure))

    @property
    def distinct_name(self) -> str:
        """The SQL of a name, which equals no other name under the collation of the column."""
        dialect = self.context.dialect
        return dialect.exact(f"CAST(sqlml_name AS {dialect.type('VARCHAR')})")

    def read_model_names(self, query: str) -> Sequence[str]:
        names: Sequence[str] = self.context.read_names(
            f"SELECT DISTINCT {self.distinct_name} FROM ({query}) AS sqlml_names "
            f"WHERE sqlml_name IS NOT NULL LIMIT {MAX_NAMES + 1}"
        )
        if len(names) > MAX_NAMES:
            raise self.error(f"the rows name more than {MAX_NAMES:,} models; score fewer at a time")
        return names

    def make_range_query(
        self, list_queries: Callable[[str], Iterator[_ProbedQuery]]
    ) -> _ProbedQuery | None:
        """Return a query for the first and last row number of each name in one table or file."""
        block, dialect = self.call.block, self.context.dialect
        source = None if block is None else self.outline.widenable_sources.get(block.span)
        if source is None:
            return None
        source_sql = self.outline.sql[source.span.start : source.span.end]
        is_file = source_sql.startswith("'") or "(" in source_sql
        row_number = dialect.row_number_in_file if is_file else dialect.row_number_in_table
        if row_number is None or source_sql.startswith("("):
            return None
        probe, query = next(list_queries(f"{row_number} AS sqlml_row, "))
        first, last = dialect.call("min", "sqlml_row"), dialect.call("max", "sqlml_row")
        return _ProbedQuery(
            probe,
            f"SELECT {first}, {last} FROM ({query}) AS sqlml_names WHERE sqlml_name IS NOT NULL "
            f"GROUP BY {self.distinct_name}",
        )

    def explain_failure(self, column_sql: str, failure: str) -> str:
        name = column_sql[1:-1] if column_sql[:1] == '"' == column_sql[-1:] else column_sql
        if (name != column_sql or name.isidentifier()) and name in failure:
            quoted_name = self.context.dialect.quote_string(name.replace('""', '"'))
            return (
                f"no column {column_sql} names models here; write the name of a model in single "
                f"quotes: {self.call.function}({quoted_name}, *)"
            )
        return f"the models that {column_sql} names cannot be read beforehand: {failure}"

    def check_position(self) -> None:
        """Raise BindError if the names cannot be read during planning, or may change afterwards."""
        call, sql = self.call, self.outline.sql
        if self.outline.is_stored:
            column_name = sql[self.column.start : self.column.end].split(".")[-1].strip('"')
            raise self.error(
                "a view, macro or prepared statement cannot have a model per row, since the models "
                "are read at planning; put the call in the query that uses it, or name one model "
                f"as a string: '{column_name}'"
            )
        if call.has_local_names:
            raise self.error("a lambda cannot have a model per row; call it outside")
        block = call.block
        if block is not None and any(p.contains(call.span) for p in (*block.sources, *block.joins)):
            message = (
                "the condition of a join cannot have a model per row; make the prediction in a "
                "subquery, as in FROM (SELECT *, predict(..) AS p FROM t) JOIN .."
            )
            raise BindError(message, sql, call.span.start)
        function = self.find_nondeterministic_function(self.column)
        if function is not None:
            raise self.error(
                f"{function}() may give another name each time that it is evaluated; name the "
                "models in a subquery, as in FROM (SELECT *, .. AS model FROM t)"
            )

    def find_nondeterministic_function(self, span: Span) -> str | None:
        """Return the first function in a span that may be nondeterministic, or None."""
        outline = self.outline
        call_starts = {call.span.start for call in outline.calls}
        called_names = (
            word
            for word, start in outline.identifiers
            if span.start <= start < span.end
            and start not in call_starts
            and outline.sql[start + len(word) : span.end].lstrip().startswith("(")
        )
        return next((name for name in called_names if not self.context.is_repeatable(name)), None)
