"""A conversation for `tests/e2e/test_source_processes.py`, which a child holds as it is told."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator

from sqlml import errors


def talk(word: bytes) -> Generator[bytes, bytes, None]:
    """Do what each word says."""
    said = word
    while True:
        said = yield _done(said)


def _done(what: bytes) -> bytes:
    if what == b"crash":
        os.abort()
    if what == b"hang":
        time.sleep(1000)
    if what == b"fill":
        return bytes(bytearray(1 << 36)[:1])
    if what == b"raise":
        raise errors.ConfigError("no such thing")
    if what == b"print":
        print("a library's own words", flush=True)
        os.write(1, b"from native code")
    if what == b"where":
        return json.dumps([os.getcwd(), os.getpid(), os.environ["TMPDIR"]]).encode()
    return b"did " + what
