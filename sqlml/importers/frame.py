"""`Frame`, `Outputs` and `Schema`: the columns that importers read and return."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, TypeVar

import numpy as np

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.ir.builder import Builder, Value
from sqlml.limits import MAX_ROW_VALUES
from sqlml.types import DATETIME, Array, DType, LabelKind, Labels, label_sets

C = TypeVar("C")

Rows = Literal["dense", "wide", "sparse"]
"""The forms in which a step reads rows; `Frame.matrix` explains them."""

Sparse = Literal[False, True, "with zeros"]
"""True if the source library passes columns on as a sparse matrix; "with zeros" if that matrix
stores zeros explicitly, as DictVectorizer's does."""

MAX_DENSE = 4096
"""The largest number of sparse columns that become dense for a step that reads all of them."""


@dataclass(frozen=True, slots=True)
class RawColumn:
    """A table column that no step has read yet; the first reader decides the kind."""

    name: str


@dataclass(frozen=True, slots=True)
class Frame:
    """An ordered list of columns: raw columns, and (n, k) values that earlier steps computed.

    `names` has one name per column. If `sparse` is true, the source library passes the columns on
    as a sparse matrix, and XGBoost treats the missing cells of this matrix as missing values.
    `declared` maps columns to the SQL types that the user declared.
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
        """Return a frame with one raw column per name."""
        return cls(builder, tuple(map(RawColumn, names)), tuple(names), declared=declared or {})

    @classmethod
    def from_value(
        cls,
        builder: Builder,
        value: Value,
        names: Sequence[str] | None = None,
        sparse: Sparse = False,
        *,
        stem: str = "x",
    ) -> Frame:
        """Return a frame of an (n, k) value; the default names are {stem}0, {stem}1, ..."""
        default_names = (f"{stem}{i}" for i in range(value.type.width))
        return cls(builder, (value,), tuple(names or default_names), sparse)

    @classmethod
    def hstack(cls, builder: Builder, frames: Iterable[Frame]) -> Frame:
        frames = tuple(frames)
        blocks = tuple(block for frame in frames for block in frame.blocks)
        return cls(builder, blocks, tuple(name for frame in frames for name in frame.names))

    @property
    def width(self) -> int:
        return len(self.names)

    def select(self, indices: Sequence[int]) -> Frame:
        widths = [1 if isinstance(b, RawColumn) else b.type.width for b in self.blocks]
        block_starts = np.cumsum([0, *widths])
        blocks: list[RawColumn | Value] = []
        block_indices = np.searchsorted(block_starts, np.asarray(indices, np.int64), "right") - 1
        pairs = zip(block_indices.tolist(), indices, strict=True)
        for block_index, block_pairs in groupby(pairs, itemgetter(0)):
            block = self.blocks[block_index]
            columns = [int(i - block_starts[block_index]) for _, i in block_pairs]
            if isinstance(block, RawColumn):
                blocks += [block] * len(columns)
                continue
            if columns != list(range(block.type.width)):
                block = self.builder.op("select", block, indices=np.array(columns, np.int64))
            blocks.append(block)
        names = tuple(self.names[i] for i in indices)
        return Frame(self.builder, tuple(blocks), names, self.sparse, self.declared)

    @property
    def has_sparse_rows(self) -> bool:
        """True if some columns are stored as sparse rows (`ir/csr.py`), as a vectorizer's are."""
        return any(isinstance(block, Value) and block.type.sparse for block in self.blocks)

    def matrix(self, dtype: DType = "float64", rows: Rows = "dense") -> Value:
        """Return all columns as one numeric (n, width) value.

        If `rows` is "dense", sparse rows become dense, and more than MAX_DENSE columns are an
        error. If `rows` is "wide", as for trees, there is no limit. If `rows` is "sparse", sparse
        rows stay sparse.
        """
        value = self.builder.concat([self._convert_block(block, dtype) for block in self.blocks])
        if not value.type.sparse or rows == "sparse":
            return value
        if rows == "dense" and value.type.width > MAX_DENSE:
            raise UnsupportedModelError(
                f"this step reads all {value.type.width} columns of sparse rows, and sqlml makes "
                f"dense rows of at most {MAX_DENSE} columns; fit the vectorizer with fewer words "
                f"(max_features={MAX_DENSE}, n_features=2**12), or use a linear model or trees, "
                "which read sparse rows"
            )
        return self.builder.op("densify", value, fill=0.0)

    def to_value(self) -> Value:
        """Return all columns as one (n, width) value of strings or numbers."""
        strings = [b for b in self.blocks if isinstance(b, Value) and b.type.dtype == "string"]
        if not strings:
            return self.matrix()
        if len(strings) < len(self.blocks):
            raise UnsupportedModelError(
                "the model returns columns of strings and of numbers, which do not form one "
                "matrix; compile one transformer for the strings and one for the numbers, or "
                "encode the strings"
            )
        return self.builder.concat(strings)

    def read_numbers(self, index: int, dtype: DType = "float64") -> Value:
        return self.select([index]).matrix(dtype)

    def makes_strings(self, index: int) -> bool:
        block = self._get_block(index)
        return not isinstance(block, RawColumn) and block.type.dtype == "string"

    def _get_block(self, index: int) -> RawColumn | Value:
        (block,) = self.select([index]).blocks
        return block

    def read_strings(self, index: int) -> Value:
        block = self._get_block(index)
        if isinstance(block, RawColumn):
            return self._read_input(block, "string")
        if block.type.dtype != "string":
            raise UnsupportedModelError(
                f"column {self.names[index]!r} is used as strings, but an earlier step turned it "
                "into numbers"
            )
        return block

    def read_moments(self, index: int) -> Value:
        """Return the dates of column `index` as microseconds since 1970, float64 (n, 1)."""
        return self._read_unchanged(index, "dates", "float64", DATETIME)

    def read_nested(self, index: int, dtype: DType) -> Value:
        """Return column `index` as an (n, 1) value of `dtype`: "list", "map" or "pairs"."""
        return self._read_unchanged(index, f"a {dtype}", dtype)

    def _read_unchanged(self, index: int, use: str, dtype: DType, kind: str | None = None) -> Value:
        block = self._get_block(index)
        if isinstance(block, RawColumn):
            return self._read_input(block, dtype, kind)
        raise UnsupportedModelError(
            f"column {self.names[index]!r} is used as {use}, but an earlier step has changed it"
        )

    def _convert_block(self, block: RawColumn | Value, dtype: DType) -> Value:
        value = self._read_input(block, "float64") if isinstance(block, RawColumn) else block
        if value.type.dtype == "string":
            raise UnsupportedModelError(
                "a column of strings reaches a step that computes with numbers; encode it first"
            )
        return self.builder.cast(value, dtype)

    def _read_input(self, column: RawColumn, dtype: DType, kind: str | None = None) -> Value:
        builder = self.builder
        try:
            return builder.input(column.name, dtype, kind=kind)
        except ProgramError:
            first_kind = builder.input_kind(column.name) or builder.input_dtype(column.name)
            uses = sorted({_USES.get(use, "numbers") for use in (first_kind, kind or dtype)})
            raise UnsupportedModelError(
                f"column {column.name!r} is used both as {uses[-1]} and as {uses[0]}; "
                "give the model two columns"
            ) from None


_USES: Mapping[str | None, str] = {
    "string": "strings",
    DATETIME: "dates",
    "list": "a list",
    "map": "a map",
    "pairs": "a list of pairs",
}


class Outputs:
    """The outputs of a predictor, keyed by the names in `ir.spec.OUTPUTS`, and the label sets."""

    __slots__ = ("label_sets", "values")

    def __init__(
        self, values: Mapping[str, Value], labels: Labels | tuple[Labels, ...] | None = None
    ) -> None:
        self.values: Mapping[str, Value] = values
        self.label_sets: tuple[Labels, ...] = label_sets(labels)

    @property
    def labels(self) -> Labels | None:
        """The labels of a classifier's single target, or None for a regressor."""
        if len(self.label_sets) > 1:
            raise UnsupportedModelError(
                f"the classifier predicts {len(self.label_sets)} targets at once, but only one is "
                "supported here; fit one model per target"
            )
        return self.label_sets[0] if self.label_sets else None


Leaf = Callable[[Any, Frame], Frame | Outputs]
"""An importer: a function from a fitted object and the input columns to the outputs."""
Recurse = Leaf
"""A function that imports one of the objects inside a composite object."""
Composite = Callable[[Any, Frame, Recurse], Frame | Outputs]
"""An importer of an object that contains other objects; it imports these with `Recurse`."""


def expand_paths(text: str) -> Iterator[str]:
    """Yield the dotted paths in `text`; a bare name belongs to the module of the previous path."""
    module = ""
    for path in text.split():
        module, _, name = path.rpartition(".") if "." in path else (module, "", path)
        yield f"{module}.{name}"


def index_by_class(package: str, classes: Mapping[C, str]) -> dict[str, C]:
    """Map each class path in the texts of `classes`, prefixed by `package`, to the text's key."""
    pairs = ((path, value) for value, text in classes.items() for path in expand_paths(text))
    return {f"{package}.{path}": value for path, value in pairs}


ANY_COUNT = -1
"""The `Schema.count` of an object that accepts any number of columns."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The names and the number of the columns that a model reads.

    `names` are in training order, or None if the model was fitted without names. `count` may be
    ANY_COUNT. `default_names` apply if neither the model nor the user gives names.
    """

    names: tuple[str, ...] | None
    count: int
    default_names: tuple[str, ...] | None = None

    @classmethod
    def from_model(cls, model: Any) -> Schema | None:
        """Read `feature_names_in_` or `n_features_in_`; return None if the model has neither."""
        names = getattr(model, "feature_names_in_", None)
        if names is not None:
            return cls(tuple(str(n) for n in names), len(names))
        count = getattr(model, "n_features_in_", None)
        return None if count is None else cls(None, int(count))

    def expand_arrays(self, inputs: Mapping[str, str]) -> Mapping[str, str]:
        """Expand array columns of `inputs`, such as `x FLOAT[3]` to `x_0`, `x_1` and `x_2`.

        Return `inputs` unchanged if it already has `count` names, or the model has no default
        names.
        """
        if self.default_names is None or len(inputs) == self.count:
            return inputs
        columns: dict[str, str] = {}
        for name, sql_type in inputs.items():
            array_type = _ARRAY.fullmatch(sql_type.strip())
            if array_type is None or int(array_type[2]) > MAX_ROW_VALUES:
                columns[name] = sql_type
            else:
                columns |= {f"{name}_{i}": array_type[1] for i in range(int(array_type[2]))}
        return columns


_ARRAY = re.compile(r"([^\[\]]+?)\s*\[(\d{1,9})\]")
"""Matches the SQL type of a fixed-length array; the groups are the element type and the length."""

_KINDS: Mapping[type, LabelKind] = {bool: "bool", int: "int64", float: "float64", str: "string"}


def to_python(values: Iterable[Any]) -> list[Any]:
    """Return a list of `values` with numpy scalars converted to Python objects."""
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def build_labels(classes: Sequence[Any]) -> Labels:
    """Convert a `classes_` array of strings, integers, booleans or floats to Labels."""
    values = to_python(classes)
    for python_type, kind in _KINDS.items():
        if all(type(v) is python_type for v in values):
            if kind == "int64" and not all(-(2**63) <= v < 2**63 for v in values):
                raise UnsupportedModelError(
                    f"class label {max(values, key=abs)} does not fit in a signed 64-bit integer, "
                    "which predict returns; fit the model on smaller labels, or on strings"
                )
            return Labels(kind, tuple(values))
    raise UnsupportedModelError(
        f"class labels must be strings, integers, booleans or floats, not {values[:3]!r}"
    )


def to_category_array(values: Sequence[Any], column: str) -> Array:
    """Convert categories for the operator `encode`: strings to objects, numbers to float64."""
    categories = to_python(values)
    if categories and all(isinstance(v, str) for v in categories):
        return np.array(categories, object)
    if all(isinstance(v, bool | int | float) for v in categories):
        numbers = np.array([float(v) for v in categories], np.float64)
        if np.unique(numbers).size == numbers.size:
            return numbers
    raise UnsupportedModelError(
        f"the categories of column {column!r} are neither strings nor distinct numbers, such as "
        f"{categories[:3]!r}; train on strings"
    )


def look_up_rows(builder: Builder, table: Array, codes: Value) -> Value:
    """Return the row of `table`, (categories, k), for each code in `codes`, (n, 1)."""
    if table.shape[1] == 1:
        return builder.op("take", table[:, 0].copy(), codes)
    return builder.op("reshape", builder.op("take", table, codes), shape=(table.shape[1],))


def encode_columns(
    frame: Frame,
    indices: Iterable[int],
    categorical: Mapping[int, C],
    encode: Callable[[Frame, int, C], Value],
    dtype: DType,
) -> Value:
    """Return the columns `indices` of the frame, in this order, as one (n, width) value.

    If `categorical` has a column index `i`, the column becomes `encode(frame, i, categorical[i])`.
    """
    blocks: list[Value] = []
    for is_categorical, run_indices in groupby(indices, categorical.__contains__):
        if is_categorical:
            blocks += [encode(frame, i, categorical[i]) for i in run_indices]
        else:
            blocks.append(frame.select(list(run_indices)).matrix(dtype))
    return frame.builder.concat(blocks or [frame.select([]).matrix(dtype)])


def encode_categories(
    frame: Frame, i: int, categories: Array, dtype: DType, refuse: str | None = None
) -> Value:
    """Return column `i` as (n, 1) codes 0, 1, ... in the order of `categories`.

    Missing and unknown values become NaN. If `refuse`, the name of a model, is given, an unknown
    value raises an error while scoring.
    """
    op = frame.builder.op
    x = frame.read_strings(i) if categories.dtype == object else frame.read_numbers(i, "float64")
    missing_code = -1 if refuse is None else len(categories)
    codes = op("encode", x, categories=categories, missing=missing_code)
    if refuse is not None:
        codes = op("require_known", codes, feature=frame.names[i], step=refuse)
    is_missing = op("eq", codes, frame.builder.constant(np.array([missing_code], np.int64)))
    nan = frame.builder.constant(np.array([np.nan], dtype))
    return op("where", is_missing, nan, op("cast", codes, dtype=dtype))


@dataclass(frozen=True, slots=True)
class MissingValueRules:
    """The rules of the source library for omitted cells, missing keys and names with blanks.

    `cell` is the value of a cell that a sparse matrix does not store: 0, NaN for XGBoost, or None
    if the value is ambiguous. `separator` is the separator of a DictVectorizer, which reads a
    missing key as 0, or None. `blanks` is true if LightGBM reads a column `my col` as the feature
    `my_col`.
    """

    cell: float | None = None
    separator: str | None = None
    blanks: bool = False
