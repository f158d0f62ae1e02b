"""Query blocks: which FROM clause a place in a statement sees, from tokens and brackets alone.

DuckDB's clause keywords are reserved words, so at one bracket depth they cannot be anything
else; that makes this scan as sure as a full parse, and it never fails on syntax that a parser
does not know yet. What the names *mean* is left to the engine, which binds the probe
(`probe.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlml.front.lexer import Token, brackets_around, closing, split_commas
from sqlml.front.lexer import level as top_level
from sqlml.planner.pipes import Step, step_at
from sqlml.types import fold

_STARTS = frozenset(
    "SELECT FROM WITH VALUES UPDATE DELETE PIVOT UNPIVOT TABLE SUMMARIZE DESCRIBE SHOW".split()
)
_CLAUSES = frozenset(
    "SELECT FROM WHERE GROUP HAVING WINDOW QUALIFY ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET "
    "RETURNING USING_SAMPLE".split()
)
_BEFORE_BY = frozenset({"GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"})
_OPERANDS = frozenset("SELECT FROM VALUES TABLE WITH ALL DISTINCT".split())
_SET_OPERATORS = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS"})


@dataclass(frozen=True, slots=True)
class Span:
    """Characters sql[start:end]."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Cte:
    """One definition `name AS (...)` of a WITH clause."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Block:
    """A query block: what one SELECT, UPDATE, DELETE or INSERT sees.

    `sources` are the texts of its FROM clause (an UPDATE has its table and its FROM); they are
    what has a result of its own where `is_chain`: the operands of a UNION, for the ORDER BY of the
    whole, or the steps of a pipe before this one, and `name` is that result's. `excluded` says that
    the source is also known as such (ON CONFLICT). `window` is its WINDOW clause. `ctes` are the
    definitions that its own WITH puts in scope at the place asked for, `recursive` whether that
    WITH says so. `parent` is the block around it; `lateral` whether it stands in the parent's
    FROM clause.
    """

    sources: tuple[Span, ...]
    window: Span | None
    aliases: tuple[Span, ...]
    ctes: tuple[Cte, ...]
    recursive: bool
    parent: Block | None
    lateral: bool = False
    is_chain: bool = False
    name: str = "sqlml_chain"
    excluded: bool = False


def block_at(tokens: Sequence[Token], place: int) -> Block | None:
    """The innermost query block around token `place`, or None when there is no query."""
    block: Block | None = None
    for start, end in _groups(tokens, place):
        block = _block(tokens, start, end, place, block)
    return block


def block_tokens(tokens: Sequence[Token], place: int) -> list[int]:
    """The tokens of the query block around `place`, outside of all brackets but its own.

    None of its WITH clause, and none where `place` stands behind a whole chain of UNIONs or in a
    pipe.
    """
    start, end = _groups(tokens, place)[-1]
    level = top_level(tokens, start, end)
    _, _, body = _with(tokens, level, place)
    if body is None or step_at(tokens, level, place) is not None:
        return []
    segment, tail_of_set = _segment(tokens, [i for i in level if i >= body], place)
    return [] if tail_of_set is not None else segment


def select_item(tokens: Sequence[Token], place: int) -> tuple[int, int] | None:
    """Token range of the select item that holds token `place`; None outside a SELECT list."""
    start, end = _groups(tokens, place)[-1]
    level = top_level(tokens, start, end)
    keywords = [
        k
        for k in range(len(level))
        if _keyword(tokens, level, k) or _cuts(tokens, level, k) or tokens[level[k]].text == "|>"
    ]
    before = [k for k in keywords if level[k] <= place]
    if not before or tokens[level[before[-1]]].upper != "SELECT":
        return None
    k = before[-1] + 1
    if k < len(level) and tokens[level[k]].upper in ("DISTINCT", "ALL"):
        k += 1
        if k < len(level) and tokens[level[k]].upper == "ON":
            k += 3
    stop = next((j for j in keywords if j > before[-1]), len(level))
    first = level[k] if k < len(level) else end
    last = level[stop] if stop < len(level) else end
    while last > first and tokens[last - 1].is_symbol(";"):
        last -= 1
    for begin, finish in split_commas(tokens, first, last):
        if begin <= place < finish:
            return begin, finish
    return None


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
    keywords = [k for k in range(len(level)) if _keyword(tokens, level, k)]
    before = [k for k in keywords if level[k] < place]
    if not before:
        return 0, 0
    after = next((level[k] for k in keywords if level[k] > place), end)
    return level[before[-1]] + 1, after


def output_names(tokens: Sequence[Token], place: int) -> frozenset[str]:
    """Names, folded, that the select items around token `place` give themselves, and maybe more.

    >>> from sqlml.front.lexer import tokenize
    >>> sorted(output_names(tokenize("SELECT a, -b AS c, f(d) E, t.x FROM t ORDER BY g(c)"), 18))
    ['c', 'e']
    """
    level = block_tokens(tokens, place)
    span = _clause(tokens, level, "SELECT")
    items: list[list[Token]] = [[]]
    for i in level:
        if span is not None and span.start <= tokens[i].start < span.end:
            if tokens[i].is_symbol(","):
                items.append([])
            else:
                items[-1].append(tokens[i])
    return frozenset(
        fold(item[-1].text)
        for item in items
        if len(item) > 1 and item[-1].is_identifier and not item[-2].is_symbol(".")
    )


def _cuts(tokens: Sequence[Token], level: list[int], k: int) -> bool:
    """Whether level[k] is a set operator, and no type, nor the list behind a star (Spark)."""
    i = level[k]
    if tokens[i].upper not in _SET_OPERATORS or (i and tokens[i - 1].is_symbol("::")):
        return False
    after = tokens[i + 1 : i + 3]
    if tokens[i].upper == "MINUS":  # elsewhere than in Spark a name like others
        bracketed = len(after) == 2 and after[0].is_symbol("(") and after[1].upper in _STARTS
        return bool(after) and (after[0].upper in _OPERANDS or bracketed)
    listed = len(after) == 2 and after[0].is_symbol("(") and after[1].upper not in _STARTS
    return not (i and tokens[i - 1].is_symbol("*") and listed and not after[1].is_symbol("("))


def _groups(tokens: Sequence[Token], place: int) -> list[tuple[int, int]]:
    """Token ranges of the brackets around `place` that hold a query, outermost first."""
    groups = [(0, len(tokens))]
    for opening in brackets_around(tokens, place):
        end = closing(tokens, opening) or len(tokens)
        first = opening + 1
        if first < end and tokens[first].upper in _STARTS:
            groups.append((first, end))
    return groups


def _block(
    tokens: Sequence[Token], start: int, end: int, place: int, parent: Block | None
) -> Block | None:
    level = top_level(tokens, start, end)
    ctes, recursive, body = _with(tokens, level, place)
    lateral = parent is not None and any(
        s.start <= tokens[start].start < s.end for s in parent.sources
    )
    if body is None:  # `place` stands in the body of a definition of this WITH
        if not ctes and not recursive:
            return parent
        return Block((), None, (), ctes, recursive, parent, lateral)
    level = [i for i in level if i >= body]
    step = step_at(tokens, level, place)
    if step is not None and step.own is not step.first:
        made = _made_before(tokens, level, step)
        return replace(made, ctes=ctes, recursive=recursive, parent=parent, lateral=lateral)
    segment, tail_of_set = _segment(tokens, level if step is None else step.first, place)
    if tail_of_set is not None:
        whole = Span(tokens[level[0]].start, tail_of_set)
        return Block((whole,), None, (), ctes, recursive, parent, lateral, is_chain=True)
    after_conflict = any(
        _keyword(tokens, segment, k) == "CONFLICT" and segment[k] < place
        for k in range(len(segment))
    )
    return Block(
        _sources(tokens, segment, place),
        _clause(tokens, segment, "WINDOW"),
        _aliases(tokens, segment),
        ctes,
        recursive,
        parent,
        lateral,
        excluded=after_conflict,
    )


def _made_before(tokens: Sequence[Token], level: list[int], step: Step) -> Block:
    """What a step of a pipe sees: its FROM clause, or the result of the steps before it."""
    own = _aliases(tokens, step.own)
    first = [k for k in range(len(step.first)) if _keyword(tokens, step.first, k)]
    if step.chooses and first == [0] and tokens[step.first[0]].upper == "FROM":
        return Block(_sources(tokens, step.first, step.first[0]), None, own, (), False, None)
    whole = Span(tokens[level[0]].start, tokens[step.before - 1].end)
    name = "`" + step.name.replace("`", "``") + "`" if step.name else "sqlml_chain"
    return Block((whole,), None, own, (), False, None, is_chain=True, name=name)


def _with(
    tokens: Sequence[Token], level: list[int], place: int
) -> tuple[tuple[Cte, ...], bool, int | None]:
    """Definitions in scope at `place`, RECURSIVE or not, and the token where the body starts.

    The body is None when `place` lies in one of the definitions.
    """
    words = [tokens[i].upper for i in level]
    at = next((k for k in range(len(level)) if _starts_with_clause(tokens, level, k)), -1)
    if at < 0 or any(w in ("SELECT", "FROM", "VALUES") for w in words[:at]):
        return (), False, level[0] if level else 0
    at += 1
    recursive = at < len(level) and words[at] == "RECURSIVE"
    at += recursive
    ctes: list[Cte] = []
    while at < len(level):
        begin = at
        while at < len(level) and words[at] != "AS":
            at += 1
        while at < len(level) and not tokens[level[at]].is_symbol("("):
            at += 1
        close = at + 1
        if close >= len(level):
            break
        cte = Cte(
            tokens[level[begin]].text, Span(tokens[level[begin]].start, tokens[level[close]].end)
        )
        if level[at] < place < level[close]:
            return (*ctes, cte) if recursive else tuple(ctes), recursive, None
        ctes.append(cte)
        at = close + 1
        while (
            at < len(level)
            and words[at] in ("USING", "KEY")
            or (at < len(level) and tokens[level[at]].is_symbol("(") and words[at - 1] == "KEY")
        ):
            at += 2 if tokens[level[at]].is_symbol("(") else 1
        if at < len(level) and tokens[level[at]].is_symbol(","):
            at += 1
            continue
        break
    return tuple(ctes), recursive, level[at] if at < len(level) else level[-1]


def _starts_with_clause(tokens: Sequence[Token], level: list[int], k: int) -> bool:
    """Whether level[k] is the WITH of `WITH [RECURSIVE] name [(columns)] AS [..] (`.

    WITH TIME ZONE, WITH ORDINALITY and WITH NO DATA are not.
    """

    def word(j: int) -> str:
        return tokens[level[j]].upper if j < len(level) else ""

    def symbol(j: int, text: str) -> bool:
        return j < len(level) and tokens[level[j]].is_symbol(text)

    if word(k) != "WITH":
        return False
    j = k + 1 + (word(k + 1) == "RECURSIVE")
    if j >= len(level) or not tokens[level[j]].is_identifier:
        return False
    j += 1
    if symbol(j, "("):
        j += 2
    if word(j) == "USING":  # USING KEY (columns)
        j += 4
    if word(j) != "AS":
        return False
    j += 1 + (word(j + 1) == "NOT")
    j += word(j) == "MATERIALIZED"
    return symbol(j, "(")


def _segment(tokens: Sequence[Token], level: list[int], place: int) -> tuple[list[int], int | None]:
    """The part of a UNION chain that holds `place`.

    The second value is set when `place` lies in the ORDER BY or LIMIT of the whole chain: the
    character where the chain ends.
    """
    cuts = [k for k in range(len(level)) if _cuts(tokens, level, k)]
    if not cuts:
        return level, None
    tail = next(
        (
            k
            for k in range(cuts[-1], len(level))
            if tokens[level[k]].upper in ("ORDER", "LIMIT", "OFFSET")
        ),
        None,
    )
    if tail is not None and level[tail] < place:
        return [], tokens[level[tail] - 1].end
    begin = 0
    for cut in [*cuts, len(level)]:
        if cut == len(level) or place < level[cut]:
            return level[begin : tail if cut == len(level) else cut], None
        begin = cut + 1
        while begin < len(level) and tokens[level[begin]].upper in (
            "ALL",
            "DISTINCT",
            "BY",
            "NAME",
        ):
            begin += 1
    return level, None


def clause_span(tokens: Sequence[Token], place: int, word: str) -> Span | None:
    """Characters of the clause `word` of the query block around `place`; None without one."""
    return _clause(tokens, block_tokens(tokens, place), word)


def _keyword(tokens: Sequence[Token], level: list[int], k: int) -> str:
    """The clause that starts at level[k], or "" for a word that starts none."""
    word = tokens[level[k]].upper
    before = tokens[level[k - 1]].upper if k else ""
    after = tokens[level[k + 1]].upper if k + 1 < len(level) else ""
    if k and tokens[level[k - 1]].is_symbol("."):
        return ""
    if word == "FROM" and before == "DISTINCT" and k >= 2:
        if tokens[level[k - 2]].upper in ("IS", "NOT"):
            return ""
    if word == "USING" and after == "SAMPLE":
        return "USING_SAMPLE"
    if word == "ON" and after == "CONFLICT" and k + 2 < len(level):
        then = tokens[level[k + 2]]
        return "CONFLICT" if then.is_symbol("(") or then.upper in ("DO", "ON") else ""
    if word == "WITH" and after in ("NO", "DATA"):
        return "WITH_DATA"  # of CREATE TABLE .. AS
    if word in _BEFORE_BY and after != "BY":
        return ""
    return word if word in _CLAUSES else ""


def _clause(tokens: Sequence[Token], level: list[int], word: str) -> Span | None:
    """Characters after the keyword `word` up to the next clause."""
    for k in range(len(level)):
        if _keyword(tokens, level, k) == word:
            stop = next((j for j in range(k + 1, len(level)) if _keyword(tokens, level, j)), None)
            last = level[stop] - 1 if stop is not None else level[-1]
            return Span(tokens[level[k]].end, tokens[last].end) if last > level[k] else None
    return None


def _sources(tokens: Sequence[Token], level: list[int], place: int) -> tuple[Span, ...]:
    if not level:
        return ()
    words = [tokens[i].upper for i in level]
    sources: list[Span] = []
    if words[0] == "MERGE" and {"INTO", "USING", "ON"} <= set(words):
        into, using = words.index("INTO"), words.index("USING")
        on = words.index("ON", using)
        return (
            Span(tokens[level[into + 1]].start, tokens[level[using] - 1].end),
            Span(tokens[level[using + 1]].start, tokens[level[on] - 1].end),
        )
    if words[:2] == ["ALTER", "TABLE"]:
        stop = next((k for k in range(2, len(words)) if words[k] in ("ALTER", "ADD", "SET")), 2)
        if stop > 2:
            return (Span(tokens[level[2]].start, tokens[level[stop] - 1].end),)
    verb = _verb(words)
    if words[verb] == "UPDATE" and "SET" in words[verb:]:
        k = verb
        stop = words.index("SET", k)
        if stop > k + 1:
            sources.append(Span(tokens[level[k + 1]].start, tokens[level[stop] - 1].end))
    elif words[verb] == "INSERT" and "INTO" in words:
        selects = [k for k, w in enumerate(words) if w in ("SELECT", "FROM", "VALUES")]
        late = [k for k, w in enumerate(words) if w in ("RETURNING", "CONFLICT")]
        if late and place > level[late[0]]:
            k = words.index("INTO")
            stop = min([j for j in [*selects, *late] if j > k], default=len(level))
            names = [level[j] for j in range(k + 1, stop)]
            name_end = next((j for j in names if tokens[j].is_symbol("(")), None)
            last = (name_end or level[stop]) - 1
            return (Span(tokens[level[k + 1]].start, tokens[last].end),)
    elif words[0] in ("PIVOT", "UNPIVOT") and len(level) > 1:
        stop = next((k for k, w in enumerate(words) if w in ("ON", "USING")), len(level))
        return (Span(tokens[level[1]].start, tokens[level[stop] - 1].end),)
    span = _clause(tokens, level, "FROM")
    if span is not None:
        if words[verb] == "DELETE" and "USING" in words:
            k = words.index("USING")
            table = Span(span.start, tokens[level[k] - 1].end)
            sources += [table, Span(tokens[level[k]].end, span.end)]
        else:
            sources.append(span)
    return tuple(sources)


def _verb(words: list[str]) -> int:
    """Index of the word that says what the statement does, behind EXPLAIN and PREPARE .. AS."""
    at = 0
    if words[at] == "EXPLAIN":
        at += 1 + (words[1:2] == ["ANALYZE"])
    if words[at : at + 1] == ["PREPARE"] and "AS" in words:
        at = words.index("AS") + 1
    return min(at, len(words) - 1)


def _aliases(tokens: Sequence[Token], level: list[int]) -> tuple[Span, ...]:
    """The select items `expression AS name`, which other items and clauses may use by name."""
    span = _clause(tokens, level, "SELECT")
    if span is None:
        return ()
    inside = [i for i in level if span.start <= tokens[i].start < span.end]
    items: list[list[int]] = [[]]
    for i in inside:
        if tokens[i].is_symbol(","):
            items.append([])
        else:
            items[-1].append(i)
    found = []
    for item in items:
        if len(item) >= 3 and tokens[item[-2]].upper == "AS":
            found.append(Span(tokens[item[0]].start, tokens[item[-1]].end))
        elif len(item) >= 3 and tokens[item[1]].is_symbol(":"):  # DuckDB's `name: expression`
            found.append(Span(tokens[item[0]].start, tokens[item[-1]].end))
    return tuple(found)
