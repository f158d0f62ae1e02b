"""Formulas of patsy: their expressions, such as `np.log(z)`, and the columns of the design.

The text of an expression is parsed, never run. Names other than columns must be numbers, numpy, or
one of its functions in `functions.py`.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sqlglot import exp

from sqlml.errors import UnsupportedModelError
from sqlml.importers.expressions.compiler import ExpressionCompiler
from sqlml.importers.expressions.functions import NUMPY_FUNCTIONS
from sqlml.importers.frame import Frame, look_up_rows, to_category_array
from sqlml.ir.builder import Value
from sqlml.types import Array

_ARITIES: Mapping[str, int] = {
    **{name: f.least for name, f in NUMPY_FUNCTIONS.items()},
    "isnan": 1,
    "where": 3,
}
"""numpy's functions with their numbers of arguments."""

_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Mod: "mod",
    ast.Pow: "power",
    ast.BitAnd: "and",
    ast.BitOr: "or",
}
"""The operators of Python by the names of numpy's functions."""

_LOGICAL: Mapping[str, type[exp.Expr]] = {"and": exp.And, "or": exp.Or}
_COMPARISONS: Mapping[type[ast.cmpop], type[exp.Expr]] = {
    ast.Lt: exp.LT,
    ast.LtE: exp.LTE,
    ast.Gt: exp.GT,
    ast.GtE: exp.GTE,
    ast.Eq: exp.EQ,
    ast.NotEq: exp.EQ,
}

_CONSTANT: Mapping[str, Callable[..., float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
}
"""The functions that are covered if all their arguments are numbers."""

_PATSY_FUNCTIONS = frozenset({"C", "I", "Q"})
_MISSING = object()
_STANDARDIZE_DEFAULTS: Mapping[str, Any] = {"center": True, "rescale": True, "ddof": 0}

Translated = exp.Expr | float
"""A tree over the columns, or a number, which has the same value in all rows."""


@dataclass(frozen=True, slots=True)
class FormulaExpression:
    """An expression of a formula, which is translated to a tree with the meaning of SQL.

    numpy compares NaN, so each comparison IS TRUE or is not. columns: of the training frame; True
    for booleans. names: the namespace of the formula. transforms: the fitted state of `center` and
    `standardize`, by their names in `body`.
    """

    name: str
    body: ast.expr
    columns: Mapping[str, bool]
    names: Mapping[str, Any] = field(repr=False)
    transforms: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_factor(
        cls, factor: Any, state: Mapping[str, Any], columns: Mapping[str, bool]
    ) -> FormulaExpression:
        code = state.get("eval_code")
        name = str(factor.name())
        if not isinstance(code, str):
            raise _not_covered(name)
        try:
            body = ast.parse(code.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            raise _not_covered(name) from None
        names = getattr(state.get("eval_env"), "namespace", {})
        expression = cls(name, body, columns, names, state.get("transforms", {}))
        while (function := expression._find_patsy_function(expression.body)) in ("C", "I"):
            match expression.body:
                case ast.Call(args=[argument], keywords=[]):
                    expression = replace(expression, body=argument)
                case ast.Call(args=[argument, *_]) if function == "C":
                    expression = replace(expression, body=argument)
                case _:
                    raise _not_covered(name)
        return expression

    def list_columns(self) -> list[str]:
        """Return the columns that the expression reads, in the order of the text."""
        columns: dict[str, None] = {}
        pending = [self.body]
        while pending:
            node = pending.pop()
            column = self.find_column(node)
            if column is not None:
                columns[column] = None
                continue
            children = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
            pending += reversed(children)
        return list(columns)

    def find_column(self, node: ast.expr | None = None) -> str | None:
        """Return the column that a node names, directly or as Q('name'); None if it is another."""
        node = self.body if node is None else node
        match node:
            case ast.Name(id=name) if name in self.columns:
                return name
            case ast.Call(args=[ast.Constant(value=str(name))]) if name in self.columns:
                return name if self._find_patsy_function(node) == "Q" else None
        return None

    def compute(self, frame: Frame) -> Value:
        tree = self._translate(self.body)
        if not isinstance(tree, exp.Expr):
            raise _not_covered(self.name)
        return ExpressionCompiler(frame, NUMPY_FUNCTIONS).number(tree).value

    def _translate(self, node: ast.expr) -> Translated:
        column = self.find_column(node)
        if column is not None:
            return exp.column(column, quoted=True)
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name):
                return self._resolve_number(name)
            case ast.UnaryOp():
                return self._translate_unary(node)
            case ast.BinOp() if type(node.op) in _BINARY:
                return self._apply(_BINARY[type(node.op)], [node.left, node.right])
            case ast.Compare(ops=[comparison]) if type(comparison) in _COMPARISONS:
                return self._translate_comparison(node)
            case ast.Call():
                return self._translate_call(node)
        raise self._not_covered(node)

    def _resolve_number(self, name: str) -> float:
        item = self._resolve(name)
        if isinstance(item, bool | int | float | np.bool_ | np.integer | np.floating):
            number: float = item.item() if isinstance(item, np.generic) else item
            return number
        if item is _MISSING:
            raise UnsupportedModelError(
                f"the formula's {self.name!r} reads {name!r}, which is not a column of the frame"
            )
        raise self._not_covered(ast.Name(name))

    def _resolve(self, name: str) -> Any:
        try:
            return self.names[name]
        except KeyError:
            return getattr(builtins, name, _MISSING)

    def _translate_unary(self, node: ast.UnaryOp) -> Translated:
        operand = self._translate(node.operand)
        is_number = not isinstance(operand, exp.Expr)
        match node.op:
            case ast.UAdd():
                return operand
            case ast.USub() if is_number:
                return -operand
            case ast.USub() if not _is_condition(operand):
                return exp.Neg(this=operand)
            case ast.Invert() if _is_condition(operand):
                return exp.Not(this=operand)
        raise self._not_covered(node)

    def _translate_comparison(self, node: ast.Compare) -> Translated:
        (comparison,), left, (right,) = node.ops, node.left, node.comparators
        is_equality = isinstance(comparison, ast.Eq | ast.NotEq)
        match right:
            case ast.Constant(value=str(text)) if is_equality and self.find_column(left):
                operands = [self._translate(left), exp.Literal.string(text)]
            case _:
                operands = [self._translate(left), self._translate(right)]
        if not any(isinstance(operand, exp.Expr) for operand in operands):
            raise _not_covered(self.name)
        left_tree, right_tree = map(_to_tree, operands)
        tree = _COMPARISONS[type(comparison)](this=left_tree, expression=right_tree)
        is_true = exp.Is(this=tree, expression=exp.true())
        return exp.Not(this=is_true) if isinstance(comparison, ast.NotEq) else is_true

    def _apply(self, function: str, operands: Sequence[ast.expr]) -> Translated:
        values = [self._translate(node) for node in operands]
        numbers = [float(value) for value in values if not isinstance(value, exp.Expr)]
        if len(numbers) == len(values):
            try:
                return _CONSTANT[function](*numbers)
            except (KeyError, ArithmeticError, ValueError):
                raise _not_covered(self.name) from None
        if function in _LOGICAL:
            if not all(map(_is_condition, values)):
                raise UnsupportedModelError(
                    f"the formula's {self.name!r} combines numbers with & or |; compare them first"
                )
            return _LOGICAL[function](this=values[0], expression=values[1])
        if function in ("add", "subtract", "multiply") and all(map(self._is_boolean, values)):
            # These are logical operators in numpy.
            raise UnsupportedModelError(
                f"the formula's {self.name!r} computes with two truth values; write 1.0 * (...)"
            )
        if function == "power" and not isinstance(values[1], exp.Expr):
            return _raise_to_power(values[0], values[1])
        return _call(function, *values)

    def _is_boolean(self, value: Translated) -> bool:
        if isinstance(value, exp.Column):
            return self.columns[value.name]
        return isinstance(value, bool) or _is_condition(value)

    def _translate_call(self, node: ast.Call) -> Translated:
        if self._find_patsy_function(node) == "I" and len(node.args) == 1:
            return self._translate(node.args[0])
        transform = self._find_transform(node)
        if transform is not None:
            return self._apply_transform(transform, node)
        function = self._find_function(node.func)
        if function is None or node.keywords or len(node.args) != _ARITIES[function]:
            raise self._not_covered(node)
        if function in NUMPY_FUNCTIONS:
            return self._apply(function, node.args)
        tree, *branches = [self._translate(argument) for argument in node.args]
        if function == "where" and _is_condition(tree):
            then, other = map(_to_tree, branches)
            return exp.If(this=tree, true=then, false=other)
        if function == "isnan" and isinstance(tree, exp.Expr):
            return exp.Is(this=tree, expression=exp.Null())
        raise self._not_covered(node)

    def _find_patsy_function(self, node: ast.expr) -> str | None:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        name = node.func.id
        if name not in _PATSY_FUNCTIONS or name in self.columns:
            return None
        function = self._resolve(name)
        is_from_patsy = str(getattr(function, "__module__", "")).split(".")[0] == "patsy"
        return name if function is _MISSING or is_from_patsy else None

    def _find_transform(self, node: ast.Call) -> Any:
        method = node.func
        if not isinstance(method, ast.Attribute) or method.attr != "transform" or not node.args:
            return None
        target = method.value
        return self.transforms.get(target.id) if isinstance(target, ast.Name) else None

    def _apply_transform(self, fitted: Any, node: ast.Call) -> exp.Expr:
        kind = f"{type(fitted).__module__}.{type(fitted).__qualname__}"
        x, options = self._translate(node.args[0]), self._read_options(node)
        if not isinstance(x, exp.Expr) or len(node.args) > 1:
            raise self._not_covered(node)
        if kind == "patsy.state.Center" and not options:
            return _call("subtract", x, _to_float(fitted._sum / fitted._count))
        if kind != "patsy.state.Standardize" or not options.keys() <= _STANDARDIZE_DEFAULTS.keys():
            raise self._not_covered(node)
        options = {**_STANDARDIZE_DEFAULTS, **options}
        if options["center"]:
            x = _call("subtract", x, _to_float(fitted.current_mean))
        if options["rescale"]:
            deviation = np.sqrt(fitted.current_M2 / (fitted.current_n - options["ddof"]))
            x = _call("divide", x, _to_float(deviation))
        return x

    def _read_options(self, node: ast.Call) -> dict[str, Any]:
        options = {}
        for keyword in node.keywords:
            if not keyword.arg or not isinstance(keyword.value, ast.Constant):
                raise self._not_covered(node)
            options[keyword.arg] = keyword.value.value
        return options

    def _find_function(self, node: ast.expr) -> str | None:
        """Return the name of numpy's function that a node refers to under any name."""
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return name if self._resolve(module) is np and name in _ARITIES else None
            case ast.Name(id=name):
                function = self._resolve(name)
                if function is abs:
                    return "abs"
                return next((n for n in _ARITIES if getattr(np, n) is function), None)
        return None

    def _not_covered(self, node: ast.expr) -> UnsupportedModelError:
        text = ast.unparse(node)
        return _not_covered(self.name, "" if text == self.name else f", in it {text!r},")


def _not_covered(name: str, detail: str = "") -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the formula's {name!r}{detail} is not covered; make that column in the frame and in the "
        "query, and name it in the formula"
    )


def _is_condition(value: Translated) -> bool:
    return isinstance(value, exp.Is | exp.Not | exp.And | exp.Or)


def _to_tree(value: Translated) -> exp.Expr:
    if isinstance(value, exp.Expr):
        return value
    return exp.Literal(this=repr(float(value)), is_string=False)


def _call(function: str, *values: Translated) -> exp.Expr:
    return exp.Anonymous(this=function, expressions=list(map(_to_tree, values)))


def _to_float(fitted: Any) -> float:
    return float(np.asarray(fitted, np.float64).reshape(()))


def _raise_to_power(x: Translated, exponent: float) -> exp.Expr:
    """Compute x ** exponent like numpy, which has special cases for some exponents."""
    if exponent == 2:
        return _call("square", x)
    if exponent == -1:
        return _call("divide", 1.0, x)
    return _call("sqrt", x) if exponent == 0.5 else _call("power", x, exponent)


STEP = "the formula"
MAX_CONTRASTS = 1 << 24


class FormulaDesign:
    """The columns that a formula computes, from patsy's DesignInfo.

    A formula is a sum of terms, each a product of numbers and categories, which a matrix of
    contrasts maps to numbers. `columns` are as in `FormulaExpression`.
    """

    def __init__(self, info: Any, columns: Mapping[str, bool]) -> None:
        self._info = info
        self._factors = {
            factor: FormulaExpression.from_factor(factor, factor_info.state, columns)
            for factor, factor_info in info.factor_infos.items()
        }
        self._codes: dict[Any, Value] = {}
        self._numbers: dict[Any, Value] = {}

    def names(self) -> tuple[str, ...]:
        """Return the columns of the table that the formula reads, in the order of its terms."""
        columns: dict[str, None] = {}
        for term in self._info.terms:
            for factor in term.factors:
                columns.update(dict.fromkeys(self._factors[factor].list_columns()))
        return tuple(columns)

    def compute_terms(self, frame: Frame, weights: Array) -> tuple[list[Value], list[float], float]:
        """Return values (n, k), NaN for missing ones, their weights, and the sum of constant terms.

        `weights` are those of the columns of the design, float64.
        """
        values, value_weights, constant, start = list[Value](), list[float](), 0.0, 0
        for subterm in itertools.chain.from_iterable(self._info.term_codings.values()):
            subterm_weights = weights[start : start + subterm.num_columns]
            start += subterm.num_columns
            kinds = [self._info.factor_infos[f].type for f in subterm.factors]
            if not subterm.factors:
                constant += float(subterm_weights.sum())
            elif kinds == ["categorical"]:  # There is a number per category.
                (factor,) = subterm.factors
                matrix = subterm.contrast_matrices[factor].matrix @ subterm_weights
                values.append(self._look_up_contrasts(frame, factor, matrix.reshape(-1, 1)))
                value_weights.append(1.0)
            else:
                values.append(self._multiply_factors(frame, subterm))
                value_weights += subterm_weights.tolist()
        return values, value_weights, constant

    def _multiply_factors(self, frame: Frame, subterm: Any) -> Value:
        """Return the columns of a subterm: products, in which the first factor varies fastest."""
        b = frame.builder
        factors = []
        for factor in subterm.factors:
            if factor in subterm.contrast_matrices:
                matrix = np.asarray(subterm.contrast_matrices[factor].matrix, np.float64)
                factors.append(self._look_up_contrasts(frame, factor, matrix))
            else:
                factors.append(self._compute_number(frame, factor))
        widths = [range(value.type.width) for value in reversed(factors)]
        columns = np.array(list(itertools.product(*widths)), np.int64)[:, ::-1]
        product: Value | None = None
        for k, value in enumerate(factors):
            if value.type.width > 1 or len(columns) > 1:
                value = b.op("select", value, indices=columns[:, k])
            product = value if product is None else b.op("mul", product, value)
        assert product is not None
        return product

    def _compute_number(self, frame: Frame, factor: Any) -> Value:
        if self._info.factor_infos[factor].num_columns != 1:
            raise UnsupportedModelError(
                f"the formula's {factor.name()!r} makes several columns, which is not covered; "
                "make them in the frame and in the query, and name them in the formula"
            )
        if factor not in self._numbers:
            self._numbers[factor] = self._factors[factor].compute(frame)
        return self._numbers[factor]

    def _look_up_contrasts(self, frame: Frame, factor: Any, matrix: Array) -> Value:
        """Return the row of a matrix (categories, k) for each category, (n, k); NaN for NULL."""
        if matrix.size > MAX_CONTRASTS:
            raise UnsupportedModelError(
                f"the formula's {factor.name()!r} has {len(matrix):,} categories beside another "
                "factor: too many"
            )
        table = np.concatenate([matrix, np.full((1, matrix.shape[1]), np.nan)])
        return look_up_rows(frame.builder, table, self._encode(frame, factor))

    def _encode(self, frame: Frame, factor: Any) -> Value:
        """Return the index of each row's category, (n, 1); the number of categories for NULL."""
        if factor in self._codes:
            return self._codes[factor]
        b, expression = frame.builder, self._factors[factor]
        categories = to_category_array(
            list(self._info.factor_infos[factor].categories), factor.name()
        )
        column = expression.find_column()
        if categories.dtype == object:
            if column is None:
                raise UnsupportedModelError(
                    f"the formula's {factor.name()!r} makes texts; make that column in the frame "
                    "and in the query, and name it in the formula"
                )
            x = frame.strings(frame.names.index(column))
        else:
            x = expression.compute(frame)
        codes = b.op("encode", x, categories=categories, missing=categories.size)
        name = expression.name if column is None else column
        self._codes[factor] = b.op("require_known", codes, feature=name, step=STEP)
        return self._codes[factor]
