"""One server of each database for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases.connections import OPEN, Connection


@pytest.fixture(scope="session", params=OPEN)
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    with OPEN[request.param](tmp_path_factory.mktemp(request.param)) as made:
        yield made
