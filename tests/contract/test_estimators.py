"""Every estimator against its own library, by the oracles of `tests/oracles.py`, on every backend.

A case says what to fit (`estimators/`); the oracles say what to score it on. Where the source
raises, so must we; where it answers, the answers must agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sqlml
from sqlml.errors import InputTypeError, ScoringError
from sqlml.importers.sklearn.table import COMPOSITES, IMPORTERS
from sqlml.ir import store
from sqlml.ir.operators.opaque import OWNERS
from sqlml.planner.target import OUTPUTS_OF
from sqlml.types import NESTED
from sqlml.verifying.sources import has_source
from sqlml.verifying.verify import verify_object
from tests import oracles
from tests.contract.estimators.case import Case
from tests.contract.estimators.fitted import METHODS, Fitted, flat, quiet
from tests.contract.estimators.page import PAGE, classes_in, render
from tests.contract.estimators.table import ALL

AT_RANDOM: Mapping[str, set[str]] = MappingProxyType(
    {"sklearn.neural_network._rbm.BernoulliRBM": {"samples"}}
)
"""Outputs that the source draws at random, so that no two answers agree."""

NO_FRAME = frozenset(
    {
        "sklearn.feature_extraction._dict_vectorizer.DictVectorizer",
    }
)
"""Classes that are not fitted on a table; tests/unit/importers/test_sklearn_text.py has them."""


def test_every_imported_class_has_a_case() -> None:
    assert len({case.name for case in ALL}) == len(ALL)
    covered = {path for case in ALL for path in classes_in(case.make())}
    assert (set(IMPORTERS) | set(COMPOSITES)) - covered == NO_FRAME


def test_the_page_of_what_is_covered_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run `make docs` and commit docs/operators.md"


@pytest.fixture(scope="module", params=ALL, ids=lambda case: case.name)
def fitted(request: pytest.FixtureRequest) -> Fitted:
    """One case after the other; pytest runs all tests of a case before it goes on."""
    case: Case = request.param
    return Fitted.of(case)


def check(fitted: Fitted, data: pd.DataFrame, backends: tuple[tuple[str, Any], ...]) -> None:
    """Score `data` on `backends` and compare with the source."""
    inputs = fitted.inputs(data)
    theirs = fitted.asked(data)
    for how, compiled in backends:
        if theirs is None:
            with pytest.raises(ScoringError):
                compiled.run(inputs)
        else:
            fitted.compare(compiled.run(inputs), theirs, how)


def test_fresh_rows_on_every_backend(fitted: Fitted) -> None:
    program = fitted.imported.program
    assert store.loads(store.dumps(program)).hash == program.hash
    for rows in (400, 1):
        data = fitted.case.data(rows, 7)
        check(fitted, data, (*fitted.exact, *fitted.tensors))


def test_labels_of_every_kind(fitted: Fitted) -> None:
    kinds = fitted.case.labels[1:]
    if fitted.case.target is None or not kinds:
        pytest.skip("one kind of labels, or none")
    for kind in kinds:
        other = Fitted.of(fitted.case, kind)
        check(other, fitted.case.data(100, 7), other.exact)


def test_it_offers_the_methods_of_the_source(fitted: Fitted) -> None:
    offered = {output for output, method in METHODS.items() if hasattr(fitted.model, method)}
    offered -= AT_RANDOM.get(fitted.imported.source, set())
    assert offered == set(fitted.imported.program.outputs)


def test_no_rows_give_no_rows(fitted: Fitted) -> None:
    inputs = fitted.inputs(fitted.table.head(0))
    program = fitted.imported.program
    for how, compiled in (*fitted.exact, *fitted.tensors):
        for output, made in compiled.run(inputs).items():
            assert made.shape == (0, program.output_type(output).width), how


def test_thresholds_and_their_neighbours(fitted: Fitted) -> None:
    table = fitted.table
    found = oracles.ensembles(fitted.imported.program)
    if not found or any(table[c].dtype.kind != "f" for c in table.columns):
        pytest.skip("no tree ensemble over numbers")
    for ensemble in found[:3]:
        if ensemble.feature.size and ensemble.feature.max() < table.shape[1]:
            rows = oracles.threshold_rows(ensemble, table.to_numpy(), limit=1000)
            frame = pd.DataFrame(rows, columns=table.columns)
            check(fitted, frame, (*fitted.exact, *fitted.tensors))


def test_missing_and_infinite_values(fitted: Fitted) -> None:
    """Row by row, since one bad row stops a batch; where the Program looks at the column."""
    table = fitted.table
    for column in table.columns:
        if table[column].dtype.kind == "f" and column in fitted.imported.program.inputs:
            for value in (np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e30, -1e30):
                frame = table.head(2).copy()
                frame.loc[frame.index[0], column] = value
                check(fitted, frame, fitted.exact)


def test_other_dtypes_of_the_same_table(fitted: Fitted) -> None:
    """scikit-learn computes in float32 where a whole frame is; ours stays in float64, so the
    oracle is its answer to the same values in float64."""
    fresh = fitted.case.data(50, 11)
    numeric = [c for c in fresh.columns if fresh[c].dtype.kind == "f"]
    if not numeric:
        pytest.skip("no column of numbers")
    variants: list[pd.DataFrame] = [fresh.astype(dict.fromkeys(numeric, np.float32))]
    whole = [c for c in numeric if (fresh[c] == fresh[c].round()).all()]
    flags = [c for c in numeric if fresh[c].isin((0.0, 1.0)).all()]
    variants += [fresh.astype(dict.fromkeys(whole, d)) for d in (np.int64, np.int8) if whole]
    variants += [fresh.astype(dict.fromkeys(flags, bool))] if flags else []
    for data in variants:
        wide = data.astype({c: np.float64 for c in data.columns if data[c].dtype.kind in "biuf"})
        theirs = fitted.asked(wide)
        assert theirs is not None
        for how, compiled in (*fitted.exact, *fitted.tensors):
            fitted.compare(compiled.run(fitted.inputs(data)), theirs, how)


def test_the_scorer_on_shuffled_columns_and_one_too_many(fitted: Fitted) -> None:
    fresh = fitted.case.data(60, 13)
    shuffled = fresh[list(fresh.columns[::-1])].assign(unused="x")
    theirs = fitted.asked(fresh)
    assert theirs is not None
    ours = {}
    for output in fitted.imported.program.outputs:
        made = getattr(fitted.scorer, METHODS[output])(shuffled)
        with quiet():
            want = getattr(fitted.model, METHODS[output])(fitted.case.given(fresh))
        pairs = zip(made, want, strict=True) if isinstance(want, list) else [(made, want)]
        for got, expected in pairs:
            assert np.shape(got) == np.shape(expected), output
        ours[output] = flat(made, len(fresh))
    fitted.compare(ours, theirs, "scorer")


@pytest.fixture(scope="module")
def session() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        yield con


@pytest.mark.parametrize("backend", ["auto", "native"])
def test_the_same_in_a_query(fitted: Fitted, session: sqlml.Session, backend: str) -> None:
    """As expressions of the engine where that pays, and as one function of our own backend."""
    if OWNERS.keys() & {node.op for node in fitted.imported.program} and backend == "native":
        pytest.skip("another backend runs it")
    if any(f.kind in NESTED for f in fitted.imported.features):
        pytest.skip("tests/e2e/test_lists.py has columns of lists and maps")
    fresh = fitted.case.data(60, 13)
    theirs = fitted.asked(fresh)
    assert theirs is not None
    inputs = None if fitted.imported.named else list(fresh.columns)
    session.create_model("m", fitted.model, inputs=inputs, or_replace=True, verify=False)
    functions = {f: o[0] if o[0] in theirs else o[-1] for f, o in OUTPUTS_OF.items()}
    asked = {function: output for function, output in functions.items() if output in theirs}
    session.execute(f"SET sqlml_backend = '{backend}'")
    calls = ", ".join(f"{function}('m', *)" for function in asked)
    session.register("fresh", fresh)
    rows = session.execute(f"SELECT {calls} FROM fresh").fetchall()
    made = {
        output: np.array([_values(row[k]) for row in rows])
        for k, output in enumerate(asked.values())
    }
    if fitted.imported.program.one_probability:  # a query tells that of both classes
        made["proba"] = made["proba"][:, 1::2]
    fitted.compare(made, {output: theirs[output] for output in made}, "scorer")


def _values(answer: Any) -> list[Any]:
    """What a query answers of one row, one value behind the other."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return [value for part in answer for value in _values(part)]
    return [answer]


def test_strings_where_numbers_are_wanted(fitted: Fitted) -> None:
    numeric = [f.name for f in fitted.imported.program.features if f.kind == "number"]
    if not numeric:
        pytest.skip("no column of numbers")
    inputs = fitted.inputs(fitted.table.head(3))
    inputs[numeric[0]] = np.array(["a", "b", "c"], object)
    for _, compiled in (*fitted.exact, *fitted.tensors):
        with pytest.raises(InputTypeError, match="not numbers"):
            compiled.run(inputs)


@pytest.mark.nightly
def test_many_rows(fitted: Fitted) -> None:
    many = fitted.case.data(10_000 if fitted.case.heavy else 100_000, 17)
    theirs = fitted.asked(many)
    assert theirs is not None
    name, native = fitted.exact[-1]
    fitted.compare(native.run(fitted.inputs(many)), theirs, name)


def test_what_registers_it_finds_nothing_to_complain_of(fitted: Fitted) -> None:
    if not has_source(fitted.model):
        pytest.skip("its answers are no measure")
    found = verify_object(fitted.model, fitted.imported.program, fitted.imported.features)
    assert found.agrees, found.complaint
