"""A model as an expression of the engine, if that is cheaper than calling a function.

Sums of weights and small trees are cheaper. Other models become expressions only on demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlml.backends.costs import current_costs
from sqlml.backends.sql.expression import number_literal
from sqlml.backends.sql.linear_sql import Linear
from sqlml.dialects import Dialect
from sqlml.errors import BackendError, BindError
from sqlml.ir.program import Program
from sqlml.passes.one_tree import OneTree, build_one_tree
from sqlml.passes.split import Layout
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.refused_nulls import find_linear_model, find_plain_columns, is_plain
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.model_sql.export_macros import write_expression
from sqlml.planner.model_sql.tree_expression import build_tree_sql
from sqlml.planner.program.choose import SQL_BACKEND, Choice, allows_sql
from sqlml.planner.program.cost import Estimate, estimate_sql
from sqlml.planner.program.prepare import Prepared
from sqlml.planner.program.result_sql import decode_result, label_literal, label_type
from sqlml.planner.syntax.outline import ModelCall
from sqlml.types import Array

MAX_SHARE_OF_FUNCTION = 0.6
"""The maximum time of a tree's expression, as a share of the function's time.

The engine takes 50 microseconds to plan each test, which does not pay for a query of few rows.
"""


@dataclass(frozen=True, slots=True)
class ModelSql:
    """A model's result as a SQL expression of the user's type.

    `valid_rows` is the condition on rows for which it is valid; None for all rows.
    """

    value: str
    valid_rows: str | None
    estimate: Estimate | None
    reason: str

    def or_else(self, function: str) -> str:
        """Return the value, with the result of `function` for rows for which it is not valid."""
        if self.valid_rows is None:
            return self.value
        return f"CASE WHEN {self.valid_rows} THEN {self.value} ELSE {function} END"

    def describe_choice(self, function: Choice) -> Choice:
        """Return the choice of SQL, which uses `function` for rows that SQL cannot score."""
        estimates = () if self.estimate is None else (self.estimate, *function.estimates)
        return replace(
            function,
            backend=SQL_BACKEND,
            device="cpu",
            reason=self.reason,
            estimates=estimates,
            guarded=self.valid_rows is not None,
        )


@dataclass(frozen=True)
class ModelExpression:
    """A call of a model that may be written as a SQL expression.

    Attributes:
        prepared: the requested output alone, after the model passes.
        bound_inputs: the SQL expressions that feed the features.
        layout: the layout in which a function would get the numbers.
    """

    target: Target
    dialect: Dialect
    prepared: Prepared
    bound_inputs: Mapping[str, Bound]
    layout: Layout

    @property
    def program(self) -> Program:
        return self.target.model.program

    def write_if_cheapest(self, function: Choice, calls: int = 1) -> ModelSql | None:
        """Return the model as an expression if that is cheaper than a function; otherwise None.

        Several `calls` share the function, but each evaluates the expression. Some engines call a
        function for all rows, whichever branch of a CASE contains it. There the expression cannot
        fall back on a function, and raises errors itself.
        """
        linear_sum = self._sum
        if linear_sum is None and (self._one_tree is None or not function.estimates):
            return None
        estimate = estimate_sql(self.prepared.split.core, current_costs(), function.rows)
        if linear_sum is None:
            seconds = function.estimates[0].seconds + function.estimates[0].start
            if calls * estimate.seconds > MAX_SHARE_OF_FUNCTION * seconds:
                return None
        kind = "small tree" if linear_sum is None else "weighted sum"
        reason = f"a {kind} is cheapest as an expression"
        if not self.dialect.lazy_calls:
            with suppress(BackendError):
                return ModelSql(self._write_program(), None, estimate, reason)
            return None
        return self._write_sum_or_tree(
            estimate, reason, f"{reason}; rows that it cannot score go to the UDF"
        )

    def write(self) -> ModelSql:
        """Return the model as an expression, whatever it costs, or raise BackendError."""
        if self.dialect.lazy_calls:
            sql = self._write_sum_or_tree(None, "requested", "requested")
            if sql is not None:
                return sql
        if len(self.program.labels) > 1:
            raise _make_unsupported_error("it has several targets")
        try:
            return ModelSql(self._write_program(), None, None, "requested")
        except BackendError as error:
            raise _make_unsupported_error(str(error)) from None

    @cached_property
    def _sum(self) -> Linear | None:
        return find_linear_model(self.prepared, self.bound_inputs)

    @cached_property
    def _one_tree(self) -> OneTree | None:
        if len(self.program.labels) > 1 or self.prepared.split.texts:
            return None
        plain_columns = find_plain_columns(self.prepared, self.bound_inputs)
        return None if plain_columns is None else build_one_tree(self.prepared.split.core)

    def _write_sum_or_tree(
        self, estimate: Estimate | None, reason: str, guarded_reason: str
    ) -> ModelSql | None:
        """Return the model as a weighted sum or a small tree; None if it is neither.

        Its reason is `guarded_reason` if some rows need the function.
        """
        if self._sum is not None:
            is_finite: str | None = self.dialect.is_finite(self._sum.sum)
            return ModelSql(self._decode(self._sum.value), is_finite, estimate, guarded_reason)
        if self._one_tree is None:
            return None
        columns = [self.bound_inputs[c.name] for c in self.prepared.split.columns]
        columns = columns or [Bound("0", "INTEGER")]
        packed_type = "FLOAT" if self.layout == "f32" else "DOUBLE"
        value, valid_rows = build_tree_sql(self._one_tree, columns, packed_type, self._write_leaf)
        return ModelSql(value, valid_rows, estimate, guarded_reason if valid_rows else reason)

    def _write_leaf(self, value: Array) -> str:
        labels = self.program.labels
        if self.target.output == "label" and labels:
            class_number, class_labels = int(value[0]), labels[0]
            label_sql_type = self.dialect.type(label_type(class_labels))
            if not 0 <= class_number < len(class_labels):  # A cascade's small model may be unsure.
                return f"CAST(NULL AS {label_sql_type})"
            literal = label_literal(
                class_labels.values[class_number], class_labels.kind, self.dialect
            )
            return f"CAST({literal} AS {label_sql_type})" if class_labels.sql_type else literal
        numbers = [number_literal(float(v)) for v in value.tolist()]
        is_list = self.target.output == "proba" and self.target.column is None
        if len(numbers) > 1 or is_list:
            return self._decode(self.dialect.array(numbers))
        return self._decode(numbers[0])

    def _write_program(self) -> str:
        """Return the user's value as an expression of the whole Program, or raise BackendError."""
        names, dialect = list(self.prepared.program.inputs), self.dialect
        reads_once = not all(is_plain(self.bound_inputs[name].sql) for name in names)
        inputs = {
            name: dialect.member("sqlml_x", f"c{k}") if reads_once else self.bound_inputs[name].sql
            for k, name in enumerate(names)
        }
        target = self.target
        sql = write_expression(self.program, target.output, target.column, inputs, dialect)
        value = self._decode(sql)
        if reads_once:  # An argument that is not a plain column may be long or volatile.
            fields = {f"c{k}": self.bound_inputs[name].sql for k, name in enumerate(names)}
            value = dialect.let("sqlml_x", dialect.struct(fields), value)
        return value

    def _decode(self, sql: str) -> str:
        target = self.target
        return decode_result(sql, self.program, target.output, target.chosen, self.dialect)


def _make_unsupported_error(reason: str) -> BackendError:
    return BackendError(f"backend 'sql' cannot run it ({reason}); use backend 'auto'")


_MAX_LAMBDA_LENGTH = 20_000


def is_in_lambda(call: ModelCall, scope: Scope, dialect: Dialect) -> bool:
    """Return whether a call stands inside a lambda in which the engine cannot call functions."""
    can_call = dialect.calls_in_lambdas or scope.outline.created
    return call.has_local_names and not can_call


def write_for_lambda(
    model: ModelExpression, options: Mapping[str, Any], scope: Scope, call: ModelCall
) -> ModelSql:
    """Return the model as an expression, the only way inside a lambda, or raise BindError."""
    if allows_sql(options):
        with suppress(BackendError):
            sql = model.write()
            if len(sql.value) <= _MAX_LAMBDA_LENGTH:
                return replace(sql, reason="a lambda calls no function of Python")
    raise BindError(
        f"{model.dialect.name} cannot call Python functions inside a lambda, and the model is "
        "not a short expression; unnest the list first, as in SELECT ... FROM t LATERAL VIEW "
        "explode(list) l AS x",
        scope.sql,
        call.span.start,
    )
