"""Damage the compiled models of a database, repair the checksums, and score with what is accepted:

    python -m tests.support.forged_models DATABASE RUNTIME SEED COUNT

The process must survive: each statement may only fail with an error of DuckDB. It prints how many
of COUNT contents were accepted, and before each the seed, so that a crash can be repeated.
"""

from __future__ import annotations

import struct
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from sqlml.udfs.duckdb.native.compiled_models import COMPRESSED, compress
from sqlml.udfs.duckdb.native.extension_file import hash_words

HEADER_BYTES = 128
SPECIAL = (0, 1, -1, 2, 7, 8, 63, 64, 255, 2048, 1 << 16, 1 << 31, 1 << 40, 1 << 62, -(1 << 63))
"""Numbers at which sizes and indices may go wrong."""


def damage(content: bytes, rng: np.random.Generator) -> bytes:
    """Return `content` with a few changed numbers or bytes, and the right checksum."""
    changed = bytearray(content)
    words = np.frombuffer(changed, np.int64)
    begins = _find_parts(content)
    for _ in range(int(rng.integers(1, 4))):
        # Most of the bytes are arrays; changes in the other parts are as interesting.
        part = int(rng.integers(len(begins) - 1))
        first, last = begins[part] // 8, max(begins[part] // 8 + 1, begins[part + 1] // 8)
        at = int(rng.integers(first, min(last, words.size)))
        match rng.integers(6):
            case 0:
                words[at] = int(rng.choice(SPECIAL))
            case 1:
                words[at] += int(rng.integers(-3, 4))
            case 2:
                words[at] = words[int(rng.integers(words.size))]
            case 3:
                changed[8 * at + int(rng.integers(8))] = int(rng.integers(256))
            case 4:
                other = int(rng.integers(first, min(last, words.size)))
                words[at], words[other] = words[other], words[at]
            case _:
                halves = np.frombuffer(changed, np.int32)
                halves[2 * at + int(rng.integers(2))] = int(rng.integers(-2, 1 << 16))
    changed[8:16] = struct.pack("<Q", hash_words(bytes(changed[16:])))
    return bytes(changed)


def unpack(content: str) -> bytes:
    """Return the data that `compiled_models.py` compressed and encoded."""
    packed = b64decode(content)
    assert packed.startswith(COMPRESSED)
    (size,) = struct.unpack_from("<q", packed, len(COMPRESSED))
    data: bytes = pa.decompress(packed[16:], size, codec="lz4_raw", asbytes=True)
    return data


def pack_damaged(content: str, rng: np.random.Generator) -> str:
    """Return `content` with damage of the data, or sometimes of the compressed block."""
    if rng.random() < 0.9:
        return b64encode(compress(damage(unpack(content), rng))).decode()
    packed = bytearray(b64decode(content))
    for _ in range(int(rng.integers(1, 4))):
        packed[int(rng.integers(8, len(packed)))] = int(rng.integers(256))
    return b64encode(packed[: int(rng.integers(8, len(packed) + 1))]).decode()


def _find_parts(content: bytes) -> list[int]:
    """Return where the parts of the data begin, in order, and the end."""
    numbers = struct.unpack_from("<12q", content, 16)
    positions = (16, *(numbers[i] for i in (1, 3, 5, 7, 9)), len(content))
    return sorted(min(max(0, position), len(content)) for position in positions)


def list_queries(models: list[str]) -> Iterator[tuple[str, str]]:
    for name in models:
        for function in ("predict", "predict_proba", "transform", "predict_score"):
            for rows in ("t", "t WHERE t.note IS NOT NULL"):
                yield name, f"SELECT {function}('{name}', t) FROM {rows}"


def main(database: str, runtime: str, seed: int, count: int) -> None:
    """Score with `count` damaged contents."""
    rng, accepted = np.random.default_rng(seed), 0
    config = {"allow_unsigned_extensions": "true", "threads": "1"}
    with duckdb.connect(database, config=config) as con:
        con.execute(f"LOAD '{runtime}'")
        contents = dict(con.execute("SELECT key, content FROM sqlml.catalog_compiled").fetchall())
        queries = []
        for name, query in list_queries(sorted(contents)):
            try:
                con.execute(query).fetchall()
            except duckdb.Error:
                continue
            queries.append((name, query))
        assert {name for name, _ in queries} == contents.keys()
        for round_number in range(count):
            name, query = queries[int(rng.integers(len(queries)))]
            content = pack_damaged(contents[name], rng)
            print(f"\r{seed} {round_number} {query}", end="", file=sys.stderr, flush=True)
            con.execute("BEGIN")
            statement = "UPDATE sqlml.catalog_compiled SET content = ? WHERE key = ?"
            con.execute(statement, [content, name])
            try:
                con.execute(query).fetchall()
                accepted += 1
            except duckdb.Error as error:
                message = str(error)
                assert "INTERNAL" not in message, message
            con.execute("ROLLBACK")
    print(accepted)


if __name__ == "__main__":
    path, library, first, number = sys.argv[1:]
    main(str(Path(path)), library, int(first), int(number))
