"""Compare every estimator with its own library on every backend (`tests/support/oracles.py`).

A case says what to fit (`estimators/`); the oracles say what to score it on. Where the source
raises, so must we; where it answers, the answers must agree.

`estimators/checks.py` has the checks. `make test` runs them on the cases that bring a line of an
importer or an operator that no case before them has (`estimators/tiers.py`); `make nightly` runs
them on the others, and the long ones on all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

import sqlml
from sqlml.importers.sklearn.estimator_table import COMPOSITES, IMPORTERS
from tests.contract.estimators import checks
from tests.contract.estimators.case import Case
from tests.contract.estimators.fitted import Fitted
from tests.contract.estimators.page import PAGE, classes_in, render
from tests.contract.estimators.table import ALL
from tests.contract.estimators.tiers import PLAIN

NO_FRAME = frozenset(
    {
        "sklearn.feature_extraction._dict_vectorizer.DictVectorizer",
    }
)
"""Classes that are not fitted on a table; tests/unit/importers/sklearn/test_text.py has them."""


def test_every_imported_class_has_a_case() -> None:
    assert len({case.name for case in ALL}) == len(ALL)
    covered = {path for case in ALL for path in classes_in(case.make())}
    assert (set(IMPORTERS) | set(COMPOSITES)) - covered == NO_FRAME


@pytest.mark.nightly  # it fits every case
def test_the_page_of_what_is_covered_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run `make docs` and commit docs/operators.md"


@pytest.fixture(scope="module")
def session() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        yield con


def cases(chosen: Iterable[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.name)


@pytest.mark.by_day(4)
@cases(case for case in ALL if case.name not in PLAIN)
def test_estimator(case: Case, session: sqlml.Session, subtests: pytest.Subtests) -> None:
    run(checks.DAILY, case, session, subtests)


@pytest.mark.nightly
@cases(ALL)
def test_the_other_checks(case: Case, session: sqlml.Session, subtests: pytest.Subtests) -> None:
    rest = checks.DAILY if case.name in PLAIN else ()
    run([*rest, *checks.NIGHTLY], case, session, subtests)


def run(
    tier: Iterable[checks.Check], case: Case, session: sqlml.Session, subtests: pytest.Subtests
) -> None:
    fitted = Fitted.of(case)
    for check in tier:
        with subtests.test(check.__name__):
            check(fitted, session)
