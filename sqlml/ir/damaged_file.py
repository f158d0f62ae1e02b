"""`report_damage` turns the errors that damaged files cause into ArtifactError."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from sqlml.errors import ArtifactError

READING_ERRORS: tuple[type[Exception], ...] = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
)
"""Exceptions of plain Python and numpy for a document of unexpected form."""

ZIP_ERRORS: tuple[type[Exception], ...] = (
    *(EOFError, MemoryError, OSError, RuntimeError, struct.error, zlib.error),
    *(zipfile.BadZipFile, zipfile.LargeZipFile),
)
"""Further exceptions of zipfile. An entry with a password raises RuntimeError."""


@contextmanager
def report_damage(name: str, fix: str, *errors: type[Exception]) -> Iterator[None]:
    """Convert READING_ERRORS and `errors` to an ArtifactError: "NAME is damaged (...); FIX"."""
    try:
        yield
    except (*READING_ERRORS, *errors) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ArtifactError(f"{name} is damaged ({reason}); {fix}") from error
