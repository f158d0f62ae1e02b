"""`written`: a model as an expression of the engine, where that is cheaper than a function's call.

Sums of weights and small trees are; a model of another kind is written out only if asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from sqlml.backends.costs import current
from sqlml.backends.sql.literals import number
from sqlml.dialects import Dialect
from sqlml.errors import BackendError
from sqlml.ir.program import Program
from sqlml.passes.analysis.one_tree import OneTree, one_tree
from sqlml.passes.split import Layout
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.function_arguments import linear, plain, plain_columns
from sqlml.planner.choice.choose import Choice
from sqlml.planner.choice.cost import Estimate, sql_estimate
from sqlml.planner.choice.settings import SQL
from sqlml.planner.model_sql.export_macros import expression
from sqlml.planner.model_sql.one_tree import TreeColumn, tree_sql
from sqlml.planner.program.prepare import Prepared
from sqlml.planner.program.result_sql import Chosen, decoded, label_literal
from sqlml.types import Array

WORTH = 0.6
"""The part of the function's time that a tree's expression may take.

The engine plans a test in 50 microseconds, which a query of few rows does not win back.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call computes: `output` of `program`, or only its `column`, as the user's type."""

    program: Program
    output: str
    column: int | None
    chosen: Chosen | None
    dialect: Dialect

    def decoded(self, sql: str) -> str:
        """The user's value from what the model computes."""
        return decoded(sql, self.program, self.output, self.chosen, self.dialect)


@dataclass(frozen=True, slots=True)
class Written:
    """value: the user's value; fits: the rows that it is right for, None for all."""

    value: str
    fits: str | None
    estimate: Estimate | None
    reason: str

    def or_else(self, function: str) -> str:
        """The value, for other rows that of `function`."""
        if self.fits is None:
            return self.value
        return f"CASE WHEN {self.fits} THEN {self.value} ELSE {function} END"

    def choice(self, function: Choice) -> Choice:
        """How the model is run, with `function` for rows that the expression cannot score."""
        estimates = () if self.estimate is None else (self.estimate, *function.estimates)
        return replace(
            function,
            backend=SQL,
            device="cpu",
            reason=self.reason,
            estimates=estimates,
            guarded=self.fits is not None,
        )


def written(
    wanted: Wanted,
    prepared: Prepared,
    bounds: Mapping[str, Bound],
    layout: Layout,
    function: Choice,
    calls: int = 1,
) -> Written | None:
    """The model as an expression, if that is cheapest; otherwise None.

    Args:
        function: the choice for the function that it would replace.
        calls: how many calls the function would serve at once.
    """
    summed = linear(prepared, bounds)
    if not wanted.dialect.lazy_calls:
        return _without_function(wanted, prepared, bounds, function, calls)
    if summed is not None:
        estimate = sql_estimate(prepared.split.core, current(), function.rows)
        why = "a weighted sum is cheapest as an expression; rows that it cannot score go to the UDF"
        value = wanted.decoded(summed.value)
        return Written(value, wanted.dialect.is_finite(summed.sum), estimate, why)
    one = _one_tree(wanted, prepared, bounds)
    if one is None or not function.estimates:
        return None
    estimate = sql_estimate(prepared.split.core, current(), function.rows)
    if not _is_worth_it(estimate, function, calls):
        return None
    return _tree(wanted, one, prepared, bounds, layout, estimate)


def _is_worth_it(estimate: Estimate, function: Choice, calls: int) -> bool:
    best = function.estimates[0]
    return calls * estimate.seconds <= WORTH * (best.seconds + best.start)


def _without_function(
    wanted: Wanted,
    prepared: Prepared,
    bounds: Mapping[str, Bound],
    function: Choice,
    calls: int,
) -> Written | None:
    """The model as an expression that fails by itself for rows that it refuses.

    An engine that calls a function for all rows, whatever branch of a CASE calls it, would gain
    nothing by an expression for most of them.
    """
    summed = linear(prepared, bounds) is not None
    if not summed and (_one_tree(wanted, prepared, bounds) is None or not function.estimates):
        return None
    estimate = sql_estimate(prepared.split.core, current(), function.rows)
    if not summed and not _is_worth_it(estimate, function, calls):
        return None
    try:
        value = _printed(wanted, prepared, bounds)
    except BackendError:
        return None
    kind = "weighted sum" if summed else "small tree"
    return Written(value, None, estimate, f"a {kind} is cheapest as an expression")


def as_asked(
    wanted: Wanted, prepared: Prepared, bounds: Mapping[str, Bound], layout: Layout
) -> Written:
    """The model as an expression whatever that costs.

    Raises:
        BackendError: it cannot be written as one.
    """
    lazy = wanted.dialect.lazy_calls
    summed = linear(prepared, bounds) if lazy else None
    if summed is not None:
        fits = wanted.dialect.is_finite(summed.sum)
        return Written(wanted.decoded(summed.value), fits, None, "asked for")
    one = _one_tree(wanted, prepared, bounds) if lazy else None
    if one is not None:
        return _tree(wanted, one, prepared, bounds, layout, None)
    if len(wanted.program.labels) > 1:
        raise _cannot("it has several targets")
    try:
        return Written(_printed(wanted, prepared, bounds), None, None, "asked for")
    except BackendError as error:
        raise _cannot(str(error)) from None


def _printed(wanted: Wanted, prepared: Prepared, bounds: Mapping[str, Bound]) -> str:
    """The user's value, by an expression of the whole Program.

    Raises:
        BackendError: SQL has no equivalent of an operator, or it would be too long.
    """
    names, dialect = list(prepared.program.inputs), wanted.dialect
    once = not all(plain(bounds[name].sql) for name in names)
    inputs = {
        name: dialect.member("sqlml_x", f"c{k}") if once else bounds[name].sql
        for k, name in enumerate(names)
    }
    made = expression(wanted.program, wanted.output, wanted.column, inputs, dialect)
    value = wanted.decoded(made)
    if once:  # other than a plain column, it may be long, or vary per evaluation
        fields = {f"c{k}": bounds[name].sql for k, name in enumerate(names)}
        value = dialect.let("sqlml_x", dialect.struct(fields), value)
    return value


def _cannot(why: str) -> BackendError:
    return BackendError(f"backend 'sql' cannot run it ({why}); use backend 'auto'")


def _one_tree(wanted: Wanted, prepared: Prepared, bounds: Mapping[str, Bound]) -> OneTree | None:
    if len(wanted.program.labels) > 1 or prepared.split.texts:
        return None
    return None if plain_columns(prepared, bounds) is None else one_tree(prepared.split.core)


def _tree(
    wanted: Wanted,
    one: OneTree,
    prepared: Prepared,
    bounds: Mapping[str, Bound],
    layout: Layout,
    estimate: Estimate | None,
) -> Written:
    columns = [TreeColumn(bounds[c.name].sql, bounds[c.name].type) for c in prepared.split.columns]
    columns = columns or [TreeColumn("0", "INTEGER")]
    packed = "FLOAT" if layout == "f32" else "DOUBLE"
    made = tree_sql(one, columns, packed, partial(_leaf, wanted))
    why = "a small tree is cheapest as an expression"
    why += "" if made.fits is None else "; rows that it cannot score go to the UDF"
    return Written(made.value, made.fits, estimate, why if estimate is not None else "asked for")


def _leaf(wanted: Wanted, value: Array) -> str:
    """A leaf's result as the user's value."""
    labels = wanted.program.labels
    if wanted.output == "label" and labels:
        return label_literal(labels[0].values[int(value[0])], labels[0].kind, wanted.dialect)
    numbers = [number(float(v)) for v in value.tolist()]
    whole = wanted.output == "proba" and wanted.column is None
    if len(numbers) > 1 or whole:
        return wanted.decoded(wanted.dialect.array(numbers))
    return wanted.decoded(numbers[0])
