"""`Source`: a FROM clause that can take a column more.

That is where it is one table, file or subquery, and where nobody can see that it has another column
now: stars leave it out, and nobody takes whole rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlml.dialects import Dialect
from sqlml.front.lexer import Token
from sqlml.front.lexer import level as top_level
from sqlml.planner.blocks import block_at, block_tokens
from sqlml.planner.calls import Call
from sqlml.planner.clauses import Span, keyword
from sqlml.planner.conditions import filters
from sqlml.planner.ctes import with_clause
from sqlml.planner.select_items import means_outputs
from sqlml.types import fold

_SETS_OF_COLUMNS = frozenset({"LIKE", "ILIKE", "GLOB", "SIMILAR", "NOT"})
"""What may follow a star and does not go with EXCLUDE."""

_QUERIES = ("SELECT", "WITH", "FROM")


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


def source_of(
    sql: str, tokens: Sequence[Token], place: int, calls: Iterable[Call]
) -> Source | None:
    """The FROM clause of the block around token `place`; None where it must stay as it is.

    `calls` are the model calls of the statement: what stands inside them is written anew anyway.
    """
    if before_query(tokens) is None:
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
    own = tuple(filters(tokens, place, in_calls))
    return Source(span, sql[alias.start : alias.end], tuple(stars), tuple(excluded), own)


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


def before_query(tokens: Sequence[Token]) -> range | None:
    """The tokens of a statement that say where the rows of its query go; None if it is none.

    CREATE TABLE or VIEW .. AS, and INSERT INTO .., also behind WITH; not FROM .. INSERT INTO ..

    >>> from sqlml.front.lexer import tokenize
    >>> [before_query(tokenize(s)) for s in ("SELECT 1", "INSERT INTO t SELECT 1", "DROP TABLE t")]
    [range(0, 0), range(0, 3), None]
    """
    words = [token.upper for token in tokens]
    level = top_level(tokens, 0, len(tokens))
    _, _, body = with_clause(tokens, level, len(tokens))
    begin = end = 0 if words[0] in ("CREATE", "INSERT") else body or 0
    if words[begin] == "CREATE" and {"TABLE", "VIEW"} & set(words[:5]):
        end = next((i + 1 for i in level if words[i] == "AS"), begin)
    elif words[begin] == "INSERT":
        end = next((i for i in level if i > begin and words[i] in _QUERIES), begin)
    elif any(keyword(tokens, level, k) == "INSERT" for k in range(len(level))):
        return None
    is_query = end < len(words) and (words[end] in _QUERIES or tokens[end].is_symbol("("))
    return range(begin, end) if is_query else None


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
