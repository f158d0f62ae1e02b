"""`report_damage` turns the errors that damaged files cause into ArtifactError."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from sqlml.errors import ArtifactError

READING_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Exceptions that plain Python and numpy raise for a document that a reader does not expect."""

ZIP_ERRORS: tuple[type[Exception], ...] = (
    EOFError,
    MemoryError,
    OSError,
    RuntimeError,  # raised for an entry with a password
    struct.error,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
)
"""Further exceptions of zipfile, for archives whose entries are stored or deflated."""


@contextmanager
def report_damage(name: str, fix: str, *errors: type[Exception]) -> Iterator[None]:
    """Convert READING_ERRORS and `errors` to an ArtifactError: "NAME is damaged (...); FIX"."""
    try:
        yield
    except (*READING_ERRORS, *errors) as error:
        raise ArtifactError(
            f"{name} is damaged ({type(error).__name__}: {error}); {fix}"
        ) from error
