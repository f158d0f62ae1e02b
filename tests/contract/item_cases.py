"""Programs of one operator of lists, maps or pairs each, for `operator_cases.CASES`."""

from __future__ import annotations

from collections.abc import Callable

from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.sparse_rows import pack_items

ROWS = {
    "list": ['["a", "b", "a", "zz"]', "[]", '["ß", "\\u0000", "", "a"]', '["b"]'],
    "map": ['{"a": 1, "b": "x", "\\u0000": 0}', "{}", '{"ß": NaN, "a": -1e999, "q": 0.1}'],
    "pairs": ['[["a", 1], {"k": "a", "v": 0.1}, ["a", 0.7]]', "[]", '[{"": "b", "": "x"}]'],
}
"""Texts of JSON for an input of each nested dtype."""

Make = Callable[[Builder], Value]


def hash_items(kind: str, **changes: object) -> Make:
    """Sums of the names' weights."""
    attrs = {"kind": kind, "dtype": "float64", "width": 5, "alternate_sign": True} | changes

    def make(b: Builder) -> Value:
        x = b.input("x", kind)
        return b.op("densify", b.op("hash_items", x, feature="x", step="h", **attrs), fill=0.0)

    return make


def has_items(*items: object, dtype: str = "float64") -> Make:
    """Which of the items a row has."""
    words, ends = pack_items(items)
    attrs = {"kind": "list", "dtype": dtype, "feature": "x", "step": "h"}

    def make(b: Builder) -> Value:
        x = b.input("x", "list")
        return b.op("densify", b.op("has_items", x, words=words, ends=ends, **attrs), fill=0.0)

    return make


CASES: dict[str, list[Make]] = {
    "has_items": [
        has_items("b", "a", "\udc80", "\0", "never"),
        has_items("zz", 1, None, 0.5, dtype="float32"),
    ],
    "hash_items": [
        *(hash_items(kind) for kind in ROWS),
        hash_items("map", width=1000, alternate_sign=False, dtype="float32"),
        hash_items("pairs", width=1, dtype="float32"),
    ],
}
