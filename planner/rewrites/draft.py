"""The draft of a rewritten statement, which each rule passes to the next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.program.prepare_program import SharedParts
from sqlml.planner.rewrites.widened_from import WidenedSource
from sqlml.planner.syntax.outline import (
    CALLS,
    PATCHES,
    Edits,
    ModelCall,
    Outline,
    WidenableSource,
    splice,
)
from sqlml.planner.syntax.parameters import Parameters


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of text with its offset in the user's statement.

    A generated piece (`is_users` is false) has the offset of the replaced table form.
    """

    text: str
    offset: int
    is_users: bool


@dataclass(frozen=True, slots=True)
class ExpandedStatement:
    """A statement with expanded table forms or metrics, which maps offsets back to `statement`.

    If `statement` is itself the text of an `earlier` expansion, the offsets of errors are mapped
    back to the user's statement.
    """

    statement: str
    pieces: tuple[TextPiece, ...]
    earlier: ExpandedStatement | None = None

    @property
    def sql(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    def is_generated(self, offset: int) -> bool:
        """Return whether an offset in `sql` is in generated text instead of the user's text."""
        piece, _ = self._find_piece(offset)
        return piece is not None and not piece.is_users

    def locate_error(self, error: SqlmlError) -> SqlmlError:
        """Return the error with the offset in `sql` converted to one in the user's statement."""
        if error.offset is None or error.sql != self.sql:
            return error
        piece, offset_in_piece = self._find_piece(error.offset)
        offset = len(self.statement)
        if piece is not None:
            offset = piece.offset + (offset_in_piece if piece.is_users else 0)
        located = error.at(self.statement, offset)
        return located if self.earlier is None else self.earlier.locate_error(located)

    def _find_piece(self, offset: int) -> tuple[TextPiece | None, int]:
        """Return the piece at an offset of `sql` (None at the end), and the offset in the piece."""
        for piece in self.pieces:
            if offset < len(piece.text):
                return piece, offset
            offset -= len(piece.text)
        return None, offset


_EMPTY: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A statement, and the decisions of the rules so far.

    A rule returns a new draft. Spans refer to the text of `outline`.

    Attributes:
        parameters: the parameters with their values. The plan consumes some parameters.
        expanded: the statement with expanded table forms, if there were table forms.
        models_of_rows: the models of each call whose rows name models.
        cascades: the small models that calls run first.
        filters: the small models that may filter tables for queries ordered by calls.
        exact_reasons: call that may be approximated -> why the call is exact nevertheless.
        edits: the replacements of spans outside of calls.
        negated_calls: calls whose scores are compared with the opposite sign.
        shared: the outputs that a call computes together with other calls on the same row.
        model_source_of: the FROM clauses that may compute the results of calls.
        row_source_of: the FROM clauses that may pack the numbers of the rows of calls.
        filters_first: filters without model calls run before FROM computes columns.
        widened_sources: the FROM clauses that compute columns.
        call_probes: replacements of calls in probes, where their functions are not registered yet.
        column_aliases: offset -> the name of a column that is inserted there.
        removed_joins: the texts of removed joins, each of which occurs once.
    """

    outline: Outline
    context: Context
    parameters: Parameters
    expanded: ExpandedStatement | None = None
    targets: Mapping[ModelCall, Target] = field(default_factory=dict)
    models_of_rows: Mapping[ModelCall, ModelsOfRows] = field(default_factory=dict)
    cascades: Mapping[ModelCall, Cascade] = field(default_factory=dict)
    filters: Mapping[ModelCall, TopKFilter] = field(default_factory=dict)
    exact_reasons: Mapping[ModelCall, str] = field(default_factory=dict)
    edits: Mapping[Span, str] = field(default_factory=dict)
    negated_calls: frozenset[ModelCall] = frozenset()
    shared: Mapping[ModelCall, SharedParts] = field(default_factory=dict)
    model_source_of: Mapping[ModelCall, WidenableSource] = field(default_factory=dict)
    row_source_of: Mapping[ModelCall, WidenableSource] = field(default_factory=dict)
    filters_first: bool = False
    widened_sources: Mapping[WidenableSource, WidenedSource] = field(default_factory=dict)
    planned: Mapping[ModelCall, PlannedCall] = field(default_factory=dict)
    call_sql: Mapping[ModelCall, str] = field(default_factory=dict)
    call_probes: Mapping[ModelCall, str] = field(default_factory=dict)
    column_aliases: Mapping[int, str] = field(default_factory=dict)
    removed_joins: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The statement before rewriting."""
        return self.outline.sql

    @property
    def dialect(self) -> Dialect:
        return self.context.dialect

    @cached_property
    def nulls(self) -> Mapping[ModelCall, str]:
        """Replacements of calls in probes: NULLs of the calls' types.

        QUALIFY needs a window function. If a call contains one, the replacement contains one, too.
        """
        return {
            call: f"first_value({null}) OVER ()" if call.has_windows else null
            for call, target in self.targets.items()
            for null in [f"CAST(NULL AS {self.dialect.type(target.type)}){target.key}"]
        }

    @cached_property
    def probe_edits(self) -> Edits:
        """Edits for probes: calls and parameters become NULLs of their types."""
        return Edits(self.text, *self.probe_layers)

    @property
    def probe_layers(self) -> tuple[Mapping[Span, str], Mapping[Span, str]]:
        """The layers of `probe_edits`: those of calls, and those of parameters."""
        return {call.span: sql for call, sql in self.nulls.items()}, self.parameters.stand_ins

    @cached_property
    def has_parameters_in_calls(self) -> bool:
        """True if a call contains a parameter, so that the order of parameters may change."""
        parameters = self.outline.parameters
        return any(call.span.contains(p.span) for call in self.targets for p in parameters)

    @cached_property
    def sql(self) -> str:
        """The statement for the engine, available once the calls are planned."""
        return self._remove_joins(self.build_part(self._full_span, self.column_aliases))

    @cached_property
    def probe(self) -> str:
        """The statement as a probe, in which calls and parameters are NULLs of their types."""
        return self._remove_joins(self.build_probe())

    @property
    def without_prefix(self) -> Mapping[Span, str]:
        """The edit that removes a prefix such as INSERT INTO t, so that a query remains."""
        return {} if self.outline.prefix is None else {self.outline.prefix: ""}

    @property
    def shareable_calls(self) -> Mapping[ModelCall, Target]:
        """The calls that may share an evaluation: calls of a single model without a cascade."""
        unshareable = self.cascades.keys() | self.models_of_rows.keys()
        return {call: target for call, target in self.targets.items() if call not in unshareable}

    def with_outline(self, outline: Outline) -> Draft:
        """Return a draft of a changed text with this `outline`, to which no rule is applied yet."""
        parameters = replace(self.parameters, parameters=outline.parameters)
        return replace(self, outline=outline, parameters=parameters)

    def with_expanded(self, expanded: ExpandedStatement, outline: Outline) -> Draft:
        """Return a draft of the expanded text with this `outline`."""
        return replace(self.with_outline(outline), expanded=expanded)

    def list_targets(self, call: ModelCall) -> Collection[Target]:
        """Return the one target of a call, or one target per row-specified model."""
        models_of_call = self.models_of_rows.get(call)
        return [self.targets[call]] if models_of_call is None else models_of_call.targets.values()

    def find_shared(self, call: ModelCall) -> SharedParts:
        """Return the parts that the function of `call` computes for this and other calls."""
        return self.shared.get(call) or SharedParts(parts=(self.targets[call].part,))

    def build_part(self, span: Span, aliases: Mapping[int, str] = _EMPTY) -> str:
        """Return the text at a span for the engine, in which SQL replaces each planned call."""
        return self.collect_edits().apply(span, {Span(at, at): sql for at, sql in aliases.items()})

    def collect_edits(self) -> Edits:
        """Return all edits of the statement, including the calls planned so far."""
        edits = Edits(self.text)
        edits.add({call.span: text for call, text in self.call_sql.items()}, CALLS)
        edits.add(self.edits, PATCHES)
        for widened_source in self.widened_sources.values():
            for layer, layer_edits in widened_source.build_edits(self.filters_first).items():
                edits.add(layer_edits, layer)
        return edits

    def build_probe(
        self, aliases: Mapping[int, str] = _EMPTY, edits: Mapping[Span, str] = _EMPTY
    ) -> str:
        """Return the user's statement as a probe, with additional aliases and edits."""
        edits = {**self.parameters.stand_ins, **edits}
        return splice(self.text, self.nulls, edits, self._full_span, aliases)

    def build_widened_probe(self, edits: Mapping[Span, str]) -> str:
        """Return a probe of the statement in which FROM computes columns."""
        patches = {**self.parameters.stand_ins}
        sources: dict[Span, str] = {}
        for source, widened_source in self.widened_sources.items():
            patches |= widened_source.build_adjustments(self.filters_first)
            sources[source.span] = widened_source.build_probe(self.filters_first)
        calls = {**self.nulls, **self.call_probes}
        patches |= edits
        return splice(self.text, calls, patches, self._full_span, self.column_aliases, sources)

    def binds_alike(self, first_probe: str, second_probe: str) -> bool:
        """Return whether the engine binds two probes of the statement to the same columns."""
        try:
            return self.context.describe(first_probe) == self.context.describe(second_probe)
        except ProbeError:
            return False

    @property
    def _full_span(self) -> Span:
        return Span(0, len(self.text))

    def _remove_joins(self, sql: str) -> str:
        for join in self.removed_joins:
            sql = sql.replace(join, "", 1)
        return sql
