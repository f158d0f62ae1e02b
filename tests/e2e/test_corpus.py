"""Every query of tests/golden/sql/scored gives what the library's own scores give in its place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import duckdb
import pytest

import sqlml
from tests.e2e.corpus import Case, cases, check_only_calls_changed, check_same, is_ordered
from tests.e2e.corpus_shop import Shop, make_databases, make_shop

CASES = cases()


@pytest.fixture(scope="module")
def shop() -> Shop:
    return make_shop()


@pytest.fixture(scope="module")
def files(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_databases(shop, tmp_path_factory.mktemp("corpus"))


@contextmanager
def opened(
    files: tuple[Path, Path], folder: Path
) -> Iterator[tuple[sqlml.Session, duckdb.DuckDBPyConnection]]:
    """Both databases, as copies in `folder`."""
    copies = [Path(shutil.copy(file, folder)) for file in files]
    with sqlml.connect(copies[0]) as con, duckdb.connect(copies[1]) as plain:
        for each in (con, plain):
            each.execute("SET threads = 1")
        yield con, plain


@pytest.fixture(scope="module")
def both(
    files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[sqlml.Session, duckdb.DuckDBPyConnection]]:
    with opened(files, tmp_path_factory.mktemp("read")) as connections:
        yield connections


def _marked(case: Case) -> object:
    marks = [pytest.mark.xfail(strict=True, reason=case.known)] if case.known else []
    if not case.runs:
        marks = [pytest.mark.skip(reason=f"needs DuckDB {case.since}")]
    return pytest.param(case, id=f"{case.file}: {case.name}", marks=marks)


@pytest.mark.by_day(6)
@pytest.mark.parametrize("case", list(map(_marked, CASES)))
def test_a_query_gives_what_the_librarys_scores_give(
    case: Case,
    shop: Shop,
    files: tuple[Path, Path],
    both: tuple[sqlml.Session, duckdb.DuckDBPyConnection],
    tmp_path: Path,
) -> None:
    if not case.writes:
        _check(case, shop, *both, tmp_path)
        return
    with opened(files, tmp_path) as connections:
        _check(case, shop, *connections, tmp_path)


def _check(
    case: Case, shop: Shop, con: sqlml.Session, plain: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    if case.rows:
        shop.score_given(plain, case.rows)
    if not case.writes:
        relation = con.sql(case.query, params=case.parameters)
        plain.execute(case.expect, case.expected_parameters)
        check_same(relation, plain, is_ordered(case.expect))
        plan = con.plan(case.query, case.parameters)
        if plan is not None and not plan.dropped_joins:
            check_only_calls_changed(plan)
        return
    outcome = case.then if "RETURNING" not in case.query else ""
    for name, each, query, values in (
        ("sqlml", con, case.query, case.parameters),
        ("plain", plain, case.expect, case.expected_parameters),
    ):
        (folder / name).mkdir()
        with chdir(folder / name):  # files that the statements write
            if case.setup:
                each.execute(case.setup)
            each.execute(query, values)
            if outcome:
                each.execute(outcome)
    check_same(con, plain, is_ordered(outcome or case.expect))
    if case.then and not outcome:
        con.execute(case.then)
        plain.execute(case.then)
        check_same(con, plain, is_ordered(case.then))


def test_the_corpus_is_large_and_its_cases_differ() -> None:
    assert len(CASES) >= 300
    assert len({(c.file, c.name) for c in CASES}) == len(CASES)
    assert len({" ".join(c.query.split()) for c in CASES}) == len(CASES)
