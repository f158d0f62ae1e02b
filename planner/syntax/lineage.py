"""`Lineage`: which column of which table each expression of a query comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from sqlml.parsing.places import Span, is_written, span
from sqlml.planner.syntax.joins import is_unnest
from sqlml.planner.syntax.outline import splice
from sqlml.planner.syntax.resolved_query import CALLED, STAR, ColumnsOf, named_place, resolved
from sqlml.types import fold

# `correlated`: subqueries of one row that look at others by a column of the query around them.
#
# ::
#
#     SELECT u.id, (SELECT avg(amount) FROM orders o WHERE o.user = u.id) AS mean FROM users u
#     SELECT u.id, l.mean FROM users u, LATERAL (SELECT avg(..) AS mean FROM orders ..) AS l
#
# Where that column is NULL for a row, the engine looks at no order for it.


@dataclass(frozen=True, slots=True)
class Correlated:
    """A subquery that has one row whatever its columns from outside, as an aggregate does.

    place: with its brackets. outer: its columns from outside; names: by which it calls its tables,
    folded. sources: CTEs among them. A LATERAL without FROM has none of all this: its items are as
    if they stood outside.
    """

    node: exp.Expr
    place: Span
    outer: tuple[exp.Column, ...]
    names: frozenset[str]
    sources: tuple[Scope, ...]

    @property
    def spans(self) -> tuple[Span, ...]:
        """The places of its columns from outside."""
        return tuple(place for column in self.outer if (place := span(column)) is not None)


def correlated(sql: str, node: exp.Expr, scope: Scope) -> list[Correlated]:
    """Those of an expression of a query block; the others are not followed."""
    found = []
    for below in scope.subquery_scopes:
        query = below.expression.parent
        if isinstance(query, exp.Subquery) and any(n is query for n in node.walk()):
            made = _correlated(sql, query, below)
            if made is not None:
                found.append(made)
    return found


def outside_of(node: exp.Expr, subqueries: list[Correlated]) -> Iterator[exp.Expr]:
    """The nodes of an expression but for those of subqueries."""
    whole = [s.node for s in subqueries]
    for part in node.walk(prune=lambda n: any(n is query for query in whole)):
        if not any(part is query for query in whole):
            yield part


def laterals(sql: str, scope: Scope) -> dict[int, tuple[Correlated, Scope]]:
    """The joined subqueries of a block that see the tables before them: by the identity of what is
    joined, with their blocks.

    Raises:
        ValueError: one may have several rows, or none, for a row.
    """
    found = {}
    for join in scope.expression.args.get("joins") or ():
        table = join.this
        below = scope.sources.get(table.alias_or_name)
        if not isinstance(below, Scope):
            continue
        if isinstance(table, exp.Lateral):
            inner = below.subquery_scopes
            own = inner[0] if len(inner) == 1 else None
        elif isinstance(table, exp.Subquery) and below.external_columns:
            own = below
        else:
            continue
        made = None if own is None else _lateral(sql, join, own)
        if own is None or made is None:
            raise ValueError("a LATERAL of several rows, or none")
        found[id(table)] = made, own
    return found


def _lateral(sql: str, join: exp.Join, scope: Scope) -> Correlated | None:
    table = join.this
    query = table.this if isinstance(table, exp.Lateral) else table
    select = scope.expression
    if not isinstance(query, exp.Subquery) or not isinstance(select, exp.Select):
        return None
    if any(select.args.get(key) for key in ("with_", "joins", "qualify", "windows", "distinct")):
        return None
    outer = tuple(scope.external_columns)
    if not all(is_written(column) and span(column) for column in outer):
        return None
    if any(below is not scope for below in scope.traverse()):
        return None  # with queries of its own
    always = _is_cross(join)
    names = frozenset(fold(name) for name in scope.sources)
    if select.args.get("from_") is None:
        several = any(is_unnest(n) for item in select.selects for n in item.walk())
        if several or select.args.get("where") or any(select.args.get(k) for k in _FEWER_ROWS):
            return None
        return Correlated(query, Span(0, 0), (), names, ()) if always or _is_left(join) else None
    if any(fold(column.table) in names for column in outer):
        return None
    begin, inner = span(query), span(select)
    end = -1 if inner is None else sql.find(")", inner.end)
    if begin is None or end < 0 or not outer:
        return None
    below = tuple(s for s in scope.sources.values() if isinstance(s, Scope))
    made = Correlated(query, Span(begin.start, end + 1), outer, names, below)
    if _is_left(join) and _is_of_one_row(select):
        return made
    rows = [select.args.get(key) for key in _FEWER_ROWS]
    items = [list(item.walk()) for item in select.selects]
    if any(rows) or not (always or _is_left(join)):
        return None
    if not all(any(map(_is_aggregate, item)) for item in items):
        return None
    mixed = any(part is column or is_unnest(part) for i in items for part in i for column in outer)
    return None if mixed or any(isinstance(n, exp.Window) for i in items for n in i) else made


_FEWER_ROWS = ("group", "having", "limit", "offset", "sample")


def _is_cross(join: exp.Join) -> bool:
    """Whether it is a comma or CROSS JOIN."""
    told = any(join.args.get(key) for key in ("on", "using", "side", "method"))
    return not told and join.args.get("kind") in (None, "", "CROSS")


def _is_left(join: exp.Join) -> bool:
    """Whether it is LEFT JOIN .. ON true, which keeps each row."""
    on = join.args.get("on")
    told = isinstance(on, exp.Boolean) and bool(on.this)
    return told and str(join.args.get("side") or "").upper() == "LEFT"


def _is_of_one_row(select: exp.Select) -> bool:
    """Whether LIMIT 1 is all that says how many rows there are."""
    limit = select.args.get("limit")
    if not isinstance(limit, exp.Limit) or limit.args.get("limit_options") is not None:
        return False
    number = limit.expression
    return isinstance(number, exp.Literal) and number.this == "1" and not select.args.get("offset")


def _correlated(sql: str, query: exp.Subquery, scope: Scope) -> Correlated | None:
    select, inner, begin = query.this, span(query.this), span(query)
    if not isinstance(select, exp.Select) or inner is None or begin is None:
        return None
    if any(select.args.get(key) for key in _SEVERAL_ROWS) or len(select.selects) != 1:
        return None
    item = list(select.selects[0].walk())
    if not any(map(_is_aggregate, item)) or any(isinstance(n, exp.Window) for n in item):
        return None
    if any(below is not scope for below in scope.traverse()):
        return None  # with queries of its own
    outer = tuple(scope.external_columns)
    if not outer or not all(is_written(column) and span(column) for column in outer):
        return None
    if any(part is column for part in item for column in outer) or any(map(is_unnest, item)):
        return None  # what it selects is of its own rows alone: an aggregate of others is not its
    names = frozenset(fold(name) for name in scope.sources)
    end = sql.find(")", inner.end)
    if end < 0 or any(fold(column.table) in names for column in outer):
        return None
    below = tuple(s for s in scope.sources.values() if isinstance(s, Scope))
    return Correlated(query, Span(begin.start, end + 1), outer, names, below)


_SEVERAL_ROWS = ("group", "having", "qualify", "windows", "distinct", "with_", "limit", "offset")


def _is_aggregate(node: exp.Expr) -> bool:
    named = isinstance(node, exp.Anonymous) and fold(node.name) in _AGGREGATES
    return named or isinstance(node, exp.AggFunc)


_AGGREGATES = frozenset(
    "any_value arg_max arg_min avg bool_and bool_or count first kurtosis last list max max_by "
    "median min min_by mode product quantile_cont quantile_disc skewness stddev stddev_pop "
    "stddev_samp string_agg sum var_pop var_samp variance".split()
)


TypeOf = Callable[[str], str | None]
"""What a function that the user has made returns; None for any other function."""


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """A joined table, a call of a function, a correlated subquery or a part of LATERAL, and the
    query block where it stands.

    name: as EXPLAIN has it. span: its place in the text, of a table without its alias; called: the
    name of a table that has none, as written. block: the place of the block. outer: the places of a
    subquery's columns from outside; names: by which it calls its tables, folded.
    """

    name: str
    kind: str
    span: Span
    block: Span
    called: str = ""
    outer: tuple[Span, ...] = ()
    names: frozenset[str] = frozenset()

    def idle(self, sql: str) -> str:
        """What stands in its place in `sql` where it is not needed: no row, or NULL."""
        written = sql[self.span.start : self.span.end]
        if self.kind == "join":
            return f"(SELECT * FROM {written} LIMIT 0) {self.called}".rstrip()
        if self.kind == "lateral" and self.outer:
            nulls = {p: f"CASE WHEN false THEN {sql[p.start : p.end]} END" for p in self.outer}
            return splice(sql, {}, nulls, self.span)
        return f"CASE WHEN false THEN {written} END"


_DEAR = (
    *("list_", "array_", "regexp_", "string_split", "str_split", "json_", "levenshtein"),
    *("damerau_levenshtein", "jaccard", "jaro_", "hamming", "editdist3"),
)
"""How the names of the engine's own functions begin of which a call may take long."""

_NESTED_AGGREGATES = ("array_agg", "json_group_")


class Lineage:
    """The columns of one DuckDB query and what they need.

    Args:
        more: expressions that a block, by its place, is to select besides its own.
        without: the places of calls that count for nothing.

    Raises:
        ParseError, SqlglotError: it cannot be followed.
    """

    def __init__(
        self,
        sql: str,
        columns: ColumnsOf,
        returned: TypeOf,
        more: Mapping[Span, Sequence[str]] = MappingProxyType({}),
        without: Sequence[Span] = (),
    ) -> None:
        self.sql = sql
        self._returned = returned
        self.across_rows = set[FeatureSource]()
        self._entered = set[int]()
        self._added, self.added, self.whole = resolved(sql, columns, more, without)
        self._laterals: dict[int, tuple[Correlated, Scope]] = {}
        self._of_one_row = set[int]()
        for scope in self.whole.traverse():
            self._laterals |= laterals(sql, scope)
            self._of_one_row |= {id(s.node) for s in correlated(sql, scope.expression, scope)}
        self._of_one_row |= {id(found.node) for found, _ in self._laterals.values()}

    def is_added(self, item: exp.Expr) -> bool:
        """Whether it is an item that a block selects besides its own."""
        return item.alias_or_name.startswith(self._added)

    def is_followed(self, scope: Scope) -> bool:
        """Whether a block is a subquery or LATERAL of one row, so that nothing needs it but what
        reads it."""
        return id(scope.expression.parent) in self._of_one_row

    def is_lateral(self, join: exp.Join) -> bool:
        """Whether a join brings one row for each row, by LATERAL."""
        return id(join.this) in self._laterals

    def block(self, place: Span) -> Scope | None:
        """The query block at a place."""
        found = [s for s in self.whole.traverse() if span(s.expression) == place]
        return found[0] if found else None

    def item(self, scope: Scope, name: str) -> exp.Expr | None:
        """What a block selects under a name."""
        if not isinstance(scope.expression, exp.Select):
            return None
        items = scope.expression.selects
        return next((i for i in items if i.alias_or_name == name), None)

    def needs(self, node: exp.Expr, scope: Scope) -> frozenset[FeatureSource]:
        """What an expression of a query block needs that is not computed for all columns.

        What feeds an aggregate, a window or a list that is unnested goes to `across_rows`, too: the
        results of other rows depend on it.
        """
        found = set[FeatureSource]()
        subqueries = correlated(self.sql, node, scope)
        for subquery in subqueries:
            found.add(self._of_subquery(subquery, scope))
            for outer in subquery.outer:
                found |= self._of_column(outer, scope)
            for below in subquery.sources:
                found |= self.everything(below)
        own = list(outside_of(node, subqueries))
        for call in self._dear_calls(own):
            found |= self._of_call(call, scope)
        if any(map(_is_any_column, own)):
            found |= self.everything(scope)
        for column in own:
            if isinstance(column, exp.Column):
                found |= self._of_column(column, scope)
        if any(isinstance(n, exp.AggFunc | exp.Window) for n in own):
            self.across_rows |= found
        return frozenset(found)

    def everything(self, scope: Scope) -> frozenset[FeatureSource]:
        """What any column of a block may need, where nobody can say which it is: that of a struct
        that is unnested, a whole row, or one from outside."""
        if id(scope) in self._entered:
            return frozenset()  # a CTE that reads itself
        self._entered.add(id(scope))
        found = set[FeatureSource]()
        for call in self._dear_calls(list(scope.expression.walk())):
            found |= self._of_call(call, scope)
        for join in scope.expression.args.get("joins") or ():
            found |= self.of_join(join, scope)
        for below in scope.sources.values():
            if isinstance(below, Scope):
                found |= self.everything(below)
        self._entered.remove(id(scope))
        return frozenset(found)

    def _dear_calls(self, nodes: Sequence[exp.Expr]) -> Iterator[exp.Anonymous]:
        """The calls of functions that may take long, and are not in another one's arguments."""
        calls = [n for n in nodes if isinstance(n, exp.Anonymous) and self._kind(n) is not None]
        dear = set(map(id, calls))
        for call in calls:
            above = call.parent
            while above is not None and id(above) not in dear:
                above = above.parent
            if above is None:
                yield call

    def _of_subquery(self, found: Correlated, scope: Scope) -> FeatureSource:
        written = " ".join(self.sql[found.place.start : found.place.end].split())
        return FeatureSource(
            written, "subquery", found.place, _block(scope), "", found.spans, found.names
        )

    def _kind(self, call: exp.Anonymous) -> str | None:
        """What a function that may take long returns; None for another one."""
        name = fold(call.name)
        if name.startswith(_DEAR) and not name.startswith(_NESTED_AGGREGATES):
            return "ANY"
        return self._returned(call.name)

    def _of_call(self, call: exp.Anonymous, scope: Scope) -> set[FeatureSource]:
        place, kind = span(call), self._kind(call)
        if place is None or kind is None or self.sql[: place.start].rstrip().endswith("."):
            return set()  # of a schema, it could not be replaced
        written = " ".join(self.sql[place.start : place.end].split())
        block = span(call.find_ancestor(exp.Select) or scope.expression) or _block(scope)
        source = FeatureSource(written, "call", place, block)
        if _is_unnested(call) and not _is_a_struct(call, kind):
            self.across_rows.add(source)
        return {source}

    def _of_column(self, column: exp.Column, scope: Scope) -> frozenset[FeatureSource]:
        if not column.table:
            item = self.item(scope, column.name)  # whose alias it is, as in ORDER BY
            if item is None or any(n is column for n in item.walk()):
                return self.everything(scope)
            return self.needs(item, scope)
        join, below = joined(scope, column.table), scope.sources.get(column.table)
        if join is not None and id(join.this) in self._laterals:
            return self._of_lateral(join.this, column.name, scope)
        own = frozenset[FeatureSource]() if join is None else self.of_join(join, scope)
        if below is None:
            return own | self.everything(self.whole)
        if not isinstance(below, Scope):
            return own
        item = self.item(below, column.name)
        return own | (self.everything(below) if item is None else self.needs(item, below))

    def _of_lateral(self, table: exp.Expr, name: str, scope: Scope) -> frozenset[FeatureSource]:
        """What a column of a LATERAL needs."""
        subquery, own = self._laterals[id(table)]
        called = f"lateral {table.alias_or_name}"
        found = set[FeatureSource]()
        block = _block(scope)
        if subquery.outer:
            found.add(
                FeatureSource(
                    called, "lateral", subquery.place, block, "", subquery.spans, subquery.names
                )
            )
            for outer in subquery.outer:
                found |= self._of_column(outer, scope)
            for below in subquery.sources:
                found |= self.everything(below)
            return frozenset(found)
        item, select = self.item(own, name), own.expression
        if item is None or not isinstance(select, exp.Select):
            return self.everything(self.whole)
        nodes = list(item.walk())
        aliases = frozenset(fold(str(name)) for name in select.named_selects)
        for call in self._dear_calls(nodes):
            found |= {
                FeatureSource(s.name, "lateral", s.span, block, "", (), aliases)
                for s in self._of_call(call, own)
            }
        for node in nodes:
            if isinstance(node, exp.Column):
                found |= self._of_column(node, scope)
        return frozenset(found)

    def of_join(self, join: exp.Join, scope: Scope) -> frozenset[FeatureSource]:
        place = self.place_of(join.this) if is_left(join) else None
        if place is None:
            return frozenset()
        called, table = join.this.meta.get(CALLED, ""), join.this.alias_or_name
        return frozenset({FeatureSource(f"join {table}", "join", place, _block(scope), called)})

    def unnamed(self, scope: Scope) -> frozenset[FeatureSource]:
        """What the structs need that a block unnests, or one below it whose columns it takes by a
        star: they make columns of which the tree does not know the names."""
        found, waiting, seen = set[FeatureSource](), [scope], set[int]()
        while waiting:
            block = waiting.pop()
            seen.add(id(block))
            select = block.expression
            for item in select.selects if isinstance(select, exp.Select) else ():
                if any(fold(f.name) == "unnest" for f in functions(item)):
                    found |= self.everything(block)
            if self.has_star(block):
                below = [s for s in block.sources.values() if isinstance(s, Scope)]
                waiting += [s for s in below if id(s) not in seen]
        return frozenset(found)

    def makes_rows(self, item: exp.Expr) -> bool:
        """Whether an item of a block unnests lists, so that a row becomes several or none."""
        return any(is_unnest(node) and not self._is_a_struct(node) for node in item.walk())

    def _is_a_struct(self, node: exp.Expr) -> bool:
        """Whether UNNEST makes columns of what a function of the user's gives, and no rows."""
        inner = node.expressions[0] if len(node.expressions) == 1 else node.this
        kind = self._returned(inner.name) if isinstance(inner, exp.Anonymous) else None
        return kind is not None and _is_a_struct(inner, kind)

    def has_star(self, scope: Scope) -> bool:
        """Whether a block selects all columns of a table, whatever they are."""
        return bool(scope.expression.meta.get(STAR))

    def called(self, table: exp.Expr) -> str:
        """The name by which a block calls a table or subquery, as SQL."""
        own = table.meta.get(CALLED)
        if own:
            return str(own)
        return exp.to_identifier(table.alias_or_name, quoted=True).sql("duckdb")

    def place_of(self, table: exp.Expr) -> Span | None:
        """The place of a table or subquery of FROM without its alias."""
        if isinstance(table, exp.Subquery):
            whole, inner = span(table), span(table.this)
            if whole is None or inner is None:
                return None
            end = self.sql.find(")", inner.end)
            return Span(whole.start, end + 1) if end >= 0 else None
        return named_place(table) if isinstance(table, exp.Table) else None


def functions(node: exp.Expr) -> Iterator[exp.Anonymous]:
    """The calls of functions that sqlglot does not know."""
    yield from node.find_all(exp.Anonymous)


def joined(scope: Scope, table: str) -> exp.Join | None:
    """The join of a block that brings a table."""
    joins = scope.expression.args.get("joins") or ()
    return next((join for join in joins if join.this.alias_or_name == table), None)


def _is_any_column(node: exp.Expr) -> bool:
    """Whether it stands for columns that nobody has counted: a star in a function, COLUMNS(..), a
    whole row."""
    if isinstance(node, exp.Star):
        above = node.parent
        counts = isinstance(above, exp.Anonymous) and fold(above.name) == "count"
        return not (counts or isinstance(above, exp.Count | exp.Column))
    columns = isinstance(node, exp.Anonymous) and fold(node.name) == "columns"
    return columns or isinstance(node, exp.Columns | exp.Pivot | exp.TableColumn)


def _is_unnested(call: exp.Anonymous) -> bool:
    above = call.parent
    while above is not None and not isinstance(above, exp.Select):
        if isinstance(above, exp.Anonymous) and fold(above.name) == "unnest":
            return True
        above = above.parent
    return False


def _is_a_struct(call: exp.Anonymous, kind: str) -> bool:
    """Whether UNNEST makes columns of a call, and no rows."""
    above = call.parent
    direct = isinstance(above, exp.Anonymous) and fold(above.name) == "unnest"
    return direct and kind.upper().startswith("STRUCT") and kind.endswith(")")


def is_left(join: exp.Join) -> bool:
    return str(join.args.get("side") or "").upper() == "LEFT"


def _block(scope: Scope) -> Span:
    place = span(scope.expression)
    if place is None:
        raise ValueError("a block that does not stand in the text")
    return place
