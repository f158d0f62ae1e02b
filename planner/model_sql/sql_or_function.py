"""A model as a SQL expression of the engine, if that is cheaper than a function call.

Weighted sums and small trees can be cheaper. Other models become expressions only on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlml.backends.costs import current_costs
from sqlml.backends.sql.expression import number_literal
from sqlml.backends.sql.linear_sql import LinearSql
from sqlml.dialects import Dialect
from sqlml.errors import BackendError, BindError
from sqlml.ir.program import Program
from sqlml.passes.one_tree import OneTree, build_one_tree
from sqlml.passes.split import Layout
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.refused_nulls import find_linear_model, find_plain_columns, is_plain
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.model_sql.export_macros import build_expression
from sqlml.planner.model_sql.tree_expression import build_tree_sql
from sqlml.planner.program.choose import SQL_BACKEND, Choice, allows_sql
from sqlml.planner.program.cost import CostEstimate, estimate_sql
from sqlml.planner.program.prepare_program import PreparedProgram, is_list
from sqlml.planner.program.result_sql import build_label_literal, decode_result, find_label_type
from sqlml.planner.syntax.outline import ModelCall
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class ModelSql:
    """A model's result as a SQL expression of the type that users see."""

    value: str
    valid_rows: str | None  # The condition on rows that `value` can score, or None for all rows.
    estimate: CostEstimate | None
    reason: str

    def with_fallback(self, fallback: str) -> str:
        """Return the SQL of `value`, or of `fallback` for rows that `value` cannot score."""
        if self.valid_rows is None:
            return self.value
        return f"CASE WHEN {self.valid_rows} THEN {self.value} ELSE {fallback} END"

    def to_choice(self, function_choice: Choice) -> Choice:
        """Return the choice of SQL, with a function only for rows that SQL cannot score."""
        estimates = () if self.estimate is None else (self.estimate, *function_choice.estimates)
        return replace(
            function_choice,
            backend=SQL_BACKEND,
            device="cpu",
            reason=self.reason,
            estimates=estimates,
            guarded=self.valid_rows is not None,
        )


@dataclass(frozen=True)
class ModelExpression:
    """A call of a model that may be written as a SQL expression."""

    target: Target
    program: Program  # The target's Program, in which some inputs may have become constants.
    dialect: Dialect
    prepared: PreparedProgram  # The requested output alone, after the model passes.
    bound_inputs: Mapping[str, BoundInput]
    layout: Layout  # The layout in which a function would get the numbers.

    def build_if_cheapest(
        self, function_choice: Choice, call_count: int = 1, in_filter: bool = False
    ) -> ModelSql | None:
        """Build the expression of the model, or return None if a function is cheaper.

        `call_count` calls would share the function, but each would evaluate its own expression.
        In a filter (`in_filter`), the engine computes a sum twice: it also tests whether the sum is
        finite, and finds equal expressions only among the results of a query.

        An engine without `lazy_calls` calls a function for all rows, even if the call stands in a
        branch of a CASE. For such an engine, the expression raises errors itself instead of leaving
        rows to a function.
        """
        linear_sum = self._weighted_sum
        if linear_sum is None and (self._one_tree is None or not function_choice.estimates):
            return None
        estimate = estimate_sql(self.prepared.split.core, current_costs(), function_choice.rows)
        if not self._is_cheaper(estimate.seconds, function_choice, call_count, in_filter):
            return None
        model_kind = "small tree" if linear_sum is None else "weighted sum"
        reason = f"a {model_kind} is cheapest as an expression"
        if not self.dialect.lazy_calls:
            with suppress(BackendError):
                return ModelSql(self._build_program_sql(), None, estimate, reason)
            return None
        guarded_reason = f"{reason}; rows that it cannot score go to the UDF"
        return self._build_sum_or_tree(estimate, reason, guarded_reason)

    def _is_cheaper(
        self, seconds: float, function_choice: Choice, call_count: int, in_filter: bool
    ) -> bool:
        """Return whether expressions that take `seconds` each are cheaper than a function."""
        if not function_choice.estimates:
            return True
        function_estimate = function_choice.estimates[0]
        function_seconds = function_estimate.seconds + function_estimate.start
        if self._weighted_sum is not None:
            return max(call_count, 1 + in_filter) * seconds <= function_seconds
        if self.target.output == "label" and self.program.labels:
            # The leaves of the expression are labels, but a function returns numbers of classes.
            function_seconds += function_choice.rows * current_costs()["sql.label"] * 1e-9
        return call_count * seconds <= function_seconds

    def build(self) -> ModelSql:
        """Build the model's expression at any cost, or raise BackendError if that is impossible."""
        if self.dialect.lazy_calls:
            model_sql = self._build_sum_or_tree(None, "requested", "requested")
            if model_sql is not None:
                return model_sql
        if len(self.program.labels) > 1:
            raise _make_unsupported_error("it has several targets")
        try:
            return ModelSql(self._build_program_sql(), None, None, "requested")
        except BackendError as error:
            raise _make_unsupported_error(str(error)) from None

    @cached_property
    def _weighted_sum(self) -> LinearSql | None:
        return find_linear_model(self.prepared, self.bound_inputs)

    @cached_property
    def _one_tree(self) -> OneTree | None:
        if len(self.program.labels) > 1 or self.prepared.split.texts:
            return None
        plain_columns = find_plain_columns(self.prepared, self.bound_inputs)
        return None if plain_columns is None else build_one_tree(self.prepared.split.core)

    def _build_sum_or_tree(
        self, estimate: CostEstimate | None, reason: str, guarded_reason: str
    ) -> ModelSql | None:
        """Build the expression of a weighted sum or a small tree, or return None for other models.

        The reason is `guarded_reason` if a function must score some rows, or else `reason`.
        """
        if self._weighted_sum is not None:
            value = self._decode(self._weighted_sum.value)
            finite_test = self.dialect.is_finite(self._weighted_sum.sum)
            return ModelSql(value, finite_test, estimate, guarded_reason)
        if self._one_tree is None:
            return None
        columns = [self.bound_inputs[c.name] for c in self.prepared.split.columns]
        columns = columns or [BoundInput("0", "INTEGER")]
        packed_type = "FLOAT" if self.layout == "f32" else "DOUBLE"
        value, valid_rows = build_tree_sql(self._one_tree, columns, packed_type, self._build_leaf)
        return ModelSql(value, valid_rows, estimate, guarded_reason if valid_rows else reason)

    def _build_leaf(self, leaf_values: Array) -> str:
        labels = self.program.labels
        if self.target.output == "label" and labels:
            index = int(leaf_values[0])
            classes = labels[0]
            sql_type = self.dialect.type(find_label_type(classes))
            if not 0 <= index < len(classes):  # The small model of a cascade may be unsure.
                return f"CAST(NULL AS {sql_type})"
            literal = build_label_literal(classes.values[index], classes.kind, self.dialect)
            return f"CAST({literal} AS {sql_type})" if classes.sql_type else literal
        numbers = [number_literal(float(v)) for v in leaf_values.tolist()]
        has_array = is_list(self.target.part, len(numbers))
        return self._decode(self.dialect.array(numbers) if has_array else numbers[0])

    def _build_program_sql(self) -> str:
        input_names, dialect = list(self.prepared.program.inputs), self.dialect
        reads_once = not all(is_plain(self.bound_inputs[name].sql) for name in input_names)
        inputs = {
            name: dialect.member("sqlml_x", f"c{k}") if reads_once else self.bound_inputs[name].sql
            for k, name in enumerate(input_names)
        }
        output, column = self.target.output, self.target.column
        value = self._decode(build_expression(self.program, output, column, inputs, dialect))
        if reads_once:  # An argument that is not a plain column may be long or volatile.
            fields = {f"c{k}": self.bound_inputs[name].sql for k, name in enumerate(input_names)}
            value = dialect.let("sqlml_x", dialect.struct(fields), value)
        return value

    def _decode(self, sql: str) -> str:
        target = self.target
        return decode_result(sql, self.program, target.output, target.chosen, self.dialect)


def _make_unsupported_error(reason: str) -> BackendError:
    return BackendError(f"backend 'sql' cannot run it ({reason}); use backend 'auto'")


_MAX_LAMBDA_LENGTH = 20_000


def is_in_lambda(call: ModelCall, scope: Scope, dialect: Dialect) -> bool:
    """Return whether `call` is inside a lambda in which the engine cannot call functions."""
    return call.has_local_names and not (dialect.calls_in_lambdas or scope.outline.created)


def build_for_lambda(
    model: ModelExpression, options: Mapping[str, Any], scope: Scope, call: ModelCall
) -> ModelSql:
    """Build the expression of `model` for `call` in a lambda, or raise BindError if impossible."""
    if allows_sql(options):
        with suppress(BackendError):
            model_sql = model.build()
            if len(model_sql.value) <= _MAX_LAMBDA_LENGTH:
                return replace(model_sql, reason="a lambda cannot call Python functions")
    message = (
        f"{model.dialect.name} cannot call Python functions inside a lambda, and the model is "
        "not a short expression; unnest the list first, as in SELECT ... FROM t LATERAL VIEW "
        "explode(list) l AS x"
    )
    raise BindError(message, scope.sql, call.span.start)
