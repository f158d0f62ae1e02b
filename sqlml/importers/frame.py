"""`Frame`: the columns that flow from step to step of a pipeline while it is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.ir.builder import Builder, Value
from sqlml.limits import MAX_ROW_VALUES
from sqlml.types import DATETIME, Array, DType, LabelKind, Labels, label_sets

Rows = Literal["dense", "wide", "sparse"]
"""Which rows a step takes: see `Frame.matrix`."""

Sparse = Literal[False, True, "with zeros"]
"""Whether the source library hands columns on as a sparse matrix, and whether that stores a zero
of a row (DictVectorizer's numbers) or leaves it out."""

MAX_DENSE = 4096
"""Most columns of sparse rows that are made dense for a step that computes with all of them."""


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
    that the source library hands these columns on as a sparse matrix: XGBoost takes what that
    does not store for missing. `declared` are the SQL types of columns that the user gave.
    """

    builder: Builder
    blocks: tuple[RawColumn | Value, ...]
    names: tuple[str, ...]
    sparse: Sparse = False
    declared: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def raw(
        cls, builder: Builder, names: Sequence[str], declared: Mapping[str, str] | None = None
    ) -> Frame:
        """Return the table itself: one raw column per name."""
        return cls(builder, tuple(map(RawColumn, names)), tuple(names), declared=declared or {})

    @classmethod
    def of(
        cls,
        builder: Builder,
        value: Value,
        names: Sequence[str] | None = None,
        sparse: Sparse = False,
        *,
        stem: str = "x",
    ) -> Frame:
        """A frame of one (n, k) value; without `names` its columns are `stem` and their number."""
        numbered = (f"{stem}{i}" for i in range(value.type.width))
        return cls(builder, (value,), tuple(names or numbered), sparse)

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
        widths = [1 if isinstance(b, RawColumn) else b.type.width for b in self.blocks]
        first = np.cumsum([0, *widths])
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
            b = int(np.searchsorted(first, i, "right")) - 1
            j = int(i - first[b])
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
        return Frame(self.builder, tuple(blocks), names, self.sparse, self.declared)

    @property
    def stored(self) -> bool:
        """Whether columns flow as sparse rows (`ir/csr.py`), as a vectoriser makes them."""
        return any(isinstance(b, Value) and b.type.sparse for b in self.blocks)

    def matrix(self, dtype: DType = "float64", rows: Rows = "dense") -> Value:
        """All columns as one (n, width) value of numbers.

        Args:
            rows: "dense" for a step that computes with every column; sparse rows become dense
                ones then, if they are not too wide. "wide" is the same for trees, which look at
                few columns and so may have many; "sparse" hands sparse rows on as they are.

        Raises:
            UnsupportedModelError: a column was read as strings by an earlier step, or sparse rows
                have more than MAX_DENSE columns.
        """
        value = self.builder.beside([self._number(block, dtype) for block in self.blocks])
        if not value.type.sparse or rows == "sparse":
            return value
        if rows == "dense" and value.type.width > MAX_DENSE:
            raise UnsupportedModelError(
                f"this step computes with all {value.type.width} columns of sparse rows, and sqlml "
                f"makes dense rows of at most {MAX_DENSE}; fit the vectorizer with fewer words "
                f"(max_features={MAX_DENSE}, n_features=2**12), or use a linear model or trees, "
                "which read sparse rows"
            )
        return self.builder.op("densify", value, fill=0.0)

    def whole(self) -> Value:
        """All columns as one (n, width) value: strings where all of them are, else numbers.

        Raises:
            UnsupportedModelError: some columns are strings and others numbers.
        """
        texts = [b for b in self.blocks if isinstance(b, Value) and b.type.dtype == "string"]
        if not texts:
            return self.matrix()
        if len(texts) < len(self.blocks):
            raise UnsupportedModelError(
                "the model makes columns of strings and of numbers, which do not form one "
                "matrix; compile a transformer of the strings and one of the numbers, or encode "
                "the strings"
            )
        return self.builder.beside(texts)

    def numbers(self, i: int, dtype: DType = "float64") -> Value:
        """Column `i` as (n, 1) numbers."""
        return self.take([i]).matrix(dtype)

    def makes_strings(self, i: int) -> bool:
        """Whether an earlier step made column `i`, of strings."""
        (block,) = self.take([i]).blocks
        return not isinstance(block, RawColumn) and block.type.dtype == "string"

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
                f"column {self.names[i]!r} is used as strings, but an earlier step turned it into "
                "numbers"
            )
        return block

    def moments(self, i: int) -> Value:
        """Column `i`, of dates or timestamps, as (n, 1) microseconds since 1970, float64.

        Raises:
            UnsupportedModelError: an earlier step made something else of the column.
        """
        (block,) = self.take([i]).blocks
        if isinstance(block, RawColumn):
            return self._input(block, "float64", DATETIME)
        raise UnsupportedModelError(
            f"column {self.names[i]!r} is used as dates, but an earlier step has changed it"
        )

    def nested(self, i: int, dtype: DType) -> Value:
        """Column `i` as (n, 1) lists, maps or lists of pairs.

        Raises:
            UnsupportedModelError: an earlier step made something else of the column.
        """
        (block,) = self.take([i]).blocks
        if isinstance(block, RawColumn):
            return self._input(block, dtype)
        raise UnsupportedModelError(
            f"column {self.names[i]!r} is used as a {dtype}, but an earlier step has changed it"
        )

    def _number(self, block: RawColumn | Value, dtype: DType) -> Value:
        value = self._input(block, "float64") if isinstance(block, RawColumn) else block
        if value.type.dtype == "string":
            raise UnsupportedModelError(
                "a column of strings reaches a step that computes with numbers; encode it first"
            )
        return self.builder.cast(value, dtype)

    def _input(self, column: RawColumn, dtype: DType, kind: str | None = None) -> Value:
        b = self.builder
        try:
            return b.input(column.name, dtype, kind=kind)
        except ProgramError:
            known = b.kind(column.name) or b.known(column.name)
            uses = sorted({_USES.get(use, "numbers") for use in (known, kind or dtype)})
            raise UnsupportedModelError(
                f"column {column.name!r} is used both as {uses[-1]} and as {uses[0]}; "
                "give the model two columns"
            ) from None


_USES: Mapping[str | None, str] = MappingProxyType(
    {
        "string": "strings",
        DATETIME: "dates",
        "list": "a list",
        "map": "a map",
        "pairs": "a list of pairs",
    }
)


class Outputs:
    """What a predictor computes: output name (`ir.spec.OUTPUTS`) -> value, and its labels.

    `label_sets` has the labels of each target, as `Program.labels`; one `Labels` or None are
    taken for the labels of the only target.
    """

    __slots__ = ("label_sets", "values")

    def __init__(
        self, values: Mapping[str, Value], labels: Labels | tuple[Labels, ...] | None = None
    ) -> None:
        self.values: Mapping[str, Value] = values
        self.label_sets: tuple[Labels, ...] = label_sets(labels)

    @property
    def labels(self) -> Labels | None:
        """The labels of a classifier's only target; None for a regressor.

        Raises:
            UnsupportedModelError: a classifier of several targets.
        """
        if len(self.label_sets) > 1:
            raise UnsupportedModelError(
                f"a classifier of {len(self.label_sets)} targets at once is used where one target "
                "is expected; fit one model per target"
            )
        return self.label_sets[0] if self.label_sets else None


Recurse = Callable[[Any, Frame], Frame | Outputs]
"""Imports an object that another one holds, for the columns that it reads."""

ANY_COUNT = -1
"""The number of columns of an object that takes any."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns that a model reads: their names in training order, or None if it never saw any.

    `default_names` are how the model's library numbers the columns of a table without names. They
    count where the model has no names and the user gives none.
    """

    names: tuple[str, ...] | None
    count: int
    default_names: tuple[str, ...] | None = None

    @classmethod
    def recorded(cls, model: Any) -> Schema | None:
        """What an object that follows scikit-learn's conventions was fitted on, if it says so."""
        names = getattr(model, "feature_names_in_", None)
        if names is not None:
            return cls(tuple(str(n) for n in names), len(names))
        count = getattr(model, "n_features_in_", None)
        return None if count is None else cls(None, int(count))

    def written_out(self, inputs: Mapping[str, str]) -> Mapping[str, str]:
        """Write a column for each element of an array: `x FLOAT[3]` is x_0, x_1 and x_2.

        That is so for models of numbered columns, unless `inputs` names just as many columns.
        """
        if self.default_names is None or len(inputs) == self.count:
            return inputs
        columns: dict[str, str] = {}
        for name, kind in inputs.items():
            array = _ARRAY.fullmatch(kind.strip())
            if array is None or int(array[2]) > MAX_ROW_VALUES:
                columns[name] = kind
            else:
                columns.update((f"{name}_{i}", array[1]) for i in range(int(array[2])))
        return columns


_ARRAY = re.compile(r"([^\[\]]+?)\s*\[(\d{1,9})\]")
"""A SQL type of arrays of a fixed length: that of the elements, and the length."""


_KINDS: tuple[tuple[type, LabelKind], ...] = (
    (bool, "bool"),
    (int, "int64"),
    (float, "float64"),
    (str, "string"),
)


def labels_of(classes: Sequence[Any]) -> Labels:
    """The Labels of a `classes_` array: strings, integers, booleans or floats.

    Raises:
        UnsupportedModelError: labels of mixed or other types.
    """
    values = [c.item() if isinstance(c, np.generic) else c for c in classes]
    for python, kind in _KINDS:
        if all(type(v) is python for v in values):
            if kind == "int64" and not all(-(2**63) <= v < 2**63 for v in values):
                raise UnsupportedModelError(
                    f"class label {max(values, key=abs)} does not fit in a signed 64-bit integer, "
                    "which predict returns; fit the model on smaller labels, or on strings"
                )
            return Labels(kind, tuple(values))
    raise UnsupportedModelError(
        f"class labels must be strings, integers, booleans or floats, not {values[:3]!r}"
    )


# Columns of categories as the codes that a booster was trained on, alongside numeric columns.


C = TypeVar("C")


def category_array(values: Sequence[Any], column: str) -> Array:
    """Categories as encode wants them: objects for strings, float64 for numbers and booleans.

    Raises:
        UnsupportedModelError: dates, intervals or a mixture.
    """
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    if plain and all(isinstance(v, str) for v in plain):
        return np.array(plain, object)
    if all(isinstance(v, bool | int | float) for v in plain):
        numbers = np.array([float(v) for v in plain], np.float64)
        if np.unique(numbers).size == numbers.size:
            return numbers
    raise UnsupportedModelError(
        f"the categories of column {column!r} are neither strings nor distinct numbers, e.g. "
        f"{plain[:3]!r}; train on strings"
    )


def coded_columns(
    frame: Frame,
    chosen: Iterable[int],
    categorical: Mapping[int, C],
    codes: Callable[[Frame, int, C], Value],
    dtype: DType,
) -> Value:
    """The `chosen` columns side by side, (n, k) of `dtype`: of the `categorical` ones what `codes`
    makes of frame, column and categories, and the numbers of the others."""
    parts: list[Value] = []
    run: list[int] = []  # neighbours that are numbers
    for i in chosen:
        if i not in categorical:
            run.append(i)
            continue
        if run:
            parts.append(frame.take(run).matrix(dtype))
            run = []
        parts.append(codes(frame, i, categorical[i]))
    if run or not parts:
        parts.append(frame.take(run).matrix(dtype))
    return frame.builder.beside(parts)


def category_codes(
    frame: Frame, i: int, categories: Array, dtype: DType, refuse: str | None = None
) -> Value:
    """Column `i` as codes 0, 1, .. in the order of `categories`, NaN where it is missing; (n, 1).

    A value that is not among the categories is NaN too, or raises UnknownCategoryError when
    `refuse` names the model that does not take it.
    """
    b = frame.builder
    x = frame.strings(i) if categories.dtype == object else frame.numbers(i, "float64")
    missing = -1 if refuse is None else len(categories)
    codes = b.op("encode", x, categories=categories, missing=missing)
    if refuse is not None:
        codes = b.op("require_known", codes, feature=frame.names[i], step=refuse)
    gone = b.op("eq", codes, b.constant(np.array([missing], np.int64)))
    nan = b.constant(np.array([np.nan], dtype))
    return b.op("where", gone, nan, b.op("cast", codes, dtype=dtype))


# `Gaps`: how a model reads rows that leave out values, and names with blanks.


@dataclass(frozen=True, slots=True)
class Gaps:
    """How the source library reads rows with unstated values, and names with blanks.

    Attributes:
        cell: what a cell that a sparse matrix does not store stands for: 0, or NaN (XGBoost);
            None if the parts of the model disagree, or it is unknown.
        separator: that of the DictVectorizer that reads the rows, in whose dicts an absent key is
            the number 0; None if no DictVectorizer does, and an absent key is a missing value.
        blanks: LightGBM is among the parts of the model, which writes a _ for each blank in the
            name of a column: a column `my col` feeds the feature `my_col`.
    """

    cell: float | None = None
    separator: str | None = None
    blanks: bool = False
