"""`FormulaExpression`: what stands in a formula of patsy's, such as `np.log(z)`, as operators.

The text is parsed, never run: columns, numbers, arithmetic, comparisons, and the functions below. A
name that is no column is looked up where the formula was written, and must be numpy, one of its
functions, or a number.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, category_array
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
"""Functions of numpy -> the operators that they are."""

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
_COMPARED: Mapping[type[ast.cmpop], str] = MappingProxyType(
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
_OF_PATSY = frozenset({"C", "I", "Q"})


@dataclass(frozen=True, slots=True)
class FormulaExpression:
    """An expression of a formula.

    Attributes:
        name: what the formula calls it, for messages.
        body: its parsed text.
        columns: of the frame that the model was fitted on, and whether each holds truth values.
        names: what other names mean where the formula was written.
        transforms: what `center` and `standardize` learned, by the names that `body` has for them.
    """

    name: str
    body: ast.expr
    columns: Mapping[str, bool]
    names: Mapping[str, Any] = field(repr=False)
    transforms: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(
        cls, factor: Any, state: Mapping[str, Any], columns: Mapping[str, bool]
    ) -> FormulaExpression:
        """A factor of patsy's, and what it learned.

        Raises:
            UnsupportedModelError: it is another kind of factor, or no expression.
        """
        code = state.get("eval_code")
        name = str(factor.name())
        if not isinstance(code, str):
            raise _other(name)
        try:
            body = ast.parse(code.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            raise _other(name) from None
        names = getattr(state.get("eval_env"), "namespace", {})
        made = cls(name, body, columns, names, state.get("transforms", {}))
        while (found := made._patsy(made.body)) in ("C", "I"):
            inner = made.body
            if not isinstance(inner, ast.Call) or not inner.args:
                raise _other(name)
            if found == "I" and (len(inner.args) > 1 or inner.keywords):
                raise _other(name)
            made = cls(name, inner.args[0], columns, names, made.transforms)
        return made

    def used(self) -> list[str]:
        """The columns that it reads, in their order in the text."""
        found: dict[str, None] = {}
        waiting = [self.body]
        while waiting:
            node = waiting.pop()
            column = self.column(node)
            if column is not None:
                found[column] = None
                continue
            children = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
            waiting += reversed(children)
        return list(found)

    def column(self, node: ast.expr | None = None) -> str | None:
        """The column that a node is, if it is one: by its name, or as Q('its name')."""
        node = self.body if node is None else node
        if isinstance(node, ast.Name) and node.id in self.columns:
            return node.id
        if self._patsy(node) == "Q" and isinstance(node, ast.Call) and len(node.args) == 1:
            (quoted,) = node.args
            if isinstance(quoted, ast.Constant) and quoted.value in self.columns:
                return str(quoted.value)
        return None

    def number(self, frame: Frame) -> Value:
        """The expression as float64 (n, 1).

        Raises:
            UnsupportedModelError: something in it is not covered.
        """
        b = frame.builder
        made = self._made(frame, self.body)
        if not isinstance(made, Value):  # the same number for all rows
            raise _other(self.name)
        return b.cast(made, "float64")

    def _made(self, frame: Frame, node: ast.expr) -> Value | float | bool:
        """A node as a value of rows, float64 or bool, or as a number."""
        column = self.column(node)
        if column is not None:
            return frame.numbers(frame.names.index(column))
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.Name):
            return self._named_number(node.id)
        if isinstance(node, ast.UnaryOp):
            return self._unary(frame, node)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            op = _BINARY[type(node.op)]
            return self._applied(frame, op, [node.left, node.right])
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(frame, node)
        if isinstance(node, ast.Call):
            return self._called(frame, node)
        raise self._not_covered(node)

    def _named_number(self, name: str) -> float | bool:
        found = self._looked_up(name)
        if isinstance(found, bool | int | float | np.bool_ | np.integer | np.floating):
            number: float | bool = found.item() if isinstance(found, np.generic) else found
            return number
        if found is _MISSING:
            raise UnsupportedModelError(
                f"the formula's {self.name!r} reads {name!r}, which is not a column of the frame"
            )
        raise self._not_covered(ast.Name(name))

    def _looked_up(self, name: str) -> Any:
        try:
            return self.names[name]
        except KeyError:
            return getattr(builtins, name, _MISSING)

    def _unary(self, frame: Frame, node: ast.UnaryOp) -> Value | float | bool:
        made = self._made(frame, node.operand)
        if isinstance(node.op, ast.UAdd):
            return made
        if isinstance(node.op, ast.USub) and not isinstance(made, Value):
            return -made
        if isinstance(made, Value):
            if isinstance(node.op, ast.USub) and made.type.dtype != "bool":
                return frame.builder.op("neg", made)
            if isinstance(node.op, ast.Invert) and made.type.dtype == "bool":
                return frame.builder.op("not", made)
        raise self._not_covered(node)

    def _compared(self, frame: Frame, node: ast.Compare) -> Value | float | bool:
        left, op, right = node.left, _COMPARED.get(type(node.ops[0])), node.comparators[0]
        if op is None:
            raise self._not_covered(node)
        column = self.column(left)
        is_text = isinstance(right, ast.Constant) and isinstance(right.value, str)
        if column is None or not is_text or op not in ("eq", "ne"):
            return self._applied(frame, op, [left, right])
        assert isinstance(right, ast.Constant)
        text = np.array([right.value], object)
        x = frame.strings(frame.names.index(column))
        return frame.builder.op(
            op, frame.builder.op("encode", x, categories=text, missing=-1), np.zeros(1, np.int64)
        )

    def _applied(self, frame: Frame, op: str, given: Sequence[ast.expr]) -> Value | float | bool:
        """An operator of several numbers, as numpy computes it."""
        b, made = frame.builder, [self._made(frame, node) for node in given]
        rows = [v for v in made if isinstance(v, Value)]
        if not rows:
            return _of_numbers(self, op, [v for v in made if not isinstance(v, Value)])
        if op in _LOGICAL:
            if not all(map(_is_bool, rows)) or len(rows) < len(made):
                raise UnsupportedModelError(
                    f"the formula's {self.name!r} combines numbers with & or |; compare them first"
                )
            return b.op(op, *rows)
        truths = [
            isinstance(v, bool) or (isinstance(v, Value) and _is_bool(v)) or self._is_truth(node)
            for v, node in zip(made, given, strict=True)
        ]
        if op in ("add", "sub", "mul") and all(truths):  # which numpy takes for logic
            raise UnsupportedModelError(
                f"the formula's {self.name!r} computes with two truth values; write 1.0 * (..)"
            )
        if op == "pow" and not isinstance(made[1], Value):
            return self._power(b, _floats(b, made[0]), float(made[1]))
        return b.op(op, *[_floats(b, v) for v in made])

    def _is_truth(self, node: ast.expr) -> bool:
        column = self.column(node)
        return column is not None and self.columns[column]

    def _power(self, b: Builder, x: Value, exponent: float) -> Value:
        """What numpy makes of x ** a number: some exponents have functions of their own."""
        if exponent == 2:
            return b.op("square", x)
        if exponent == 1:
            return x
        if exponent == -1:
            return b.op("div", np.ones(1), x)
        return b.op("sqrt", x) if exponent == 0.5 else b.op("pow", x, np.array([exponent]))

    def _called(self, frame: Frame, node: ast.Call) -> Value | float | bool:
        b = frame.builder
        if self._patsy(node) == "I" and len(node.args) == 1:
            return self._made(frame, node.args[0])
        learned = self._learned(node)
        if learned is not None:
            return self._transformed(b, learned, self._made(frame, node.args[0]), node)
        op = self._function(node.func)
        if op is None or node.keywords:
            raise self._not_covered(node)
        if op == "where":
            if len(node.args) != 3:
                raise self._not_covered(node)
            test, *chosen = [self._made(frame, argument) for argument in node.args]
            if not isinstance(test, Value) or not _is_bool(test):
                raise self._not_covered(node)
            return b.op("where", test, *[_floats(b, v) for v in chosen])
        if len(node.args) != (2 if op in _OF_TWO else 1):
            raise self._not_covered(node)
        if op in _OF_TWO:
            return self._applied(frame, op, node.args)
        (x,) = [self._made(frame, argument) for argument in node.args]
        if not isinstance(x, Value):
            return _of_numbers(self, op, [x])
        return b.op(op, _floats(b, x))

    def _patsy(self, node: ast.expr) -> str | None:
        """Which of patsy's own functions a node calls."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        name = node.func.id
        if name not in _OF_PATSY or name in self.columns:
            return None
        found = self._looked_up(name)
        is_own = str(getattr(found, "__module__", "")).split(".")[0] == "patsy"
        return name if found is _MISSING or is_own else None

    def _learned(self, node: ast.Call) -> Any:
        """What a call of patsy's stateful transforms has learned; None for another call."""
        of = node.func
        if not isinstance(of, ast.Attribute) or of.attr != "transform" or not node.args:
            return None
        return self.transforms.get(of.value.id) if isinstance(of.value, ast.Name) else None

    def _transformed(
        self, b: Builder, learned: Any, given: Value | float | bool, node: ast.Call
    ) -> Value:
        kind = f"{type(learned).__module__}.{type(learned).__qualname__}"
        if not isinstance(given, Value) or len(node.args) > 1:
            raise self._not_covered(node)
        x, options = _floats(b, given), self._options(node)
        if kind == "patsy.state.Center" and not options:
            return b.op("sub", x, _one(learned._sum / learned._count))
        if kind != "patsy.state.Standardize" or not options.keys() <= _STANDARDIZED.keys():
            raise self._not_covered(node)
        options = {**_STANDARDIZED, **options}
        if options["center"]:
            x = b.op("sub", x, _one(learned.current_mean))
        if options["rescale"]:
            deviation = np.sqrt(learned.current_M2 / (learned.current_n - options["ddof"]))
            x = b.op("div", x, _one(deviation))
        return x

    def _options(self, node: ast.Call) -> dict[str, Any]:
        found = {k.arg: k.value for k in node.keywords}
        if not all(n and isinstance(v, ast.Constant) for n, v in found.items()):
            raise self._not_covered(node)
        return {str(n): v.value for n, v in found.items() if isinstance(v, ast.Constant)}

    def _function(self, node: ast.expr) -> str | None:
        """The operator of a function of numpy's, by whatever name the formula calls it."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self._looked_up(node.value.id)
            return FUNCTIONS.get(node.attr) if module is np else None
        if not isinstance(node, ast.Name):
            return None
        found = self._looked_up(node.id)
        if found is abs:
            return "abs"
        same = [name for name in FUNCTIONS if getattr(np, name) is found]
        return FUNCTIONS[same[0]] if same else None

    def _not_covered(self, node: ast.expr) -> UnsupportedModelError:
        part = ast.unparse(node)
        of_it = "" if part == self.name else f", in it {part!r},"
        return UnsupportedModelError(
            f"the formula's {self.name!r}{of_it} is not covered; make that column in the frame and "
            "in the query, and name it in the formula"
        )


_MISSING = object()
_OF_TWO = frozenset({"pow", "maximum", "minimum", "mod", "add", "sub", "mul", "div"})
_STANDARDIZED: Mapping[str, Any] = MappingProxyType({"center": True, "rescale": True, "ddof": 0})


def _other(name: str) -> UnsupportedModelError:
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


def _one(given: Any) -> Array:
    """What was learned of the one column."""
    return np.asarray(given, np.float64).reshape(1)


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


def _of_numbers(of: FormulaExpression, op: str, given: Sequence[float | bool]) -> float:
    """A number made of numbers that stand in the formula."""
    try:
        return float(_CONSTANT[op](*map(float, given)))
    except (KeyError, ArithmeticError, ValueError):
        raise _other(of.name) from None


# `FormulaDesign`: the columns that a formula of patsy's makes of those of a table.
#
# A formula is a sum of terms, each a product of factors. A factor is a number, or a category, of
# which a matrix of contrasts says what numbers it becomes (patsy's `DesignInfo`).


STEP = "the formula"
MOST = 1 << 24
"""Numbers of a matrix of contrasts, at most."""


class FormulaDesign:
    """The design that `info`, a DesignInfo of patsy's, describes.

    Args:
        columns: of the frame that the model was fitted on, and whether each holds truth values.

    Raises:
        UnsupportedModelError: a factor is not covered.
    """

    def __init__(self, info: Any, columns: Mapping[str, bool]) -> None:
        self._info = info
        self._factors = {
            factor: FormulaExpression.of(factor, found.state, columns)
            for factor, found in info.factor_infos.items()
        }
        self._codes: dict[Any, Value] = {}
        self._numbers: dict[Any, Value] = {}

    def names(self) -> tuple[str, ...]:
        """The columns of the table that it reads, in the order in which the terms name them."""
        found: dict[str, None] = {}
        for term in self._info.terms:
            for factor in term.factors:
                found.update(dict.fromkeys(self._factors[factor].used()))
        return tuple(found)

    def weighted(self, frame: Frame, weights: Array) -> tuple[list[Value], list[float], float]:
        """Values (n, k), the weights of all their columns, and the sum of the constant terms.

        weights: float64, of the columns of the design. A row with a missing value has NaN.
        """
        values, used, constant, at = list[Value](), list[float](), 0.0, 0
        for part in self._parts():
            own = weights[at : at + part.num_columns]
            at += part.num_columns
            kinds = [self._info.factor_infos[f].type for f in part.factors]
            if not part.factors:
                constant += float(own.sum())
            elif kinds == ["categorical"]:  # one number for each category
                (factor,) = part.factors
                matrix = part.contrast_matrices[factor].matrix @ own
                values.append(self._contrasts(frame, factor, matrix.reshape(-1, 1)))
                used.append(1.0)
            else:
                values.append(self._product(frame, part))
                used += own.tolist()
        return values, used, constant

    def _parts(self) -> Iterator[Any]:
        for coded in self._info.term_codings.values():
            yield from coded

    def _product(self, frame: Frame, part: Any) -> Value:
        """The columns of a part of a term: products, of which the first factor's vary fastest."""
        b = frame.builder
        factors = []
        for factor in part.factors:
            if factor in part.contrast_matrices:
                matrix = np.asarray(part.contrast_matrices[factor].matrix, np.float64)
                factors.append(self._contrasts(frame, factor, matrix))
            else:
                factors.append(self._number(frame, factor))
        widths = [range(value.type.width) for value in reversed(factors)]
        places = np.array(list(itertools.product(*widths)), np.int64)[:, ::-1]
        made: Value | None = None
        for k, value in enumerate(factors):
            own = value
            if value.type.width > 1 or len(places) > 1:
                own = b.op("select", value, indices=places[:, k])
            made = own if made is None else b.op("mul", made, own)
        assert made is not None
        return made

    def _number(self, frame: Frame, factor: Any) -> Value:
        if self._info.factor_infos[factor].num_columns != 1:
            raise UnsupportedModelError(
                f"the formula's {factor.name()!r} makes several columns, which is not covered; "
                "make them in the frame and in the query, and name them in the formula"
            )
        if factor not in self._numbers:
            self._numbers[factor] = self._factors[factor].number(frame)
        return self._numbers[factor]

    def _contrasts(self, frame: Frame, factor: Any, matrix: Array) -> Value:
        """The rows of a matrix (categories, k) of a row's categories, (n, k); NaN for none."""
        b = frame.builder
        if matrix.size > MOST:
            raise UnsupportedModelError(
                f"the formula's {factor.name()!r} has {len(matrix):,} categories beside another "
                "factor: too many"
            )
        table = np.concatenate([matrix, np.full((1, matrix.shape[1]), np.nan)])
        codes = self._coded(frame, factor)
        if table.shape[1] == 1:
            return b.op("take", table[:, 0].copy(), codes)
        return b.op("reshape", b.op("take", table, codes), shape=(table.shape[1],))

    def _coded(self, frame: Frame, factor: Any) -> Value:
        """The place of each row's category, (n, 1); one more for a row without."""
        if factor in self._codes:
            return self._codes[factor]
        b, expression = frame.builder, self._factors[factor]
        known = category_array(list(self._info.factor_infos[factor].categories), factor.name())
        column = expression.column()
        if known.dtype == object:
            if column is None:
                raise UnsupportedModelError(
                    f"the formula's {factor.name()!r} makes texts; make that column in the frame "
                    "and in the query, and name it in the formula"
                )
            x = frame.strings(frame.names.index(column))
        else:
            x = expression.number(frame)
        codes = b.op("encode", x, categories=known, missing=known.size)
        name = expression.name if column is None else column
        made = b.op("require_known", codes, feature=name, step=STEP)
        self._codes[factor] = made
        return made
