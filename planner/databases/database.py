"""`Database`: what a database in which sqlml does not run spells its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlml.dialects.portable import Portable
from sqlml.planner.databases.range_errors import RangeErrors


@dataclass(frozen=True, slots=True)
class Database:
    """A database that a model is exported for.

    Attributes:
        name: as people call it. dialect: as sqlglot calls its SQL.
        numbers: what its arithmetic needs.
        literal: a finite number -> a literal of the type of float64.
        scales_results: whether a CASE gives whole numbers, which a factor outside of it scales: for
            a database that takes long to prepare many computed constants.
        infinity: +infinity, as an expression; of a database without, its greatest number, which
            does for what is between inputs and results (`has_infinity`).
        range_errors: what ends a query there for a number of one row.
        functions: name -> an expression of `x` in place of a function that the database lacks.
        number_column: a column -> the same as a float64, and NULL where it is NaN.
        boolean_column: a column that is likely to be BOOLEAN -> the same as a float64, whether it
            is one or holds numbers; None: `number_column` does it.
        text_column: a column -> a text that equals another only if all bytes are the same.
        date_column: a date or a timestamp without a time zone -> the microseconds since 1970 as a
            float64; None: no dates.
        ending: what `text_column` adds to each text, and a text that is compared with it has too.
        odd_text: a text with a backslash or beyond ASCII -> a literal that means the same under all
            settings of the database and of a connection; None: the plain one does.
        float32: its type of 32 bits, where sqlglot takes another for it.
        booleans: expressions of false and true, where it has no such words.
        types: of parameters and results, by the kinds of features and predictions.
        function: a statement that makes a function, with places for its name, parameters with
            their types or their `names` alone, type and query, and for a tag that the query does
            not have; None: it has no functions that are written in SQL.
        merges: of a database that merges the queries of a function: how long an expression may
            become by that, in characters.
        tags: if given, the only tags that the database knows.
        reserved: where a name without quotes is another one in them, as in capitals: the words that
            need quotes all the same. Other plain names are written without.
        functions_of_rows: names that stand for a function behind the name of a table and a point,
            if that has no column of that name: `t.count` is `count(t)` there.
        fence: ends a query that must not be merged into the one around it, which would compute
            its columns several times.
        settings: ends a SELECT that is not a view's, in place of fences: for a database whose
            fences take away its parallelism.
        characters: the longest statement that it takes by default.
        raised: a statement by which a connection takes longer ones.
        columns: the most columns of a query.
        cases: how many CASEs may stand in each other.
        has_nodes: whether trees may be rows of a table that a query walks.
        is_run: whether sqlml's tests run it.
    """

    name: str
    dialect: str
    numbers: Portable
    literal: Callable[[float], str]
    infinity: str
    number_column: Callable[[str], str]
    text_column: Callable[[str], str]
    types: Mapping[str, str]
    boolean_column: Callable[[str], str] | None = None
    date_column: Callable[[str], str] | None = None
    scales_results: bool = False
    ending: str = ""
    odd_text: Callable[[str], str] | None = None
    float32: str = ""
    booleans: tuple[str, ...] = ()
    function: str | None = None
    functions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    has_infinity: bool = True
    range_errors: RangeErrors = RangeErrors()
    merges: int | None = None
    tags: tuple[str, ...] = ()
    reserved: frozenset[str] | None = None
    functions_of_rows: frozenset[str] = frozenset()
    fence: str = ""
    settings: str = ""
    characters: int = 1 << 24
    raised: str = ""
    columns: int = 1600
    cases: int = 200
    has_nodes: bool = False
    is_run: bool = False
