"""Generated statements of DuckDB's own do through a Session what they do on a plain connection.

A failure prints its seed; ``python -m tests.generated.engine SEED`` runs that one alone.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from tests.generated.dice import Dice
from tests.generated.engine import LENGTH, NAME, difference, make_database
from tests.generated.engine_grammar import text

SAMPLE = range(6)
MANY = [range(start, start + 20) for start in range(6, 406, 20)]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engine") / NAME
    make_database(path)
    return path


def test_a_sample_of_statements(database: Path) -> None:
    check(database, SAMPLE)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", MANY, ids=str)
def test_many_statements(database: Path, seeds: range) -> None:
    check(database, seeds)


def check(database: Path, seeds: range) -> None:
    """Each seed stands for LENGTH statements, up to the first that differs."""
    found = [d for seed in seeds if (d := difference(database, seed, LENGTH))]
    assert not found, "\n".join(map(str, found))


KINDS = frozenset(
    "SELECT INSERT UPDATE DELETE MERGE_INTO CREATE DROP ALTER COPY EXPORT ATTACH DETACH "
    "TRANSACTION SET PREPARE EXECUTE EXPLAIN PRAGMA CALL VACUUM".split()
)


def test_the_seeds_reach_every_kind_of_statement() -> None:
    found: set[str] = set()
    for seed in range(60):
        dice = Dice(seed)
        for _ in range(LENGTH):
            with suppress(duckdb.Error):
                found |= {s.type.name for s in duckdb.extract_statements(text(dice))}
    assert found >= KINDS
