"""Formulas of patsy: their expressions, such as `np.log(z)`, and the columns of the design.

The text of an expression is parsed, never run. Covered are columns, numbers, arithmetic,
comparisons, and the functions below. Other names are resolved in the namespace of the formula, and
must be numpy, one of its functions, or a number.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, to_category_array
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in ("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt")},
        **{name: name for name in ("abs", "square", "sign", "cbrt", "exp2", "floor", "ceil")},
        **{name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "trunc", "rint")},
        **{name: name for name in ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh")},
        **{"absolute": "abs", "negative": "neg", "isnan": "isnan"},
        **{"power": "pow", "maximum": "maximum", "minimum": "minimum", "mod": "mod"},
        **{"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div"},
        **{"true_divide": "div", "where": "where"},
    }
)
"""The operators of numpy's functions."""

_BINARY: Mapping[type[ast.operator], str] = MappingProxyType(
    {
        ast.Add: "add",
        ast.Sub: "sub",
        ast.Mult: "mul",
        ast.Div: "div",
        ast.Mod: "mod",
        ast.Pow: "pow",
        ast.BitAnd: "and",
        ast.BitOr: "or",
    }
)
_COMPARISONS: Mapping[type[ast.cmpop], str] = MappingProxyType(
    {
        ast.Lt: "lt",
        ast.LtE: "le",
        ast.Gt: "gt",
        ast.GtE: "ge",
        ast.Eq: "eq",
        ast.NotEq: "ne",
    }
)
_LOGICAL = frozenset({"and", "or", "not"})
_PATSY_FUNCTIONS = frozenset({"C", "I", "Q"})


@dataclass(frozen=True, slots=True)
class FormulaExpression:
    """An expression of a formula.

    Attributes:
        name: its text in the formula, for messages.
        body: the parsed text.
        columns: the columns of the training frame; True for those of booleans.
        names: the namespace of the formula.
        transforms: the fitted state of `center` and `standardize`, by their names in `body`.
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
        """Parse a factor of patsy with its fitted state.

        Raises:
            UnsupportedModelError: another kind of factor, or not an expression.
        """
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
            call = expression.body
            if not isinstance(call, ast.Call) or not call.args:
                raise _not_covered(name)
            if function == "I" and (len(call.args) > 1 or call.keywords):
                raise _not_covered(name)
            expression = cls(name, call.args[0], columns, names, expression.transforms)
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
        if isinstance(node, ast.Name) and node.id in self.columns:
            return node.id
        if (
            self._find_patsy_function(node) == "Q"
            and isinstance(node, ast.Call)
            and len(node.args) == 1
        ):
            (quoted,) = node.args
            if isinstance(quoted, ast.Constant) and quoted.value in self.columns:
                return str(quoted.value)
        return None

    def compute(self, frame: Frame) -> Value:
        """Compute the expression as float64 (n, 1).

        Raises:
            UnsupportedModelError: a part of it is not covered.
        """
        b = frame.builder
        value = self._compile(frame, self.body)
        if not isinstance(value, Value):  # the same number for all rows
            raise _not_covered(self.name)
        return b.cast(value, "float64")

    def _compile(self, frame: Frame, node: ast.expr) -> Value | float | bool:
        """Compile a node to a value of rows, float64 or bool, or to a number."""
        column = self.find_column(node)
        if column is not None:
            return frame.numbers(frame.names.index(column))
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.Name):
            return self._resolve_number(node.id)
        if isinstance(node, ast.UnaryOp):
            return self._compile_unary(frame, node)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            op = _BINARY[type(node.op)]
            return self._apply_operator(frame, op, [node.left, node.right])
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compile_comparison(frame, node)
        if isinstance(node, ast.Call):
            return self._compile_call(frame, node)
        raise self._not_covered(node)

    def _resolve_number(self, name: str) -> float | bool:
        item = self._resolve(name)
        if isinstance(item, bool | int | float | np.bool_ | np.integer | np.floating):
            number: float | bool = item.item() if isinstance(item, np.generic) else item
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

    def _compile_unary(self, frame: Frame, node: ast.UnaryOp) -> Value | float | bool:
        operand = self._compile(frame, node.operand)
        if isinstance(node.op, ast.UAdd):
            return operand
        if isinstance(node.op, ast.USub) and not isinstance(operand, Value):
            return -operand
        if isinstance(operand, Value):
            if isinstance(node.op, ast.USub) and operand.type.dtype != "bool":
                return frame.builder.op("neg", operand)
            if isinstance(node.op, ast.Invert) and operand.type.dtype == "bool":
                return frame.builder.op("not", operand)
        raise self._not_covered(node)

    def _compile_comparison(self, frame: Frame, node: ast.Compare) -> Value | float | bool:
        left, op, right = node.left, _COMPARISONS.get(type(node.ops[0])), node.comparators[0]
        if op is None:
            raise self._not_covered(node)
        column = self.find_column(left)
        is_text = isinstance(right, ast.Constant) and isinstance(right.value, str)
        if column is None or not is_text or op not in ("eq", "ne"):
            return self._apply_operator(frame, op, [left, right])
        assert isinstance(right, ast.Constant)
        text = np.array([right.value], object)
        x = frame.strings(frame.names.index(column))
        return frame.builder.op(
            op, frame.builder.op("encode", x, categories=text, missing=-1), np.zeros(1, np.int64)
        )

    def _apply_operator(
        self, frame: Frame, op: str, operands: Sequence[ast.expr]
    ) -> Value | float | bool:
        """Apply an operator as numpy computes it."""
        b, values = frame.builder, [self._compile(frame, node) for node in operands]
        rows = [v for v in values if isinstance(v, Value)]
        if not rows:
            return _fold_constants(self, op, [v for v in values if not isinstance(v, Value)])
        if op in _LOGICAL:
            if not all(map(_is_bool, rows)) or len(rows) < len(values):
                raise UnsupportedModelError(
                    f"the formula's {self.name!r} combines numbers with & or |; compare them first"
                )
            return b.op(op, *rows)
        are_booleans = all(
            isinstance(v, bool)
            or (isinstance(v, Value) and _is_bool(v))
            or self._is_boolean_column(node)
            for v, node in zip(values, operands, strict=True)
        )
        if op in ("add", "sub", "mul") and are_booleans:  # logical operators in numpy
            raise UnsupportedModelError(
                f"the formula's {self.name!r} computes with two truth values; write 1.0 * (...)"
            )
        if op == "pow" and not isinstance(values[1], Value):
            return self._raise_to_power(b, _floats(b, values[0]), float(values[1]))
        return b.op(op, *[_floats(b, v) for v in values])

    def _is_boolean_column(self, node: ast.expr) -> bool:
        column = self.find_column(node)
        return column is not None and self.columns[column]

    def _raise_to_power(self, b: Builder, x: Value, exponent: float) -> Value:
        """Compute x ** exponent like numpy, which has special cases for some exponents."""
        if exponent == 2:
            return b.op("square", x)
        if exponent == 1:
            return x
        if exponent == -1:
            return b.op("div", np.ones(1), x)
        return b.op("sqrt", x) if exponent == 0.5 else b.op("pow", x, np.array([exponent]))

    def _compile_call(self, frame: Frame, node: ast.Call) -> Value | float | bool:
        b = frame.builder
        if self._find_patsy_function(node) == "I" and len(node.args) == 1:
            return self._compile(frame, node.args[0])
        transform = self._find_transform(node)
        if transform is not None:
            return self._apply_transform(b, transform, self._compile(frame, node.args[0]), node)
        op = self._find_operator(node.func)
        if op is None or node.keywords:
            raise self._not_covered(node)
        if op == "where":
            if len(node.args) != 3:
                raise self._not_covered(node)
            test, *branches = [self._compile(frame, argument) for argument in node.args]
            if not isinstance(test, Value) or not _is_bool(test):
                raise self._not_covered(node)
            return b.op("where", test, *[_floats(b, v) for v in branches])
        if len(node.args) != (2 if op in _BINARY_FUNCTIONS else 1):
            raise self._not_covered(node)
        if op in _BINARY_FUNCTIONS:
            return self._apply_operator(frame, op, node.args)
        (x,) = [self._compile(frame, argument) for argument in node.args]
        if not isinstance(x, Value):
            return _fold_constants(self, op, [x])
        return b.op(op, _floats(b, x))

    def _find_patsy_function(self, node: ast.expr) -> str | None:
        """Return the name of patsy's own function that a node calls, or None."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        name = node.func.id
        if name not in _PATSY_FUNCTIONS or name in self.columns:
            return None
        function = self._resolve(name)
        is_from_patsy = str(getattr(function, "__module__", "")).split(".")[0] == "patsy"
        return name if function is _MISSING or is_from_patsy else None

    def _find_transform(self, node: ast.Call) -> Any:
        """Return the fitted stateful transform that a node calls; None for another call."""
        method = node.func
        if not isinstance(method, ast.Attribute) or method.attr != "transform" or not node.args:
            return None
        target = method.value
        return self.transforms.get(target.id) if isinstance(target, ast.Name) else None

    def _apply_transform(
        self, b: Builder, learned: Any, value: Value | float | bool, node: ast.Call
    ) -> Value:
        kind = f"{type(learned).__module__}.{type(learned).__qualname__}"
        if not isinstance(value, Value) or len(node.args) > 1:
            raise self._not_covered(node)
        x, options = _floats(b, value), self._read_options(node)
        if kind == "patsy.state.Center" and not options:
            return b.op("sub", x, _to_constant(learned._sum / learned._count))
        if kind != "patsy.state.Standardize" or not options.keys() <= _STANDARDIZE_DEFAULTS.keys():
            raise self._not_covered(node)
        options = {**_STANDARDIZE_DEFAULTS, **options}
        if options["center"]:
            x = b.op("sub", x, _to_constant(learned.current_mean))
        if options["rescale"]:
            deviation = np.sqrt(learned.current_M2 / (learned.current_n - options["ddof"]))
            x = b.op("div", x, _to_constant(deviation))
        return x

    def _read_options(self, node: ast.Call) -> dict[str, Any]:
        keywords = {k.arg: k.value for k in node.keywords}
        if not all(n and isinstance(v, ast.Constant) for n, v in keywords.items()):
            raise self._not_covered(node)
        return {str(n): v.value for n, v in keywords.items() if isinstance(v, ast.Constant)}

    def _find_operator(self, node: ast.expr) -> str | None:
        """Return the operator of numpy's function that a node refers to under any name."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self._resolve(node.value.id)
            return FUNCTIONS.get(node.attr) if module is np else None
        if not isinstance(node, ast.Name):
            return None
        function = self._resolve(node.id)
        if function is abs:
            return "abs"
        names = [name for name in FUNCTIONS if getattr(np, name) is function]
        return FUNCTIONS[names[0]] if names else None

    def _not_covered(self, node: ast.expr) -> UnsupportedModelError:
        text = ast.unparse(node)
        detail = "" if text == self.name else f", in it {text!r},"
        return UnsupportedModelError(
            f"the formula's {self.name!r}{detail} is not covered; make that column in the frame "
            "and in the query, and name it in the formula"
        )


_MISSING = object()
_BINARY_FUNCTIONS = frozenset({"pow", "maximum", "minimum", "mod", "add", "sub", "mul", "div"})
_STANDARDIZE_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"center": True, "rescale": True, "ddof": 0}
)


def _not_covered(name: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the formula's {name!r} is not covered; make that column in the frame and in the query, "
        "and name it in the formula"
    )


def _is_bool(value: Value) -> bool:
    return value.type.dtype == "bool"


def _floats(b: Builder, value: Value | float | bool) -> Value:
    if isinstance(value, Value):
        return b.cast(value, "float64")
    return b.constant(np.array([float(value)]))


def _to_constant(learned: Any) -> Array:
    return np.asarray(learned, np.float64).reshape(1)


_CONSTANT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
        "exp": math.exp,
        "log": math.log,
        "sqrt": math.sqrt,
    }
)


def _fold_constants(
    expression: FormulaExpression, op: str, numbers: Sequence[float | bool]
) -> float:
    """Apply an operator to numbers in the text of a formula."""
    try:
        return float(_CONSTANT[op](*map(float, numbers)))
    except (KeyError, ArithmeticError, ValueError):
        raise _not_covered(expression.name) from None


STEP = "the formula"
MAX_CONTRASTS = 1 << 24
"""The largest size of a matrix of contrasts."""


class FormulaDesign:
    """The columns that a formula computes from those of a table.

    A formula is a sum of terms, each a product of factors. A factor is a number, or a category,
    which a matrix of contrasts maps to numbers.

    Args:
        info: patsy's DesignInfo.
        columns: the columns of the training frame; True for those of booleans.

    Raises:
        UnsupportedModelError: a factor is not covered.
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
        """Compute the terms; values are NaN in rows with missing values.

        Args:
            frame: the columns of the table.
            weights: of the columns of the design, float64.

        Returns:
            Values (n, k), the weights of all their columns, and the sum of the constant terms.
        """
        values, value_weights, constant, start = list[Value](), list[float](), 0.0, 0
        for subterm in itertools.chain.from_iterable(self._info.term_codings.values()):
            subterm_weights = weights[start : start + subterm.num_columns]
            start += subterm.num_columns
            kinds = [self._info.factor_infos[f].type for f in subterm.factors]
            if not subterm.factors:
                constant += float(subterm_weights.sum())
            elif kinds == ["categorical"]:  # a number per category
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
        b = frame.builder
        if matrix.size > MAX_CONTRASTS:
            raise UnsupportedModelError(
                f"the formula's {factor.name()!r} has {len(matrix):,} categories beside another "
                "factor: too many"
            )
        table = np.concatenate([matrix, np.full((1, matrix.shape[1]), np.nan)])
        codes = self._encode(frame, factor)
        if table.shape[1] == 1:
            return b.op("take", table[:, 0].copy(), codes)
        return b.op("reshape", b.op("take", table, codes), shape=(table.shape[1],))

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
