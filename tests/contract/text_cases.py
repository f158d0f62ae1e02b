"""Programs of one operator of texts or of sparse rows each, for `operator_cases.CASES`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.utf8_column import pack_words

FLOATS = ("float32", "float64")

Make = Callable[[Builder], Value]


def words(*categories: str) -> np.ndarray:
    made = np.empty(len(categories), object)
    made[:] = categories
    return made


def tokens(b: Builder, op: str = "count_tokens", **changes: object) -> Value:
    """Counts of the words of a column without NULLs."""
    texts = b.op("fill", b.input("t", "string"), value="zz b ß \x00a a_1")
    attrs: dict[str, object] = {
        "analyzer": "char",
        "lowercase": True,
        "accents": "",
        "pattern": "",
        "stop_words": words(),
        "min_n": 1,
        "max_n": 2,
        "dtype": "float64",
        "features": ("t",),
        "step": "CountVectorizer",
    }
    if op == "count_tokens":
        data, ends = pack_words(["a", "zz", "b ", "ß", "\udc80", "z", "zz b", "b"])
        attrs |= {"words": data, "ends": ends}
    return b.op(op, texts, **(attrs | changes))


def sparse(op: str = "", dtype: str = "float64", /, **attrs: object) -> Make:
    """An operator of the counts' sparse rows, made dense at the end."""

    def make(b: Builder) -> Value:
        x = tokens(b, dtype=dtype)
        return dense(b, b.op(op, x, **attrs) if op else x)

    return make


def dense(b: Builder, x: Value) -> Value:
    return b.op("densify", x, fill=0.0) if x.type.sparse else x


def counted(op: str, **changes: object) -> Make:
    return lambda b: dense(b, tokens(b, op, **changes))


def beside(b: Builder) -> Value:
    """Sparse rows beside dense ones, some of them zero, and others."""
    numbers = b.op("trunc", b.input("x", "float64", 3))
    return dense(b, b.op("concat", tokens(b), numbers, tokens(b, dtype="float32")))


def sparsified(dtype: str) -> Make:
    return lambda b: dense(b, b.op("sparsify", b.input("x", dtype, 3)))


TWICE = dict(zip(("words", "ends"), pack_words(["z", "b", "z", "zz"]), strict=True))
"""A vocabulary that no vectorizer has: its last "z" counts."""

WORD = {"analyzer": "word", "pattern": r"(?u)\b\w\w+\b"}


CASES: dict[str, list[Make]] = {
    "count_tokens": [
        counted("count_tokens"),
        counted("count_tokens", **WORD, dtype="float32", lowercase=False),
        counted("count_tokens", analyzer="word", pattern=r"[a-z]", stop_words=words("b", "q")),
        counted("count_tokens", analyzer="word", pattern=r"\w+", stop_words=words("zz"), max_n=3),
        counted("count_tokens", analyzer="char_wb", accents="unicode", max_n=5),
        counted("count_tokens", analyzer="whole", accents="ascii", max_n=1),
        counted("count_tokens", **TWICE),
    ],
    "hash_tokens": [
        counted("hash_tokens", width=5, alternate_sign=True),
        counted("hash_tokens", **WORD, width=1000, alternate_sign=False),
        counted("hash_tokens", analyzer="word", pattern="[a-z]", width=3, alternate_sign=True),
    ],
    "scale_stored": [
        sparse("scale_stored", d, factors=np.linspace(-1, 2, 8).astype(f))
        for d in FLOATS
        for f in FLOATS
    ]
    + [sparse("scale_stored", factors=np.array([0.3]))],
    "map_stored": [
        sparse("map_stored", d, function=f)
        for d in FLOATS
        for f in ("one", "sublinear", "positive")
    ],
    "normalise_stored": [
        sparse("normalise_stored", d, norm=n) for d in FLOATS for n in ("l1", "l2")
    ],
    "require_finite_stored": [sparse("require_finite_stored", feature="t", step="Ridge")],
    "densify": [sparse(), sparse("", "float32")],
    "sparsify": [sparsified(d) for d in FLOATS],
}
