"""Every family of estimators in SQL gives the numbers of its own library, on each backend."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sqlml
from sqlml import errors
from sqlml.types import Array
from tests.e2e import family_zoo, model_zoo
from tests.e2e.family_zoo import FAMILIES

BACKENDS = ("auto", "torch", "onnxruntime")

METHODS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "predict": ("predict",),
        "predict_proba": ("predict_proba",),
        "predict_score": ("decision_function", "score_samples"),
        "transform": ("transform",),
    }
)
"""SQL function -> the library's method; the first one that the model has."""

MARGINS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "catboost": {"prediction_type": "RawFormulaVal"},
        "lightgbm": {"raw_score": True},
        "xgboost": {"output_margin": True},
    }
)
"""How to ask a booster for what predict_score gives."""


@cache
def source(name: str) -> dict[str, Any]:
    """SQL function -> what the library's method says of the rows."""
    entry, made = FAMILIES[name], family_zoo.model(name)
    x = family_zoo.view(family_zoo.rows(entry.unseen), entry)
    answers: dict[str, Any] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for function, methods in METHODS.items():
            method = next((m for m in methods if hasattr(made, m)), None)
            if method is not None:
                found = getattr(made, method)(x)
                answers[function] = found.toarray() if hasattr(found, "toarray") else found
    library = type(made).__module__.split(".")[0]
    if library in MARGINS:
        answers["predict_score"] = made.predict(x, **MARGINS[library])
    return answers


@pytest.fixture(scope="module")
def db() -> Iterator[sqlml.Session]:
    """The rows as table `known`, and with categories that no model has seen as `unseen`."""
    with sqlml.connect(config={"threads": 2}) as con:
        for name, unseen in (("known", False), ("unseen", True)):
            rows = family_zoo.rows(unseen)
            made = model_zoo.arrow(rows).append_column("note", pa.array(rows.note))
            con.register("made", made)
            con.execute(f"CREATE TABLE {name} AS SELECT * FROM made")
            con.unregister("made")
        yield con


def table_of(name: str) -> str:
    return "unseen" if FAMILIES[name].unseen else "known"


def numbers(values: list[Any]) -> Array:
    """DOUBLE, DOUBLE[], MAP and MAP[] values of n rows as an (n, k) array."""

    def flat(value: Any) -> list[float]:
        if isinstance(value, dict):
            return [float(v) for v in value.values()]
        if isinstance(value, list):
            return [number for one in value for number in flat(one)]
        return [float("nan") if value is None else float(value)]

    return np.array([flat(value) for value in values])


def compare(name: str, function: str, got: list[Any], want: Any) -> None:
    """Labels equal, numbers within the bound of the model."""
    where = f"{name}: {function}"
    want = np.concatenate(want, axis=1) if isinstance(want, list) else np.asarray(want)
    if want.dtype.kind != "f" or (function == "predict" and isinstance(got[0], str)):
        labels = want.ravel() if want.ndim == 2 and want.shape[1] == 1 else want
        if labels.dtype.kind != "b" and not isinstance(got[0], bool):
            assert got == labels.tolist(), where
        else:
            assert [int(v) for v in np.ravel(got)] == labels.astype(int).ravel().tolist(), where
        return
    ours, theirs = numbers(got), want.reshape(len(got), -1)
    if isinstance(got[0], list) and function == "predict_proba" and want.shape[1] == len(got[0]):
        theirs = np.stack([1 - theirs, theirs], axis=2).reshape(len(got), -1)  # multilabel
    assert ours.shape == theirs.shape, where
    size = np.abs(theirs[np.isfinite(theirs)]).max(initial=0)
    bound = FAMILIES[name].digits
    np.testing.assert_allclose(ours, theirs, rtol=bound, atol=size * bound * 1e-3, err_msg=where)


def asked(db: sqlml.Session, model: str, table: str, functions: Any) -> list[list[Any]]:
    """The columns of one query that calls each function."""
    calls = ", ".join(f"{function}('{model}', *)" for function in functions)
    rows = db.execute(f"SELECT {calls} FROM {table} ORDER BY id").fetchall()
    return [list(column) for column in zip(*rows, strict=True)]


def cases() -> Iterator[Any]:
    """Every family on the backend that is chosen, and in turn on one of the others by day."""
    for number, name in enumerate(FAMILIES):
        for backend in BACKENDS:
            usual = backend in ("auto", BACKENDS[1 + number % 2])
            yield pytest.param(name, backend, marks=[] if usual else [pytest.mark.nightly])


@pytest.mark.by_day(6)
@pytest.mark.parametrize(("name", "backend"), list(cases()))
def test_all_functions_give_the_numbers_of_the_source(
    db: sqlml.Session, name: str, backend: str
) -> None:
    if backend != "auto":
        pytest.importorskip(backend)
    want = source(name)
    db.create_model("m", family_zoo.model(name), or_replace=True, backend=backend, verify=False)
    columns = asked(db, "m", table_of(name), want)
    for function, column in zip(want, columns, strict=True):
        compare(name, function, column, want[function])
    for function in METHODS.keys() - want.keys():
        with pytest.raises(errors.BindError, match=rf"{function} does not fit model 'm'"):
            asked(db, "m", table_of(name), [function])
