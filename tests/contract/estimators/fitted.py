"""`Fitted`: a case with its estimator fitted and imported, and how its answers are compared."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

import sqlml
from sqlml.backends import base
from sqlml.errors import BackendError
from sqlml.importers.registry import Imported, import_model
from sqlml.passes import TENSOR_PASSES, run
from sqlml.passes.lower import lower
from sqlml.types import Array
from tests.contract.estimators.case import Case
from tests.support import oracles

METHODS: Mapping[str, str] = MappingProxyType(
    {
        "label": "predict",
        "proba": "predict_proba",
        "score": "decision_function",
        "samples": "score_samples",
        "transform": "transform",
    }
)

TENSORS = tuple(name for name, entry in base.BACKENDS.items() if entry.level == "tensor")


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings: convergence, feature names, division by zero."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Fitted:
    """A case, its fitted estimator, the table it was fitted on, and its Program."""

    case: Case
    model: Any
    table: pd.DataFrame
    imported: Imported

    @classmethod
    def of(cls, case: Case, kind: str | None = None) -> Fitted:
        """Fit and import `case` with class labels of `kind` (default: its first)."""
        table = case.data(case.rows, 0)
        model = case.make()
        with quiet():
            if case.target is None:
                model.fit(case.given(table))
            else:
                target = case.target(table, 1)
                if target.dtype.kind != "f":
                    target = oracles.classes(kind or case.labels[0], target)
                model.fit(table, target)
        return cls(case, model, table, import_model(model))

    @cached_property
    def exact(self) -> tuple[tuple[str, Any], ...]:
        """(name, compiled) of the reference and native backends, as far as they run it."""
        program = self.imported.program
        backends = ((name, base.load_backend(name)) for name in ("reference", "native"))
        return tuple((n, b.compile(program)) for n, b in backends if b.supports(program) is None)

    @cached_property
    def tensors(self) -> tuple[tuple[str, Any], ...]:
        """(name and strategy, compiled) of the tensor backends that run it."""
        program = self.imported.program
        has_trees = any(node.op == "tree_ensemble" for node in program)
        made = []
        for name in TENSORS:
            backend = base.load_backend(name)
            strategies = base.BACKENDS[name].strategies
            for strategy in strategies if has_trees else strategies[:1]:
                if strategy == "fused":
                    continue  # it runs on a GPU alone: tests/gpu
                try:
                    lowered = run(lower(program, strategy), passes=TENSOR_PASSES)
                except BackendError:
                    continue  # this strategy does not suit the trees, and says why
                if backend.supports(lowered) is None:
                    made.append((f"{name} {strategy}", backend.compile(lowered)))
        return tuple(made)

    @cached_property
    def scorer(self) -> sqlml.Scorer:
        """The compiled model: passes, split and native backend."""
        return sqlml.compile(self.model)

    def inputs(self, data: pd.DataFrame) -> dict[str, Array]:
        """`data` as the inputs of the Program."""
        names = [feature.name for feature in self.imported.features]
        return oracles.batch(self.imported.program, data, names)

    def asked(self, data: pd.DataFrame) -> dict[str, Array] | None:
        """What the source answers to each output that the Program has, (n, k); None: it refuses."""
        answers: dict[str, Array] = {}
        with quiet():
            for output in self.imported.program.outputs:
                try:
                    made = getattr(self.model, METHODS[output])(self.case.given(data))
                except ValueError:
                    return None
                answers[output] = flat(made, len(data))
        return answers

    def compare(self, ours: Mapping[str, Array], theirs: Mapping[str, Array], how: str) -> None:
        """Labels equal; numbers within the case's bound, NaN and infinity in the same places."""
        tensors = how not in ("reference", "native", "scorer")
        case, program = self.case, self.imported.program
        for output, want in theirs.items():
            got = ours[output]
            where = f"{case.name}: {output} on {how}"
            assert got.shape == want.shape, where
            if output == "label" and program.labels:
                got = got if how == "scorer" else self.decoded(got)
                same = got == want
                if case.near and not same.all():
                    same |= _undecided(theirs)
                assert same.all(), f"{where}: {got[~same.all(1)][:3]} for {want[~same.all(1)][:3]}"
                continue
            want = want.astype(np.float64)
            if output in case.bits and how in ("reference", "native"):
                np.testing.assert_array_equal(got, want, err_msg=where)
            else:
                bound = case.torch_rtol if tensors else case.rtol
                size = np.abs(want[np.isfinite(want)]).max(initial=0)
                least = max(1e-300, size * bound * 1e-3)
                np.testing.assert_allclose(got, want, rtol=bound, atol=least, err_msg=where)

    def decoded(self, label: Array) -> Array:
        """Class numbers (n, targets) as the labels themselves."""
        assert label.dtype == np.int64
        sets = self.imported.program.labels
        return np.stack([s.array()[label[:, t]] for t, s in enumerate(sets)], axis=1)


def flat(made: Any, rows: int) -> Array:
    """An answer of a method as (rows, k): lists of one array per target side by side."""
    if isinstance(made, list):
        made = np.concatenate(made, axis=1)
    made = made.toarray() if hasattr(made, "toarray") else np.asarray(made)
    return np.asarray(made.reshape(rows, made.size // rows if rows else -1))


def _undecided(theirs: Mapping[str, Array]) -> Array:
    """Rows (n, 1) whose two best classes the source itself tells apart by rounding alone."""
    scores = theirs.get("proba", theirs.get("score"))
    assert scores is not None
    if scores.shape[1] == 1:
        return np.asarray(np.abs(scores) < 1e-9)
    best = np.sort(scores, axis=1)[:, -2:]
    return np.asarray(best[:, 1:] - best[:, :1] <= 1e-9 * np.abs(best[:, 1:]))
