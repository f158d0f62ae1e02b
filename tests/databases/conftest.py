"""One server of each database for all tests of a process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.database_connections import INSTALLED, OPEN, Connection


@contextmanager
def opened(name: str) -> Iterator[Connection]:
    """Open a database; the test is skipped where its server or driver is not installed.

    Its folder is none of pytest's: each process of pytest that starts closes the folder above those
    to other users, and a server is another user where the tests run as the administrator.
    """
    with tempfile.TemporaryDirectory(prefix=f"sqlml-{name}-") as folder:
        opening = OPEN[name](Path(folder))
        try:
            connection = opening.__enter__()
        except (FileNotFoundError, ImportError) as error:
            pytest.skip(str(error))
        try:
            yield connection
        finally:
            opening.__exit__(None, None, None)


@pytest.fixture(scope="session", params=INSTALLED)
def database(request: pytest.FixtureRequest) -> Iterator[Connection]:
    with opened(request.param) as connection:
        yield connection
