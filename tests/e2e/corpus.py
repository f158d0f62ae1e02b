"""The corpus of queries in tests/golden/sql/scored: how it is read, and when two results agree.

A file holds cases, each a few sections that begin with a comment at the start of a line::

    -- name: what the case shows
    SELECT id, predict('churn', *) AS p FROM customers
    -- expect:
    SELECT id, p FROM scored

The text below the name is what sqlml runs; the text below `expect` runs on a plain DuckDB
connection, whose table `scored` has the source library's own scores (`corpus_shop.py`). Further
sections, each where it is needed:

* `setup`: statements that both run before; `then`: a query of the outcome that both run after;
* `rows`: a plain query of the rows that the models see, where they are not those of customers;
  the library scores them, into the table `given` of the plain connection;
* `parameters`: a Python literal for the query, `expected parameters` one for the other text;
* `since`: the version of DuckDB that has the syntax;
* `known`: why the case fails today; it is expected to, until somebody mends it;
* `spark`, `spark setup`, `spark then`: the same in the words of Spark, where these are others;
* `spark gap`: why Spark has no such query; nothing is run there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlml.parsing.parse import split_sql
from sqlml.parsing.tokens import tokenize
from sqlml.planner.plan.plan import Plan
from sqlml.planner.rewrites.widened_from import find_source
from sqlml.planner.syntax.read_outline import read_outline
from sqlml.planner.syntax.table_forms import find_table_forms

FOLDER = Path(__file__).parents[1] / "golden" / "sql" / "scored"

_MARK = re.compile(
    r"^-- (name|setup|rows|parameters|expected parameters|expect|then|since|known|spark|"
    r"spark setup|spark then|spark gap):[ ]*",
    re.MULTILINE,
)
_READS = frozenset("SELECT FROM WITH VALUES PIVOT UNPIVOT DESCRIBE SUMMARIZE".split())
_NEAR = {"rel": 1e-6, "abs": 1e-12}


@dataclass(frozen=True, slots=True)
class Case:
    """One case of the corpus; texts that it lacks are empty."""

    file: str
    name: str
    query: str
    expect: str
    setup: str = ""
    rows: str = ""
    then: str = ""
    parameters: Any = None
    expected_parameters: Any = None
    since: str = ""
    known: str = ""
    spark: str = ""
    spark_setup: str = ""
    spark_then: str = ""
    spark_gap: str = ""

    @property
    def writes(self) -> bool:
        """Whether it changes the database, or what the connection remembers."""
        found = [tokenize(statement) for statement in split_sql(self.query)]
        reads = all(tokens[0].upper in _READS or tokens[0].text == "(" for tokens in found)
        return bool(self.setup or self.then) or len(found) > 1 or not reads

    @property
    def runs(self) -> bool:
        """Whether this version of DuckDB has the syntax."""
        return _version(duckdb.__version__) >= _version(self.since or "0")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text)[:2])


def cases() -> list[Case]:
    """All cases of all files, in the order of their names and of their lines."""
    return [case for path in sorted(FOLDER.glob("*.sql")) for case in _cases_of(path)]


def _cases_of(path: Path) -> Iterator[Case]:
    text = path.read_text(encoding="utf-8")
    marks = list(_MARK.finditer(text))
    sections: list[dict[str, str]] = []
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    for mark, end in zip(marks, ends, strict=True):
        body = text[mark.end() : end].strip()
        if mark[1] == "name":
            sections.append({})
            name, _, body = body.partition("\n")
            sections[-1]["name"] = name
            if body:
                sections[-1]["query"] = body.strip()
        else:
            # the lines after one that says a value are the query's
            value = mark[1] in ("parameters", "expected parameters", "since", "known", "spark gap")
            head, _, rest = body.partition("\n") if value else (body, "", "")
            assert mark[1] not in sections[-1], (path, sections[-1]["name"], mark[1])
            sections[-1][mark[1]] = head
            if rest.strip():
                sections[-1]["query"] = rest.strip()
    for found in sections:
        values = {
            key.replace(" ", "_"): ast.literal_eval(found.pop(key))
            for key in ("parameters", "expected parameters")
            if key in found
        }
        yield Case(path.stem, **{k.replace(" ", "_"): v for k, v in found.items()}, **values)


def is_ordered(sql: str) -> bool:
    """Whether the last statement of `sql` orders its result.

    >>> is_ordered("SELECT max(a ORDER BY b) FROM t"), is_ordered("FROM t ORDER BY a")
    (False, True)
    """
    words = re.sub(r"'[^']*'|--[^\n]*|/\*.*?\*/", "", sql.strip().rstrip(";"), flags=re.DOTALL)
    while (inner := re.sub(r"[(\[{][^()\[\]{}]*[)\]}]", "", words)) != words:
        words = inner
    return bool(re.search(r"\bORDER\s+BY\b", words.rpartition(";")[2], re.IGNORECASE))


def check_same(found: Any, expected: Any, ordered: bool) -> None:
    """Both connections' last results: the same columns, types and rows."""
    columns, wanted = (
        [(d[0], str(d[1])) for d in each.description or ()] for each in (found, expected)
    )
    rows, wanted_rows = found.fetchall(), expected.fetchall()
    assert columns == wanted, (columns, wanted)
    check_rows(rows, wanted_rows, ordered)


def check_rows(found: list[Any], expected: list[Any], ordered: bool) -> None:
    """The same rows, floats to 1e-6 relative; in the same order where the query gives one."""
    if not ordered:
        found, expected = sorted(found, key=_key), sorted(expected, key=_key)
    assert len(found) == len(expected), (len(found), len(expected))
    for a, b in zip(found, expected, strict=True):
        assert len(a) == len(b), (a, b)
        for x, y in zip(a, b, strict=True):
            assert same(x, y), (a, b)


def _key(value: Any) -> Any:
    """A text by which values sort whose floats differ in the last digits."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)}: {_key(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_key, value)) + ")"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def same(found: Any, expected: Any) -> bool:
    """Whether two values are of one type and equal, floats anywhere in them nearly.

    >>> same([1.0, None], [1.0 + 1e-9, None]), same(1, 1.0), same({"a": 1}, {"a": 2})
    (True, False, False)
    """
    if type(found) is not type(expected):
        return False
    if isinstance(found, float):
        return bool(found == pytest.approx(expected, nan_ok=True, **_NEAR))
    if isinstance(found, dict):
        keys = list(found)
        return keys == list(expected) and all(same(found[k], expected[k]) for k in keys)
    if isinstance(found, tuple | list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


_NAMED = r'(?: AS "(?:[^"]|"")*")?'
"""A column's name, which may be put behind a token: the engine would name it after our text."""


_SIGNS = ("<", ">", "<=", ">=")


def check_only_calls_changed(plan: Plan) -> None:
    """The text that the engine gets is the user's, but for the calls.

    Positional parameters may have other numbers, and a FROM clause may have got a column that
    several calls share, which the stars of its block leave out. Where a score is compared in place
    of a probability, the sign and the number are others. A table form becomes a subquery.
    """
    sql, tokens = plan.statement, tokenize(plan.statement)
    outline, sources, free = read_outline(sql), set(), []
    for call in outline.calls:
        start, end = call.span.start, call.span.end
        written = " ".join(sql[start:end].split())
        planned = [c for c in plan.calls if c.call_text == written]
        if planned:
            free.append((start, end))
        source = find_source(call, outline)
        if source is not None and any(c.shared and c.shared.in_from for c in planned):
            sources.add(source)
    free += [(s.span.start, s.span.end) for s in sources]
    free += [(form.span.start, form.span.end) for form in find_table_forms(sql)]
    places = {token.start: i for i, token in enumerate(tokens)}
    own = {
        **{places[p.start]: r"\*(?: EXCLUDE \([^)]*\))?" for s in sources for p in s.stars},
        **{places[p.start]: r"\((?:[^)]*, )?" for s in sources for p in s.exclude_lists},
        **{i: r" ?(?:\?|\$\w+) ?" for i, t in enumerate(tokens) if t.kind == "param"},
    }
    if any("compared in place of" in call.output for call in plan.calls):
        for i, token in enumerate(tokens):
            written = own.get(i, re.escape(sql[token.start : token.end]))
            if token.kind in ("number", "param"):
                own[i] = rf"(?:{written}| ?'[^']*'::DOUBLE ?)"
            elif token.text in _SIGNS:
                own[i] = "[<>]=?"
    pattern, at = "", 0
    for i, token in enumerate(tokens):
        if token.start < at:
            continue
        begin = min([token.start, *(start for start, _ in free if start >= at)])
        pattern += re.escape(sql[at:begin])
        ends = [end for start, end in free if start == begin]
        at = max([token.end, *ends])
        kept = own.get(i, re.escape(sql[token.start : token.end])) + _NAMED
        pattern += ".*?" if ends else kept
    pattern += re.escape(sql[at:])
    assert re.fullmatch(pattern, plan.sql, re.DOTALL), plan.sql
