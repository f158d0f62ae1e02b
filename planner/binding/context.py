"""`Context`: what the planner asks of the engine and of the catalog."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sqlml.catalog.model import Model, TrainingFacts
from sqlml.catalog.small_models import SmallModel
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.parsing.places import Span, overlaps
from sqlml.planner.binding.probe_queries import Describe, ProbeError, Scope, Text, row_queries
from sqlml.planner.program.cost import ROWS
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.syntax.outline import Block, ModelCall
from sqlml.planner.syntax.parameters import TypeOf

# `Rows`: how many rows reach a call, as the engine estimates it.
#
# The engine is asked what it would estimate for `SELECT 1 FROM <the call's own FROM>`, with its
# WHERE where no model is called there. It costs several times what binding costs, so it is asked
# only by EXPLAIN, and where the choice of a way to run depends on it.


AskRows = Callable[[str], int | None]
"""The engine's estimate of the rows of a query, or None. Raises ProbeError."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The queries that have as many rows as reach a call, the likeliest first.

    `queries` writes them, since few are ever asked. `estimate` is the engine's, once it was
    `asked`, or None. `chosen_by` says that the way to run rests on it.
    """

    queries: Callable[[], Iterable[str]] = tuple
    asked: bool = False
    estimate: int | None = None
    chosen_by: bool = False

    @property
    def count(self) -> int:
        """The estimate, or what is assumed without one."""
        return ROWS if self.estimate is None else self.estimate

    @property
    def rounded(self) -> int:
        """The nearest power of ten, so that the choice stays as it is while a table grows a bit.

        >>> [Rows(estimate=n).rounded for n in (1, 3, 4, 250_000, 400_000)]
        [1, 1, 10, 100000, 1000000]
        """
        return int(10 ** round(math.log10(max(1, self.count))))

    def ask(self, ask: AskRows) -> Rows:
        """These rows with the engine's estimate.

        An estimate of 0 means that nothing can match, perhaps because of the NULLs that stand for
        calls and parameters, so it is ignored.
        """
        for query in self.queries():
            try:
                estimate = ask(query)
            except ProbeError:
                continue
            return replace(self, asked=True, estimate=estimate or None)
        return replace(self, asked=True)


def rows_of(call: ModelCall, scope: Scope) -> Rows:
    """What to ask for `call`, in its scope.

    Nothing where a parameter stands in FROM: in a probe that is a NULL, which mostly fits no row.
    """
    parameters = [parameter.span for parameter in scope.outline.parameters]
    if parameters and any(overlaps(place, parameters) for place in _read(scope.block)):
        return Rows()
    where = None if scope.block is None else scope.block.where
    if where is not None and (
        overlaps(where, parameters) or overlaps(where, scope.outline.outer_calls)
    ):
        where = None
    return Rows(partial(_queries, scope.block, scope.probed, where))


def _queries(block: Block | None, text: Text, where: Span | None) -> Iterator[str]:
    if where is not None:  # it may name a select item, and then does not bind here
        yield from row_queries(block, text, text(where))
    yield from row_queries(block, text)


def _read(block: Block | None) -> Iterator[Span]:
    """What a block reads: its FROM, all that is around it, and what their WITH clauses define."""
    while block is not None:
        yield from block.sources
        yield from (cte.span for cte in block.ctes)
        block = block.parent


UniqueKeys = Callable[[str], tuple[frozenset[str], ...]]
"""A table as written -> the sets of columns that are declared to be unique, folded."""


NoColumns = Callable[[bool], str | None]
"""Whether to wait for machine code -> why functions cannot take columns; None if they can."""

NeedsPython = Callable[[FunctionSpec, Program], str | None]
"""A function of a Program -> why Python scores its batches; None if machine code does."""


def _nothing(_: Any) -> None:
    """The answer of an engine that cannot say."""


def _unsteady(_: Any) -> bool:
    """The answer of an engine that does not know."""
    return False


def _none(_: Any) -> Mapping[str, Any]:
    """The answer of an engine that has no use for them."""
    return {}


def _packs(_: bool) -> str:
    """The answer of an engine whose functions are all Python's."""
    return "this engine has no other route"


def _unknown(_: FunctionSpec, __: Program) -> None:
    """Nobody asks an engine whose functions are all Python's."""


def _nameless(_: str) -> Sequence[str]:
    """The answer of an engine that runs no query for the planner."""
    raise ConfigError("a model per row needs a session")


def _unexplained(_: Model, __: str, ___: int | None) -> Program:
    """The answer of an engine that runs no query for the planner."""
    raise ConfigError("background rows need a session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The questions that the planner may ask; an engine that cannot answer one leaves it out.

    Attributes:
        describe: names and types of a query's columns, without running it.
        model: the model that a reference in a query means.
        models: reads the models of several references together, for `model` to be quick, and gives
            their stamps (`PlanCache`), as far as one look for all tells; None for an unknown one.
        is_user_function: whether the user has a function of that name.
        function_type: what such a function returns, if it is none of SQL (a macro).
        is_steady: whether a function gives the same for the same rows, as far as is known.
        unique_keys: the declared keys of a table; None if joins are never left out.
        view: the query of a view, if a table of that name is one and can be written out.
        settings: the session's `SET sqlml_..`.
        rows: how many rows the engine expects of a query.
        column_name: how the engine names the column of an unnamed expression.
        type_of: the SQL type of a parameter's value.
        no_columns: why functions cannot take columns (`Route`); None if they can.
        needs_python: why such a function needs Python nevertheless.
        small_models: those that stand before a version, by kind.
        training: how a version was trained; None if sqlml did not train it.
        held_out: the rows that a training held out, as a query in brackets; None without any.
        explained: a model's Program that explains against the rows of a query, which is run, by
            so many pairs of orders for each row, if it has to estimate.
        names: the texts that a query of one column gives; it is run, and may call models.
        literal: a parameter's value as the engine's SQL writes it.
        kept: the engine keeps the statement, as a view or a macro that others may call.
        known_columns: rows, as text -> name and type of their columns; None where these are not
            known. Filled while one statement is planned, since rows may hold others in brackets.
    """

    describe: Describe
    model: Callable[[str], Model]
    is_user_function: Callable[[str], bool]
    models: Callable[[tuple[str, ...]], Mapping[str, object]] = _none
    function_type: Callable[[str], str | None] = _nothing
    is_steady: Callable[[str], bool] = _unsteady
    unique_keys: UniqueKeys | None = None
    view: Callable[[str], str | None] = _nothing
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: AskRows = _nothing
    column_name: Callable[[str], str | None] = _nothing
    type_of: TypeOf = _nothing
    no_columns: NoColumns = _packs
    needs_python: NeedsPython = _unknown
    small_models: Callable[[Model], Mapping[str, SmallModel]] = _none
    training: Callable[[Model], TrainingFacts | None] = _nothing
    held_out: Callable[[TrainingFacts], str | None] = _nothing
    explained: Callable[[Model, str, int | None], Program] = _unexplained
    names: Callable[[str], Sequence[str]] = _nameless
    literal: Callable[[Any], str] = str
    kept: bool = False
    known_columns: dict[str, Mapping[str, str] | None] = field(default_factory=dict)
    dialect: Dialect = DUCKDB
