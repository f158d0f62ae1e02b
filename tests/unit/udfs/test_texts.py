"""Texts cross as lists of bytes beside the packed numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sqlml.backends.native.backend import NativeBackend
from sqlml.errors import InputTypeError, MissingValueError, ProgramError
from sqlml.ir import store
from sqlml.ir.builder import Builder, Value
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import pack_words
from sqlml.passes.split import PACKED, split
from sqlml.udfs.batch_function import BatchFunction, ParkedFailure, claim_error, split_text_lists

pytestmark = pytest.mark.version


def counts(b: Builder, name: str) -> Value:
    """How often "a" and "b" stand in a column of texts, as sparse rows."""
    words, ends = pack_words(["a", "b"])
    return b.op(
        "count_tokens",
        b.input(name, "string"),
        analyzer="char",
        lowercase=True,
        accents="",
        pattern="",
        stop_words=np.empty(0, object),
        min_n=1,
        max_n=1,
        dtype="float64",
        features=(name,),
        step="CountVectorizer",
        words=words,
        ends=ends,
    )


def scored() -> Program:
    """Two columns of texts and a number, summed with weights."""
    b = Builder()
    x = b.op("concat", counts(b, "title"), b.input("price", "float64"), counts(b, "x"))
    weights = np.array([[1.0], [10], [100], [1000], [10000]])
    return verify(b.build({"label": b.op("linear", x, weights=weights, bias=np.zeros(1))}))


def test_texts_stay_texts_and_numbers_are_packed() -> None:
    parts = split(scored(), "f32")
    assert parts.texts == ("title", "x") and parts.encoders is None
    assert [c.name for c in parts.columns] == ["price"]
    assert list(parts.core.inputs) == [PACKED, "text0", "text1"]


def function() -> BatchFunction:
    compiled = NativeBackend().compile(split(scored()).core)
    return BatchFunction(compiled, PACKED, "label", 1, "float64", False, 1, texts=2)


NUMBERS = pa.array([[1.0], [2.0], [0.0]], pa.list_(pa.float64(), 1))
TEXTS = [[b"aAb", b""], [b"", "ßb".encode()], [b"long enough to lie outside: b", b"b\0a"]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.binary()),
        pa.large_list(pa.large_binary()),
        pa.list_(pa.binary_view()),
        pa.list_view(pa.binary()),
    ],
)
def test_lists_of_bytes_in_every_layout(kind: pa.DataType) -> None:
    score = function()
    packed = pa.array(TEXTS, kind)
    assert score(NUMBERS, packed).to_pylist() == [112.0, 10200.0, 11010.0]
    sliced = pa.array([[b"bb", b"b"], *TEXTS], kind).slice(1)
    assert score(NUMBERS, sliced).to_pylist() == [112.0, 10200.0, 11010.0]
    chunks = pa.chunked_array([packed.slice(0, 1), packed.slice(1)])
    assert score(NUMBERS, chunks).to_pylist() == [112.0, 10200.0, 11010.0]
    assert score(NUMBERS.slice(0, 0), packed.slice(0, 0)).to_pylist() == []


def test_null_and_other_types_are_typed_errors() -> None:
    score = function()
    with pytest.raises(ParkedFailure) as caught:
        score(NUMBERS.slice(0, 1), pa.array([[b"a", None]], pa.list_(pa.binary())))
    error = claim_error(str(caught.value))
    assert isinstance(error, MissingValueError) and "'x' has NULL" in str(error)
    for wrong in (
        pa.array([["a", "b"]]),
        pa.array([b"a"]),
        pa.array([[b"a"]]),
        pa.array([None], pa.list_(pa.binary())),
    ):
        with pytest.raises(InputTypeError):
            split_text_lists(wrong, 2)


def test_sparse_rows_reach_only_what_takes_them() -> None:
    b = Builder()
    x = counts(b, "t")
    assert x.type.sparse and repr(x.type) == "sparse float64[n,2]"
    for op, attrs in (("neg", {}), ("sum", {"axis": 1}), ("argmax", {"axis": 1})):
        with pytest.raises(ProgramError, match="does not take sparse rows"):
            b.op(op, x, **attrs)
    with pytest.raises(ProgramError, match="densify it"):
        verify(b.build({"transform": x}))
    with pytest.raises(ProgramError, match="sparse rows"):
        b.op("densify", b.op("densify", x, fill=0.0), fill=0.0)
    program = b.build({"transform": b.op("densify", x, fill=0.0)})
    assert store.loads(store.dumps(program)).nodes[1].type == x.type
