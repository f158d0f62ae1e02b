"""Batches cross as Arrow arrays: slices, chunks, NULLs, wrong types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sqlml.backends.base import ReferenceBackend
from sqlml.errors import InputTypeError, MissingValueError, ScoringError
from sqlml.ir.builder import Builder
from sqlml.udfs.batch_function import BatchFunction, ParkedFailure, claim_error, unpack_rows

pytestmark = pytest.mark.version

KIND = pa.list_(pa.float32(), 2)


def test_a_batch_without_nulls_is_not_copied() -> None:
    packed = pa.array([[1, 2], [3, 4], [5, 6]], KIND)
    matrix = unpack_rows(packed, 2, "float32")
    assert matrix.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert matrix.__array_interface__["data"][0] == packed.values.buffers()[1].address


def test_slices_and_chunks_are_read_where_they_start() -> None:
    packed = pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], KIND)
    assert unpack_rows(packed.slice(1, 2), 2, "float32").tolist() == [[3, 4], [5, 6]]
    chunked = pa.chunked_array([packed.slice(3), packed.slice(0, 1)])
    assert unpack_rows(chunked, 2, "float32").tolist() == [[7, 8], [1, 2]]
    assert unpack_rows(packed.slice(2, 0), 2, "float32").shape == (0, 2)


def test_null_becomes_nan_also_in_a_slice() -> None:
    packed = pa.array([[1, 2], [None, 4], [5, None]], KIND).slice(1)
    np.testing.assert_array_equal(unpack_rows(packed, 2, "float32"), [[np.nan, 4], [5, np.nan]])


@pytest.mark.parametrize(
    "packed",
    [
        pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)),
        pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float32(), 3)),
        pa.array([[1.0, 2.0]], pa.list_(pa.float32())),
        pa.array([1.0, 2.0]),
        pa.array(["a"]),
        pa.array([[1.0, 2.0], None], KIND),
    ],
)
def test_another_type_is_a_typed_error(packed: pa.Array) -> None:
    with pytest.raises(InputTypeError):
        unpack_rows(packed, 2, "float32")


def function(output: str = "label") -> BatchFunction:
    b = Builder()
    x = b.input("x", "float32", 2)
    x = b.op("require_finite", x, features=("a", "b"), allow_nan=False, step="Ridge")
    compiled = ReferenceBackend().compile(b.build({output: b.op("neg", x)}))
    return BatchFunction(compiled, "x", output, 2, "float32", False, 2)


def test_arrow_owns_the_memory_of_a_result() -> None:
    # The engine may release it on a thread that can never have the GIL: the process is ending.
    packed = pa.array(np.zeros((1000, 2), "float32").tolist(), KIND)
    before = pa.total_allocated_bytes()
    result = function()(packed)
    assert pa.total_allocated_bytes() - before >= result.nbytes > 16_000


def test_several_columns_come_back_as_lists() -> None:
    made = function()(pa.array([[1, 2], [3, 4]], KIND))
    assert made.type == pa.list_(pa.float64())
    assert made.to_pylist() == [[-1, -2], [-3, -4]]
    assert function()(pa.array([], KIND)).to_pylist() == []


def test_a_typed_error_can_be_claimed_once_by_its_token() -> None:
    with pytest.raises(ParkedFailure) as caught:
        function()(pa.array([[1, None]], KIND))
    text = f"Invalid Input Error: {caught.value}"
    error = claim_error(text)
    assert isinstance(error, MissingValueError) and "'b'" in str(error)
    assert claim_error(text) is None
    assert claim_error("some other error") is None


def test_a_bug_in_a_backend_becomes_a_scoring_error_with_its_cause() -> None:
    class Broken:
        program = None

        def run(self, inputs: object, outputs: object = None) -> dict[str, np.ndarray]:
            raise ZeroDivisionError("oops")

    broken = BatchFunction(Broken(), "x", "label", 2, "float32", False, 1)
    with pytest.raises(ParkedFailure) as caught:
        broken(pa.array([[1, 2]], KIND))
    error = claim_error(str(caught.value))
    assert isinstance(error, ScoringError) and isinstance(error.__cause__, ZeroDivisionError)


def several(groups: tuple[int, ...], shifts: tuple[int, ...], width: int) -> BatchFunction:
    b = Builder()
    x = b.input("x", "float32", 2)
    kind = "int64" if shifts else "float64"
    made = b.op("select", b.op("cast", x, dtype=kind), indices=np.arange(width) % 2)
    compiled = ReferenceBackend().compile(b.build({"proba": made}))
    return BatchFunction(
        compiled, "x", "proba", 2, "float32", bool(shifts), width, True, groups, shifts
    )


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_several_targets_come_as_lists(rows: int) -> None:
    packed = pa.array([[1, 2], [3, 4], [5, 6]], KIND).slice(0, rows)
    lists = several((1, 2), (), 3)(packed)
    assert lists.type == pa.list_(pa.list_(pa.float64()))
    assert lists.to_pylist() == [[[r[0]], [r[1], r[0]]] for r in packed.to_pylist()]
    numbers = several((), (1, 10), 2)(packed)
    assert numbers.type == pa.list_(pa.int32())
    assert numbers.to_pylist() == [[r[0] + 1, r[1] + 10] for r in packed.to_pylist()]
    single = several((), (), 1)(packed)
    assert single.to_pylist() == [[r[0]] for r in packed.to_pylist()]
