"""Kernels that another process compiles: nobody waits who has a slower way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import sqlml
from sqlml.backends.native import backend
from sqlml.backends.native.backend import REFERENCE_ROWS, NativeBackend
from sqlml.backends.native.jit import code_store, compiled_kernels, runtime_library
from sqlml.backends.native.jit import specialise as jit
from sqlml.backends.native.jit.specialise import Signature, reads, specialise, writes
from sqlml.backends.native.vm.register_machine import compile_machine
from sqlml.backends.no_wait import WAIT, NotReady, no_wait, wait_for_kernels
from sqlml.errors import MissingValueError
from sqlml.ir.builder import Builder

KINDS = (reads("f8", 1), writes("f8", 1))


@pytest.fixture(autouse=True)
def _nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(WAIT, "0")
    monkeypatch.setattr(runtime_library, "find_kernel", lambda function, signature: None)
    for function in (triple, negate):  # Another test of this process may have compiled them.
        jit._COMPILED.pop((function, KINDS), None)


def triple(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = 3 * x[i]


def negate(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = -x[i]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, asked for again and again."""
    for _ in range(1_000):
        try:
            with no_wait():
                return specialise(function, KINDS)
        except NotReady:
            time.sleep(0.02)
    raise AssertionError("it takes more than 20 seconds")


def answer(kernel: Callable[..., Any]) -> float:
    out = np.zeros(1)
    kernel(np.array([2.0]), out)
    return float(out[0])


def test_another_process_compiles_what_need_not_be_waited_for(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(NotReady), no_wait():
            specialise(triple, KINDS)
    assert answer(compiled(triple)) == 6.0
    (kept,) = tmp_path.rglob(f"*.triple-*{code_store.SUFFIX}")
    assert code_store.read(kept.name) is not None, "later processes load it"


def test_who_measures_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    with wait_for_kernels(), no_wait():
        assert answer(specialise(triple, KINDS)) == 6.0
    monkeypatch.setenv(WAIT, "1")
    with no_wait():
        assert answer(specialise(negate, KINDS)) == -2.0


def test_what_no_other_process_finds_is_compiled_here() -> None:
    def inner(x: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = x[i] + 1

    with no_wait():
        assert answer(specialise(inner, KINDS)) == 3.0


@pytest.mark.parametrize("executable", ["", "/nowhere/python", "/bin/false"])
def test_where_no_process_can_be_started_it_is_compiled_here(
    executable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert answer(compiled(negate)) == -2.0


@pytest.mark.nightly
def test_the_reference_scores_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch's rows are scored while its kernel is compiled; the last of them by the kernel."""
    b = Builder()
    x = b.input("x", "float64", 3)
    weights, bias = np.array([[0.5], [2.0], [-1.0]]), np.array([0.25])
    program = b.build({"score": b.op("linear", x, weights=weights, bias=bias)})
    monkeypatch.setattr(jit, "_COMPILED", {})
    rows = np.random.default_rng(0).normal(size=(3 * REFERENCE_ROWS + 5, 3))
    with no_wait():
        made = NativeBackend().compile(program)
        with pytest.raises(NotReady):
            compile_machine()
        by_reference = made.run({"x": rows})["score"]
        none = made.run({"x": rows[:0]})["score"]
        with pytest.raises(NotReady):
            made.filler("score", range(3), 3)
    by_kernel = made.run({"x": rows})["score"]
    assert none.shape == (0, 1) and by_reference.shape == by_kernel.shape
    np.testing.assert_allclose(by_reference, by_kernel, rtol=1e-14)
    np.testing.assert_allclose(by_kernel, rows @ weights + bias, rtol=1e-14)


def test_what_is_refused_is_refused_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    x = b.input("x", "float64", 1)
    checked = b.op("require_finite", x, features=("x",), allow_nan=False, step="model")
    program = b.build({"score": b.op("sigmoid", checked)})
    monkeypatch.setattr(jit, "_COMPILED", {})
    rows = np.zeros((2 * REFERENCE_ROWS, 1))
    with no_wait():
        made = NativeBackend().compile(program)
        assert set(made.run({"x": rows})["score"].ravel()) == {0.5}
        rows[-1] = np.nan
        with pytest.raises(MissingValueError):
            made.run({"x": rows})


@pytest.mark.nightly
def test_kernels_score_as_soon_as_none_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the pause after a vain try is."""
    b = Builder()
    program = b.build({"score": b.op("sigmoid", b.input("x", "float64", 1))})
    monkeypatch.setattr(jit, "_COMPILED", {})
    monkeypatch.setattr(backend, "BACK_OFF_FACTOR", 1e9)
    made = NativeBackend().compile(program)
    until = time.monotonic() + 120
    with no_wait():
        with pytest.raises(NotReady):
            made.filler("score", range(1), 1)
        while time.monotonic() < until:
            with suppress(NotReady):
                assert made.filler("score", range(1), 1) is not None
                return
            time.sleep(0.05)
    raise AssertionError("it takes more than two minutes")


def refuse(function: Callable[..., Any], signature: Signature, name: str) -> None:
    raise NotReady(name)


@pytest.mark.parametrize("rows", [1, 20_000])
def test_a_scorer_does_not_wait(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one row, and of many rows that several threads score."""
    random = np.random.default_rng(1)
    x = random.normal(size=(rows, 3))
    labels = np.array(["no", "yes"])[(random.normal(size=200) > 0).astype(int)]
    model = RandomForestClassifier(5, random_state=0).fit(random.normal(size=(200, 3)), labels)
    monkeypatch.setattr(jit, "_COMPILED", {})
    # No kernel is ever ready, and none is stored while other tests run.
    monkeypatch.setattr(compiled_kernels, "compile_in_background", refuse)
    scorer = sqlml.compile(model)
    np.testing.assert_array_equal(scorer.predict(x), model.predict(x))
    np.testing.assert_allclose(scorer.predict_proba(x), model.predict_proba(x), rtol=1e-14)
    np.testing.assert_allclose(scorer.predict_proba(x.tolist()), model.predict_proba(x), rtol=1e-14)
    assert not any(function.__name__ == "score" for function, _ in jit.list_kernels_in_use())
