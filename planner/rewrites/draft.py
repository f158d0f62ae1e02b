"""`Draft`: a statement on its way to the engine, as the rules leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from sqlml.catalog.small_models import Cascade, TopKFilter
from sqlml.dialects import Dialect
from sqlml.errors import SqlmlError
from sqlml.parsing.places import Span
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.models_of_rows import ModelsOfRows
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.program.prepare import Shared
from sqlml.planner.rewrites.widened_from import MadeInFrom, Source
from sqlml.planner.syntax.outline import CALLS, PATCHES, Edits, ModelCall, Outline, splice
from sqlml.planner.syntax.parameters import Parameters

# `WrittenOut`: a statement whose table forms are written out, and where its text comes from.


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text, and where it comes from: of the user's own text the place where it begins.

    What we wrote ourselves comes from one place, the form's.
    """

    text: str
    place: int
    own: bool


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """A statement without table forms, which knows its places in the user's `statement`."""

    statement: str
    pieces: tuple[Piece, ...]

    def added(self, offset: int) -> bool:
        """Whether a place of `sql` is in what we wrote: there a call adds its column to rows."""
        for piece in self.pieces:
            if offset < len(piece.text):
                return not piece.own
            offset -= len(piece.text)
        return False

    @property
    def sql(self) -> str:
        """The text of the statement."""
        return "".join(p.text for p in self.pieces)

    def located(self, error: SqlmlError) -> SqlmlError:
        """The error with its place in the user's text."""
        if error.offset is None or error.sql != self.sql:
            return error
        return error.at(self.statement, self._place(error.offset))

    def _place(self, offset: int) -> int:
        for piece in self.pieces:
            if offset < len(piece.text):
                return piece.place + (offset if piece.own else 0)
            offset -= len(piece.text)
        return len(self.statement)


_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What is known about a statement, and what the rules have decided about it so far.

    A rule returns a new draft. Places refer to the text of `outline`.

    Attributes:
        outline: what the statement says.
        context: what the engine and the catalog are asked.
        given: the parameters with their values; some are used up by the plan.
        written_out: the table forms as subqueries, where there were some.
        targets: what each model call computes.
        named: what calls compute whose models the rows name.
        cascades: the small models that calls ask first.
        filters: the small models that may filter tables for the order that calls make.
        exact: why calls that might be approximated are not.
        edits: place -> text, of what changes outside of calls.
        negated: the calls of which the negative is compared.
        shared: what each call computes together with others on the same row.
        models_from, rows_from: the FROM clauses that may make the column of a call's function,
            and the packed numbers of its row.
        filters_first: filters that call no model go below the columns that FROM makes.
        in_from: the FROM clauses that do make columns, with these.
        planned: the calls as they run.
        written: the calls as they go to the engine.
        probes: the calls for the engine's binder, before their functions are registered.
        names: names of columns, by the places after which they go.
        joins: the texts of joins that are left out.
    """

    outline: Outline
    context: Context
    given: Parameters
    written_out: WrittenOut | None = None
    targets: Mapping[ModelCall, Target] = field(default_factory=dict)
    named: Mapping[ModelCall, ModelsOfRows] = field(default_factory=dict)
    cascades: Mapping[ModelCall, Cascade] = field(default_factory=dict)
    filters: Mapping[ModelCall, TopKFilter] = field(default_factory=dict)
    exact: Mapping[ModelCall, str] = field(default_factory=dict)
    edits: Mapping[Span, str] = field(default_factory=dict)
    negated: frozenset[ModelCall] = frozenset()
    shared: Mapping[ModelCall, Shared] = field(default_factory=dict)
    models_from: Mapping[ModelCall, Source] = field(default_factory=dict)
    rows_from: Mapping[ModelCall, Source] = field(default_factory=dict)
    filters_first: bool = False
    in_from: Mapping[Source, MadeInFrom] = field(default_factory=dict)
    planned: Mapping[ModelCall, PlannedCall] = field(default_factory=dict)
    written: Mapping[ModelCall, str] = field(default_factory=dict)
    probes: Mapping[ModelCall, str] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    joins: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The statement that is rewritten."""
        return self.outline.sql

    @property
    def dialect(self) -> Dialect:
        """The engine's SQL."""
        return self.context.dialect

    @cached_property
    def nulls(self) -> Mapping[ModelCall, str]:
        """The calls in probes: NULLs of their types.

        QUALIFY needs a window function, which may be in the arguments of its calls alone.
        """
        return {
            call: f"first_value({null}) OVER ()" if call.windows else null
            for call, target in self.targets.items()
            for null in [f"CAST(NULL AS {self.dialect.type(target.type)}){target.key}"]
        }

    @cached_property
    def probed_parts(self) -> Edits:
        """Parts of the statement in probes: calls and parameters are NULLs of their types."""
        nulls = {call.span: text for call, text in self.nulls.items()}
        return Edits(self.text, nulls, self.given.as_nulls())

    @cached_property
    def has_parameters_in_calls(self) -> bool:
        """Whether a parameter stands inside a call, whose arguments may come in another order."""
        places = self.outline.parameters
        return any(c.span.holds(p.span) for c in self.targets for p in places)

    @cached_property
    def sql(self) -> str:
        """The statement as it goes to the engine, once the calls are planned."""
        return self._without_joins(self.part(Span(0, len(self.text)), self.names))

    @cached_property
    def probe(self) -> str:
        """The statement for the engine's binder: calls and parameters are NULLs of their types."""
        return self._without_joins(self.probed())

    @property
    def shareable(self) -> Mapping[ModelCall, Target]:
        """The calls that may share an evaluation with others: those of one model, and without a
        cascade."""
        alone = self.cascades.keys() | self.named.keys()
        return {c: t for c, t in self.targets.items() if c not in alone}

    def together(self, call: ModelCall) -> Shared:
        """What a call computes together with others: by itself its own part."""
        return self.shared.get(call) or Shared(parts=(self.targets[call].part,))

    def part(self, place: Span, names: Mapping[int, str] = _NONE) -> str:
        """A part of the statement as it goes to the engine, with the calls planned so far."""
        return self.parts().text(place, {Span(at, at): name for at, name in names.items()})

    def parts(self) -> Edits:
        """Parts of the statement as they go to the engine, with the calls planned so far."""
        edits = Edits(self.text)
        edits.put({call.span: text for call, text in self.written.items()}, CALLS)
        edits.put(self.edits, PATCHES)
        for made in self.in_from.values():
            for layer, texts in made.texts(self.filters_first).items():
                edits.put(texts, layer)
        return edits

    def probed(self, names: Mapping[int, str] = _NONE, edits: Mapping[Span, str] = _NONE) -> str:
        """The statement as the user wrote it, for the engine's binder."""
        whole, edits = Span(0, len(self.text)), {**self.given.as_nulls(), **edits}
        return splice(self.text, self.nulls, edits, whole, names)

    def probed_with_columns(self, edits: Mapping[Span, str]) -> str:
        """The statement with the columns that FROM makes, for the engine's binder."""
        made = {source.span: m.probe(self.filters_first) for source, m in self.in_from.items()}
        edits = {**self.given.as_nulls(), **self._beside_columns(), **edits}
        whole = Span(0, len(self.text))
        return splice(self.text, {**self.nulls, **self.probes}, edits, whole, self.names, made)

    def without_join(self, join: str) -> Draft:
        """The statement without a join, whose text is in it once."""
        return replace(self, joins=(*self.joins, join))

    def _beside_columns(self) -> dict[Span, str]:
        """Place -> text, where FROM makes columns: stars without them, filters below."""
        edits: dict[Span, str] = {}
        for made in self.in_from.values():
            edits |= made.edits(self.filters_first)
        return edits

    def _without_joins(self, sql: str) -> str:
        for join in self.joins:
            sql = sql.replace(join, "", 1)
        return sql
