"""Query blocks: which FROM clause a place in a statement sees, from tokens and brackets alone.

DuckDB's clause keywords are reserved words, so at one bracket depth they cannot be anything
else; that makes this scan as sure as a full parse, and it never fails on syntax that a parser
does not know yet. What the names *mean* is left to the engine, which binds the probe
(`probe.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlml.front.lexer import Token, closing, queries_around
from sqlml.front.lexer import level as top_level
from sqlml.planner.clauses import Span, clause, keyword, segment_at
from sqlml.planner.ctes import Cte, with_clause
from sqlml.planner.pipes import Step, step_at
from sqlml.planner.sources import aliases, sources_of


@dataclass(frozen=True, slots=True)
class Block:
    """A query block: what one SELECT, UPDATE, DELETE or INSERT sees.

    `sources` are the texts of its FROM clause (an UPDATE has its table and its FROM); they are
    what has a result of its own where `is_chain`: the operands of a UNION, for the ORDER BY of the
    whole, or the steps of a pipe before this one, and `name` is that result's. `joins` are those
    of a pipe, behind the sources. `excluded` says that the source is also known as such (ON
    CONFLICT). `window` is its WINDOW clause. `ctes` are the definitions that its own WITH puts in
    scope at the place asked for, `recursive` whether that WITH says so. `parent` is the block
    around it; `lateral` whether it stands in the parent's FROM clause. `start` is the token where
    its query begins, which tells it from others without a look at its parents.
    """

    sources: tuple[Span, ...]
    window: Span | None
    aliases: tuple[Span, ...]
    ctes: tuple[Cte, ...]
    recursive: bool
    parent: Block | None = field(compare=False)
    lateral: bool = False
    is_chain: bool = False
    name: str = "sqlml_chain"
    joins: tuple[Span, ...] = ()
    excluded: bool = False
    start: int = 0


def block_at(tokens: Sequence[Token], place: int) -> Block | None:
    """The innermost query block around token `place`, or None when there is no query."""
    block: Block | None = None
    for start, end in _groups(tokens, place):
        made = _block(tokens, start, end, place, block)
        block = made if made is block or made is None else replace(made, start=start)
    return block


def block_tokens(tokens: Sequence[Token], place: int) -> list[int]:
    """The tokens of the query block around `place`, outside of all brackets but its own.

    None of its WITH clause nor of INSERT INTO t [REPLACE WHERE ..], and none where `place` stands
    behind a whole chain of UNIONs or in a pipe.
    """
    start, end = _groups(tokens, place)[-1]
    level = top_level(tokens, start, end)
    _, _, body = with_clause(tokens, level, place)
    if body is None or step_at(tokens, level, place) is not None:
        return []
    query = _query(tokens, [i for i in level if i >= body])
    segment, tail_of_set = segment_at(tokens, query, place)
    return [] if tail_of_set is not None else segment


def query_depth(tokens: Sequence[Token], place: int) -> int:
    """How many queries stand around token `place`.

    >>> from sqlml.front.lexer import tokenize
    >>> tokens = tokenize("SELECT f((a)) FROM (SELECT b)")
    >>> query_depth(tokens, 4), query_depth(tokens, len(tokens) - 2)
    (1, 2)
    """
    return len(_groups(tokens, place))


def clause_at(tokens: Sequence[Token], place: int) -> str:
    """The keyword of the clause that token `place` stands in, of the innermost query; or "".

    >>> from sqlml.front.lexer import tokenize
    >>> tokens = tokenize("SELECT a FROM t WHERE f(b)")
    >>> clause_at(tokens, 1), clause_at(tokens, 7)
    ('SELECT', 'WHERE')
    """
    at, _ = clause_tokens(tokens, place)
    return tokens[at - 1].upper if at else ""


def clause_tokens(tokens: Sequence[Token], place: int) -> tuple[int, int]:
    """The tokens behind the keyword of the clause that token `place` stands in, of the innermost
    query, up to the next clause; (0, 0) where it stands in none.
    """
    start, end = _groups(tokens, place)[-1]
    level = top_level(tokens, start, end)
    keywords = [k for k in range(len(level)) if keyword(tokens, level, k)]
    before = [k for k in keywords if level[k] < place]
    if not before:
        return 0, 0
    after = next((level[k] for k in keywords if level[k] > place), end)
    return level[before[-1]] + 1, after


def clause_span(tokens: Sequence[Token], place: int, word: str) -> Span | None:
    """Characters of the clause `word` of the query block around `place`; None without one."""
    return clause(tokens, block_tokens(tokens, place), word)


def query_around(tokens: Sequence[Token], place: int) -> tuple[int, int]:
    """Token range of the innermost query around `place`, within its brackets."""
    return _groups(tokens, place)[-1]


def _groups(tokens: Sequence[Token], place: int) -> list[tuple[int, int]]:
    """Token ranges of the brackets around `place` that hold a query, outermost first."""
    inner = queries_around(tokens, place)
    return [(0, len(tokens)), *((i + 1, closing(tokens, i) or len(tokens)) for i in inner)]


def _block(
    tokens: Sequence[Token], start: int, end: int, place: int, parent: Block | None
) -> Block | None:
    level = top_level(tokens, start, end)
    ctes, recursive, body = with_clause(tokens, level, place)
    lateral = parent is not None and any(
        s.start <= tokens[start].start < s.end for s in parent.sources
    )
    if body is None:  # `place` stands in the body of a definition of this WITH
        if not ctes and not recursive:
            return parent
        return Block((), None, (), ctes, recursive, parent, lateral)
    level = [i for i in level if i >= body]
    step = step_at(tokens, _query(tokens, level), place)
    if step is not None and step.own is not step.first:
        made = _made_before(tokens, step)
        return replace(made, ctes=ctes, recursive=recursive, parent=parent, lateral=lateral)
    segment, tail_of_set = segment_at(tokens, level if step is None else step.first, place)
    if tail_of_set is not None:
        whole = Span(tokens[level[0]].start, tail_of_set)
        return Block((whole,), None, (), ctes, recursive, parent, lateral, is_chain=True)
    after_conflict = any(
        keyword(tokens, segment, k) == "CONFLICT" and segment[k] < place
        for k in range(len(segment))
    )
    return Block(
        sources_of(tokens, segment, place),
        clause(tokens, segment, "WINDOW"),
        aliases(tokens, segment),
        ctes,
        recursive,
        parent,
        lateral,
        excluded=after_conflict,
    )


def _query(tokens: Sequence[Token], level: list[int]) -> list[int]:
    """The tokens of what INSERT INTO writes, or CREATE TABLE .. AS makes; others as they are."""
    if not level or tokens[level[0]].upper not in ("INSERT", "CREATE"):
        return level
    begin = (k for k in range(len(level)) if keyword(tokens, level, k) in ("FROM", "SELECT"))
    return level[next(begin, 0) :]


def _made_before(tokens: Sequence[Token], step: Step) -> Block:
    """What a step of a pipe sees: its FROM clause, or the result of the steps before it."""
    own = aliases(tokens, step.own)
    joins = tuple(Span(tokens[join[0]].start, tokens[join[-1]].end) for join in step.joins)
    first = [k for k in range(len(step.first)) if keyword(tokens, step.first, k)]
    if step.plain and first == [0] and tokens[step.first[0]].upper == "FROM":
        sources = sources_of(tokens, step.first, step.first[0])
        return Block(sources, None, own, (), False, None, joins=joins)
    whole = Span(tokens[step.first[0]].start, tokens[step.end - 1].end)
    name = "`" + step.name.replace("`", "``") + "`" if step.name else "sqlml_chain"
    return Block((whole,), None, own, (), False, None, is_chain=True, name=name, joins=joins)
