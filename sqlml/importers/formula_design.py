"""`FormulaDesign`: the columns that a formula of patsy's makes of those of a table.

A formula is a sum of terms, each a product of factors. A factor is a number, or a category, of
which a matrix of contrasts says what numbers it becomes (patsy's `DesignInfo`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.categories import category_array
from sqlml.importers.formula_expression import FormulaExpression
from sqlml.importers.frame import Frame
from sqlml.ir.builder import Value
from sqlml.types import Array

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
