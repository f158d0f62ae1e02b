"""What FROM makes besides its own columns: a model evaluated once, or a row's packed numbers.

The engine evaluates WHERE in one operator and SELECT in another, so that a call in both is made
twice, and a column that is computed in FROM is computed again in the filter, unless its function
is called volatile. So, where f is volatile::

    SELECT a, predict('m', *) FROM t WHERE predict_proba('m', *, class := 1) > 0.8 AND b
    SELECT a, f[1] FROM (SELECT *, f(..) AS f FROM t) AS t WHERE f[2] > 0.8 AND b

Filters that do not need the column still go below it, and into the scan: DuckDB sees to that
itself, and for Spark, which leaves them above a volatile column, `b` goes into the inner query.
This is done where FROM is one table, file or subquery, and where nobody can see that it has another
column now: stars leave it out, and nobody takes whole rows. The engine's binder has the last word:
the rewritten block must bind, with columns of the same names and types. And only where WHERE asks
for each row: `a IS NULL OR predict('m', *) = 1` keeps rows from the model that it might refuse.

Packed numbers, of which the function is called in its own place::

    SELECT a, predict('m', *) FROM t
    SELECT a, f(r, r) FROM (SELECT *, array(..) AS r FROM t) AS t

Spark copies each column of the rows that it hands to Python several times; r is one column, and a
column that is used twice is not written out where it is used.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from sqlml.dialects import Dialect
from sqlml.front.lexer import Token, brackets_around, closing
from sqlml.front.lexer import level as top_level
from sqlml.planner.blocks import (
    Span,
    block_at,
    block_tokens,
    clause_at,
    clause_span,
    clause_tokens,
    output_names,
)
from sqlml.planner.calls import Call
from sqlml.planner.probe import Text
from sqlml.types import fold

_SETS_OF_COLUMNS = frozenset({"LIKE", "ILIKE", "GLOB", "SIMILAR", "NOT"})
"""What may follow a star and does not go with EXCLUDE."""


@dataclass(frozen=True, slots=True)
class Source:
    """A FROM clause that can take a column more: the only source of its block, and its name.

    `stars` are the tokens of the block's stars, and `excluded` those that open a star's own list
    of columns to leave out. `filters` are the operands of WHERE's ANDs that call no model.
    """

    span: Span
    alias: str
    stars: tuple[int, ...]
    excluded: tuple[int, ...]
    filters: tuple[range, ...]

    def text(
        self, written: str, columns: Mapping[str, str], where: Sequence[str], dialect: Dialect
    ) -> str:
        """The FROM clause `written` with `columns` (name -> expression) besides its own."""
        made = ", ".join(f"{sql} AS {dialect.quote_name(name)}" for name, sql in columns.items())
        kept = f" WHERE {' AND '.join(where)}" if where else ""
        return f"(SELECT *, {made} FROM {written}{kept}) AS {self.alias}"

    def patches(self, columns: Iterable[str], dialect: Dialect) -> dict[int, str]:
        """Token -> text: stars that leave `columns` out."""
        names = [dialect.quote_name(name) for name in columns]
        return dict.fromkeys(self.stars, dialect.star_without(names)) | dict.fromkeys(
            self.excluded, f"({', '.join(names)}, "
        )


@dataclass(frozen=True, slots=True)
class Way:
    """What FROM may be asked to make.

    Columns of models that WHERE asks, too (`models`); with the filters that call no model below
    them (`filters`); and the packed numbers of other calls (`rows`).
    """

    models: bool = False
    filters: bool = False
    rows: bool = False


def ways(dialect: Dialect) -> tuple[Way, ...]:
    """The ways to write a statement of a dialect, the best first; the last one always does."""
    if dialect.copies_rows:
        return Way(True, True, True), Way(True), Way()
    return Way(True), Way()


@dataclass(frozen=True, slots=True)
class Column:
    """What FROM is to make besides its own columns.

    name: of the column. sql: what it is. arguments: what must bind that it may be so. type: as the
    dialect spells it.
    """

    name: str
    sql: str
    arguments: str
    type: str

    @staticmethod
    def of_row(packed: str, kind: str) -> Column:
        """The packed numbers of one row, of type `kind`."""
        digest = hashlib.blake2b(packed.encode(), digest_size=12).hexdigest()
        return Column(f"sqlml_row_{digest}", packed, packed, kind)

    @property
    def probe(self) -> str:
        """A NULL of the same type, which binds where the function's arguments bind."""
        return f"CASE WHEN ({self.arguments}) IS NULL THEN CAST(NULL AS {self.type}) END"


class Moved:
    """The FROM clauses of a statement that make columns, as texts that take their places.

    sources: for the engine; probes: for its binder, before the functions are registered. patches:
    token -> text, for the stars of their blocks.
    """

    def __init__(self, tokens: Sequence[Token], dialect: Dialect, way: Way) -> None:
        self._tokens, self._dialect, self._way = tokens, dialect, way
        self.sources: dict[Span, str] = {}
        self.probes: dict[Span, str] = {}
        self.patches: dict[int, str] = {}
        self._rows: dict[Source, dict[str, Column]] = {}
        self._models: dict[Source, dict[str, Column]] = {}
        self._written: dict[Source, tuple[_Written, _Written]] = {}

    def add_row(self, source: Source, column: Column, text: Text, probed: Text) -> None:
        """Let `source` make a row's packed numbers; both texts are the statement's, as it is."""
        self._rows.setdefault(source, {})[column.name] = column
        self._write(source, text, probed)

    def add_model(self, source: Source, column: Column, text: Text, probed: Text) -> None:
        """Let `source` make what a model computes, and filter before where that is the way."""
        self._models.setdefault(source, {})[column.name] = column
        self._write(source, text, probed)

    def _write(self, source: Source, text: Text, probed: Text) -> None:
        if source not in self._written:
            spans = [
                Span(self._tokens[f[0]].start, self._tokens[f[-1]].end) for f in source.filters
            ]
            self._written[source] = (
                _Written(text(source.span), tuple(map(text, spans))),
                _Written(probed(source.span), tuple(map(probed, spans))),
            )
        rows, models = self._rows.get(source, {}), self._models.get(source, {})
        filters = source.filters if models and self._way.filters else ()
        sql, probe = self._written[source]
        layers = [layer for layer in (rows, models) if layer]
        for written, texts, of in (
            (sql, self.sources, operator.attrgetter("sql")),
            (probe, self.probes, operator.attrgetter("probe")),
        ):
            made, where = written.source, written.filters if filters else ()
            for layer in layers:
                columns = {name: of(column) for name, column in layer.items()}
                made, where = source.text(made, columns, where, self._dialect), ()
            texts[source.span] = made
        self.patches.update(source.patches([*rows, *models], self._dialect))
        for tokens in filters:
            self.patches |= dict.fromkeys(tokens, "") | {tokens[0]: "TRUE"}


@dataclass(frozen=True, slots=True)
class _Written:
    """The texts of a FROM clause and of the filters on it."""

    source: str
    filters: tuple[str, ...]


def source_of(
    sql: str, tokens: Sequence[Token], place: int, calls: Iterable[Call]
) -> Source | None:
    """The FROM clause of the block around token `place`; None where it must stay as it is.

    `calls` are the model calls of the statement: what stands inside them is written anew anyway.
    """
    if query_start(tokens) is None:
        return None
    block, level = block_at(tokens, place), block_tokens(tokens, place)
    if block is None or len(block.sources) != 1 or block.is_chain or not level:
        return None
    (span,) = block.sources
    alias = _name(sql, tokens, [i for i in level if span.start <= tokens[i].start < span.end])
    if alias is None or "SELECT" not in [tokens[i].upper for i in level]:
        return None
    in_calls = {i for c in calls for i in range(c.start, c.end)}
    for i in range(level[0], level[-1] + 1):
        if i in in_calls or span.start <= tokens[i].start < span.end:
            continue
        if tokens[i].upper == "COLUMNS" or _is_row(tokens, i, alias.text):
            return None
        if tokens[i].is_symbol("*") and tokens[i - 1].is_symbol(".") and i not in level:
            return None  # a nested query's `t.*`, which may be the whole row too
    stars, excluded = [], []
    for k in range(1, len(level)):
        if level[k] in in_calls or not _is_star(tokens, level, k):
            continue
        following = tokens[level[k + 1]].upper if k + 1 < len(level) else ""
        if following in _SETS_OF_COLUMNS:
            return None
        if following not in ("EXCLUDE", "EXCEPT"):
            stars.append(level[k])
        elif k + 2 < len(level) and tokens[level[k + 2]].is_symbol("("):
            excluded.append(level[k + 2])
        else:
            return None
    filters = tuple(_filters(tokens, place, in_calls))
    return Source(span, sql[alias.start : alias.end], tuple(stars), tuple(excluded), filters)


def row_source(
    sql: str, tokens: Sequence[Token], call: Call, calls: Iterable[Call]
) -> Source | None:
    """The FROM clause that can make the row of a call; None where it would be another row there.

    It would be where a window looks at the rows that WHERE keeps, and where ORDER BY means a select
    item by a name that a column has, too.
    """
    if any(token.upper == "OVER" for token in tokens[call.start : call.end]):
        return None
    return None if means_outputs(tokens, call) else source_of(sql, tokens, call.start, calls)


def hidden_columns(tokens: Sequence[Token], call: Call) -> frozenset[str]:
    """Names, folded, that mean select items where a call stands, though its star means columns."""
    star = any(tokens[argument.start].is_symbol("*") for argument in call.arguments)
    if not star or clause_at(tokens, call.start) not in _SEE_OUTPUTS:
        return frozenset()
    return output_names(tokens, call.start)


def means_outputs(tokens: Sequence[Token], call: Call) -> bool:
    """Whether a call stands where names are select items first, and names one of them."""
    if clause_at(tokens, call.start) not in _SEE_OUTPUTS:
        return False
    words = {
        fold(token.text)
        for argument in call.arguments
        for token in tokens[argument.start : argument.end]
        if token.is_identifier
    }
    return not words.isdisjoint(output_names(tokens, call.start))


_SEE_OUTPUTS = frozenset({"GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"})


def _filters(tokens: Sequence[Token], place: int, in_calls: Set[int]) -> Iterator[range]:
    """The operands of the ANDs of WHERE, of the block around `place`, that call no model."""
    where = clause_span(tokens, place, "WHERE")
    inside = [
        i
        for i in block_tokens(tokens, place)
        if where is not None and where.start <= tokens[i].start < where.end
    ]
    if not inside or any(tokens[i].upper in _CONDITIONS for i in inside):
        return
    between, ends = False, []
    for i in inside:
        if tokens[i].upper == "AND" and not between:
            ends.append(i)
        between = tokens[i].upper == "BETWEEN" or (between and tokens[i].upper != "AND")
    begin = inside[0]
    for end in [*ends, inside[-1] + 1]:
        operand = range(begin, end)
        if operand and in_calls.isdisjoint(operand):
            yield operand
        begin = end + 1


def always_asked(tokens: Sequence[Token], place: int) -> bool:
    """Whether the clause around token `place` evaluates it for each row, and not under a condition.

    >>> from sqlml.front.lexer import tokenize
    >>> tokens = tokenize("SELECT a FROM t WHERE (b OR c) AND f(d) AND (e OR f(g))")
    >>> [always_asked(tokens, i) for i, t in enumerate(tokens) if t.text == "f"]
    [True, False]
    """
    start, end = clause_tokens(tokens, place)
    for opening in [*brackets_around(tokens, place), None]:
        if opening is not None and not start <= opening < place:
            continue
        if opening is not None and tokens[opening - 1].upper in _CONDITIONS:
            return False
        first = start if opening is None else opening + 1
        last = end if opening is None else closing(tokens, opening) or end
        inside = top_level(tokens, first, last)
        if any(tokens[i].upper in _CONDITIONS or tokens[i].is_symbol("->") for i in inside):
            return False
    return True


_CONDITIONS = frozenset({"OR", "CASE", "COALESCE", "IF", "IFNULL", "NULLIF", "TRY", "LAMBDA"})
"""Words whose operands may not be evaluated, or may fail unseen."""


def query_start(tokens: Sequence[Token]) -> int | None:
    """The token where the query of a statement begins: of a SELECT, of CREATE TABLE or VIEW .. AS,
    or of INSERT INTO ..; None for other statements.
    """
    words = [token.upper for token in tokens]
    level, at = top_level(tokens, 0, len(tokens)), 0
    if words[0] == "CREATE" and {"TABLE", "VIEW"} & set(words[:5]):
        at = next((i + 1 for i in level if words[i] == "AS"), 0)
    elif words[0] == "INSERT":
        at = next((i for i in level if words[i] in _QUERIES), 0)
    is_query = at < len(words) and (words[at] in _QUERIES or tokens[at].is_symbol("("))
    return at if is_query else None


_QUERIES = ("SELECT", "WITH", "FROM")


def _name(sql: str, tokens: Sequence[Token], source: list[int]) -> Token | None:
    """The name of a single source: `db.t`, `t AS x`, `'file' x`, `f(..) x`, `(..) x`."""
    if not source:
        return None
    name: Token | None = None
    k, first = 1, tokens[source[0]]
    if first.is_identifier:
        name = first
        while k + 1 < len(source) and tokens[source[k]].is_symbol("."):
            name = tokens[source[k + 1]]
            k += 2
        if k < len(source) and tokens[source[k]].is_symbol("("):
            name, k = None, k + 2
    elif first.is_symbol("("):
        k = 2
    elif first.kind != "string":
        return None
    rest = [tokens[i] for i in source[k:]]
    if rest and rest[0].upper == "AS":
        rest = rest[1:]
    if len(rest) > 1 or not all(t.is_identifier for t in rest):
        return None
    return rest[0] if rest else name


def _is_row(tokens: Sequence[Token], i: int, alias: str) -> bool:
    """Whether a token may be the alias as a value: the whole row as a struct."""
    if not tokens[i].is_identifier or fold(tokens[i].text) != fold(alias):
        return False
    after = i + 1 < len(tokens) and tokens[i + 1].is_symbol(".")
    return not after and not tokens[i - 1].is_symbol(".")


def _is_star(tokens: Sequence[Token], level: list[int], k: int) -> bool:
    """Whether level[k] is a star among select items, and no multiplication."""
    if not tokens[level[k]].is_symbol("*"):
        return False
    before = tokens[level[k - 1]]
    if before.is_symbol(")"):  # DISTINCT ON (..) *
        return [tokens[i].upper for i in level[max(0, k - 4) : k - 2]] == ["DISTINCT", "ON"]
    return before.upper in ("SELECT", "DISTINCT", "ALL") or any(map(before.is_symbol, ",."))
