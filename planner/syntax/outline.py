"""`Outline`: what a statement says, each part with its place in the text.

It is made once from sqlglot's tree (`read.py`), and the rest of the planner asks it: no other part
reads SQL.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.parsing.places import Span, outermost


@dataclass(frozen=True, slots=True)
class Cte:
    """One definition `name AS (..)` of a WITH clause."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a SELECT list.

    name: what it calls itself, or None; named: by AS, or `name: expression`, so that others may use
    it. several: it may give several columns. volatile: the engine accepts a volatile function in
    it, since no other part of the query uses its name.
    """

    span: Span
    name: str | None = None
    several: bool = False
    volatile: bool = True
    named: bool = False


@dataclass(frozen=True, slots=True)
class SingleSource:
    """A FROM clause that can take a column more: one table, file or subquery, and its name.

    That is where nobody can see that it has another column now. `stars` are the places of the
    block's stars, and `lists` what opens a star's own list of columns to leave out.
    """

    span: Span
    alias: Span
    stars: tuple[Span, ...]
    lists: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A query block: what one SELECT, UPDATE, DELETE, INSERT or MERGE sees at a place.

    Attributes:
        span: the query's own text.
        sources: the texts that it reads at the place asked for: of an ON no later join, of a
            LATERAL nothing to its right.
        window: the WINDOW clause.
        items: the SELECT list.
        where: the condition.
        group: the GROUP BY clause.
        filters: the operands of the condition's ANDs, where no other condition decides about them.
        names: those that items give themselves, and maybe more, folded.
        ctes: the definitions of its own WITH that are in sight.
        recursive: whether that WITH says so.
        parent: the block around it.
        lateral: whether it stands in the parent's FROM clause.
        is_chain: the sources are what has a result of its own: the operands of a UNION, for the
            ORDER BY of the whole, or the steps of a pipe before this one.
        name: the name of that result.
        joins: those after the sources: of a pipe, or the one whose condition it is, which is seen
            though it be a SEMI or ANTI JOIN (`half`).
        excluded: the table's name in ON CONFLICT, where the new row is known, too.
        changed: the name of a table whose row may be missing, in ON CONFLICT and in MERGE.
        matches: the condition of a MERGE, if rows of the table may lack a partner.
        output: the `ModelCall.output` of the calls in its output.
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
    recursive: bool = False
    parent: Block | None = field(default=None, compare=False)
    lateral: bool = False
    is_chain: bool = False
    name: str = "sqlml_chain"
    joins: tuple[Span, ...] = ()
    excluded: Span | None = None
    changed: Span | None = None
    matches: Span | None = None
    output: Span | None = None
    half: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """`?`, `$1`, `$name` or (Spark) `:name`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """An expression that names the model of each row: `predict(shop_model, *)`."""

    span: Span


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, text, boolean or NULL as it is written: `kind` is number, string, word.

    The text of a string is its content, and of a number all of it but the sign.
    """

    kind: str
    text: str
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Star:
    """`*`, `t.*`, `[*|t.]COLUMNS(..)`, also with EXCLUDE and the like.

    `select` is what yields its columns in a SELECT list. `qualifier` is the `t.` before it.
    `excluded` are folded names, with their table where they have one; `replaced` the expressions of
    `REPLACE (expression AS name)` by folded names, and `renamed` the columns of `RENAME`.
    """

    select: Span
    qualifier: Span | None
    excluded: frozenset[str]
    replaced: Mapping[str, Span]
    renamed: Mapping[str, Span]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument after the model: its value, and the name in `name := value`.

    Where it is one, its `literal`, `parameter` or `star`; of a struct literal the `fields`, of a
    list (`[a, b]`) the `items`, and of a bare or qualified column the folded name.
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
class Compared:
    """A call compared with one number, or between two.

    bounds: the sign as if it followed the call, and the number. sign: its place, if there is one;
    turned: the call stands to its right.
    """

    bounds: tuple[tuple[str, Literal | Parameter, Span], ...]
    sign: Span | None = None
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """`[1]`, `['yes']` after a call: one literal in brackets."""

    span: Span
    literal: Literal


@dataclass(frozen=True, slots=True, eq=False)
class ModelCall:
    """`function(model, arguments..)`, and where it stands.

    Attributes:
        function: folded.
        span: with its `key`, where it has one.
        model: the text that names the model, or the parameter or column that does.
        spelled: its arguments as written, apart from blanks and comments.
        words: folded identifiers in them.
        clause: the keyword of the clause around it, in the innermost query, or "".
        items: the select items around it, those of its own query first.
        local: the names in it that are not columns (of a lambda, a comprehension, a macro), with
            the fields after them.
        has_local_names: some are in sight.
        depth: how many calls and brackets are around it.
        queries: how many queries are around it.
        in_try: it stands in TRY.
        steady: it stands where the engine accepts no volatile function: in TRY, in what a window is
            partitioned or ordered by, in a DISTINCT aggregate that is ordered.
        output: the outermost query that has it in its output, which is all but FROM and WHERE; None
            if none has.
        windows: it stands in QUALIFY, and its arguments have window functions.
        always_asked: its clause evaluates it for each row.
        defines: it stands in a table's definition.
        is_source: it stands in FROM as if it were a table.
        unused: it stands in the definition of a WITH clause whose name is written nowhere else.
        compared: the numbers that it is compared with.
        approximate: what it says of itself, if anything.
        baseline: it asks for the baseline of contributions, too.
        standard_errors: it asks for the standard errors of contributions instead.
        background: the query, in brackets, of rows to compare with.
        permutations: how many pairs of orders an estimate tries for each of these.
        skips_unknown: a row whose model is unknown has NULL.
    """

    function: str
    span: Span
    model: str | Parameter | ModelColumn
    model_span: Span
    arguments: tuple[Argument, ...]
    spelled: tuple[tuple[str | None, str], ...]
    words: frozenset[str]
    class_argument: Argument | None = None
    block: Block | None = None
    clause: str = ""
    items: tuple[Item, ...] = ()
    local: tuple[Span, ...] = ()
    has_local_names: bool = False
    depth: int = 0
    queries: int = 0
    in_try: bool = False
    steady: bool = False
    output: Span | None = None
    windows: bool = False
    always_asked: bool = True
    defines: bool = False
    is_source: bool = False
    unused: bool = False
    compared: Compared | None = None
    key: Key | None = None
    approximate: bool | None = None
    baseline: bool = False
    standard_errors: bool = False
    background: Span | None = None
    permutations: int | None = None
    skips_unknown: bool = False

    @property
    def planned_with(self) -> tuple[Parameter, ...]:
        """The parameters whose values decide what is called: the model's name, and the class."""
        chosen = None if self.class_argument is None else self.class_argument.parameter
        return tuple(p for p in (self.model, chosen) if isinstance(p, Parameter))

    @property
    def nested(self) -> bool:
        """Whether its query stands in another."""
        return self.queries > 1

    @property
    def sees_outputs(self) -> bool:
        """Whether it stands where names are select items first."""
        return self.block is not None and self.clause in _SEE_OUTPUTS

    @property
    def means_outputs(self) -> bool:
        """Whether it stands where names are select items first, and names one of them."""
        names = frozenset() if self.block is None else self.block.names
        return self.sees_outputs and not self.words.isdisjoint(names)

    @property
    def hidden(self) -> frozenset[str]:
        """Names, folded, that mean select items where it stands, though its star means columns."""
        if self.block is None or not self.sees_outputs:
            return frozenset()
        return self.block.names if any(a.star is not None for a in self.arguments) else frozenset()


_SEE_OUTPUTS = frozenset({"GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"})


@dataclass(frozen=True)
class Outline:
    """One statement.

    created: what it makes, of what holds expressions (VIEW, INDEX, MACRO, TABLE ..), or "". kept:
    the engine keeps its text for later. prefix: what says where the rows of its query go (CREATE
    TABLE t AS, INSERT INTO t); None if it is not a query. values: where the table forms begin that
    stand for one value. words: all identifiers, folded, with their places. singles: the blocks, by
    their places, whose FROM clause can take one more column. comparing: the outputs
    (`ModelCall.output`) in which the engine compares expressions, as GROUP BY and DISTINCT do.
    """

    sql: str
    created: str
    kept: bool
    prefix: Span | None
    calls: tuple[ModelCall, ...]
    values: frozenset[int]
    parameters: tuple[Parameter, ...]
    words: tuple[tuple[str, int], ...]
    singles: Mapping[Span, SingleSource]
    comparing: frozenset[Span] = frozenset()

    @cached_property
    def outer_calls(self) -> list[Span]:
        """The places of the `outermost` calls."""
        return outermost(call.span for call in self.calls)


# `splice`: a statement's own text with calls and other parts replaced, else byte for byte.


def inner_first(calls: Iterable[ModelCall]) -> list[ModelCall]:
    """The calls, sorted so that those others may depend on come first: nested queries, FROM
    clauses, arguments of calls.

    Brackets do not suffice: `SELECT max(f(x.*)) FROM (SELECT f(..) ..) x` has both calls in one.
    """
    return sorted(calls, key=lambda c: (-c.queries, c.clause != "FROM", -c.depth, c.span.start))


def splice(
    sql: str,
    replaced: Mapping[ModelCall, str],
    patches: Mapping[Span, str],
    span: Span,
    insertions: Mapping[int, str] | None = None,
    sources: Mapping[Span, str] | None = None,
) -> str:
    """sql[span] with calls, `sources` and other places (`patches`) replaced.

    `insertions` puts text after a character.
    """
    edits = Edits(sql, {call.span: text for call, text in replaced.items()}, patches, sources or {})
    after = {Span(at, at): text for at, text in (insertions or {}).items()}
    return edits.text(span, after)


CALLS, BESIDE, PATCHES, SOURCES = range(4)
"""Layers of a draft's edits: its calls, what changes beside columns that FROM makes, other places,
and FROM clauses that make columns. Of two edits at one place the earlier layer's is taken."""

_LAST = 4
"""A layer behind all others."""


class Edits:
    """Texts that replace places of a statement, sorted, so that a part of it is written quickly."""

    def __init__(self, sql: str, *layers: Mapping[Span, str]) -> None:
        """Begin with the texts of `layers`."""
        self._sql = sql
        self._edits = sorted(
            _edit(place, layer, text)
            for layer, texts in enumerate(layers)
            for place, text in texts.items()
        )

    def put(self, texts: Mapping[Span, str], layer: int) -> None:
        """Add texts to one of the layers."""
        for place, text in texts.items():
            insort(self._edits, _edit(place, layer, text))

    def remove(self, texts: Mapping[Span, str], layer: int) -> None:
        """Take texts out of a layer that has them."""
        for place, text in texts.items():
            del self._edits[bisect_left(self._edits, _edit(place, layer, text))]

    def text(self, span: Span, more: Mapping[Span, str] | None = None) -> str:
        """Return sql[span] with all places in it replaced, also those of `more`."""
        sql, pieces, at = self._sql, [], span.start
        first = bisect_left(self._edits, (span.start,))
        edits = self._edits[first : bisect_left(self._edits, (span.end + 1,))]
        if more:
            edits = sorted([*edits, *(_edit(place, _LAST, text) for place, text in more.items())])
        for start, minus_end, _, text in edits:
            end = -minus_end
            if start < at or end > span.end:  # inside a call that has been replaced as a whole
                continue
            before = _gap(sql[max(0, start - 1) : start], text[:1])
            pieces += [sql[at:start], before, text, _gap(text[-1:], sql[end : end + 1])]
            at = end
        return "".join([*pieces, sql[at : span.end]])


def _edit(place: Span, layer: int, text: str) -> tuple[int, int, int, str]:
    """Return an edit, sorted by its beginning, and before all that it holds."""
    return place.start, -place.end, layer, text


def _gap(left: str, right: str) -> str:
    """A blank between two characters that would else make one word: `END` and `as`, `$1` and `AND`.

    >>> _gap("D", "a"), _gap(")", "a"), _gap("D", "")
    (' ', '', '')
    """
    return " " if all(c.isalnum() or c in ("_", "$") for c in (left, right)) else ""


# `column_names`: select items keep the names that the engine gives to the user's own text.


def column_names(
    sql: str,
    calls: Iterable[ModelCall],
    column_name: Callable[[str], str | None],
    dialect: Dialect,
) -> dict[int, str]:
    """` AS "<the engine's name>"` for each select item with a call and without a name.

    The engine names a column after its expression, which would now be our rewritten text.

    Args:
        column_name: how the engine names an expression; None: as it is written.
    """
    names: dict[int, str] = {}
    for item in dict.fromkeys(item for call in calls for item in call.items):
        if item.name is None and not item.several:
            written = sql[item.span.start : item.span.end]
            name = column_name(written) or " ".join(written.split())
            with suppress(BindError):  # Spark's variable ${..}: its name is that of our text
                names[item.span.end] = f" AS {dialect.quote_name(name)}"
    return names
