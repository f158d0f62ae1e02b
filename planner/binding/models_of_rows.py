"""The models that the rows of a query name.

The names are read when the query is planned, as PIVOT reads its columns, since they decide which
columns to bind and the type of the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from sqlml.errors import BindError, SqlmlError, UnknownModelError
from sqlml.parsing.places import Span
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError, write_value_queries
from sqlml.planner.binding.requested_output import Target, find_target
from sqlml.planner.syntax.outline import ModelCall, ModelColumn, Outline, splice
from sqlml.planner.syntax.parameters import Parameters

MOST_NAMES = 10_000
"""The maximum number of models that the rows of one query may name."""

_MOST_SUGGESTIONS = 10
"""The number of unknown names whose errors suggest similar models, which takes a catalog lookup
each.
"""


@dataclass(frozen=True)
class ModelsOfRows:
    """The models that rows name, with the requested output of each.

    Attributes:
        targets: what the call computes by model name; all have one type.
        errors: why a named model cannot be called; the error is raised if such a row is scored.
        nulls: unknown names whose rows yield NULL.
    """

    targets: Mapping[str, Target]
    errors: Mapping[str, SqlmlError]
    nulls: frozenset[str] = frozenset()


def read_models_of_rows(
    call: ModelCall,
    column: ModelColumn,
    outline: Outline,
    parameters: Parameters,
    context: Context,
    nulls: Mapping[ModelCall, str],
) -> ModelsOfRows | None:
    """Return the models that the rows of a call name; None if there are no rows.

    Args:
        nulls: replacements of the calls that this one depends on, for probes.

    Raises:
        BindError: the names cannot be read, no model fits, or the results differ in type.
        UnknownModelError: all names are unknown.
    """
    targets: dict[str, Target] = {}
    errors: dict[str, SqlmlError] = {}
    names = _read_names(call, column, outline, parameters, context, nulls)
    missing = [name for name, stamp in context.models(tuple(names)).items() if stamp is None]
    brief_errors = frozenset(missing if call.skips_unknown else missing[_MOST_SUGGESTIONS:])
    for name in names:
        if name in brief_errors:
            errors[name] = UnknownModelError(
                f"unknown model {name!r}", outline.sql, column.span.start
            )
            continue
        try:
            target = find_target(replace(call, model=name), outline.sql, parameters, context)
        except SqlmlError as error:
            errors[name] = error
            continue
        if target is not None:
            targets[name] = target
    unknown = {n for n, e in errors.items() if isinstance(e, UnknownModelError)}
    if not targets and errors and not (call.skips_unknown and len(unknown) == len(errors)):
        raise next((e for n, e in errors.items() if n not in unknown), next(iter(errors.values())))
    if call.skips_unknown:
        errors = {n: e for n, e in errors.items() if n not in unknown}
    if not targets:
        return None
    key = next((target.key for target in targets.values() if target.key), "")
    if call.key is not None and key:  # not all models have the class
        targets = {n: t if t.key else t.with_key(key) for n, t in targets.items()}
    _check_types(call, targets, outline.sql)
    return ModelsOfRows(targets, errors, frozenset(unknown if call.skips_unknown else ()))


def _check_types(call: ModelCall, targets: Mapping[str, Target], sql: str) -> None:
    """Raise BindError if two models return results of different types."""
    (first, first_target), *others = targets.items()
    other = next(
        ((n, t) for n, t in others if t.type + t.key != first_target.type + first_target.key), None
    )
    if other is not None:
        name, target = other
        raise BindError(
            f"the models of one {call.function} must give one type: {first!r} gives "
            f"{first_target.type}, and {name!r} gives {target.type}; score them in two queries",
            sql,
            call.model_span.start,
        )


def _read_names(
    call: ModelCall,
    column: ModelColumn,
    outline: Outline,
    parameters: Parameters,
    context: Context,
    nulls: Mapping[ModelCall, str],
) -> list[str]:
    """Return the sorted names in the rows, without NULL."""
    offset = column.span.start
    _check_place(call, column, outline, context)
    values = {
        p.span: context.literal(v[0]) for p in outline.parameters if (v := parameters.value(p))
    }
    nulled_call = {call: "NULL"}  # a recursive WITH has its own definition in sight
    probe_text = partial(
        splice, outline.sql, {**nulls, **nulled_call}, {**parameters.as_nulls(), **values}
    )
    final_text = partial(splice, outline.sql, nulled_call, values)
    where = None if call.block is None else call.block.where
    if where is not None and (
        any(where.contains(c.span) for c in outline.calls)
        or _find_unrepeatable(where, outline, context) is not None
    ):
        where = None  # names of additional rows are harmless
    pairs = zip(
        write_value_queries(column.span, call.block, probe_text, where),
        write_value_queries(column.span, call.block, final_text, where),
        strict=True,
    )
    failure = "it depends on rows of another query"
    for probe, query in pairs:
        try:
            (described,) = context.describe(probe)[-1:]
        except ProbeError as error:
            failure = str(error)
            continue
        if described.type != "VARCHAR" and not described.type.startswith("ENUM("):
            raise BindError(
                f"the name of a model is a VARCHAR, and {final_text(column.span)} is "
                f"{described.type}; cast it",
                outline.sql,
                offset,
            )
        names = context.read_names(
            f"SELECT DISTINCT CAST(sqlml_name AS {context.dialect.type('VARCHAR')}) FROM ({query}) "
            f"AS sqlml_names WHERE sqlml_name IS NOT NULL LIMIT {MOST_NAMES + 1}"
        )
        if len(names) > MOST_NAMES:
            raise BindError(
                f"the rows name more than {MOST_NAMES:,} models; score fewer at a time",
                outline.sql,
                offset,
            )
        return sorted(names)
    column_sql = final_text(column.span)
    message = f"the models that {column_sql} names cannot be read beforehand: {failure}"
    name = column_sql[1:-1] if column_sql[:1] == '"' == column_sql[-1:] else column_sql
    if (name != column_sql or name.isidentifier()) and name in failure:
        model = context.dialect.quote_string(name.replace('""', '"'))
        message = (
            f"no column {column_sql} names models here; the name of a model stands in single "
            f"quotes: {call.function}({model}, *)"
        )
    raise BindError(message, outline.sql, offset)


def _check_place(call: ModelCall, column: ModelColumn, outline: Outline, context: Context) -> None:
    """Raise BindError if the names cannot be read while planning, or may change between
    evaluations.
    """
    offset, sql = column.span.start, outline.sql
    if outline.is_stored:
        name = sql[offset : column.span.end].split(".")[-1].strip('"')
        raise BindError(
            "a view, macro or prepared statement cannot have a model per row, since the models are "
            "read at planning; put the call in the query that uses it, or name one model as a "
            f"text: '{name}'",
            sql,
            offset,
        )
    if call.has_local_names:
        raise BindError("a lambda cannot have a model per row; call it outside", sql, offset)
    block = call.block
    if block is not None and any(p.contains(call.span) for p in (*block.sources, *block.joins)):
        raise BindError(
            "the condition of a join cannot have a model per row; make the prediction in a "
            "subquery, as in FROM (SELECT *, predict(..) AS p FROM t) JOIN ..",
            sql,
            call.span.start,
        )
    function = _find_unrepeatable(column.span, outline, context)
    if function is not None:
        raise BindError(
            f"{function}() may give another name each time that it is evaluated; name the models "
            "in a subquery, as in FROM (SELECT *, .. AS model FROM t)",
            sql,
            offset,
        )


def _find_unrepeatable(span: Span, outline: Outline, context: Context) -> str | None:
    """Return a function called in a span whose result may differ between evaluations, or None."""
    models = {call.span.start for call in outline.calls}
    functions = (
        word
        for word, start in outline.identifiers
        if span.start <= start < span.end
        and start not in models
        and outline.sql[start + len(word) : span.end].lstrip().startswith("(")
    )
    return next((name for name in functions if not context.is_repeatable(name)), None)
