"""Patsy formulas: the expressions, such as `np.log(z)`, and the columns of the design matrix.

An expression is parsed, never run. Names other than columns must refer to numbers, to numpy, or to
one of the numpy functions in `functions.py`.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
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
    **{name: f.min_arity for name, f in NUMPY_FUNCTIONS.items()},
    "isnan": 1,
    "where": 3,
}
"""Maps the name of each supported numpy function to the argument count."""

_BINARY_FUNCTIONS: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Mod: "mod",
    ast.Pow: "power",
    ast.BitAnd: "and",
    ast.BitOr: "or",
}
"""Maps Python's operators to the names of numpy functions."""

_LOGICAL_OPERATORS: Mapping[str, type[exp.Expr]] = {"and": exp.And, "or": exp.Or}
_COMPARISONS: Mapping[type[ast.cmpop], type[exp.Expr]] = {
    ast.Lt: exp.LT,
    ast.LtE: exp.LTE,
    ast.Gt: exp.GT,
    ast.GtE: exp.GTE,
    ast.Eq: exp.EQ,
    ast.NotEq: exp.EQ,
}

_CONSTANT_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
}
"""Maps names to functions that are evaluated during import if all arguments are constants."""

_PATSY_FUNCTIONS = frozenset({"C", "I", "Q"})
_MISSING = object()
_STANDARDIZE_DEFAULTS: Mapping[str, Any] = {"center": True, "rescale": True, "ddof": 0}

Translation = exp.Expr | float
"""A sqlglot tree that reads columns, or a number that is the same in every row."""


@dataclass(frozen=True, slots=True)
class FormulaExpression:
    """A factor of a formula: a Python expression, which is translated to a SQL tree.

    `columns` maps each training column to true if the column is boolean. `names` is the namespace
    of the formula. `transforms` has the fitted state of `center` and `standardize`. A comparison
    becomes `... IS TRUE`, because in numpy a comparison with NaN is false, not NULL.
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
            raise _make_expression_error(name)
        try:
            body = ast.parse(code.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            raise _make_expression_error(name) from None
        namespace = getattr(state.get("eval_env"), "namespace", {})
        expression = cls(name, body, columns, namespace, state.get("transforms", {}))
        while (function_name := expression._find_patsy_function(expression.body)) in ("C", "I"):
            call = expression.body
            assert isinstance(call, ast.Call)
            if not call.args or (function_name == "I" and (len(call.args) > 1 or call.keywords)):
                raise _make_expression_error(name)
            expression = replace(expression, body=call.args[0])
        return expression

    def list_columns(self) -> list[str]:
        """Return the columns that the expression reads, in the order of first use."""
        columns: dict[str, None] = {}
        pending = [self.body]
        while pending:
            node = pending.pop()
            if (column := self.find_column(node)) is not None:
                columns[column] = None
                continue
            children = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
            pending += reversed(children)
        return list(columns)

    def find_column(self, node: ast.expr | None = None) -> str | None:
        """Return the column that `node` or the body names, directly or as Q('name'), or None."""
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
            raise _make_expression_error(self.name)
        return ExpressionCompiler(frame, NUMPY_FUNCTIONS).compile_number(tree).value

    def _translate(self, node: ast.expr) -> Translation:
        if (column := self.find_column(node)) is not None:
            return exp.column(column, quoted=True)
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name):
                return self._resolve_number(name)
            case ast.UnaryOp():
                return self._translate_unary(node)
            case ast.BinOp() if type(node.op) in _BINARY_FUNCTIONS:
                return self._apply_function(
                    _BINARY_FUNCTIONS[type(node.op)], [node.left, node.right]
                )
            case ast.Compare(ops=[comparison]) if type(comparison) in _COMPARISONS:
                return self._translate_comparison(node)
            case ast.Call():
                return self._translate_call(node)
        raise self._make_node_error(node)

    def _resolve_number(self, name: str) -> float:
        value = self._resolve_name(name)
        if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
            number: float = value.item() if isinstance(value, np.generic) else value
            return number
        if value is _MISSING:
            raise UnsupportedModelError(
                f"the formula's {self.name!r} reads {name!r}, which is not a column of the frame"
            )
        raise self._make_node_error(ast.Name(name))

    def _resolve_name(self, name: str) -> Any:
        try:
            return self.names[name]
        except KeyError:
            return getattr(builtins, name, _MISSING)

    def _translate_unary(self, node: ast.UnaryOp) -> Translation:
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
        raise self._make_node_error(node)

    def _translate_comparison(self, node: ast.Compare) -> Translation:
        (comparison,), left, (right,) = node.ops, node.left, node.comparators
        is_equality = isinstance(comparison, ast.Eq | ast.NotEq)
        match right:
            case ast.Constant(value=str(text)) if is_equality and self.find_column(left):
                operands = [self._translate(left), exp.Literal.string(text)]
            case _:
                operands = [self._translate(left), self._translate(right)]
        if not any(isinstance(operand, exp.Expr) for operand in operands):
            raise _make_expression_error(self.name)
        left_tree, right_tree = map(_to_tree, operands)
        tree = _COMPARISONS[type(comparison)](this=left_tree, expression=right_tree)
        is_true = exp.Is(this=tree, expression=exp.true())
        return exp.Not(this=is_true) if isinstance(comparison, ast.NotEq) else is_true

    def _apply_function(self, function_name: str, operands: Sequence[ast.expr]) -> Translation:
        values = [self._translate(node) for node in operands]
        constants = [float(value) for value in values if not isinstance(value, exp.Expr)]
        if len(constants) == len(values):
            try:
                return _CONSTANT_FUNCTIONS[function_name](*constants)
            except (KeyError, ArithmeticError, ValueError):
                raise _make_expression_error(self.name) from None
        if function_name in _LOGICAL_OPERATORS:
            if not all(map(_is_condition, values)):
                raise UnsupportedModelError(
                    f"the formula's {self.name!r} combines numbers with & or |; compare them first"
                )
            return _LOGICAL_OPERATORS[function_name](this=values[0], expression=values[1])
        if function_name in ("add", "subtract", "multiply") and all(map(self._is_boolean, values)):
            # For two booleans, +, - and * are logical operators in numpy, not arithmetic.
            raise UnsupportedModelError(
                f"the formula's {self.name!r} computes with two truth values; write 1.0 * (...)"
            )
        if function_name == "power" and not isinstance(values[1], exp.Expr):
            return _build_power(values[0], values[1])
        return _make_call(function_name, *values)

    def _is_boolean(self, value: Translation) -> bool:
        if isinstance(value, exp.Column):
            return self.columns[value.name]
        return isinstance(value, bool) or _is_condition(value)

    def _translate_call(self, node: ast.Call) -> Translation:
        if self._find_patsy_function(node) == "I" and len(node.args) == 1:
            return self._translate(node.args[0])
        if (transform := self._find_transform(node)) is not None:
            return self._apply_transform(transform, node)
        function_name = self._find_function_name(node.func)
        if function_name is None or node.keywords or len(node.args) != _ARITIES[function_name]:
            raise self._make_node_error(node)
        if function_name in NUMPY_FUNCTIONS:
            return self._apply_function(function_name, node.args)
        first_operand, *branches = [self._translate(argument) for argument in node.args]
        if function_name == "where" and _is_condition(first_operand):
            then, other = map(_to_tree, branches)
            return exp.If(this=first_operand, true=then, false=other)
        if function_name == "isnan" and isinstance(first_operand, exp.Expr):
            return exp.Is(this=first_operand, expression=exp.Null())
        raise self._make_node_error(node)

    def _find_patsy_function(self, node: ast.expr) -> str | None:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        name = node.func.id
        if name not in _PATSY_FUNCTIONS or name in self.columns:
            return None
        function = self._resolve_name(name)
        is_from_patsy = str(getattr(function, "__module__", "")).split(".")[0] == "patsy"
        return name if function is _MISSING or is_from_patsy else None

    def _find_transform(self, node: ast.Call) -> Any:
        method = node.func
        if not isinstance(method, ast.Attribute) or method.attr != "transform" or not node.args:
            return None
        owner = method.value
        return self.transforms.get(owner.id) if isinstance(owner, ast.Name) else None

    def _apply_transform(self, transform: Any, node: ast.Call) -> exp.Expr:
        class_path = f"{type(transform).__module__}.{type(transform).__qualname__}"
        operand = self._translate(node.args[0])
        options = self._read_options(node)
        if not isinstance(operand, exp.Expr) or len(node.args) > 1:
            raise self._make_node_error(node)
        if class_path == "patsy.state.Center" and not options:
            return _make_call("subtract", operand, _to_float(transform._sum / transform._count))
        is_standardize = class_path == "patsy.state.Standardize"
        if not is_standardize or not options.keys() <= _STANDARDIZE_DEFAULTS.keys():
            raise self._make_node_error(node)
        options = {**_STANDARDIZE_DEFAULTS, **options}
        if options["center"]:
            operand = _make_call("subtract", operand, _to_float(transform.current_mean))
        if options["rescale"]:
            deviation = np.sqrt(transform.current_M2 / (transform.current_n - options["ddof"]))
            operand = _make_call("divide", operand, _to_float(deviation))
        return operand

    def _read_options(self, node: ast.Call) -> dict[str, Any]:
        options = {}
        for keyword in node.keywords:
            if not keyword.arg or not isinstance(keyword.value, ast.Constant):
                raise self._make_node_error(node)
            options[keyword.arg] = keyword.value.value
        return options

    def _find_function_name(self, node: ast.expr) -> str | None:
        """Return the numpy name of the function in `node`, or None if unsupported."""
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return name if self._resolve_name(module) is np and name in _ARITIES else None
            case ast.Name(id=name):
                function = self._resolve_name(name)
                if function is abs:
                    return "abs"
                return next((n for n in _ARITIES if getattr(np, n) is function), None)
        return None

    def _make_node_error(self, node: ast.expr) -> UnsupportedModelError:
        text = ast.unparse(node)
        detail = "" if text == self.name else f", which contains {text!r},"
        return _make_expression_error(self.name, detail)


def _make_expression_error(name: str, detail: str = "") -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the formula's {name!r}{detail} is not supported; compute that column in the frame and in "
        "the query, and name it in the formula"
    )


def _is_condition(value: Translation) -> bool:
    return isinstance(value, exp.Is | exp.Not | exp.And | exp.Or)


def _to_tree(value: Translation) -> exp.Expr:
    if isinstance(value, exp.Expr):
        return value
    return exp.Literal(this=repr(float(value)), is_string=False)


def _make_call(function_name: str, *operands: Translation) -> exp.Expr:
    return exp.Anonymous(this=function_name, expressions=list(map(_to_tree, operands)))


def _to_float(number: Any) -> float:
    return float(np.asarray(number, np.float64).reshape(()))


def _build_power(base: Translation, exponent: float) -> exp.Expr:
    """Build `base ** exponent`; like numpy, compute some exponents without a power."""
    if exponent == 2:
        return _make_call("square", base)
    if exponent == -1:
        return _make_call("divide", 1.0, base)
    return _make_call("sqrt", base) if exponent == 0.5 else _make_call("power", base, exponent)


STEP = "the formula"
MAX_CONTRASTS = 1 << 24
"""The largest number of entries in a contrast matrix."""


class FormulaDesign:
    """The columns that a formula computes, read from patsy's DesignInfo.

    A formula is a sum of terms, and a term is a product of factors. A factor is a number or a
    category; a contrast matrix maps a category to numbers. `columns` maps each training column to
    true if the column is boolean.
    """

    def __init__(self, design_info: Any, columns: Mapping[str, bool]) -> None:
        self._design_info = design_info
        parse = FormulaExpression.from_factor
        infos = design_info.factor_infos.items()
        self._factors = {factor: parse(factor, info.state, columns) for factor, info in infos}
        self._codes_by_factor: dict[Any, Value] = {}
        self._computed_factors: dict[Any, Value] = {}

    def list_columns(self) -> tuple[str, ...]:
        """Return the table columns that the formula reads, in the order of the terms."""
        factors = (factor for term in self._design_info.terms for factor in term.factors)
        columns = (name for factor in factors for name in self._factors[factor].list_columns())
        return tuple(dict.fromkeys(columns))

    def compute_terms(self, frame: Frame, weights: Array) -> tuple[list[Value], list[float], float]:
        """Compute the terms of the linear predictor; `weights` has one weight per design column.

        Return the values of the terms, the weight of each column of these values, and the sum of
        the constant terms. A value is NaN where an input is missing.
        """
        values, value_weights = list[Value](), list[float]()
        constant, start = 0.0, 0
        for subterm in itertools.chain.from_iterable(self._design_info.term_codings.values()):
            subterm_weights = weights[start : start + subterm.num_columns]
            start += subterm.num_columns
            factor_types = [self._design_info.factor_infos[f].type for f in subterm.factors]
            if not subterm.factors:
                constant += float(subterm_weights.sum())
            elif factor_types == ["categorical"]:  # One lookup gives contrasts @ weights.
                (factor,) = subterm.factors
                matrix = subterm.contrast_matrices[factor].matrix @ subterm_weights
                values.append(self._look_up_contrasts(frame, factor, matrix.reshape(-1, 1)))
                value_weights.append(1.0)
            else:
                values.append(self._multiply_factors(frame, subterm))
                value_weights += subterm_weights.tolist()
        return values, value_weights, constant

    def _multiply_factors(self, frame: Frame, subterm: Any) -> Value:
        """Return the product of each combination of factor columns, the first factor fastest."""
        factor_values = []
        for factor in subterm.factors:
            if factor in subterm.contrast_matrices:
                matrix = np.asarray(subterm.contrast_matrices[factor].matrix, np.float64)
                factor_values.append(self._look_up_contrasts(frame, factor, matrix))
            else:
                factor_values.append(self._compute_numeric_factor(frame, factor))
        column_ranges = [range(value.type.width) for value in reversed(factor_values)]
        index_tuples = np.array(list(itertools.product(*column_ranges)), np.int64)[:, ::-1]
        op = frame.builder.op
        values: Iterable[Value] = factor_values
        if len(index_tuples) > 1:
            pairs = zip(factor_values, index_tuples.T, strict=True)
            values = (op("select", value, indices=indices) for value, indices in pairs)
        return reduce(lambda left, right: op("mul", left, right), values)

    def _compute_numeric_factor(self, frame: Frame, factor: Any) -> Value:
        if self._design_info.factor_infos[factor].num_columns != 1:
            raise UnsupportedModelError(
                f"the formula's {factor.name()!r} produces several columns, which is not "
                "supported; compute them in the frame and in the query, and name them in it"
            )
        if factor not in self._computed_factors:
            self._computed_factors[factor] = self._factors[factor].compute(frame)
        return self._computed_factors[factor]

    def _look_up_contrasts(self, frame: Frame, factor: Any, matrix: Array) -> Value:
        """Return the row of `matrix` for the category of `factor`; the row for NULL is NaN."""
        if matrix.size > MAX_CONTRASTS:
            raise UnsupportedModelError(
                f"the formula's {factor.name()!r} has {len(matrix):,} categories and is "
                f"multiplied by another factor, which needs over {MAX_CONTRASTS:,} numbers; fit it "
                "with fewer categories"
            )
        table = np.concatenate([matrix, np.full((1, matrix.shape[1]), np.nan)])
        return look_up_rows(frame.builder, table, self._encode_categories(frame, factor))

    def _encode_categories(self, frame: Frame, factor: Any) -> Value:
        """Return the category index of `factor`; the index of NULL comes after all others."""
        if factor in self._codes_by_factor:
            return self._codes_by_factor[factor]
        expression = self._factors[factor]
        levels = list(self._design_info.factor_infos[factor].categories)
        categories = to_category_array(levels, factor.name())
        column = expression.find_column()
        if categories.dtype == object:
            if column is None:
                raise UnsupportedModelError(
                    f"the formula's {factor.name()!r} produces strings; compute that column in the "
                    "frame and in the query, and name it in the formula"
                )
            values = frame.read_strings(frame.names.index(column))
        else:
            values = expression.compute(frame)
        codes = frame.builder.op("encode", values, categories=categories, missing=categories.size)
        name = expression.name if column is None else column
        codes = frame.builder.op("require_known", codes, feature=name, step=STEP)
        self._codes_by_factor[factor] = codes
        return codes
