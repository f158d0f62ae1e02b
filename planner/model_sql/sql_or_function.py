"""`Wanted`: a model as an expression of the engine, where that is cheaper than a function's call.

Sums of weights and small trees are; a model of another kind is written out only if asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlml.backends.costs import current
from sqlml.backends.sql import Linear
from sqlml.backends.sql.expression import number
from sqlml.dialects import Dialect
from sqlml.errors import BackendError, BindError
from sqlml.ir.program import Program
from sqlml.passes.one_tree import OneTree, one_tree
from sqlml.passes.split import Layout
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.refused_nulls import linear, plain, plain_columns
from sqlml.planner.choice.choose import SQL, Choice, leaves_open
from sqlml.planner.choice.cost import Estimate, sql_estimate
from sqlml.planner.model_sql.export_macros import expression
from sqlml.planner.model_sql.one_tree import tree_sql
from sqlml.planner.program.prepare import Prepared
from sqlml.planner.program.result_sql import Chosen, decoded, label_literal, label_type
from sqlml.planner.syntax.outline import ModelCall
from sqlml.types import Array

WORTH = 0.6
"""The part of the function's time that a tree's expression may take.

The engine plans a test in 50 microseconds, which a query of few rows does not win back.
"""


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


@dataclass(frozen=True)
class Wanted:
    """What a call computes, and how it may be written as SQL.

    Attributes:
        output: of `program`, or only its `column`, as the user's type.
        prepared: this output alone, after the model passes.
        bounds: what feeds it.
        layout: of the numbers that the function would be given.
    """

    program: Program
    output: str
    column: int | None
    chosen: Chosen | None
    dialect: Dialect
    prepared: Prepared
    bounds: Mapping[str, Bound]
    layout: Layout

    def cheapest(self, function: Choice, calls: int = 1) -> Written | None:
        """The model as an expression, if that is cheapest; otherwise None.

        An engine that calls a function for all rows, whatever branch of a CASE calls it, would gain
        nothing by an expression for most of them: there it is one that fails by itself.

        Args:
            function: the choice for the function that it would replace.
            calls: how many calls the function would serve at once.
        """
        summed = self._sum
        if summed is None and (self._one_tree is None or not function.estimates):
            return None
        estimate = sql_estimate(self.prepared.split.core, current(), function.rows)
        if summed is None and not _is_worth_it(estimate, function, calls):
            return None
        why = f"a {'small tree' if summed is None else 'weighted sum'} is cheapest as an expression"
        if not self.dialect.lazy_calls:
            with suppress(BackendError):
                return Written(self._printed(), None, estimate, why)
            return None
        return self._sum_or_tree(estimate, why, f"{why}; rows that it cannot score go to the UDF")

    def as_asked(self) -> Written:
        """The model as an expression whatever that costs.

        Raises:
            BackendError: it cannot be written as one.
        """
        if self.dialect.lazy_calls:
            made = self._sum_or_tree(None, "asked for", "asked for")
            if made is not None:
                return made
        if len(self.program.labels) > 1:
            raise _cannot("it has several targets")
        try:
            return Written(self._printed(), None, None, "asked for")
        except BackendError as error:
            raise _cannot(str(error)) from None

    @cached_property
    def _sum(self) -> Linear | None:
        return linear(self.prepared, self.bounds)

    @cached_property
    def _one_tree(self) -> OneTree | None:
        if len(self.program.labels) > 1 or self.prepared.split.texts:
            return None
        plain_ones = plain_columns(self.prepared, self.bounds)
        return None if plain_ones is None else one_tree(self.prepared.split.core)

    def _sum_or_tree(self, estimate: Estimate | None, whole: str, most: str) -> Written | None:
        """The model as a sum or a small tree, if it is one.

        Args:
            whole, most: why, where it is right for all rows, and for most.
        """
        if self._sum is not None:
            fits: str | None = self.dialect.is_finite(self._sum.sum)
            return Written(self._decoded(self._sum.value), fits, estimate, most)
        if self._one_tree is None:
            return None
        columns = [self.bounds[c.name] for c in self.prepared.split.columns]
        columns = columns or [Bound("0", "INTEGER")]
        packed = "FLOAT" if self.layout == "f32" else "DOUBLE"
        made = tree_sql(self._one_tree, columns, packed, self._leaf)
        return Written(made.value, made.fits, estimate, whole if made.fits is None else most)

    def _leaf(self, value: Array) -> str:
        """A leaf's result as the user's value."""
        labels = self.program.labels
        if self.output == "label" and labels:
            place, known = int(value[0]), labels[0]
            kind = self.dialect.type(label_type(known))
            if not 0 <= place < len(known):  # a small model of a cascade may not be sure
                return f"CAST(NULL AS {kind})"
            made = label_literal(known.values[place], known.kind, self.dialect)
            return f"CAST({made} AS {kind})" if known.sql_type else made
        numbers = [number(float(v)) for v in value.tolist()]
        whole = self.output == "proba" and self.column is None
        if len(numbers) > 1 or whole:
            return self._decoded(self.dialect.array(numbers))
        return self._decoded(numbers[0])

    def _printed(self) -> str:
        """The user's value, by an expression of the whole Program.

        Raises:
            BackendError: SQL has no equivalent of an operator, or it would be too long.
        """
        names, dialect = list(self.prepared.program.inputs), self.dialect
        once = not all(plain(self.bounds[name].sql) for name in names)
        inputs = {
            name: dialect.member("sqlml_x", f"c{k}") if once else self.bounds[name].sql
            for k, name in enumerate(names)
        }
        made = expression(self.program, self.output, self.column, inputs, dialect)
        value = self._decoded(made)
        if once:  # other than a plain column, it may be long, or vary per evaluation
            fields = {f"c{k}": self.bounds[name].sql for k, name in enumerate(names)}
            value = dialect.let("sqlml_x", dialect.struct(fields), value)
        return value

    def _decoded(self, sql: str) -> str:
        """The user's value from what the model computes."""
        return decoded(sql, self.program, self.output, self.chosen, self.dialect)


def _is_worth_it(estimate: Estimate, function: Choice, calls: int) -> bool:
    best = function.estimates[0]
    return calls * estimate.seconds <= WORTH * (best.seconds + best.start)


def _cannot(why: str) -> BackendError:
    return BackendError(f"backend 'sql' cannot run it ({why}); use backend 'auto'")


# Calls inside lambdas, where an engine may not call functions of Python.


_LONGEST = 20_000
"""Most characters of an expression that the user did not ask for."""


def in_lambda(call: ModelCall, scope: Scope, dialect: Dialect) -> bool:
    """Whether a call stands inside a lambda, where the engine cannot call a function of ours."""
    if dialect.calls_in_lambdas or scope.outline.created:
        return False
    return call.has_local_names


def for_lambda(
    wanted: Wanted, options: Mapping[str, Any], scope: Scope, call: ModelCall
) -> Written:
    """The model as an expression, at any cost, since there is no other way."""
    if leaves_open(options):
        with suppress(BackendError):
            made = wanted.as_asked()
            if len(made.value) <= _LONGEST:
                return replace(made, reason="a lambda calls no function of Python")
    raise BindError(
        f"{wanted.dialect.name} cannot call Python functions inside a lambda, and the model is "
        "not a short expression; unnest the list first, as in SELECT .. FROM t LATERAL VIEW "
        "explode(list) l AS x",
        scope.sql,
        call.span.start,
    )
