"""`ExpressionCompiler`, which compiles sqlglot trees to operators of a Program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sqlglot import exp

from sqlml.errors import UnsupportedModelError
from sqlml.importers.calendar_parts import PARTS, Moment
from sqlml.importers.expressions.functions import (
    DATE_TYPES,
    UNITS,
    Column,
    Condition,
    ConditionBuilder,
    Date,
    Null,
    Number,
    NumberFunction,
    Operand,
    Text,
    compute_remainder,
    is_date_literal,
    parse_date,
)
from sqlml.importers.frame import Frame
from sqlml.ir.builder import Value
from sqlml.suggestions import closest
from sqlml.types import DATETIME, fold


class ExpressionCompiler:
    """Compiles sqlglot trees that read the columns of `frame` and call `functions`."""

    def __init__(self, frame: Frame, functions: Mapping[str, NumberFunction]) -> None:
        self._frame = frame
        self._builder = frame.builder
        self.logic = ConditionBuilder(frame.builder)
        self._functions = functions
        self._column_indices = {fold(name): i for i, name in enumerate(frame.names)}

    def decide_column_types(self, tree: exp.Expr) -> None:
        """Mark the columns that `tree` uses as strings or dates; call this before `compile`."""
        for node in tree.walk():
            operands, has_dates = _list_same_type_operands(node)
            has_dates = has_dates or any(map(is_date_literal, operands))
            has_strings = any(isinstance(x, exp.Literal) and x.is_string for x in operands)
            for operand in operands:
                is_column = type(operand) is exp.Column
                index = self._column_indices.get(fold(operand.name)) if is_column else None
                if index is not None and has_dates:
                    self._frame.read_moments(index)
                elif index is not None and has_strings:
                    self._frame.read_strings(index)

    def compile(self, tree: exp.Expr) -> Operand:
        rule = _RULES.get(type(tree))
        if rule is None:
            raise UnsupportedModelError(
                f"{format_tree(tree)} is not supported in a step's SQL, which may use columns, "
                "literals, arithmetic, comparisons, IN, BETWEEN, IS, AND, OR, NOT, CASE, CAST and "
                "functions of numbers"
            )
        return rule(self, tree)

    def compile_number(self, tree: exp.Expr) -> Number:
        return self.to_number(self.compile(tree))

    def to_number(self, operand: Operand) -> Number:
        match operand:
            case Number():
                return operand
            case Column(index) if self._builder.input_kind(self._frame.names[index]) == DATETIME:
                return Number(self._read_dates(index).microseconds)
            case Column(index):
                return Number(self._frame.read_numbers(index))
            case Date(microseconds):
                return self.logic.make_number(microseconds)
            case Condition():
                return self.logic.to_number(operand)
            case Null():
                return self.logic.make_number(np.nan)
            case Text(value):
                raise UnsupportedModelError(
                    f"the string {value!r} is used as a number; a step's SQL compares strings only "
                    "with =, <> and IN"
                )

    def compile_truth(self, tree: exp.Expr) -> Condition:
        return self._to_truth(self.compile(tree))

    def _to_truth(self, operand: Operand) -> Condition:
        if isinstance(operand, Condition):
            return operand
        if isinstance(operand, Null):
            return self.logic.make_truth(None)
        return self.logic.to_truth(self.to_number(operand))

    def apply_operator(self, operator: str, *trees: exp.Expr) -> Number:
        return Number(self._builder.op(operator, *self._compile_values(trees)))

    def _compile_values(self, trees: Sequence[exp.Expr]) -> list[Value]:
        return [self.compile_number(tree).value for tree in trees]

    def compile_column(self, tree: exp.Column) -> Column:
        index = self._column_indices.get(fold(tree.name))
        if index is None or tree.table:
            suggestion = closest(tree.name, self._frame.names)
            hint = f"; did you mean {suggestion!r}?" if suggestion else ""
            raise UnsupportedModelError(
                f"the step has no column {format_tree(tree)!r}; its columns: "
                f"{format_columns(self._frame)}{hint}"
            )
        return Column(index)

    def compile_literal(self, tree: exp.Literal) -> Operand:
        return Text(tree.this) if tree.is_string else self.logic.make_number(float(tree.this))

    def compile_remainder(self, tree: exp.Mod) -> Number:
        operands = self._compile_values([tree.this, tree.expression])
        return Number(compute_remainder(self._builder, operands))

    def reject_integer_division(self, tree: exp.IntDiv) -> Operand:
        raise UnsupportedModelError(
            f"{format_tree(tree)}: the result of // depends on the types of the columns; write "
            "trunc(a / b) or floor(a / b)"
        )

    def compile_comparison(self, tree: exp.Binary) -> Condition:
        left, right = self.compile(tree.this), self.compile(tree.expression)
        if isinstance(left, Text) or isinstance(right, Text):
            if not isinstance(tree, exp.EQ | exp.NEQ):
                raise UnsupportedModelError(
                    f"{format_tree(tree)} orders strings; compare them with = or <>"
                )
            column, text = (left, right) if isinstance(right, Text) else (right, left)
            condition = self._match_strings(column, text)
            return condition if isinstance(tree, exp.EQ) else self.logic.negate(condition)
        operator, opposite = _COMPARISONS[type(tree)]
        return self.logic.compare(operator, opposite, self.to_number(left), self.to_number(right))

    def compile_not_distinct(self, tree: exp.Binary) -> Condition:
        left, right = self.compile_number(tree.this), self.compile_number(tree.expression)
        logic = self.logic
        is_equal = logic.build_is_true(logic.compare("eq", "ne", left, right))
        are_null = logic.conjoin(logic.build_is_null(left), logic.build_is_null(right))
        return logic.disjoin(is_equal, are_null)

    def compile_between(self, tree: exp.Between) -> Condition:
        left, low, high = map(self.compile_number, (tree.this, tree.args["low"], tree.args["high"]))
        is_above = self.logic.compare("ge", "lt", left, low)
        return self.logic.conjoin(is_above, self.logic.compare("le", "gt", left, high))

    def compile_in(self, tree: exp.In) -> Condition:
        left, others = self.compile(tree.this), [self.compile(e) for e in tree.expressions]
        if not others:
            raise UnsupportedModelError(f"{format_tree(tree)}: IN needs a list of literals")
        if all(isinstance(other, Text | Null) for other in others):
            return self._match_strings(left, *others)
        is_in = self.logic.make_truth(False)
        for other in others:
            is_equal = self.logic.compare("eq", "ne", self.to_number(left), self.to_number(other))
            is_in = self.logic.disjoin(is_in, is_equal)
        return is_in

    def _match_strings(self, operand: Operand, *others: Operand) -> Condition:
        """Build `operand IN (others)` for strings; with a NULL in `others`, no row is false."""
        literals = list(dict.fromkeys(other.value for other in others if isinstance(other, Text)))
        if not isinstance(operand, Column):
            raise UnsupportedModelError(
                f"only a column can be compared with a string such as "
                f"{literals[0] if literals else 'x'!r}"
            )
        op = self._builder.op
        categories = np.array(literals, object)
        strings = self._frame.read_strings(operand.index)
        codes = op("encode", strings, categories=categories, missing=len(literals))
        zero = self._builder.constant(np.array([0], np.int64))
        null_code = self._builder.constant(np.array([len(literals)], np.int64))
        is_unmatched = op("lt", codes, zero)
        is_matched = op("and", op("ge", codes, zero), op("lt", codes, null_code))
        if len(literals) < len(set(others)):  # `others` contains a NULL.
            is_unmatched = op("and", is_unmatched, self._builder.constant(np.array([False])))
        return Condition(is_matched, is_unmatched)

    def compile_is(self, tree: exp.Is) -> Condition:
        operand, right_side = self.compile(tree.this), tree.expression
        logic = self.logic
        if isinstance(right_side, exp.Null):
            if isinstance(operand, Condition):
                return logic.negate(logic.build_is_not_null(operand))
            if isinstance(operand, Column) and self._is_string_column(operand.index):
                return Condition(self._builder.op("isnan", self._frame.read_strings(operand.index)))
            return logic.build_is_null(self.to_number(operand))
        if isinstance(right_side, exp.Boolean):
            condition = self._to_truth(operand)
            return logic.build_is_true(condition if right_side.this else logic.negate(condition))
        raise UnsupportedModelError(f"{format_tree(tree)}: only NULL, TRUE or FALSE may follow IS")

    def _is_string_column(self, index: int) -> bool:
        name = self._frame.names[index]
        return self._frame.makes_strings(index) or self._builder.input_dtype(name) == "string"

    def _read_dates(self, index: int) -> Moment:
        return Moment(self._builder, self._frame.read_moments(index))

    def _compile_date(self, tree: exp.Expr) -> Moment:
        match self.compile(tree):
            case Date(microseconds):
                return Moment(self._builder, self.logic.make_number(microseconds).value)
            case Column(index):
                return self._read_dates(index)
        raise UnsupportedModelError(f"{format_tree(tree)} is not a date column")

    def _compute_date_part(self, name: str, tree: exp.Expr) -> Number:
        compute_part = PARTS.get(name.lower())
        if compute_part is None:
            raise UnsupportedModelError(
                f"unknown date part {name!r}; parts: {', '.join(sorted(PARTS))}"
            )
        return Number(compute_part(self._compile_date(tree)))

    def compile_extract(self, tree: exp.Extract) -> Number:
        return self._compute_date_part(tree.this.name, tree.expression)

    def compile_date_part(self, name: exp.Expr, date: exp.Expr) -> Number:
        return self._compute_date_part(_require_string(name), date)

    def compile_date_diff(self, unit: exp.Expr, start_date: exp.Expr, end_date: exp.Expr) -> Number:
        """Count the units, such as months, that begin after `start_date` and up to `end_date`."""
        name = _require_string(unit).lower()
        count_units = UNITS.get(name)
        if count_units is None:
            raise UnsupportedModelError(f"date_diff counts {', '.join(UNITS)} here, not {name!r}")
        start, end = (count_units(self._compile_date(date)) for date in (start_date, end_date))
        return Number(self._builder.op("sub", end, start))

    def compile_case(self, tree: exp.Case) -> Number:
        subject, default = tree.this, tree.args.get("default")
        result = self.compile_number(default or exp.Null())
        for branch in reversed(tree.args["ifs"]):
            condition = branch.this
            if subject is not None:
                condition = exp.EQ(this=subject.copy(), expression=condition.copy())
            test = self.compile_truth(condition)
            result = self.logic.choose(test, self.compile_number(branch.args["true"]), result)
        return result

    def compile_if(self, test: exp.Expr, then: exp.Expr, other: exp.Expr | None = None) -> Number:
        result = self.compile_number(other or exp.Null())
        return self.logic.choose(self.compile_truth(test), self.compile_number(then), result)

    def compile_cast(self, tree: exp.Cast) -> Operand:
        type_name = tree.to.sql("duckdb").upper()
        operand = self.compile(tree.this)
        if isinstance(operand, Text) and type_name in DATE_TYPES:
            return parse_date(operand.value, type_name, tree)
        number = self.to_number(operand)
        match type_name:
            case "DOUBLE":
                return number
            case "REAL" | "FLOAT":
                rounded = self._builder.cast(number.value, "float32")
                return Number(self._builder.cast(rounded, "float64"))
            case "BOOLEAN":
                return self._to_truth(operand)
            case "INT" | "INTEGER" | "BIGINT":
                return Number(self._builder.op("rint", number.value))
        raise UnsupportedModelError(
            f"{format_tree(tree)}: a step's SQL casts to DOUBLE, FLOAT, INTEGER, BIGINT and BOOLEAN"
        )

    def compile_call(self, tree: exp.Anonymous) -> Operand:
        name, arguments = str(tree.this).lower(), list(tree.expressions)
        function = self._functions.get(name)
        if function is not None:
            _check_argument_count(tree, function.min_arity, function.max_arity)
            return Number(function.build(self._builder, self._compile_values(arguments)))
        if name in _SPECIAL_FUNCTIONS:
            min_count, max_count, rule = _SPECIAL_FUNCTIONS[name]
            _check_argument_count(tree, min_count, max_count)
            return rule(self, *arguments)
        if name in PARTS:
            _check_argument_count(tree, 1, 1)
            return self._compute_date_part(name, arguments[0])
        supported_names = sorted(_SPECIAL_FUNCTIONS.keys() | self._functions.keys() | PARTS.keys())
        suggestion = closest(name, supported_names)
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        raise UnsupportedModelError(
            f"a step's SQL cannot call {name}{hint}; it calls {', '.join(supported_names)}"
        )

    def compile_coalesce(self, *trees: exp.Expr) -> Number:
        *others, fallback = trees
        result = self.compile_number(fallback)
        for tree in reversed(others):
            number = self.compile_number(tree)
            result = self.logic.choose(self.logic.build_is_null(number), result, number)
        return result

    def compile_nullif(self, tree: exp.Expr, other: exp.Expr) -> Number:
        is_equal = self.compile_comparison(exp.EQ(this=tree, expression=other))
        null = self.logic.make_number(np.nan)
        return self.logic.choose(is_equal, null, self.compile_number(tree))

    def compare_with_infinity(self, tree: exp.Expr, operator: str, opposite: str) -> Condition:
        magnitude = self.apply_operator("abs", tree)
        return self.logic.compare(operator, opposite, magnitude, self.logic.make_number(np.inf))


def _list_same_type_operands(node: exp.Expr) -> tuple[list[Any], bool]:
    """Return the operands of `node` that share a type, and whether the type is a date."""
    match node:
        case exp.In():
            return [node.this, *node.expressions], False
        case exp.Between():
            return [node.this, node.args["low"], node.args["high"]], False
        case exp.Case() if node.this is not None:
            return [node.this, *[branch.this for branch in node.args["ifs"]]], False
        case exp.Extract():
            return [node.expression], True
        case exp.Anonymous() if str(node.this).lower() in _DATE_FUNCTIONS:
            return list(node.expressions), True
    return ([node.this, node.expression] if type(node) in _COMPARISONS else []), False


def _check_argument_count(tree: exp.Anonymous, min_count: int, max_count: int) -> None:
    count = len(tree.expressions)
    if not min_count <= count <= max_count:
        expected = str(min_count) if min_count == max_count else f"{min_count} to {max_count}"
        raise UnsupportedModelError(
            f"{format_tree(tree)}: {tree.name.lower()} takes {expected} arguments, not {count}"
        )


def _require_string(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Literal) and tree.is_string:
        return str(tree.this)
    raise UnsupportedModelError(f"{format_tree(tree)}: name the part of a date in quotes")


def format_tree(tree: exp.Expr) -> str:
    return tree.sql("duckdb")


def format_columns(frame: Frame, max_count: int = 30) -> str:
    suffix = f" and {frame.width - max_count} more" if frame.width > max_count else ""
    return ", ".join(frame.names[:max_count]) + suffix


def _make_arithmetic_rule(operator: str) -> Rule:
    return lambda compiler, tree: compiler.apply_operator(operator, tree.this, tree.expression)


Rule = Callable[[ExpressionCompiler, Any], Operand]

_COMPARISONS: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("eq", "ne"),
    exp.NEQ: ("ne", "eq"),
    exp.LT: ("lt", "ge"),
    exp.LTE: ("le", "gt"),
    exp.GT: ("gt", "le"),
    exp.GTE: ("ge", "lt"),
}
"""Maps each comparison to an operator and to the opposite operator."""

_RULES: Mapping[type[exp.Expr], Rule] = {
    exp.Add: _make_arithmetic_rule("add"),
    exp.And: lambda c, t: c.logic.conjoin(c.compile_truth(t.this), c.compile_truth(t.expression)),
    exp.Anonymous: ExpressionCompiler.compile_call,
    exp.Between: ExpressionCompiler.compile_between,
    exp.Boolean: lambda c, t: c.logic.make_truth(bool(t.this)),
    exp.Case: ExpressionCompiler.compile_case,
    exp.Cast: ExpressionCompiler.compile_cast,
    exp.Ceil: lambda c, t: c.apply_operator("ceil", t.this),
    exp.Column: ExpressionCompiler.compile_column,
    exp.Div: _make_arithmetic_rule("div"),
    exp.Extract: ExpressionCompiler.compile_extract,
    exp.Floor: lambda c, t: c.apply_operator("floor", t.this),
    exp.If: lambda c, t: c.compile_if(t.this, t.args["true"], t.args.get("false")),
    exp.In: ExpressionCompiler.compile_in,
    exp.IntDiv: ExpressionCompiler.reject_integer_division,
    exp.Is: ExpressionCompiler.compile_is,
    exp.Literal: ExpressionCompiler.compile_literal,
    exp.Mod: ExpressionCompiler.compile_remainder,
    exp.Mul: _make_arithmetic_rule("mul"),
    exp.Neg: lambda c, t: c.apply_operator("neg", t.this),
    exp.Not: lambda c, t: c.logic.negate(c.compile_truth(t.this)),
    exp.Null: lambda c, t: Null(),
    exp.NullSafeEQ: ExpressionCompiler.compile_not_distinct,
    exp.NullSafeNEQ: lambda c, t: c.logic.negate(c.compile_not_distinct(t)),
    exp.Or: lambda c, t: c.logic.disjoin(c.compile_truth(t.this), c.compile_truth(t.expression)),
    exp.Paren: lambda c, t: c.compile(t.this),
    exp.Pow: _make_arithmetic_rule("pow"),
    exp.Sub: _make_arithmetic_rule("sub"),
    **dict.fromkeys(_COMPARISONS, ExpressionCompiler.compile_comparison),
}

_DATE_COUNTERS = ("date_diff", "datediff")
_DATE_PARTS = ("date_part", "datepart")
_DATE_FUNCTIONS = frozenset((*PARTS, *_DATE_COUNTERS, *_DATE_PARTS))

_SPECIAL_FUNCTIONS: Mapping[str, tuple[int, int, Callable[..., Operand]]] = {
    "coalesce": (1, 100, ExpressionCompiler.compile_coalesce),
    **dict.fromkeys(_DATE_COUNTERS, (3, 3, ExpressionCompiler.compile_date_diff)),
    **dict.fromkeys(_DATE_PARTS, (2, 2, ExpressionCompiler.compile_date_part)),
    **dict.fromkeys(("if", "iff"), (2, 3, ExpressionCompiler.compile_if)),
    "ifnull": (2, 2, ExpressionCompiler.compile_coalesce),
    "isfinite": (1, 1, lambda c, tree: c.compare_with_infinity(tree, "lt", "ge")),
    "isinf": (1, 1, lambda c, tree: c.compare_with_infinity(tree, "eq", "ne")),
    "isnan": (1, 1, lambda c, tree: c.logic.build_is_null(c.compile_number(tree))),
    "nullif": (2, 2, ExpressionCompiler.compile_nullif),
}
"""Maps a function name to the minimum and maximum argument count, and to a method."""
