"""The outline of a SQL statement: its calls, queries and parameters, with their spans in the text.

`read_outline.py` builds it once from sqlglot's tree; the rest of the planner never parses SQL
itself. `splice` and `Edits` rewrite the text and leave everything else byte for byte.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.parsing.places import Span, find_outermost


@dataclass(frozen=True, slots=True)
class Cte:
    """A definition `name AS (...)` of a WITH clause."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a SELECT list.

    Attributes:
        name: the item's alias, or None if the item has no alias.
        may_expand: the item may produce several columns.
        accepts_volatile: the engine accepts a volatile function in the item, since no other part of
            the query uses the item's name.
        is_named: AS or `name: expression` names the item, so that other clauses may use the name.
    """

    span: Span
    name: str | None = None
    may_expand: bool = False
    accepts_volatile: bool = True
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class WidenableSource:
    """The only table, file or named subquery in a block's FROM, if a column can be added to it.

    Only the block's stars select such a column, and each of these stars can exclude it.

    Attributes:
        alias: the name of the source, as SQL.
        stars: the stars of the block that have no EXCLUDE list.
        exclude_lists: the opening brackets of the EXCLUDE lists of the block's other stars.
        filters: the conditions in WHERE, combined by AND, that call no model.
        aggregates: the names of the functions that aggregate the source's rows if, except for
            rounding, the block's result does not depend on their order, or else None.
    """

    span: Span
    alias: str
    stars: tuple[Span, ...]
    exclude_lists: tuple[Span, ...]
    aggregates: frozenset[str] | None
    filters: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """The tables and names that a SELECT, UPDATE, DELETE, INSERT or MERGE sees at some point.

    Attributes:
        sources: the tables in scope. An ON does not see later joins, and a LATERAL does not see
            tables to its right.
        items: the SELECT list.
        filters: the operands of the ANDs in `where`, if they are evaluated independently.
        names: the folded aliases of select items, including the items of a pipe step.
        ctes: the definitions in the block's WITH clause that are in scope.
        is_lateral: the block is in the parent's FROM clause.
        is_chain: the block reads the result of a query instead of tables. `sources` is that query:
            the UNION before an ORDER BY, or the earlier steps of a pipe.
        name: the name of that query's result.
        joins: the joins after the sources: the joins of a pipe, or the join that contains the ON.
        excluded_table: the table's name in ON CONFLICT, where `excluded` names the new row.
        changed_table: the name of a table whose row may be missing, in ON CONFLICT and in MERGE.
        merge_condition: the condition of a MERGE whose target rows may match no source row.
        output: `Surroundings.output` of the calls in the block's output.
        is_half_join: the last join is a SEMI or ANTI JOIN, whose condition sees both sides.
        literal_keys: the literals that are keys of ROLLUP, CUBE or GROUPING SETS. DuckDB replaces
            equal literals everywhere in the SELECT list, even in SQL that sqlml wrote.
    """

    span: Span
    sources: tuple[Span, ...] = ()
    window: Span | None = None
    items: tuple[Item, ...] = ()
    where: Span | None = None
    group: Span | None = None
    filters: tuple[Span, ...] = ()
    names: frozenset[str] = frozenset()
    ctes: tuple[Cte, ...] = ()
    is_recursive: bool = False
    parent: Block | None = field(default=None, compare=False)
    is_lateral: bool = False
    is_chain: bool = False
    name: str = "sqlml_chain"
    joins: tuple[Span, ...] = ()
    excluded_table: Span | None = None
    changed_table: Span | None = None
    merge_condition: Span | None = None
    output: Span | None = None
    is_half_join: bool = False
    literal_keys: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter `?`, `$1`, `$name` or (Spark) `:name`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """An expression that names the model of each row, as in `predict(shop_model, *)`."""

    span: Span


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, string, boolean or NULL, as written.

    Attributes:
        kind: "number", "string", or "word" for TRUE, FALSE and NULL.
        text: the content of a string, a number without its sign, or a word in upper case.
    """

    kind: str
    text: str
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Star:
    """A star `*`, `t.*` or `[*|t.]COLUMNS(...)`, with EXCLUDE, REPLACE and RENAME.

    Attributes:
        select: the span of the text that selects the star's columns in a SELECT list.
        qualifier: the span of the `t.` before the star.
        excluded: the folded names in EXCLUDE, with a qualifier if they are written with one.
        replaced: folded name -> expression, as in `REPLACE (expression AS name)`.
        renamed: new folded name -> column, as in `RENAME (column AS name)`.
    """

    select: Span
    qualifier: Span | None
    excluded: frozenset[str]
    replaced: Mapping[str, Span]
    renamed: Mapping[str, Span]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a model call after the model: `value` or `name := value`.

    The fields from `literal` on describe the value. Fields that do not apply are None.

    Attributes:
        span: the span of the value.
        name_start: the offset of the argument, including its name.
        fields: the name and value span of each field in `{'a': x, 'b': y}`.
        column: the folded name of a bare or qualified column, without its qualifier.
        items: the elements of a list `[x, y]`.
    """

    span: Span
    name: str | None = None
    name_start: int = 0
    literal: Literal | None = None
    parameter: Parameter | None = None
    star: Star | None = None
    fields: tuple[tuple[str, Span], ...] | None = None
    column: str | None = None
    items: tuple[Argument, ...] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a call with one number, or with two by BETWEEN.

    Attributes:
        bounds: triples of an operator, a number and the number's span. The operator is the one for
            the call on the left side.
        operator_span: the span of the operator, or None for BETWEEN.
        is_reversed: the call is written on the right side of the operator.
    """

    bounds: tuple[tuple[str, Literal | Parameter, Span], ...]
    operator_span: Span | None = None
    is_reversed: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A literal in brackets after a call, such as `[1]` or `['yes']`."""

    span: Span
    literal: Literal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Surroundings:
    """The place of an expression in a statement.

    Attributes:
        clause: the keyword of the expression's clause in the innermost query, or "".
        items: the select items around the expression, innermost first.
        depth: the number of calls and brackets around the expression.
        queries: the number of queries around the expression.
        must_be_stable: the engine accepts no volatile function there: in TRY, in PARTITION BY and
            ORDER BY of a window, or in an ordered DISTINCT aggregate.
        output: the span of the outermost query with the expression in its output, or None. The
            output of a query is everything but FROM and WHERE.
        is_always_evaluated: the clause evaluates the expression for each row.
        in_definition: the expression is in the definition of a table.
        in_unused_cte: the expression is in a CTE whose name occurs nowhere else.
    """

    block: Block | None = None
    clause: str = ""
    items: tuple[Item, ...] = ()
    depth: int = 0
    queries: int = 0
    in_try: bool = False
    must_be_stable: bool = False
    output: Span | None = None
    is_always_evaluated: bool = True
    in_definition: bool = False
    in_unused_cte: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ModelCall(Surroundings):
    """A call `function(model, arguments...)` and its surroundings.

    Attributes:
        span: the span of the call, including the `key` if the call has one.
        model: the name of the model, or the parameter or column that holds the name.
        written_arguments: the arguments as written, without blanks and comments.
        identifiers: the folded identifiers in the arguments.
        local_names: the spans in the call that read variables of a lambda, comprehension or macro,
            including fields of the variables.
        has_local_names: such variables are in scope, even if the call does not read them.
        has_windows: the call is in QUALIFY, and its arguments contain window functions.
        is_source: the call is used in FROM as a table.
        baseline: the call also returns the baseline of the contributions.
        standard_errors: the call returns standard errors instead of the contributions.
        background: the span of the query of background rows, including its brackets.
        permutations: the number of pairs of feature orders that an estimate samples for each
            background row.
        skips_unknown: a row whose model is unknown yields NULL instead of an error.
        coverage: the requested coverage of a prediction interval or set, or None for the default.
        trees: the number of the first boosting iterations or trees to score with, or None for all.
    """

    function: str
    span: Span
    model: str | Parameter | ModelColumn
    model_span: Span
    arguments: tuple[Argument, ...]
    written_arguments: tuple[tuple[str | None, str], ...]
    identifiers: frozenset[str]
    class_argument: Argument | None = None
    local_names: tuple[Span, ...] = ()
    has_local_names: bool = False
    has_windows: bool = False
    is_source: bool = False
    comparison: Comparison | None = None
    key: Key | None = None
    approximate: bool | None = None
    baseline: bool = False
    standard_errors: bool = False
    background: Span | None = None
    permutations: int | None = None
    skips_unknown: bool = False
    coverage: Argument | None = None
    trees: Argument | None = None

    @property
    def planning_parameters(self) -> tuple[Parameter, ...]:
        """The parameters, if any, that hold the model's name, the class and the trees."""
        arguments = (a.parameter for a in (self.class_argument, self.trees) if a is not None)
        return tuple(p for p in (self.model, *arguments) if isinstance(p, Parameter))

    @property
    def is_nested(self) -> bool:
        """True if the call's query is inside another query."""
        return self.queries > 1

    @property
    def sees_select_names(self) -> bool:
        """True if a name in the call may mean a select item rather than a column of FROM."""
        return self.block is not None and self.clause in _CLAUSES_THAT_SEE_SELECT_NAMES

    @property
    def uses_select_names(self) -> bool:
        """True if the call uses a name that means a select item instead of a column of FROM."""
        names = frozenset() if self.block is None else self.block.names
        return self.sees_select_names and not self.identifiers.isdisjoint(names)

    @property
    def hidden_names(self) -> frozenset[str]:
        """The folded names that mean select items, but mean columns of FROM in the call's star."""
        if self.block is None or not self.sees_select_names:
            return frozenset()
        return self.block.names if any(a.star is not None for a in self.arguments) else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricCall(Surroundings):
    """A call of a metric, such as `rmse(y, p) FILTER (WHERE ok) OVER (PARTITION BY g)`.

    Attributes:
        span: the span of the call, including FILTER and OVER.
        arguments: the name of each argument, or None, and the span of its value.
        condition: the condition of FILTER.
        window: the window after OVER.
        modifier: the DISTINCT or ORDER BY between the brackets, or None.
    """

    function: str
    span: Span
    arguments: tuple[tuple[str | None, Span], ...]
    condition: Span | None = None
    window: Span | None = None
    modifier: str | None = None


_CLAUSES_THAT_SEE_SELECT_NAMES = frozenset("GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE".split())


@dataclass(frozen=True)
class Outline:
    """The outline of one statement.

    Attributes:
        created: the type of object that the statement creates, such as VIEW or INDEX, or "".
        is_stored: the engine stores the statement's text for later.
        prefix: the span before the query, such as CREATE TABLE t AS or INSERT INTO t, or None if
            there is no query.
        scalar_forms: the offsets of table forms that are used as one value.
        identifiers: all identifiers, folded, with their offsets.
        widenable_sources: span of a block -> the FROM clause, still without filters, if it can
            produce one more column.
        comparing_outputs: the outputs (`ModelCall.output`) in which the engine compares
            expressions, as GROUP BY and DISTINCT do.
        metrics: the calls of metrics.
    """

    sql: str
    created: str
    is_stored: bool
    prefix: Span | None
    calls: tuple[ModelCall, ...]
    scalar_forms: frozenset[int]
    parameters: tuple[Parameter, ...]
    identifiers: tuple[tuple[str, int], ...]
    widenable_sources: Mapping[Span, WidenableSource]
    comparing_outputs: frozenset[Span] = frozenset()
    metrics: tuple[MetricCall, ...] = ()

    @cached_property
    def outer_calls(self) -> list[Span]:
        return find_outermost(call.span for call in self.calls)


def sort_inner_first(calls: Iterable[ModelCall]) -> list[ModelCall]:
    """Sort the calls so that each call comes after the calls on which it depends.

    Nested queries come before FROM clauses, and FROM clauses before arguments. The depth alone is
    not enough: `SELECT max(f(x.*)) FROM (SELECT f(...) ...) x` has both calls at the same depth.
    """
    return sorted(calls, key=lambda c: (-c.queries, c.clause != "FROM", -c.depth, c.span.start))


def splice(
    sql: str,
    replacements: Mapping[ModelCall, str],
    patches: Mapping[Span, str],
    span: Span,
    insertions: Mapping[int, str] | None = None,
    sources: Mapping[Span, str] | None = None,
) -> str:
    """Return sql[span] after replacing each call or span that is a key of a mapping with its text.

    `insertions` maps each offset to the text to insert there.
    """
    call_edits = {call.span: text for call, text in replacements.items()}
    insertion_edits = {Span(offset, offset): text for offset, text in (insertions or {}).items()}
    return Edits(sql, call_edits, patches, sources or {}).apply(span, insertion_edits)


CALLS, ADJUSTMENTS, PATCHES, SOURCES, _LAST_LAYER = range(5)
"""Layers of edits of a draft. If two edits have the same span, the edit of the earlier layer wins.

CALLS replaces calls, ADJUSTMENTS adapts stars and filters to columns that FROM produces, PATCHES
changes other places, and SOURCES replaces the FROM clauses that produce columns.
"""


class Edits:
    """The edits of a statement, sorted so that any part of the new text can be built quickly."""

    def __init__(self, sql: str, *layers: Mapping[Span, str]) -> None:
        self._sql = sql
        self._edits = sorted(
            _make_sort_key(edit_span, layer, text)
            for layer, replacements in enumerate(layers)
            for edit_span, text in replacements.items()
        )

    def add(self, replacements: Mapping[Span, str], layer: int) -> None:
        for edit_span, text in replacements.items():
            insort(self._edits, _make_sort_key(edit_span, layer, text))

    def remove(self, replacements: Mapping[Span, str], layer: int) -> None:
        for edit_span, text in replacements.items():
            del self._edits[bisect_left(self._edits, _make_sort_key(edit_span, layer, text))]

    def apply(self, span: Span, extra: Mapping[Span, str] | None = None) -> str:
        """Return sql[span] after applying all edits inside the span, and the edits in `extra`."""
        sql, offset = self._sql, span.start
        fragments: list[str] = []
        first_index = bisect_left(self._edits, (span.start,))
        edits = self._edits[first_index : bisect_left(self._edits, (span.end + 1,))]
        if extra:
            extra_edits = [_make_sort_key(s, _LAST_LAYER, text) for s, text in extra.items()]
            edits = sorted([*edits, *extra_edits])
        for start, minus_end, _, text in edits:
            end = -minus_end
            if start < offset or end > span.end:  # This edit is inside one that is already applied.
                continue
            left_blank = _find_separator(sql[max(0, start - 1) : start], text[:1])
            right_blank = _find_separator(text[-1:], sql[end : end + 1])
            fragments += [sql[offset:start], left_blank, text, right_blank]
            offset = end
        return "".join([*fragments, sql[offset : span.end]])


def _make_sort_key(edit_span: Span, layer: int, text: str) -> tuple[int, int, int, str]:
    """Return a tuple that sorts the edits by start, and each edit before the edits inside it."""
    return edit_span.start, -edit_span.end, layer, text


def _find_separator(left: str, right: str) -> str:
    """Return " " if two adjacent characters would join two words, as in `ENDas`; otherwise "".

    >>> _find_separator("D", "a"), _find_separator(")", "a"), _find_separator("D", "")
    (' ', '', '')
    """
    return " " if all(char.isalnum() or char in ("_", "$") for char in (left, right)) else ""


def make_missing_aliases(
    sql: str, calls: Iterable[ModelCall], find_name: Callable[[str], str | None], dialect: Dialect
) -> dict[int, str]:
    """Return ` AS "name"` for each unnamed select item with a call, keyed by the insertion offset.

    The engine names a column after its expression, which would expose the rewritten text.
    `find_name` returns the engine's name for an expression, or None for the text as written.
    """
    aliases: dict[int, str] = {}
    for item in dict.fromkeys(item for call in calls for item in call.items):
        if item.name is None and not item.may_expand:
            item_sql = sql[item.span.start : item.span.end]
            name = find_name(item_sql) or " ".join(item_sql.split())
            with suppress(BindError):  # A name with Spark's variable ${...} cannot be quoted.
                aliases[item.span.end] = f" AS {dialect.quote_name(name)}"
    return aliases
