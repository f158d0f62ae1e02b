"""The stored form: round trips, and nothing but ArtifactError from damaged or hostile bytes."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sqlml.errors import ArtifactError, ProgramError
from sqlml.ir import reference, store
from sqlml.ir import store as packing
from sqlml.ir.builder import Builder
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.ir.trees import RawTrees, build_ensemble
from sqlml.ir.utf8_column import TextColumn
from sqlml.limits import FORMAT_VERSION
from sqlml.types import Labels


def program() -> Program:
    """A Program with strings, trees, floats that JSON cannot hold, and labels."""
    b = Builder()
    codes = b.op(
        "encode",
        b.op("fill", b.input("plan", "string"), value="it's"),
        categories=np.array(["a", "it's", "Ünï\n"], object),
        missing=-1,
    )
    numbers = b.op("impute", b.input("x", "float64"), fill=np.array([np.inf]), missing=float("nan"))
    raw = RawTrees(
        roots=np.array([0]),
        feature=np.array([0, 0, 1, 0, 0]),
        threshold=np.array([0.5, 0.0, 1.5, 0.0, 0.0]),
        left=np.array([1, 0, 3, 0, 0]),
        right=np.array([2, 0, 4, 0, 0]),
        leaf=np.array([False, True, False, True, True]),
        default_left=np.array([True, False, False, False, False]),
        value=np.array([[0.0], [1.0], [0.0], [2.0], [-3.0]]),
        sets={2: np.array([0, 40])},
    )
    made = build_ensemble(raw, target=np.zeros(1), base=np.array([0.25]), compare="le")
    x = b.op("concat", numbers, b.op("cast", codes, dtype="float64"))
    score = b.op("tree_ensemble", x, **made.attrs())
    return b.build({"score": score}, Labels("string", ("no", "it's")))


def resealed(header: Any, size: int, body: bytes) -> bytes:
    """A file with this header and a right checksum, as an attacker would write it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    blob = (
        struct.pack("<6sHI", store.MAGIC, FORMAT_VERSION, len(text))
        + text
        + struct.pack("<Q", size)
        + body
    )
    return blob + hashlib.sha256(blob).digest()


def parts(blob: bytes) -> tuple[Any, int, bytes]:
    """Header, payload size and compressed payload of a stored Program."""
    _, _, length = struct.unpack_from("<6sHI", blob)
    (size,) = struct.unpack_from("<Q", blob, 12 + length)
    return store.read_header(blob[12 : 12 + length]), size, blob[20 + length : -32]


def test_a_round_trip_keeps_meaning_and_hash() -> None:
    before = program()
    after = store.loads(store.dumps(before))
    assert after.hash == before.hash
    assert str(after.labels) == str(before.labels)
    inputs = {"x": np.array([0.1, 0.9, np.nan]), "plan": np.array(["a", None, "zzz"], object)}
    np.testing.assert_array_equal(
        reference.run(after, inputs)["score"], reference.run(before, inputs)["score"]
    )


def test_the_hash_tells_programs_apart() -> None:
    b = Builder()
    x = b.input("x", "float64")
    one = b.build({"label": b.op("add", x, b.constant(np.array([1.0])))})
    two = b.build({"label": b.op("add", x, b.constant(np.array([2.0])))})
    other = b.build({"score": b.op("add", x, b.constant(np.array([1.0])))})
    assert len({one.hash, two.hash, other.hash}) == 3


def test_every_flipped_byte_is_noticed() -> None:
    blob = store.dumps(program())
    for i in range(0, len(blob), 7):
        with pytest.raises(ArtifactError):
            store.loads(blob[:i] + bytes([blob[i] ^ 0x41]) + blob[i + 1 :])


def test_every_cut_is_noticed() -> None:
    blob = store.dumps(program())
    for i in range(0, len(blob), 11):
        with pytest.raises(ArtifactError):
            store.loads(blob[:i])


def test_a_later_format_asks_for_an_upgrade() -> None:
    blob = bytearray(store.dumps(program()))
    blob[6] = 99
    with pytest.raises(ArtifactError, match="upgrade sqlml"):
        store.loads(bytes(blob))


def test_a_claimed_size_is_not_believed() -> None:
    header, _, body = parts(store.dumps(program()))
    for size in (1 << 62, 1 << 40, len(body) * 33_000 + 1):
        with pytest.raises(ArtifactError, match="claims"):
            store.loads(resealed(header, size, body))


def test_crafted_headers_give_artifact_errors() -> None:
    """Seeded mutations of the JSON header under a right checksum: an error, or a legal Program."""
    header, size, body = parts(store.dumps(program()))
    rng = np.random.default_rng(0)
    junk: list[Any] = [None, -1, 0, 2**70, "x", [], {}, [[]], {"array": ["O", [1], 0]}, 1.5, True]
    junk += [{"array": ["float64", shape, 0, "float64", False]} for shape in ([-1], [1 << 40])]
    junk += [{"array": ["int64", [1], 0, "int8", True]}, {"float": "x"}, "float32", "int8"]
    survived = 0
    for _ in range(1500):
        copy = json.loads(json.dumps(header))
        node: Any = copy
        while True:  # walk to a random place and put junk there
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = keys[rng.integers(len(keys))]
            if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.85:
                node = node[key]
                continue
            node[key] = junk[rng.integers(len(junk))]
            break
        try:
            store.loads(resealed(copy, size, body))
            survived += 1
        except ArtifactError:
            pass
    assert survived < 1000


def test_a_program_cannot_ask_for_boundless_rows() -> None:
    b = Builder()
    code = b.op("encode", b.input("p", "string"), categories=np.array(["a"], object), missing=-1)
    with pytest.raises(ProgramError, match="too many"):
        b.op("one_hot", code, width=10**12, dtype="float64")
    header, size, body = parts(store.dumps(b.build({"transform": code})))
    attrs = {"width": 10**12, "dtype": "float64"}
    header["nodes"].append(["one_hot", [1], attrs, ["float64", [-1, 10**12]]])
    header["outputs"] = [["transform", 2]]
    with pytest.raises(ArtifactError, match="too many"):
        store.loads(resealed(header, size, body))


@pytest.mark.parametrize(
    "header", [b"", b"[]", b"{", b"null", b"[" * 50_000, b'{"nodes": 3}', b"\xff\xfe"]
)
def test_headers_that_are_no_program(header: bytes) -> None:
    with pytest.raises(ArtifactError):
        store.loads(resealed(header, 0, b""))


@pytest.mark.parametrize(
    ("labels", "output"),
    [
        (Labels("string", ()), "int64"),
        (Labels("string", ("a", "a")), "int64"),
        (Labels("string", ("\ud800", "b")), "int64"),
        (Labels("string", ("a", "b")), "float64"),
    ],
)
def test_labels_that_fit_no_classifier_are_refused(labels: Labels, output: str) -> None:
    b = Builder()
    x = b.op("cast", b.input("x", "float64"), dtype=output)
    with pytest.raises(ProgramError, match="label"):
        verify(b.build({"label": x}, labels))


def several(labels: tuple[Labels, ...], label: int, proba: int) -> Program:
    """A classifier with `label` class numbers and `proba` probabilities a row."""
    b = Builder()
    x = b.input("x", "float64")
    outputs = {
        "label": b.op("select", b.op("cast", x, dtype="int64"), indices=np.zeros(label, np.int64)),
        "proba": b.op("select", x, indices=np.zeros(proba, np.int64)),
    }
    return b.build(outputs, labels)


YES_NO, THREE = Labels("string", ("no", "yes")), Labels("int64", (-1, 0, 2**53 + 1))


def test_labels_of_several_targets_survive_and_count_in_the_hash() -> None:
    programs = [
        several((YES_NO, THREE), 2, 5),
        several((YES_NO, YES_NO), 2, 4),
        several((YES_NO, YES_NO), 2, 2),
        several((YES_NO,), 1, 2),
    ]
    for program in programs:
        after = store.loads(store.dumps(verify(program)))
        assert (after.hash, after.labels) == (program.hash, program.labels)
        assert after.target_count == len(program.labels)
    assert len({p.hash for p in programs}) == 4
    assert [p.has_one_probability_per_target for p in programs] == [False, False, True, False]


@pytest.mark.parametrize(
    ("labels", "label", "proba"),
    [
        ((YES_NO, THREE), 1, 5),
        ((YES_NO, THREE), 3, 5),
        ((YES_NO, THREE), 2, 2),  # one probability each needs two classes each
        ((YES_NO, YES_NO), 2, 3),
        ((YES_NO,), 1, 1),
        ((YES_NO, Labels("int64", ())), 2, 2),
        ((YES_NO, Labels("int64", (1, 1))), 2, 4),
    ],
)
def test_labels_that_do_not_fit_the_targets_are_refused(
    labels: tuple[Labels, ...], label: int, proba: int
) -> None:
    program = several(labels, label, proba)
    with pytest.raises(ProgramError, match=r"labels|label"):
        verify(program)
    with pytest.raises(ArtifactError):
        store.loads(store.dumps(program))


def test_an_earlier_format_asks_for_a_new_model() -> None:
    blob = bytearray(store.dumps(program()))
    blob[6] = 1
    with pytest.raises(ArtifactError, match="format 1, which this sqlml no longer reads"):
        store.loads(bytes(blob))


def test_a_broken_frame_under_a_right_checksum() -> None:
    header, size, body = parts(store.dumps(program()))
    for broken in (b"", b"x" * len(body), body[:-3], body[:10] + b"\xff" * 20 + body[30:]):
        with pytest.raises(ArtifactError):
            store.loads(resealed(header, size, broken))


ODD_ARRAYS = {
    "random": np.random.default_rng(0).normal(size=(50, 7)),
    "float32": np.random.default_rng(0).normal(size=300).astype(np.float32),
    "exact in float32": np.random.default_rng(0).normal(size=300).astype(np.float32).astype(float),
    "not quite": np.append(np.ones(99), 1 + 2.0**-52),
    "beyond float32": np.append(np.ones(99), 1e300),
    "subnormal": np.append(np.ones(99), 5e-324),
    "zeros of both signs": np.array([0.0, -0.0] * 40),
    "infinities and NaN": np.array([np.inf, -np.inf, np.nan] * 30),
    "another NaN": np.append(np.ones(64), np.array([0x7FF0000000000001], np.uint64).view(float)),
    "half": np.arange(100, dtype=np.float16),
    "bool": np.arange(100) % 3 == 0,
    "int8": np.arange(-50, 50).astype(np.int8),
    "int8 as int64": np.arange(-128, 128),
    "int16 as int64": np.arange(-129, 128),
    "int32 as int64": np.arange(0, 2**31, 2**20),
    "int64": np.array([-(2**63), 2**63 - 1]),
    "a rising int32": np.arange(100_000, dtype=np.int32),
    "empty": np.zeros((0, 3)),
    "scalar": np.array(2.5),
}


@pytest.mark.parametrize("name", ODD_ARRAYS)
def test_arrays_come_back_bit_for_bit(name: str) -> None:
    array = ODD_ARRAYS[name]
    stored, held, shuffled = packing.pack_array(array)
    back = packing.unpack_array(
        memoryview(stored + b"next"), array.dtype.name, array.shape, held, shuffled
    )
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert not back.flags.writeable
    assert len(stored) <= array.nbytes


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("random", "float64"),
        ("exact in float32", "float32"),
        ("not quite", "float64"),
        ("beyond float32", "float64"),
        ("subnormal", "float64"),
        ("zeros of both signs", "float32"),
        ("another NaN", "float64"),
        ("int8 as int64", "int8"),
        ("int16 as int64", "int16"),
        ("int32 as int64", "int32"),
        ("int64", "int64"),
    ],
)
def test_numbers_are_stored_in_the_narrowest_dtype_that_says_the_same(name: str, held: str) -> None:
    assert packing.pack_array(ODD_ARRAYS[name])[1] == held


def test_shuffling_is_chosen_where_it_pays() -> None:
    assert packing.pack_array(ODD_ARRAYS["a rising int32"])[2]
    assert not packing.pack_array(np.random.default_rng(0).integers(0, 2**62, 1000))[2]
    weights = np.random.default_rng(0).normal(size=(1000, 20))
    b = Builder()
    x = b.input("x", "float64", 20)
    linear = b.op("linear", x, weights=weights.T, bias=np.zeros(1000))
    assert len(store.dumps(b.build({"score": linear}))) < 0.95 * weights.nbytes


def constant_program(array: Any) -> Program:
    """A Program whose only array is `array`, (16, k)."""
    b = Builder()
    x = b.input("x", "float64", 16)
    return b.build({"label": b.op("matmul", x, b.constant(array))})


@pytest.mark.parametrize(
    "change",
    [
        {0: "complex128"},
        {0: "object"},
        {0: "nonsense"},
        {3: "float64"},
        {3: "int8"},
        {3: "object"},
        {3: None},
        {4: 1},
        {4: None},
        {1: [16, 1 << 60]},
        {1: [16, 101]},
        {1: [-16, -100]},
        {1: [16, 100.0]},
        {1: [True, 1600]},
        {2: -1},
        {2: 1 << 70},
        {2: "0"},
        {2: 8},
    ],
    ids=str,
)
def test_an_array_of_a_hostile_file_stays_inside_the_payload(change: dict[int, Any]) -> None:
    array = np.random.default_rng(0).normal(size=(16, 100)).astype(np.float32).astype(np.float64)
    header, size, body = parts(store.dumps(constant_program(array)))
    (entry,) = (n[2]["value"]["array"] for n in header["nodes"] if "value" in n[2])
    assert entry[0] == "float64" and entry[3] == "float32"
    for place, value in change.items():
        entry[place] = value
    with pytest.raises(ArtifactError):
        store.loads(resealed(header, size, body))


def test_widened_arrays_cannot_share_their_bytes_without_end() -> None:
    array = np.random.default_rng(0).integers(0, 9, (16, 100)).astype(np.float64)
    header, size, body = parts(store.dumps(constant_program(array)))
    (node,) = (n for n in header["nodes"] if "value" in n[2])
    header["nodes"] += [node] * 50
    with pytest.raises(ArtifactError, match="arrays overlap"):
        store.loads(resealed(header, size, body))


def test_a_compressed_header_is_checked_before_it_is_read() -> None:
    blob = store.dumps(several((YES_NO,) * 40, 40, 80))
    header, size, body = parts(blob)
    assert blob[12:13] == b"z"
    assert store.loads(resealed(header, size, body)).hash == store.loads(blob).hash
    text = json.dumps(header).encode()
    frame = pa.compress(text, codec="zstd", asbytes=True)
    for claimed in (0, len(text) - 1, len(text) + 1, 2**32 - 1):
        with pytest.raises(ArtifactError):
            store.loads(resealed(b"z" + struct.pack("<I", claimed) + frame, size, body))
    for broken in (b"z", b"z\0\0", b"z" + struct.pack("<I", len(text)) + frame[:-4]):
        with pytest.raises(ArtifactError):
            store.loads(resealed(broken, size, body))


def test_a_payload_of_another_length_is_noticed() -> None:
    header, size, body = parts(store.dumps(program()))
    for claimed in (size - 1, size + 1, size + 1000):
        with pytest.raises(ArtifactError):
            store.loads(resealed(header, claimed, body))


def test_zeros_are_not_taken_for_a_bomb() -> None:
    before = constant_program(np.zeros((16, 1_000_000)))
    assert store.loads(store.dumps(before)).hash == before.hash


def test_a_row_of_nothing_has_no_axis_beyond_what_numpy_counts() -> None:
    b = Builder()
    nothing = b.op("select", b.input("x", "float64"), indices=np.zeros(0, np.int64))
    assert b.op("reshape", nothing, shape=(0, 7)).type.shape == (-1, 0, 7)
    with pytest.raises(ProgramError, match="too many: the limit is"):
        b.op("reshape", nothing, shape=(0, 2**64))


@pytest.mark.parametrize(
    "labels",
    [
        Labels("int64", (0, 1), "TINYINT"),
        Labels("string", ("2026-01-01", "2026-02-01"), "DATE"),
        Labels("string", ("it's", "b"), "ENUM('b', 'it''s', 'c')"),
        Labels("float64", (0.5, 1.5), "DECIMAL(3,1)"),
    ],
)
def test_labels_keep_their_sql_type_which_counts_in_the_hash(labels: Labels) -> None:
    made = several((labels,), 1, 2)
    plain = several((Labels(labels.kind, labels.values),), 1, 2)
    after = store.loads(store.dumps(made))
    assert after.labels == (labels,) and after.hash == made.hash != plain.hash


@pytest.mark.parametrize(
    "labels",
    [
        Labels("int64", (0, 1), "INTEGER[]"),
        Labels("string", ("a", "b"), "INTEGER"),
        Labels("string", ("a", "b"), "VARCHAR); DROP TABLE t; --"),
        Labels("string", ("a", "b"), "ENUM('a', 'b'); --')"),
        Labels("string", ("a", "b"), "ENUM('a' || 'b')"),
        Labels("string", ("a", "b"), 3),  # type: ignore[arg-type]
    ],
)
def test_an_sql_type_that_is_none_of_labels_is_refused(labels: Labels) -> None:
    with pytest.raises(ProgramError, match="cannot be"):
        verify(several((labels,), 1, 2))


def test_labels_of_several_targets_have_no_sql_type() -> None:
    typed = Labels("int64", (0, 1), "TINYINT")
    with pytest.raises(ProgramError, match="no SQL type"):
        verify(several((typed, typed), 2, 4))


def test_the_reference_takes_texts_in_either_form() -> None:
    before = program()
    words = np.array(["a", None, "it's", "zzz"], object)
    inputs = {"x": np.array([0.1, 0.9, np.nan, 1.0])}
    expected = reference.run(before, {**inputs, "plan": words})["score"]
    packed = reference.run(before, {**inputs, "plan": TextColumn.from_values(words)})["score"]  # type: ignore[dict-item]
    np.testing.assert_array_equal(packed, expected)
