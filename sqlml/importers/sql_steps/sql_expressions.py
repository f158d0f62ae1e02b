"""SQL expressions over the columns of a step, as operators of a Program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.importers.calendar_parts import PARTS, Moment
from sqlml.importers.frame import Frame
from sqlml.importers.sql_steps.sql_functions import (
    DATE_FUNCTIONS,
    DATE_LITERALS,
    DATES,
    FUNCTIONS,
    UNITS,
    Column,
    Date,
    Logic,
    Null,
    Number,
    Operand,
    Text,
    Truth,
    date_of,
    is_date,
    remainder,
)
from sqlml.ir.builder import Value
from sqlml.parsing.sqlglot_dialects import DIALECTS
from sqlml.suggestions import closest
from sqlml.types import DATETIME, fold


class Reader:
    """A converter of expression trees over the columns of a frame."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.logic = Logic(frame.builder)
        self._places = {fold(name): i for i, name in enumerate(frame.names)}

    def find_kinds(self, tree: exp.Expr) -> None:
        """Make columns texts or dates if the expression uses them so anywhere.

        It may compare them with texts or dates, or call date functions with them. Elsewhere such
        columns may only be tested for NULL.
        """
        for node in tree.walk():
            others: list[Any] = []
            if isinstance(node, tuple(_COMPARISONS)):
                others = [node.this, node.expression]
            elif isinstance(node, exp.In):
                others = [node.this, *node.expressions]
            elif isinstance(node, exp.Between):
                others = [node.this, *_describe_limits(node)]
            elif isinstance(node, exp.Case) and node.this is not None:
                others = [node.this, *[branch.this for branch in node.args["ifs"]]]
            elif isinstance(node, exp.Extract):
                others = [node.expression, DATE_LITERALS]
            elif isinstance(node, exp.Anonymous) and str(node.this).lower() in DATE_FUNCTIONS:
                others = [*node.expressions, DATE_LITERALS]
            dated = any(map(is_date, others))
            texts = any(isinstance(x, exp.Literal) and x.is_string for x in others)
            for index in [self._places.get(fold(x.name)) for x in others if type(x) is exp.Column]:
                if index is not None and dated:
                    self.frame.moments(index)
                elif index is not None and texts:
                    self.frame.strings(index)

    def read(self, tree: exp.Expr) -> Operand:
        """Convert a tree to an operand."""
        rule = _RULES.get(type(tree))
        if rule is None:
            raise UnsupportedModelError(
                f"{format_tree(tree)} is not covered in a step's SQL, which takes columns, "
                "literals, arithmetic, comparisons, IN, BETWEEN, IS, AND, OR, NOT, CASE, CAST and "
                "functions of numbers"
            )
        return rule(self, tree)

    def number(self, operand: Operand) -> Number:
        """Convert an operand to numbers."""
        if isinstance(operand, Column):
            if self._is_date(operand.index):
                return Number(self.read_moment(operand.index).microseconds)
            return Number(self.frame.numbers(operand.index))
        if isinstance(operand, Date):
            return self.logic.literal(operand.microseconds)
        if isinstance(operand, Truth):
            return self.logic.to_number(operand)
        if isinstance(operand, Null):
            return self.logic.literal(np.nan)
        if isinstance(operand, Text):
            raise UnsupportedModelError(
                f"the text {operand.value!r} is used as a number; a step's SQL compares texts with "
                "=, <> and IN only"
            )
        return operand

    def truth(self, operand: Operand) -> Truth:
        """Convert an operand to a condition."""
        if isinstance(operand, Truth):
            return operand
        if isinstance(operand, Null):
            return self.logic.truth(None)
        return self.logic.to_truth(self.number(operand))

    def numbers(self, trees: Sequence[exp.Expr]) -> list[Value]:
        """Convert several trees to numbers."""
        return [self.number(self.read(tree)).value for tree in trees]

    def column(self, tree: exp.Column) -> Operand:
        name = tree.name
        index = self._places.get(fold(name))
        if index is None or tree.table:
            near = closest(name, self.frame.names)
            hint = f"; did you mean {near!r}?" if near else ""
            raise UnsupportedModelError(
                f"the step has no column {format_tree(tree)!r}; its columns: "
                f"{list_arguments(self.frame.names)}{hint}"
            )
        return Column(index)

    def literal(self, tree: exp.Literal) -> Operand:
        return Text(tree.this) if tree.is_string else self.logic.literal(float(tree.this))

    def negate(self, tree: exp.Neg) -> Operand:
        return Number(self.frame.builder.op("neg", *self.numbers([tree.this])))

    def compare(self, tree: exp.Binary) -> Operand:
        a, b = self.read(tree.this), self.read(tree.expression)
        equal, differ = isinstance(tree, exp.EQ), isinstance(tree, exp.NEQ)
        if isinstance(a, Text) or isinstance(b, Text):
            if not (equal or differ):
                raise UnsupportedModelError(
                    f"{format_tree(tree)} orders texts; compare with = or <>"
                )
            condition = self._is_one_of(a, b) if isinstance(b, Text) else self._is_one_of(b, a)
            return condition if equal else self.logic.negate(condition)
        operator, opposite = _COMPARISONS[type(tree)]
        return self.logic.compare(operator, opposite, self.number(a), self.number(b))

    def is_not_distinct(self, tree: exp.Binary) -> Operand:
        a, b = (self.number(self.read(x)) for x in (tree.this, tree.expression))
        logic = self.logic
        equal = logic.is_true(logic.compare("eq", "ne", a, b))
        return logic.disjoin(equal, logic.conjoin(logic.is_null(a), logic.is_null(b)))

    def is_distinct(self, tree: exp.Binary) -> Operand:
        return self.logic.negate(self.truth(self.is_not_distinct(tree)))

    def is_between(self, tree: exp.Between) -> Operand:
        x, low, high = (Number(v) for v in self.numbers([tree.this, *_describe_limits(tree)]))
        above = self.logic.compare("ge", "lt", x, low)
        return self.logic.conjoin(above, self.logic.compare("le", "gt", x, high))

    def is_one_of(self, tree: exp.In) -> Operand:
        x, others = self.read(tree.this), [self.read(e) for e in tree.expressions]
        if not others:
            raise UnsupportedModelError(f"{format_tree(tree)}: IN takes a list of literals here")
        if all(isinstance(other, Text | Null) for other in others):
            return self._is_one_of(x, *others)
        conditions = self.logic.truth(False)
        for other in others:
            equal = self.logic.compare("eq", "ne", self.number(x), self.number(other))
            conditions = self.logic.disjoin(conditions, equal)
        return conditions

    def _is_one_of(self, x: Operand, *others: Operand) -> Truth:
        """Return whether a column is one of some texts; a NULL among them makes it unknown."""
        texts = list(dict.fromkeys(other.value for other in others if isinstance(other, Text)))
        if not isinstance(x, Column):
            raise UnsupportedModelError(
                f"only columns are compared with texts such as {texts[0] if texts else ''!r} here"
            )
        b = self.frame.builder
        codes = b.op(
            "encode",
            self.frame.strings(x.index),
            categories=np.array(texts, object),
            missing=len(texts),
        )
        zero, none = (b.constant(np.array([code], np.int64)) for code in (0, len(texts)))
        hit = b.op("and", b.op("ge", codes, zero), b.op("lt", codes, none))
        miss = b.op("lt", codes, zero)
        if len(texts) < len(set(others)):  # there is a NULL among them
            miss = b.op("and", miss, b.constant(np.array([False])))
        return Truth(hit, miss)

    def is_special_value(self, tree: exp.Is) -> Operand:
        x, what = self.read(tree.this), self.read(tree.expression)
        logic = self.logic
        if isinstance(what, Null):
            if isinstance(x, Truth):
                return logic.negate(logic.is_known(x))
            if isinstance(x, Column) and self._is_text(x.index):
                is_null = self.frame.builder.op("isnan", self.frame.strings(x.index))
                return Truth(is_null, self.frame.builder.op("not", is_null))
            return logic.is_null(self.number(x))
        expected = tree.expression
        if isinstance(expected, exp.Boolean):
            condition = self.truth(x)
            return logic.is_true(condition if expected.this else logic.negate(condition))
        raise UnsupportedModelError(f"{format_tree(tree)}: IS takes NULL, TRUE or FALSE here")

    def read_moment(self, index: int) -> Moment:
        """Return a column of dates."""
        return Moment(self.frame.builder, self.frame.moments(index))

    def read_date_part(self, name: str, tree: exp.Expr) -> Operand:
        """Return a part of a date, by the name of the engine's function."""
        make = PARTS.get(name.lower())
        column = self.read(tree)
        if make is None:
            raise UnsupportedModelError(
                f"unknown part of a date {name!r}; parts: {', '.join(sorted(PARTS))}"
            )
        return Number(make(self.read_date(column, tree)))

    def read_date(self, operand: Operand, tree: exp.Expr) -> Moment:
        if isinstance(operand, Date):
            return Moment(self.frame.builder, self.logic.literal(operand.microseconds).value)
        if not isinstance(operand, Column):
            raise UnsupportedModelError(f"{format_tree(tree)} is not a column of dates")
        return self.read_moment(operand.index)

    def extract(self, tree: exp.Extract) -> Operand:
        return self.read_date_part(tree.this.name, tree.expression)

    def date_part(self, trees: Sequence[exp.Expr]) -> Operand:
        return self.read_date_part(self._word(trees[0]), trees[1])

    def _word(self, tree: exp.Expr) -> str:
        if isinstance(tree, exp.Literal) and tree.is_string:
            return str(tree.this)
        raise UnsupportedModelError(f"{format_tree(tree)}: name the part of a date in quotes")

    def date_diff(self, trees: Sequence[exp.Expr]) -> Operand:
        """Count the units that begin after the first and up to the second date."""
        unit = self._word(trees[0]).lower()
        count = UNITS.get(unit)
        if count is None:
            raise UnsupportedModelError(f"date_diff counts {', '.join(UNITS)} here, not {unit!r}")
        first, last = (count(self.read_date(self.read(t), t)) for t in trees[1:])
        return Number(self.frame.builder.op("sub", last, first))

    def _is_date(self, index: int) -> bool:
        return self.frame.builder.input_kind(self.frame.names[index]) == DATETIME

    def _is_text(self, index: int) -> bool:
        frame = self.frame
        if frame.makes_strings(index):
            return True
        return frame.builder.input_dtype(frame.names[index]) == "string"

    def case(self, tree: exp.Case) -> Operand:
        subject = tree.this
        result = self.number(self.read(tree.args["default"])) if tree.args.get("default") else None
        result = result or self.logic.literal(np.nan)
        for branch in reversed(tree.args["ifs"]):
            condition = branch.this
            if subject is not None:
                condition = exp.EQ(this=subject.copy(), expression=condition.copy())
            test = self.truth(self.read(condition))
            result = self.logic.choose(test, self.number(self.read(branch.args["true"])), result)
        return result

    def if_else(self, tree: exp.If) -> Operand:
        return self.choose_if(tree.this, tree.args["true"], tree.args.get("false"))

    def choose_if(
        self, condition: exp.Expr, then: exp.Expr, other: exp.Expr | None = None
    ) -> Number:
        rest = self.logic.literal(np.nan) if other is None else self.number(self.read(other))
        test = self.truth(self.read(condition))
        return self.logic.choose(test, self.number(self.read(then)), rest)

    def cast(self, tree: exp.Cast) -> Operand:
        kind = tree.to.sql("duckdb").upper()
        operand = self.read(tree.this)
        if isinstance(operand, Text) and kind in DATES:
            return date_of(operand.value, kind, tree)
        x = self.number(operand)
        b = self.frame.builder
        if kind == "DOUBLE":
            return x
        if kind in ("REAL", "FLOAT"):
            return Number(b.cast(b.cast(x.value, "float32"), "float64"))
        if kind == "BOOLEAN":
            return self.truth(operand)
        if kind in ("INT", "INTEGER", "BIGINT"):
            return Number(b.op("rint", x.value))
        raise UnsupportedModelError(
            f"{format_tree(tree)}: a step's SQL casts to DOUBLE, FLOAT, INTEGER, BIGINT and BOOLEAN"
        )

    def call(self, tree: exp.Anonymous) -> Operand:
        name, arguments = str(tree.this).lower(), list(tree.expressions)
        special = _SPECIAL.get(name)
        if name in PARTS:
            _check_count(tree, name, len(arguments), 1, 1)
            return self.read_date_part(name, arguments[0])
        if special is not None:
            least, most, rule = special
            _check_count(tree, name, len(arguments), least, most)
            return rule(self, arguments)
        function = FUNCTIONS.get(name)
        if function is None:
            names = sorted(_SPECIAL.keys() | FUNCTIONS.keys() | PARTS.keys())
            near = closest(name, names)
            hint = f"; did you mean {near}?" if near else ""
            raise UnsupportedModelError(
                f"a step's SQL cannot call {name}{hint}; it calls {', '.join(names)}"
            )
        _check_count(tree, name, len(arguments), function.least, function.most)
        return Number(function.make(self.frame.builder, self.numbers(arguments)))

    def coalesced(self, trees: Sequence[exp.Expr]) -> Operand:
        """Return the first operand that is not NULL."""
        result = self.number(self.read(trees[-1]))
        for tree in reversed(trees[:-1]):
            x = self.number(self.read(tree))
            result = self.logic.choose(self.logic.is_null(x), result, x)
        return result

    def null_if(self, trees: Sequence[exp.Expr]) -> Operand:
        """Return NULL where both are equal, else the first."""
        x = self.number(self.read(trees[0]))
        equal = self.truth(self.compare(exp.EQ(this=trees[0], expression=trees[1])))
        return self.logic.choose(equal, self.logic.literal(np.nan), x)

    def is_nan(self, trees: Sequence[exp.Expr]) -> Operand:
        return self.logic.is_null(self.number(self.read(trees[0])))

    def is_finite(self, trees: Sequence[exp.Expr]) -> Operand:
        return self._against_infinity(trees[0], "lt", "ge")

    def is_infinite(self, trees: Sequence[exp.Expr]) -> Operand:
        return self._against_infinity(trees[0], "eq", "ne")

    def _against_infinity(self, tree: exp.Expr, operator: str, opposite: str) -> Truth:
        size = Number(self.frame.builder.op("abs", *self.numbers([tree])))
        return self.logic.compare(operator, opposite, size, self.logic.literal(np.inf))


def _check_count(tree: exp.Expr, name: str, count: int, least: int, most: int) -> None:
    if not least <= count <= most:
        takes = str(least) if least == most else f"{least} to {most}"
        raise UnsupportedModelError(
            f"{format_tree(tree)}: {name} takes {takes} arguments, not {count}"
        )


def _describe_limits(tree: exp.Between) -> tuple[exp.Expr, exp.Expr]:
    return tree.args["low"], tree.args["high"]


def _arithmetic(operator: str) -> Rule:
    def rule(reader: Reader, tree: Any) -> Operand:
        values = reader.numbers([tree.this, tree.expression])
        return Number(reader.frame.builder.op(operator, *values))

    return rule


def _rounded_by(operator: str) -> Rule:
    return lambda r, t: Number(r.frame.builder.op(operator, *r.numbers([t.this])))


def _divide_integers(reader: Reader, tree: Any) -> Operand:
    raise UnsupportedModelError(
        f"{format_tree(tree)}: the result of // depends on the types of the columns; write "
        "trunc(a / b) or floor(a / b)"
    )


def format_tree(tree: exp.Expr) -> str:
    return tree.sql("duckdb")


def list_arguments(names: Sequence[str], most: int = 30) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


Rule = Callable[[Reader, Any], Operand]

_COMPARISONS: Mapping[type[exp.Expr], tuple[str, str]] = MappingProxyType(
    {
        exp.EQ: ("eq", "ne"),
        exp.NEQ: ("ne", "eq"),
        exp.LT: ("lt", "ge"),
        exp.LTE: ("le", "gt"),
        exp.GT: ("gt", "le"),
        exp.GTE: ("ge", "lt"),
    }
)
"""The operator of each comparison, and that of its opposite."""

_RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Add: _arithmetic("add"),
        exp.And: lambda r, t: r.logic.conjoin(
            r.truth(r.read(t.this)), r.truth(r.read(t.expression))
        ),
        exp.Anonymous: Reader.call,
        exp.Between: Reader.is_between,
        exp.Boolean: lambda r, t: r.logic.truth(bool(t.this)),
        exp.Case: Reader.case,
        exp.Cast: Reader.cast,
        exp.Ceil: _rounded_by("ceil"),
        exp.Column: Reader.column,
        exp.Div: _arithmetic("div"),
        exp.Extract: Reader.extract,
        exp.Floor: _rounded_by("floor"),
        exp.If: Reader.if_else,
        exp.In: Reader.is_one_of,
        exp.IntDiv: _divide_integers,
        exp.Is: Reader.is_special_value,
        exp.Literal: Reader.literal,
        exp.Mod: lambda r, t: Number(remainder(r.frame.builder, r.numbers([t.this, t.expression]))),
        exp.Mul: _arithmetic("mul"),
        exp.Neg: Reader.negate,
        exp.Not: lambda r, t: r.logic.negate(r.truth(r.read(t.this))),
        exp.Null: lambda r, t: Null(),
        exp.NullSafeEQ: Reader.is_not_distinct,
        exp.NullSafeNEQ: Reader.is_distinct,
        exp.Or: lambda r, t: r.logic.disjoin(
            r.truth(r.read(t.this)), r.truth(r.read(t.expression))
        ),
        exp.Paren: lambda r, t: r.read(t.this),
        exp.Pow: _arithmetic("pow"),
        exp.Sub: _arithmetic("sub"),
        **dict.fromkeys(_COMPARISONS, Reader.compare),
    }
)

_SPECIAL: Mapping[str, tuple[int, int, Callable[[Reader, Any], Operand]]] = MappingProxyType(
    {
        "coalesce": (1, 100, Reader.coalesced),
        "date_diff": (3, 3, Reader.date_diff),
        "date_part": (2, 2, Reader.date_part),
        "datediff": (3, 3, Reader.date_diff),
        "datepart": (2, 2, Reader.date_part),
        "if": (2, 3, lambda r, a: r.choose_if(*a)),
        "iff": (2, 3, lambda r, a: r.choose_if(*a)),
        "ifnull": (2, 2, Reader.coalesced),
        "isfinite": (1, 1, Reader.is_finite),
        "isinf": (1, 1, Reader.is_infinite),
        "isnan": (1, 1, Reader.is_nan),
        "nullif": (2, 2, Reader.null_if),
    }
)
"""The functions of more than numbers: their numbers of arguments, and their rules."""


def parse_expression(sql: str) -> exp.Expr:
    """Parse an expression in DuckDB's SQL.

    Raises:
        UnsupportedModelError: it is not an expression.
    """
    if "np.float" in sql or "np.int" in sql:
        raise UnsupportedModelError(
            f"{sql!r} holds the repr of a number of numpy's; write it with float(..) or str(..)"
        )
    try:
        tree = sqlglot.parse_one(f"SELECT {sql}\n", dialect=DIALECTS["duckdb"])
    except (SqlglotError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise UnsupportedModelError(f"{sql!r} is not an SQL expression: {reason}") from None
    used = {name for name, part in tree.args.items() if part}
    if not isinstance(tree, exp.Select) or used - {"expressions", "kind"}:
        raise UnsupportedModelError(f"{sql!r} is not an SQL expression over one row")
    if len(tree.expressions) != 1:
        raise UnsupportedModelError(f"{sql!r} is not one SQL expression but several")
    expression: exp.Expr = tree.expressions[0].unalias()
    return expression


def compile_expressions(expressions: Mapping[str, str], frame: Frame) -> list[Frame]:
    """Compute the columns of a step from expressions over those of a frame.

    Numbers are float64, NULL is NaN, and TRUE and FALSE are 1 and 0. A bare column is passed on
    unchanged.

    Args:
        expressions: new column -> its expression, which reads the frame's columns by name.
        frame: the columns of the step.

    Raises:
        UnsupportedModelError: a function has no operator, or a column is unknown, or none is read.
    """
    reader = Reader(frame)
    trees = {name: parse_expression(sql) for name, sql in expressions.items()}
    for tree in trees.values():
        reader.find_kinds(tree)
    columns = []
    for name, tree in trees.items():
        try:
            columns.append(_column(name, tree, reader))
        except (ProgramError, UnsupportedModelError) as error:
            raise UnsupportedModelError(f"the SQL of its column {name!r}: {error}") from None
    return columns


def _column(name: str, tree: exp.Expr, reader: Reader) -> Frame:
    operand, frame = reader.read(tree), reader.frame
    if isinstance(operand, Column):
        taken = frame.select([operand.index])
        return Frame(taken.builder, taken.blocks, (name,))
    if isinstance(operand, Text | Null | Date):
        raise UnsupportedModelError(
            f"{format_tree(tree)} makes a text, a date or NULL; a step's SQL makes numbers"
        )
    value = reader.number(operand).value
    if not value.type.rowwise:
        raise UnsupportedModelError(
            f"{format_tree(tree)} reads none of the columns {list_arguments(frame.names)}"
        )
    return Frame.from_value(frame.builder, value, (name,))


def find_texts(expressions: Iterable[str]) -> list[str]:
    """Return the text literals of some expressions."""
    texts = {
        literal.this: None
        for sql in expressions
        for literal in parse_expression(sql).find_all(exp.Literal)
        if literal.is_string
    }
    return list(texts)
