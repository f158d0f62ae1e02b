"""One server of each database for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.database_connections import INSTALLED, OPEN, Connection


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Connection]:
    """A database; the test is skipped where its server or driver is not installed."""
    way = OPEN[name](folder)
    try:
        connection = way.__enter__()
    except (FileNotFoundError, ImportError) as error:
        pytest.skip(str(error))
    try:
        yield connection
    finally:
        way.__exit__(None, None, None)


@pytest.fixture(scope="session", params=INSTALLED)
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    with opened(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made
