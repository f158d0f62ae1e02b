"""The checks that each case goes through: functions of a `Fitted` and a session for queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sqlml
from sqlml.errors import InputTypeError, ScoringError
from sqlml.ir import store
from sqlml.ir.operators.opaque import OWNING_BACKENDS
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.types import NESTED
from sqlml.verifying.ask_library import has_source
from sqlml.verifying.verification import verify_object
from tests.contract.estimators.fitted import METHODS, Fitted, flat, quiet
from tests.support import oracles

Check = Callable[[Fitted, sqlml.Session], None]
Backends = tuple[tuple[str, Any], ...]

AT_RANDOM: Mapping[str, set[str]] = MappingProxyType(
    {"sklearn.neural_network._rbm.BernoulliRBM": {"samples"}}
)
"""Outputs that the source draws at random, so that no two answers agree."""


def agree(fitted: Fitted, data: pd.DataFrame, backends: Backends) -> None:
    """Score `data` on `backends` and compare with the source."""
    inputs = fitted.inputs(data)
    theirs = fitted.asked(data)
    for how, compiled in backends:
        if theirs is None:
            with pytest.raises(ScoringError):
                compiled.run(inputs)
        else:
            fitted.compare(compiled.run(inputs), theirs, how)


def fresh_rows(fitted: Fitted, session: sqlml.Session) -> None:
    program = fitted.imported.program
    assert store.loads(store.dumps(program)).hash == program.hash
    for rows in (400, 1):
        agree(fitted, fitted.case.data(rows, 7), fitted.exact)


def fresh_rows_on_tensors(fitted: Fitted, session: sqlml.Session) -> None:
    for rows in (400, 1):
        agree(fitted, fitted.case.data(rows, 7), fitted.tensors)


def labels_of_every_kind(fitted: Fitted, session: sqlml.Session) -> None:
    if fitted.case.target is None:
        return
    for kind in fitted.case.labels[1:]:
        other = Fitted.of(fitted.case, kind)
        agree(other, fitted.case.data(100, 7), other.exact)


def methods_of_the_source(fitted: Fitted, session: sqlml.Session) -> None:
    offered = {output for output, method in METHODS.items() if hasattr(fitted.model, method)}
    offered -= AT_RANDOM.get(fitted.imported.source, set())
    assert offered == set(fitted.imported.program.outputs)


def no_rows_give_no_rows(fitted: Fitted, session: sqlml.Session) -> None:
    inputs = fitted.inputs(fitted.table.head(0))
    program = fitted.imported.program
    for how, compiled in (*fitted.exact, *fitted.tensors):
        for output, made in compiled.run(inputs).items():
            assert made.shape == (0, program.output_type(output).width), how


def thresholds_and_their_neighbours(fitted: Fitted, session: sqlml.Session) -> None:
    table = fitted.table
    if any(table[c].dtype.kind != "f" for c in table.columns):
        return
    for ensemble in oracles.ensembles(fitted.imported.program)[:3]:
        if ensemble.feature.size and ensemble.feature.max() < table.shape[1]:
            rows = oracles.threshold_rows(ensemble, table.to_numpy(), limit=1000)
            frame = pd.DataFrame(rows, columns=table.columns)
            agree(fitted, frame, (*fitted.exact, *fitted.tensors))


def missing_and_infinite_values(fitted: Fitted, session: sqlml.Session) -> None:
    """Odd values in the columns that the Program looks at, one a row.

    The source is asked once for all rows, then value by value, and row by row only where it refuses
    some of these: one bad row stops a batch.
    """
    table, odd = fitted.table.head(2), (np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e30, -1e30)
    columns = [
        column
        for column in table.columns
        if table[column].dtype.kind == "f" and column in fitted.imported.program.inputs
    ]

    def frame(column: str, value: float) -> pd.DataFrame:
        made = table.copy()
        made.loc[made.index[0], column] = value
        return made

    def check(frames: Sequence[Any]) -> None:
        """Check nested lists of frames, as a whole where the source takes all of them."""
        whole = pd.concat(list(_flat(frames)), ignore_index=True)
        if len(frames) == 1 or fitted.asked(whole) is not None:
            agree(fitted, whole, fitted.exact)
            return
        for part in frames:
            check(part if isinstance(part, list) else [part])

    if columns:
        check([[frame(column, value) for column in columns] for value in odd])


def _flat(frames: Sequence[Any]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield from _flat(frame) if isinstance(frame, list) else [frame]


def other_dtypes_of_the_same_table(fitted: Fitted, session: sqlml.Session) -> None:
    """scikit-learn computes in float32 where a whole frame is; ours stays in float64, so the
    oracle is its answer to the same values in float64."""
    fresh = fitted.case.data(50, 11)
    numeric = [c for c in fresh.columns if fresh[c].dtype.kind == "f"]
    if not numeric:
        return
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


def a_scorer_with_shuffled_columns_and_one_too_many(fitted: Fitted, session: sqlml.Session) -> None:
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


def a_query(fitted: Fitted, session: sqlml.Session) -> None:
    """As the planner chooses: expressions of the engine where that pays, else a function."""
    _query(fitted, session, "auto")


def a_query_by_a_native_function(fitted: Fitted, session: sqlml.Session) -> None:
    if not OWNING_BACKENDS.keys() & {
        n.op for n in fitted.imported.program
    }:  # else another backend runs it
        _query(fitted, session, "native")


def _query(fitted: Fitted, session: sqlml.Session, backend: str) -> None:
    if any(f.kind in NESTED for f in fitted.imported.features):
        return  # tests/e2e/test_lists.py has columns of lists and maps
    fresh = fitted.case.data(60, 13)
    theirs = fitted.asked(fresh)
    assert theirs is not None
    inputs = None if fitted.imported.is_named else list(fresh.columns)
    session.create_model("m", fitted.model, inputs=inputs, or_replace=True, verify=False)
    functions = {f: o[0] if o[0] in theirs else o[-1] for f, o in OUTPUTS_OF.items()}
    asked = {function: output for function, output in functions.items() if output in theirs}
    calls = ", ".join(f"{function}('m', *)" for function in asked)
    session.register("fresh", fresh)
    session.execute(f"SET sqlml_backend = '{backend}'")
    rows = session.execute(f"SELECT {calls} FROM fresh").fetchall()
    made = {
        output: np.array([_values(row[k]) for row in rows])
        for k, output in enumerate(asked.values())
    }
    if fitted.imported.program.has_one_probability_per_target:  # a query tells that of both classes
        made["proba"] = made["proba"][:, 1::2]
    fitted.compare(made, {output: theirs[output] for output in made}, "scorer")


def _values(answer: Any) -> list[Any]:
    """What a query answers of one row, one value behind the other."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return [value for part in answer for value in _values(part)]
    return [answer]


def strings_where_numbers_are_wanted(fitted: Fitted, session: sqlml.Session) -> None:
    numeric = [f.name for f in fitted.imported.program.features if f.kind == "number"]
    if not numeric:
        return
    inputs = fitted.inputs(fitted.table.head(3))
    inputs[numeric[0]] = np.array(["a", "b", "c"], object)
    for _, compiled in (*fitted.exact, *fitted.tensors):
        with pytest.raises(InputTypeError, match="not numbers"):
            compiled.run(inputs)


def nothing_to_complain_of_when_registered(fitted: Fitted, session: sqlml.Session) -> None:
    if has_source(fitted.model):  # else its answers are no measure
        found = verify_object(fitted.model, fitted.imported.program, fitted.imported.features)
        assert found.agrees, found.complaint


def many_rows(fitted: Fitted, session: sqlml.Session) -> None:
    many = fitted.case.data(10_000 if fitted.case.heavy else 100_000, 17)
    theirs = fitted.asked(many)
    assert theirs is not None
    name, native = fitted.exact[-1]
    fitted.compare(native.run(fitted.inputs(many)), theirs, name)


DAILY: tuple[Check, ...] = (
    methods_of_the_source,
    fresh_rows,
    labels_of_every_kind,
    missing_and_infinite_values,
    no_rows_give_no_rows,
    fresh_rows_on_tensors,
    thresholds_and_their_neighbours,
    other_dtypes_of_the_same_table,
    a_scorer_with_shuffled_columns_and_one_too_many,
    strings_where_numbers_are_wanted,
    nothing_to_complain_of_when_registered,
)
"""What a case goes through that brings something new."""

NIGHTLY: tuple[Check, ...] = (a_query, a_query_by_a_native_function, many_rows)
"""What `make nightly` adds for every case."""
