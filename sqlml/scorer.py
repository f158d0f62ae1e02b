"""`compile`: a fitted object as a Scorer, outside SQL, with the source library's own methods."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from sqlml.errors import ScoringError
from sqlml.importers.registry import import_model
from sqlml.ir.program import Program
from sqlml.passes.split import PACKED
from sqlml.planner.build import compile_core, prepare
from sqlml.planner.choice import choose
from sqlml.table import Table
from sqlml.types import Array, Feature

BLOCK = 16_384
"""Rows that one task of a thread scores."""

_OPTIONS = ("backend", "strategy", "device", "threads")


class Scorer:
    """A compiled model. Thread-safe and picklable.

    Each method takes a numpy array (columns in training order), a pandas or polars frame, an
    Arrow table or a mapping of columns (by name, case-insensitively), and options that override
    those of `compile`. Which methods work depends on the model, as in the source library.
    """

    def __init__(
        self, program: Program, features: Sequence[Feature], options: Mapping[str, Any]
    ) -> None:
        self.program = program
        self.features = tuple(features)
        self._options = dict(options)

    def __reduce__(self) -> Any:
        return Scorer, (self.program, self.features, self._options)

    @property
    def classes_(self) -> Array:
        """The class labels, (K,), in the model's order.

        Raises:
            AttributeError: the model is no classifier.
        """
        if self.program.labels is None:
            raise AttributeError("this model has no classes")
        return self.program.labels.array()

    def predict(self, X: Any, **options: Any) -> Array:
        """Labels in their own dtype, or regression values as float64: (n,)."""
        result = self._run("label", X, options)[:, 0]
        if self.program.labels is not None:
            if result.size and not (result.min() >= 0 and result.max() < len(self.classes_)):
                raise ScoringError("the model made the index of a label that it does not have")
            return self.classes_[result]
        return result

    def predict_proba(self, X: Any, **options: Any) -> Array:
        """Class probabilities (n, K), in the order of `classes_`."""
        return self._run("proba", X, options)

    def decision_function(self, X: Any, **options: Any) -> Array:
        """Margins: (n,) for two classes or one score, else (n, K)."""
        result = self._run("score", X, options)
        return result[:, 0] if result.shape[1] == 1 else result

    def score_samples(self, X: Any, **options: Any) -> Array:
        """The density or anomaly score of each row: (n,)."""
        return self._run("samples", X, options)[:, 0]

    def transform(self, X: Any, **options: Any) -> Array:
        """The transformed columns: (n, k)."""
        return self._run("transform", X, options)

    def _run(self, output: str, X: Any, options: Mapping[str, Any]) -> Array:
        if output not in self.program.outputs:
            have = ", ".join(self.program.outputs)
            raise AttributeError(f"this model has no output {output!r}; it has {have}")
        chosen = _checked({**self._options, **options})
        table = Table.of(X, self.features)
        layout = table.layout
        prepared = prepare(self.program, output, None, layout)
        choice = choose(prepared.split.core, chosen)
        core = compile_core(prepared.split.core, choice)
        encoders = prepared.split.encoders
        encode = None if encoders is None else compile_core(encoders, choose(encoders, {}))
        dtype = prepared.split.core.input_type(PACKED).dtype

        def score(start: int, stop: int) -> Array:
            part = table.slice(start, stop)
            codes: Mapping[str, Array] = {}
            if encode is not None and encoders is not None:
                codes = encode.run({n: part.strings(n) for n in encoders.inputs})
            packed = part.packed(prepared.split.columns, codes, np.dtype(dtype))
            return core.run({PACKED: packed}, [output])[output]

        threads = chosen.get("threads") or os.cpu_count() or 1
        if choice.device != "cpu" or threads == 1 or table.rows <= BLOCK:
            return score(0, table.rows)
        starts = range(0, table.rows, BLOCK)
        with ThreadPoolExecutor(int(threads)) as pool:
            parts = list(pool.map(lambda s: score(s, min(s + BLOCK, table.rows)), starts))
        return np.concatenate(parts)


def compile(
    model: Any, inputs: Sequence[str] | Mapping[str, str] | None = None, **options: Any
) -> Scorer:
    """Compile a fitted object to a Scorer.

    Args:
        model: any fitted object that the README lists, or a Program.
        inputs: names of the columns, where the object was fitted without.
        options: `backend`, `strategy`, `device` ("auto" each), `threads` (default: all cores).

    Raises:
        UnsupportedModelError: an estimator or parameter that sqlml does not cover.
        TypeError: an unknown option.
    """
    checked = _checked(options)
    if isinstance(model, Program):
        return Scorer(model, model.features, checked)
    imported = import_model(model, inputs)
    return Scorer(imported.program, imported.features, checked)


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"unknown option {name!r}; there are {', '.join(_OPTIONS)}")
    threads = options.get("threads")
    if threads is not None and (type(threads) is not int or threads < 1):
        raise TypeError(f"threads must be a whole number above 0, not {threads!r}")
    return dict(options)
