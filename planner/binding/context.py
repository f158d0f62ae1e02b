"""The questions that the planner may ask of the engine and the catalog."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sqlml.catalog.model import Model, TrainingFacts
from sqlml.catalog.small_models import FoldFacts, SmallModel
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.parsing.places import Span, overlaps
from sqlml.planner.binding.probe_queries import Describe, ProbeError, Scope, iterate_row_queries
from sqlml.planner.program.cost import ROWS
from sqlml.planner.program.function_spec import FunctionSpec
from sqlml.planner.syntax.outline import Block, ModelCall
from sqlml.planner.syntax.parameters import EngineTypeOf

EstimateRows = Callable[[str], int | None]
"""A function that estimates the row count of a query, or returns None. Raises ProbeError."""


@dataclass(frozen=True, slots=True)
class RowEstimate:
    """The engine's estimate of the number of rows that reach a call.

    An estimate costs several times as much as binding. So the engine is asked only for EXPLAIN, and
    for calls that run in a different way for many rows (`chosen_by`).

    Attributes:
        queries: returns queries with as many rows as reach the call, the most exact first.
        estimate: the engine's answer, or None if the engine has no answer or was not asked.
        chosen_by: whether the number of rows has chosen the call's backend.
    """

    queries: Callable[[], Iterable[str]] = tuple
    was_asked: bool = False
    estimate: int | None = None
    chosen_by: bool = False

    @property
    def count(self) -> int:
        """The estimated number of rows, or a default if the engine has no estimate."""
        return ROWS if self.estimate is None else self.estimate

    @property
    def rounded(self) -> int:
        """The power of ten nearest to the estimate, which stays the same if a table grows slightly.

        >>> [RowEstimate(estimate=n).rounded for n in (1, 3, 4, 250_000, 400_000)]
        [1, 1, 10, 100000, 1000000]
        """
        return int(10 ** round(math.log10(max(1, self.count))))

    def ask_engine(self, estimate_rows: EstimateRows) -> RowEstimate:
        """Return a copy with the engine's answer to the first query that it can bind.

        An estimate of 0 is ignored, since perhaps nothing matches only because calls and parameters
        are NULL in the probe.
        """
        for query in self.queries():
            try:
                estimate = estimate_rows(query)
            except ProbeError:
                continue
            return replace(self, was_asked=True, estimate=estimate or None)
        return replace(self, was_asked=True)


def make_row_estimate(call: ModelCall, scope: Scope) -> RowEstimate:
    """Make the row estimate of a call without asking the engine yet.

    The estimate has no queries if FROM has a parameter, which is NULL in probes and matches no row.
    """
    parameters = [parameter.span for parameter in scope.outline.parameters]
    if parameters and any(overlaps(span, parameters) for span in _iterate_read_spans(scope.block)):
        return RowEstimate()
    where = None if scope.block is None else scope.block.where
    if where is not None and (
        overlaps(where, parameters) or overlaps(where, scope.outline.outer_calls)
    ):
        where = None
    return RowEstimate(partial(iterate_row_queries, scope.block, scope.probed, where))


def _iterate_read_spans(block: Block | None) -> Iterator[Span]:
    while block is not None:
        yield from block.sources
        yield from (cte.span for cte in block.ctes)
        block = block.parent


UniqueKeys = Callable[[str], tuple[frozenset[str], ...]]
"""A function that maps a table, as written, to its unique keys, as sets of folded column names."""

NoColumns = Callable[[bool], str | None]
"""A function that returns why functions cannot take columns, or None if they can.

Its argument says whether to wait until machine code is compiled.
"""

NeedsPython = Callable[[FunctionSpec, Program], str | None]
"""A function that returns why Python scores a function's batches, or None for machine code."""


def _reject_model_per_row(_: str) -> Sequence[str]:
    raise ConfigError("a model per row needs a session")


def _reject_background(*_: Any) -> Program:
    raise ConfigError("background rows need a session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The questions that the planner may ask. An engine without an answer keeps the default.

    Attributes:
        describe: returns names and types of a query's columns without running it.
        models: loads several models together, so that `model` is fast, and returns their stamps
            (`PlanCache`), which are None for unknown models.
        function_type: returns the result type of a user's function, or None for a macro.
        is_repeatable: returns whether a function is known to return the same result for the same
            rows.
        unique_keys: returns the declared keys of a table, or is None if joins are never removed.
        view: returns the query of a view that can be expanded.
        settings: the options that the session has set with `SET sqlml_...`.
        column_name: returns the engine's name for the column of an unnamed expression.
        why_no_columns: returns why functions cannot get columns (`Route`), or None.
        why_python: returns why a function that gets columns still needs Python, or None.
        small_models: returns the small models of a version by kind.
        training: returns how a version was trained, or None if sqlml did not train it.
        held_out: returns the rows that a training held out, as a query in brackets, or None.
        fold_rows: returns the training rows with their folds in a cross-validation, as a query in
            brackets, or None.
        explain_against: runs a query for background rows, and returns a model's Program that
            explains against them. The last argument is the number of pairs of feature orders that
            an estimate samples for each row.
        read_names: runs a query, which may call models, and returns the strings of the column.
        are_disjoint: runs a query, which may call models and returns ranges (first, last), and
            returns whether the ranges do not overlap.
        literal: formats a parameter's value as the engine's SQL.
        known_columns: a cache that maps the SQL of a table form's rows to their column types.
    """

    describe: Describe
    model: Callable[[str], Model]
    is_user_function: Callable[[str], bool]
    models: Callable[[tuple[str, ...]], Mapping[str, object]] = lambda _: {}
    function_type: Callable[[str], str | None] = lambda *_: None
    is_repeatable: Callable[[str], bool] = lambda _: False
    unique_keys: UniqueKeys | None = None
    view: Callable[[str], str | None] = lambda *_: None
    settings: Mapping[str, Any] = field(default_factory=dict)
    estimate_rows: EstimateRows = lambda *_: None
    column_name: Callable[[str], str | None] = lambda *_: None
    type_of: EngineTypeOf = lambda *_: None
    why_no_columns: NoColumns = lambda _: "this engine has no other route"
    why_python: NeedsPython = lambda *_: None
    small_models: Callable[[Model], Mapping[str, SmallModel]] = lambda _: {}
    training: Callable[[Model], TrainingFacts | None] = lambda *_: None
    held_out: Callable[[TrainingFacts], str | None] = lambda *_: None
    fold_rows: Callable[[TrainingFacts, FoldFacts], str | None] = lambda *_: None
    explain_against: Callable[[Model, str, int | None], Program] = _reject_background
    read_names: Callable[[str], Sequence[str]] = _reject_model_per_row
    are_disjoint: Callable[[str], bool] = lambda _: False
    literal: Callable[[Any], str] = str
    is_stored: bool = False
    known_columns: dict[str, Mapping[str, str] | None] = field(default_factory=dict)
    dialect: Dialect = DUCKDB
