"""`program_inputs`: rows as a model's Program takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.importers.gaps import Gaps
from sqlml.ir.program import Program
from sqlml.passes.split import PackedColumn
from sqlml.scorer.input_table import Table
from sqlml.types import DATETIME, Array, Feature


def program_inputs(
    program: Program,
    rows: Any,
    features: Sequence[Feature] | None = None,
    gaps: Gaps | None = None,
) -> dict[str, Array]:
    """The inputs of a Program, by name, of rows: (n,) each.

    Args:
        rows: a frame, or what else a Scorer takes.
        features: the columns of training, in order; without it the Program's own inputs.
        gaps: what the rows of a sparse matrix lack.

    Raises:
        MissingColumnError: the rows lack a feature.
    """
    table = Table.of(rows, program.features if features is None else features, gaps or Gaps())
    return {f.name: _values(table, f) for f in program.features}


def _values(table: Table, feature: Feature) -> Array:
    """A feature's values (n,), as a Program takes them."""
    if feature.kind in ("number", DATETIME):
        return table.packed((PackedColumn(feature.name, False),), {}, np.dtype(np.float64))[:, 0]
    if feature.kind == "string":
        return table.objects(feature.name)[:, 0]
    texts = table.texts(feature.name)
    held = [None if gone else texts.text(i) for i, gone in enumerate(texts.missing)]
    return np.array([*held, None], object)[:-1]  # never taken for a matrix of characters
