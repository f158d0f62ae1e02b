"""`reading`: what a reader of files stumbles over, when its file is damaged, as ArtifactError."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from sqlml.errors import ArtifactError

STUMBLES: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What plain Python and numpy raise on a document that is not what a reader expects."""

ZIP_STUMBLES: tuple[type[Exception], ...] = (
    EOFError,
    MemoryError,
    OSError,
    RuntimeError,  # of an entry with a password
    struct.error,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
)
"""Other exceptions of zipfile, for archives whose entries are stored or deflated."""


@contextmanager
def reading(what: str, fix: str, *more: type[Exception]) -> Iterator[None]:
    """Code that reads `what`; `more` are exceptions of the libraries that it reads with.

    Errors of our own pass.

    Raises:
        ArtifactError: `what` is damaged; the message ends with `fix`.
    """
    try:
        yield
    except (*STUMBLES, *more) as error:
        raise ArtifactError(
            f"{what} is damaged ({type(error).__name__}: {error}); {fix}"
        ) from error
