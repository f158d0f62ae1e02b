"""`ExpressionCompiler`: sqlglot's trees over the columns of a frame, as operators of a Program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sqlglot import exp

from sqlml.errors import UnsupportedModelError
from sqlml.importers.calendar_parts import PARTS, Moment
from sqlml.importers.expressions.functions import (
    DATES,
    UNITS,
    Column,
    Date,
    Logic,
    Null,
    Number,
    NumberFunction,
    Operand,
    Text,
    Truth,
    compute_remainder,
    is_date,
    parse_date,
)
from sqlml.importers.frame import Frame
from sqlml.ir.builder import Value
from sqlml.suggestions import closest
from sqlml.types import DATETIME, fold


class ExpressionCompiler:
    """A compiler of trees with the meaning of SQL, which may call `functions` of numbers."""

    def __init__(self, frame: Frame, functions: Mapping[str, NumberFunction]) -> None:
        self._frame = frame
        self._builder = frame.builder
        self.logic = Logic(frame.builder)
        self._functions = functions
        self._indices = {fold(name): i for i, name in enumerate(frame.names)}

    def settle_types(self, tree: exp.Expr) -> None:
        """Make columns texts or dates if they are compared with such or used as dates."""
        for node in tree.walk():
            operands, has_dates = _list_operands_of_one_type(node)
            has_dates = has_dates or any(map(is_date, operands))
            has_texts = any(isinstance(x, exp.Literal) and x.is_string for x in operands)
            for operand in operands:
                is_column = type(operand) is exp.Column
                index = self._indices.get(fold(operand.name)) if is_column else None
                if index is not None and has_dates:
                    self._frame.moments(index)
                elif index is not None and has_texts:
                    self._frame.strings(index)

    def compile(self, tree: exp.Expr) -> Operand:
        rule = _RULES.get(type(tree))
        if rule is None:
            raise UnsupportedModelError(
                f"{format_tree(tree)} is not covered in a step's SQL, which takes columns, "
                "literals, arithmetic, comparisons, IN, BETWEEN, IS, AND, OR, NOT, CASE, CAST and "
                "functions of numbers"
            )
        return rule(self, tree)

    def number(self, tree: exp.Expr) -> Number:
        return self.to_number(self.compile(tree))

    def to_number(self, operand: Operand) -> Number:
        match operand:
            case Number():
                return operand
            case Column(index) if self._builder.input_kind(self._frame.names[index]) == DATETIME:
                return Number(self._moment(index).microseconds)
            case Column(index):
                return Number(self._frame.numbers(index))
            case Date(microseconds):
                return self.logic.number(microseconds)
            case Truth():
                return self.logic.to_number(operand)
            case Null():
                return self.logic.number(np.nan)
            case Text(value):
                raise UnsupportedModelError(
                    f"the text {value!r} is used as a number; a step's SQL compares texts with "
                    "=, <> and IN only"
                )

    def truth(self, tree: exp.Expr) -> Truth:
        return self._to_truth(self.compile(tree))

    def _to_truth(self, operand: Operand) -> Truth:
        if isinstance(operand, Truth):
            return operand
        if isinstance(operand, Null):
            return self.logic.truth(None)
        return self.logic.to_truth(self.to_number(operand))

    def apply(self, operator: str, *trees: exp.Expr) -> Number:
        return Number(self._builder.op(operator, *self._numbers(trees)))

    def _numbers(self, trees: Sequence[exp.Expr]) -> list[Value]:
        return [self.number(tree).value for tree in trees]

    def column(self, tree: exp.Column) -> Column:
        index = self._indices.get(fold(tree.name))
        if index is None or tree.table:
            near = closest(tree.name, self._frame.names)
            hint = f"; did you mean {near!r}?" if near else ""
            raise UnsupportedModelError(
                f"the step has no column {format_tree(tree)!r}; its columns: "
                f"{list_columns(self._frame)}{hint}"
            )
        return Column(index)

    def literal(self, tree: exp.Literal) -> Operand:
        return Text(tree.this) if tree.is_string else self.logic.number(float(tree.this))

    def remainder(self, tree: exp.Mod) -> Number:
        numbers = self._numbers([tree.this, tree.expression])
        return Number(compute_remainder(self._builder, numbers))

    def divide_integers(self, tree: exp.IntDiv) -> Operand:
        raise UnsupportedModelError(
            f"{format_tree(tree)}: the result of // depends on the types of the columns; write "
            "trunc(a / b) or floor(a / b)"
        )

    def compare(self, tree: exp.Binary) -> Truth:
        a, b = self.compile(tree.this), self.compile(tree.expression)
        if isinstance(a, Text) or isinstance(b, Text):
            if not isinstance(tree, exp.EQ | exp.NEQ):
                raise UnsupportedModelError(
                    f"{format_tree(tree)} orders texts; compare with = or <>"
                )
            condition = self._find_text(a, b) if isinstance(b, Text) else self._find_text(b, a)
            return condition if isinstance(tree, exp.EQ) else self.logic.negate(condition)
        operator, opposite = _COMPARISONS[type(tree)]
        return self.logic.compare(operator, opposite, self.to_number(a), self.to_number(b))

    def is_not_distinct(self, tree: exp.Binary) -> Truth:
        a, b = self.number(tree.this), self.number(tree.expression)
        logic = self.logic
        equal = logic.is_true(logic.compare("eq", "ne", a, b))
        return logic.disjoin(equal, logic.conjoin(logic.is_null(a), logic.is_null(b)))

    def is_between(self, tree: exp.Between) -> Truth:
        x, low, high = map(self.number, (tree.this, tree.args["low"], tree.args["high"]))
        is_above = self.logic.compare("ge", "lt", x, low)
        return self.logic.conjoin(is_above, self.logic.compare("le", "gt", x, high))

    def is_one_of(self, tree: exp.In) -> Truth:
        x, others = self.compile(tree.this), [self.compile(e) for e in tree.expressions]
        if not others:
            raise UnsupportedModelError(f"{format_tree(tree)}: IN takes a list of literals here")
        if all(isinstance(other, Text | Null) for other in others):
            return self._find_text(x, *others)
        is_any = self.logic.truth(False)
        for other in others:
            equal = self.logic.compare("eq", "ne", self.to_number(x), self.to_number(other))
            is_any = self.logic.disjoin(is_any, equal)
        return is_any

    def _find_text(self, x: Operand, *others: Operand) -> Truth:
        """Return whether a column is one of some texts; a NULL among them makes it unknown."""
        texts = list(dict.fromkeys(other.value for other in others if isinstance(other, Text)))
        if not isinstance(x, Column):
            raise UnsupportedModelError(
                f"only columns are compared with texts such as {texts[0] if texts else ''!r} here"
            )
        b = self._builder
        categories = np.array(texts, object)
        strings = self._frame.strings(x.index)
        codes = b.op("encode", strings, categories=categories, missing=len(texts))
        zero, null = (b.constant(np.array([code], np.int64)) for code in (0, len(texts)))
        is_other = b.op("lt", codes, zero)
        is_found = b.op("and", b.op("ge", codes, zero), b.op("lt", codes, null))
        if len(texts) < len(set(others)):  # There is a NULL among them.
            is_other = b.op("and", is_other, b.constant(np.array([False])))
        return Truth(is_found, is_other)

    def is_special_value(self, tree: exp.Is) -> Truth:
        x, special, logic = self.compile(tree.this), tree.expression, self.logic
        if isinstance(special, exp.Null):
            if isinstance(x, Truth):
                return logic.negate(logic.is_known(x))
            if isinstance(x, Column) and self._is_text(x.index):
                return Truth(self._builder.op("isnan", self._frame.strings(x.index)))
            return logic.is_null(self.to_number(x))
        if isinstance(special, exp.Boolean):
            condition = self._to_truth(x)
            return logic.is_true(condition if special.this else logic.negate(condition))
        raise UnsupportedModelError(f"{format_tree(tree)}: IS takes NULL, TRUE or FALSE here")

    def _is_text(self, index: int) -> bool:
        name = self._frame.names[index]
        return self._frame.makes_strings(index) or self._builder.input_dtype(name) == "string"

    def _moment(self, index: int) -> Moment:
        return Moment(self._builder, self._frame.moments(index))

    def _compile_date(self, tree: exp.Expr) -> Moment:
        match self.compile(tree):
            case Date(microseconds):
                return Moment(self._builder, self.logic.number(microseconds).value)
            case Column(index):
                return self._moment(index)
        raise UnsupportedModelError(f"{format_tree(tree)} is not a column of dates")

    def _compute_date_part(self, name: str, tree: exp.Expr) -> Number:
        compute_part = PARTS.get(name.lower())
        if compute_part is None:
            raise UnsupportedModelError(
                f"unknown part of a date {name!r}; parts: {', '.join(sorted(PARTS))}"
            )
        return Number(compute_part(self._compile_date(tree)))

    def extract(self, tree: exp.Extract) -> Number:
        return self._compute_date_part(tree.this.name, tree.expression)

    def date_part(self, name: exp.Expr, date: exp.Expr) -> Number:
        return self._compute_date_part(_read_text(name), date)

    def date_diff(self, unit: exp.Expr, first: exp.Expr, last: exp.Expr) -> Number:
        """Count the units that begin after the first and up to the last date."""
        name = _read_text(unit).lower()
        count = UNITS.get(name)
        if count is None:
            raise UnsupportedModelError(f"date_diff counts {', '.join(UNITS)} here, not {name!r}")
        start, end = count(self._compile_date(first)), count(self._compile_date(last))
        return Number(self._builder.op("sub", end, start))

    def case(self, tree: exp.Case) -> Number:
        subject, default = tree.this, tree.args.get("default")
        result = self.number(default or exp.Null())
        for branch in reversed(tree.args["ifs"]):
            condition = branch.this
            if subject is not None:
                condition = exp.EQ(this=subject.copy(), expression=condition.copy())
            test = self.truth(condition)
            result = self.logic.choose(test, self.number(branch.args["true"]), result)
        return result

    def choose(self, condition: exp.Expr, then: exp.Expr, other: exp.Expr | None = None) -> Number:
        result = self.number(other or exp.Null())
        return self.logic.choose(self.truth(condition), self.number(then), result)

    def cast(self, tree: exp.Cast) -> Operand:
        kind = tree.to.sql("duckdb").upper()
        operand = self.compile(tree.this)
        if isinstance(operand, Text) and kind in DATES:
            return parse_date(operand.value, kind, tree)
        x = self.to_number(operand)
        match kind:
            case "DOUBLE":
                return x
            case "REAL" | "FLOAT":
                rounded = self._builder.cast(x.value, "float32")
                return Number(self._builder.cast(rounded, "float64"))
            case "BOOLEAN":
                return self._to_truth(operand)
            case "INT" | "INTEGER" | "BIGINT":
                return Number(self._builder.op("rint", x.value))
        raise UnsupportedModelError(
            f"{format_tree(tree)}: a step's SQL casts to DOUBLE, FLOAT, INTEGER, BIGINT and BOOLEAN"
        )

    def call(self, tree: exp.Anonymous) -> Operand:
        name, arguments = str(tree.this).lower(), list(tree.expressions)
        function = self._functions.get(name)
        if function is not None:
            _check_count(tree, function.least, function.most)
            return Number(function.build(self._builder, self._numbers(arguments)))
        if name in _SPECIAL:
            least, most, rule = _SPECIAL[name]
            _check_count(tree, least, most)
            return rule(self, *arguments)
        if name in PARTS:
            _check_count(tree, 1, 1)
            return self._compute_date_part(name, arguments[0])
        names = sorted(_SPECIAL.keys() | self._functions.keys() | PARTS.keys())
        near = closest(name, names)
        hint = f"; did you mean {near}?" if near else ""
        raise UnsupportedModelError(
            f"a step's SQL cannot call {name}{hint}; it calls {', '.join(names)}"
        )

    def coalesce(self, *trees: exp.Expr) -> Number:
        *first, last = trees
        result = self.number(last)
        for tree in reversed(first):
            x = self.number(tree)
            result = self.logic.choose(self.logic.is_null(x), result, x)
        return result

    def null_if(self, tree: exp.Expr, other: exp.Expr) -> Number:
        equal = self.compare(exp.EQ(this=tree, expression=other))
        return self.logic.choose(equal, self.logic.number(np.nan), self.number(tree))

    def compare_with_infinity(self, tree: exp.Expr, operator: str, opposite: str) -> Truth:
        size = self.apply("abs", tree)
        return self.logic.compare(operator, opposite, size, self.logic.number(np.inf))


def _list_operands_of_one_type(node: exp.Expr) -> tuple[list[Any], bool]:
    """Return operands that must have the same type, and whether that is a date."""
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


def _check_count(tree: exp.Anonymous, least: int, most: int) -> None:
    count = len(tree.expressions)
    if not least <= count <= most:
        takes = str(least) if least == most else f"{least} to {most}"
        raise UnsupportedModelError(
            f"{format_tree(tree)}: {tree.name.lower()} takes {takes} arguments, not {count}"
        )


def _read_text(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Literal) and tree.is_string:
        return str(tree.this)
    raise UnsupportedModelError(f"{format_tree(tree)}: name the part of a date in quotes")


def format_tree(tree: exp.Expr) -> str:
    return tree.sql("duckdb")


def list_columns(frame: Frame, most: int = 30) -> str:
    more = f" and {frame.width - most} more" if frame.width > most else ""
    return ", ".join(frame.names[:most]) + more


def _arithmetic(operator: str) -> Rule:
    return lambda c, t: c.apply(operator, t.this, t.expression)


Rule = Callable[[ExpressionCompiler, Any], Operand]

_COMPARISONS: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("eq", "ne"),
    exp.NEQ: ("ne", "eq"),
    exp.LT: ("lt", "ge"),
    exp.LTE: ("le", "gt"),
    exp.GT: ("gt", "le"),
    exp.GTE: ("ge", "lt"),
}
"""The operator of each comparison, and that of its opposite."""

_RULES: Mapping[type[exp.Expr], Rule] = {
    exp.Add: _arithmetic("add"),
    exp.And: lambda c, t: c.logic.conjoin(c.truth(t.this), c.truth(t.expression)),
    exp.Anonymous: ExpressionCompiler.call,
    exp.Between: ExpressionCompiler.is_between,
    exp.Boolean: lambda c, t: c.logic.truth(bool(t.this)),
    exp.Case: ExpressionCompiler.case,
    exp.Cast: ExpressionCompiler.cast,
    exp.Ceil: lambda c, t: c.apply("ceil", t.this),
    exp.Column: ExpressionCompiler.column,
    exp.Div: _arithmetic("div"),
    exp.Extract: ExpressionCompiler.extract,
    exp.Floor: lambda c, t: c.apply("floor", t.this),
    exp.If: lambda c, t: c.choose(t.this, t.args["true"], t.args.get("false")),
    exp.In: ExpressionCompiler.is_one_of,
    exp.IntDiv: ExpressionCompiler.divide_integers,
    exp.Is: ExpressionCompiler.is_special_value,
    exp.Literal: ExpressionCompiler.literal,
    exp.Mod: ExpressionCompiler.remainder,
    exp.Mul: _arithmetic("mul"),
    exp.Neg: lambda c, t: c.apply("neg", t.this),
    exp.Not: lambda c, t: c.logic.negate(c.truth(t.this)),
    exp.Null: lambda c, t: Null(),
    exp.NullSafeEQ: ExpressionCompiler.is_not_distinct,
    exp.NullSafeNEQ: lambda c, t: c.logic.negate(c.is_not_distinct(t)),
    exp.Or: lambda c, t: c.logic.disjoin(c.truth(t.this), c.truth(t.expression)),
    exp.Paren: lambda c, t: c.compile(t.this),
    exp.Pow: _arithmetic("pow"),
    exp.Sub: _arithmetic("sub"),
    **dict.fromkeys(_COMPARISONS, ExpressionCompiler.compare),
}

_DATE_COUNTERS = ("date_diff", "datediff")
_DATE_PARTS = ("date_part", "datepart")
_DATE_FUNCTIONS = frozenset((*PARTS, *_DATE_COUNTERS, *_DATE_PARTS))

_SPECIAL: Mapping[str, tuple[int, int, Callable[..., Operand]]] = {
    "coalesce": (1, 100, ExpressionCompiler.coalesce),
    **dict.fromkeys(_DATE_COUNTERS, (3, 3, ExpressionCompiler.date_diff)),
    **dict.fromkeys(_DATE_PARTS, (2, 2, ExpressionCompiler.date_part)),
    **dict.fromkeys(("if", "iff"), (2, 3, ExpressionCompiler.choose)),
    "ifnull": (2, 2, ExpressionCompiler.coalesce),
    "isfinite": (1, 1, lambda c, tree: c.compare_with_infinity(tree, "lt", "ge")),
    "isinf": (1, 1, lambda c, tree: c.compare_with_infinity(tree, "eq", "ne")),
    "isnan": (1, 1, lambda c, tree: c.logic.is_null(c.number(tree))),
    "nullif": (2, 2, ExpressionCompiler.null_if),
}
"""The functions of more than numbers: the limits of their number of arguments, and their rules."""
