"""`models_of_rows`: the models that the rows of a query name, each with what is asked of it.

The names are read when the query is planned, as PIVOT reads its columns: only then is it known
which columns to bind and which type the result has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from sqlml.errors import BindError, SqlmlError, UnknownModelError
from sqlml.parsing.places import Span
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError, value_queries
from sqlml.planner.binding.requested_output import Target, target_of
from sqlml.planner.syntax.outline import ModelCall, ModelColumn, Outline, splice
from sqlml.planner.syntax.parameters import Parameters

MOST_NAMES = 10_000
"""Models that the rows of one query may name."""

_SENTENCES = 10
"""Unknown names whose error says which models are near: that takes a look at the catalog each."""


@dataclass(frozen=True)
class ModelsOfRows:
    """What rows name, and what a call computes there.

    Attributes:
        targets: name -> what the call computes; all have one type.
        errors: name -> why it cannot be called: it matters only if such a row is scored.
        nulls: unknown names whose rows are to have NULL.
    """

    targets: Mapping[str, Target]
    errors: Mapping[str, SqlmlError]
    nulls: frozenset[str] = frozenset()


def models_of_rows(
    call: ModelCall,
    column: ModelColumn,
    outline: Outline,
    given: Parameters,
    context: Context,
    nulls: Mapping[ModelCall, str],
) -> ModelsOfRows | None:
    """The models that the rows of a call name; None where there are no rows.

    Args:
        nulls: what stands for the calls that this one depends on, where the engine only binds.

    Raises:
        BindError: the names cannot be read, no model fits, or the results differ in type.
        UnknownModelError: all names are unknown.
    """
    targets: dict[str, Target] = {}
    errors: dict[str, SqlmlError] = {}
    names = _names(call, column, outline, given, context, nulls)
    missing = [name for name, stamp in context.models(tuple(names)).items() if stamp is None]
    told_briefly = frozenset(missing if call.skips_unknown else missing[_SENTENCES:])
    for name in names:
        if name in told_briefly:
            errors[name] = UnknownModelError(
                f"unknown model {name!r}", outline.sql, column.span.start
            )
            continue
        try:
            found = target_of(replace(call, model=name), outline.sql, given, context)
        except SqlmlError as error:
            errors[name] = error
            continue
        if found is not None:
            targets[name] = found
    unknown = {n for n, e in errors.items() if isinstance(e, UnknownModelError)}
    if not targets and errors and not (call.skips_unknown and len(unknown) == len(errors)):
        raise next((e for n, e in errors.items() if n not in unknown), next(iter(errors.values())))
    if call.skips_unknown:
        errors = {n: e for n, e in errors.items() if n not in unknown}
    if not targets:
        return None
    key = next((target.key for target in targets.values() if target.key), "")
    if call.key is not None and key:  # a class that not all models have
        targets = {n: t if t.key else t.with_key(key) for n, t in targets.items()}
    _check_types(call, targets, outline.sql)
    return ModelsOfRows(targets, errors, frozenset(unknown if call.skips_unknown else ()))


def _check_types(call: ModelCall, targets: Mapping[str, Target], sql: str) -> None:
    """Raises BindError if two models give results of different types."""
    (first, known), *others = targets.items()
    other = next(((n, t) for n, t in others if t.type + t.key != known.type + known.key), None)
    if other is not None:
        name, target = other
        raise BindError(
            f"the models of one {call.function} must give one type: {first!r} gives {known.type}, "
            f"and {name!r} gives {target.type}; score them in two queries",
            sql,
            call.model_span.start,
        )


def _names(
    call: ModelCall,
    column: ModelColumn,
    outline: Outline,
    given: Parameters,
    context: Context,
    nulls: Mapping[ModelCall, str],
) -> list[str]:
    """The names that rows give, NULL left out, sorted."""
    at = column.span.start
    _check_place(call, column, outline, context)
    values = {p.span: context.literal(v[0]) for p in outline.parameters if (v := given.value(p))}
    own = {call: "NULL"}  # a recursive WITH has its own definition in sight
    bound = partial(splice, outline.sql, {**nulls, **own}, {**given.as_nulls(), **values})
    whole = partial(splice, outline.sql, own, values)
    where = None if call.block is None else call.block.where
    if where is not None and (
        any(where.holds(c.span) for c in outline.calls)
        or _unsteady(where, outline, context) is not None
    ):
        where = None  # more rows do no harm
    pairs = zip(
        value_queries(column.span, call.block, bound, where),
        value_queries(column.span, call.block, whole, where),
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
                f"the name of a model is a VARCHAR, and {whole(column.span)} is {described.type}; "
                "cast it",
                outline.sql,
                at,
            )
        found = context.names(
            f"SELECT DISTINCT CAST(sqlml_name AS {context.dialect.type('VARCHAR')}) FROM ({query}) "
            f"AS sqlml_names WHERE sqlml_name IS NOT NULL LIMIT {MOST_NAMES + 1}"
        )
        if len(found) > MOST_NAMES:
            raise BindError(
                f"the rows name more than {MOST_NAMES:,} models; score fewer at a time",
                outline.sql,
                at,
            )
        return sorted(found)
    written = whole(column.span)
    message = f"the models that {written} names cannot be read beforehand: {failure}"
    name = written[1:-1] if written[:1] == '"' == written[-1:] else written
    if (name != written or name.isidentifier()) and name in failure:
        model = context.dialect.quote_string(name.replace('""', '"'))
        message = (
            f"no column {written} names models here; the name of a model stands in single quotes: "
            f"{call.function}({model}, *)"
        )
    raise BindError(message, outline.sql, at)


def _check_place(call: ModelCall, column: ModelColumn, outline: Outline, context: Context) -> None:
    """Raises BindError where names cannot be read beforehand, or may change from one look to the
    next."""
    at, sql = column.span.start, outline.sql
    if outline.kept:
        name = sql[at : column.span.end].split(".")[-1].strip('"')
        raise BindError(
            "a view, macro or prepared statement cannot have a model per row, since the models are "
            "read at planning; put the call in the query that uses it, or name one model as a "
            f"text: '{name}'",
            sql,
            at,
        )
    if call.has_local_names:
        raise BindError("a lambda cannot have a model per row; call it outside", sql, at)
    block = call.block
    if block is not None and any(p.holds(call.span) for p in (*block.sources, *block.joins)):
        raise BindError(
            "the condition of a join cannot have a model per row; make the prediction in a "
            "subquery, as in FROM (SELECT *, predict(..) AS p FROM t) JOIN ..",
            sql,
            call.span.start,
        )
    unsteady = _unsteady(column.span, outline, context)
    if unsteady is not None:
        raise BindError(
            f"{unsteady}() may give another name each time that it is evaluated; name the models "
            "in a subquery, as in FROM (SELECT *, .. AS model FROM t)",
            sql,
            at,
        )


def _unsteady(place: Span, outline: Outline, context: Context) -> str | None:
    """A function called at a place whose result may change from one look to the next."""
    models = {call.span.start for call in outline.calls}
    called = (
        word
        for word, start in outline.words
        if place.start <= start < place.end
        and start not in models
        and outline.sql[start + len(word) : place.end].lstrip().startswith("(")
    )
    return next((name for name in called if not context.is_steady(name)), None)
