"""The stored form: round trips, and nothing but ArtifactError from damaged or hostile bytes."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np
import pytest

from sqlml.errors import ArtifactError, ProgramError
from sqlml.ir import reference, store
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.ir.spec import verify
from sqlml.ir.trees import RawTrees, ensemble
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
    made = ensemble(raw, target=np.zeros(1), base=np.array([0.25]), compare="le")
    x = b.op("concat", numbers, b.op("cast", codes, dtype="float64"))
    score = b.op("tree_ensemble", x, **made.attrs())
    return b.build({"score": score}, Labels("string", ("no", "it's")))


def resealed(header: Any, size: int, body: bytes) -> bytes:
    """A file with this header and a right checksum, as an attacker would write it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    blob = struct.pack("<6sHI", store.MAGIC, 1, len(text)) + text + struct.pack("<Q", size) + body
    return blob + hashlib.sha256(blob).digest()


def parts(blob: bytes) -> tuple[Any, int, bytes]:
    """Header, payload size and compressed payload of a stored Program."""
    _, _, length = struct.unpack_from("<6sHI", blob)
    (size,) = struct.unpack_from("<Q", blob, 12 + length)
    return json.loads(blob[12 : 12 + length]), size, blob[20 + length : -32]


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
    for size in (1 << 62, 1 << 40, len(body) * 20_000 + 1):
        with pytest.raises(ArtifactError, match="claims"):
            store.loads(resealed(header, size, body))


def test_crafted_headers_give_artifact_errors() -> None:
    """Seeded mutations of the JSON header under a right checksum: an error, or a legal Program."""
    header, size, body = parts(store.dumps(program()))
    rng = np.random.default_rng(0)
    junk: list[Any] = [None, -1, 0, 2**70, "x", [], {}, [[]], {"array": ["O", [1], 0]}, 1.5, True]
    junk += [{"array": ["float64", [-1], 0]}, {"array": ["float64", [1 << 40], 0]}, {"float": "x"}]
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


def test_a_broken_frame_under_a_right_checksum() -> None:
    header, size, body = parts(store.dumps(program()))
    for broken in (b"", b"x" * len(body), body[:-3], body[:10] + b"\xff" * 20 + body[30:]):
        with pytest.raises(ArtifactError):
            store.loads(resealed(header, size, broken))
