"""`Frame`: the columns that flow from step to step of a pipeline while it is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.ir.builder import Builder, Value
from sqlml.types import DType, Labels


@dataclass(frozen=True, slots=True)
class RawColumn:
    """A column of the table that no step has touched yet, so its kind is still open.

    The first step that reads it decides: strings or numbers.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Frame:
    """An ordered list of columns: raw ones, and (n, k) values that earlier steps made.

    `names` has one entry per column, for selection by name and for error messages. `sparse` says
    that the source library hands these columns on as a sparse matrix, whose zeros are not stored:
    XGBoost takes those for missing.
    """

    builder: Builder
    blocks: tuple[RawColumn | Value, ...]
    names: tuple[str, ...]
    sparse: bool = False

    @classmethod
    def raw(cls, builder: Builder, names: Sequence[str]) -> Frame:
        """The table itself: one raw column per name."""
        return cls(builder, tuple(RawColumn(n) for n in names), tuple(names))

    @classmethod
    def of(cls, builder: Builder, value: Value, names: Sequence[str] | None = None) -> Frame:
        """A frame of one (n, k) value."""
        width = value.type.width
        return cls(builder, (value,), tuple(names or (f"x{i}" for i in range(width))))

    @classmethod
    def hstack(cls, builder: Builder, frames: Iterable[Frame]) -> Frame:
        """The columns of `frames` side by side."""
        frames = tuple(frames)
        return cls(
            builder,
            tuple(block for f in frames for block in f.blocks),
            tuple(name for f in frames for name in f.names),
        )

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names)

    def take(self, indices: Sequence[int]) -> Frame:
        """The columns at `indices`, in that order."""
        places = [
            (b, j)
            for b, block in enumerate(self.blocks)
            for j in range(1 if isinstance(block, RawColumn) else block.type.width)
        ]
        blocks: list[RawColumn | Value] = []
        run: list[int] = []
        current = -1

        def flush() -> None:
            block = self.blocks[current]
            if run and isinstance(block, Value):
                whole = run == list(range(block.type.width))
                chosen = np.array(run, np.int64)
                blocks.append(block if whole else self.builder.op("select", block, indices=chosen))
            run.clear()

        for i in indices:
            b, j = places[i]
            block = self.blocks[b]
            if b != current or isinstance(block, RawColumn):
                flush()
                current = b
            if isinstance(block, RawColumn):
                blocks.append(block)
            else:
                run.append(j)
        flush()
        names = tuple(self.names[i] for i in indices)
        return Frame(self.builder, tuple(blocks), names, self.sparse)

    def matrix(self, dtype: DType = "float64") -> Value:
        """All columns as one (n, width) value of numbers.

        Raises:
            UnsupportedModelError: a column was read as strings by an earlier step.
        """
        parts = [self._number(block, dtype) for block in self.blocks]
        return parts[0] if len(parts) == 1 else self.builder.op("concat", *parts)

    def numbers(self, i: int, dtype: DType = "float64") -> Value:
        """Column `i` as (n, 1) numbers."""
        return self.take([i]).matrix(dtype)

    def strings(self, i: int) -> Value:
        """Column `i` as (n, 1) strings.

        Raises:
            UnsupportedModelError: the column holds numbers.
        """
        (block,) = self.take([i]).blocks
        if isinstance(block, RawColumn):
            return self._input(block, "string")
        if block.type.dtype != "string":
            raise UnsupportedModelError(
                f"column {self.names[i]!r} is used as strings, but an earlier step made "
                "numbers of it"
            )
        return block

    def _number(self, block: RawColumn | Value, dtype: DType) -> Value:
        value = self._input(block, "float64") if isinstance(block, RawColumn) else block
        if value.type.dtype == "string":
            raise UnsupportedModelError(
                "a column of strings reaches a step that computes with numbers; encode it first"
            )
        if value.type.dtype == dtype:
            return value
        return self.builder.op("cast", value, dtype=dtype)

    def _input(self, column: RawColumn, dtype: DType) -> Value:
        try:
            return self.builder.input(column.name, dtype)
        except ProgramError:
            raise UnsupportedModelError(
                f"column {column.name!r} is used both as strings and as numbers; "
                "give the model two columns"
            ) from None


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a predictor computes: output name (`ir.spec.OUTPUTS`) -> value, and its labels."""

    values: Mapping[str, Value]
    labels: Labels | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """The table that a model wants: names in training order, or None when it never saw names."""

    names: tuple[str, ...] | None
    count: int


def labels_of(classes: Sequence[Any]) -> Labels:
    """The Labels of a `classes_` array: strings, integers, booleans or floats.

    Raises:
        UnsupportedModelError: labels of mixed or other types.
    """
    values = [c.item() if isinstance(c, np.generic) else c for c in classes]
    for python, kind in ((bool, "bool"), (int, "int64"), (float, "float64"), (str, "string")):
        if all(type(v) is python for v in values):
            return Labels(kind, tuple(values))  # type: ignore[arg-type]
    raise UnsupportedModelError(
        f"class labels must be strings, whole numbers, booleans or floats, not {values[:3]!r}"
    )
