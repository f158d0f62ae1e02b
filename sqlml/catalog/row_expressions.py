"""Expressions over a row that are kept with a model: TRANSFORM (..), parts of dates and nested
values, and texts without NULL.

The engine's own parser reads them (`json_serialize_sql`), and prints them with each function and
operator by its full name, and a place in place of each column. So what is kept means the same in
every database, runs nothing but functions of the engine, and can be checked as it is read back: a
database may come from a stranger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlml.dialects.duckdb import builtin
from sqlml.dialects.type_names import NUMBERS
from sqlml.errors import ArtifactError, ParseError
from sqlml.types import fold

# Calls of functions in trees of the engine's parser.


def called(tree: Mapping[str, Any]) -> str | None:
    """The function that a tree calls, folded: of BigQuery's `ML.name` it is `ml_name`; None if it
    is something else."""
    name = fold(str(tree.get("function_name") or ""))
    if tree["class"] not in ("FUNCTION", "WINDOW") or not name:
        return None
    return f"ml_{name}" if fold(str(tree.get("schema") or "")) == "ml" else name


def check_plain_call(tree: Mapping[str, Any]) -> None:
    """Refuse what a call of a preprocessing function cannot have.

    Raises:
        ParseError: arguments by name, or something that chooses or orders rows.
    """
    name = called(tree)
    if any("sqlml_name" in argument for argument in argument_trees(tree)):
        raise ParseError(f"{name} takes its arguments by place: leave out their names")
    if any(tree.get(part) for part in _CHOICES) or is_ordered(tree) or _has_frame(tree):
        raise ParseError(
            f"{name} knows all rows that the model is fitted to: write OVER () with nothing in it, "
            "and no DISTINCT, FILTER or ORDER BY"
        )


_CHOICES = ("distinct", "filter", "filter_expr", "partitions", "orders", "arg_orders")


def _has_frame(tree: Mapping[str, Any]) -> bool:
    """Whether OVER (..) or IGNORE NULLS says more than the defaults."""
    bounds = (tree.get("start"), tree.get("end"))
    plain = bounds in ((None, None), ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"))
    whole = tree.get("exclude_clause", "NO_OTHER") == "NO_OTHER" and not tree.get("ignore_nulls")
    return not (plain and whole)


def argument_trees(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The arguments of a call; those of a struct have their field's name as `sqlml_name`."""
    made: list[Mapping[str, Any]] = []
    for argument in tree.get("arguments", tree.get("children")) or ():
        inner = argument.get("expression", argument)
        name = argument.get("name") or inner.get("alias")
        made.append({**inner, **({"sqlml_name": name} if name else {})})
    return made


def is_ordered(tree: Mapping[str, Any]) -> bool:
    """Whether a call has ORDER BY among its arguments."""
    return bool((tree.get("order_bys") or {}).get("orders"))


Read = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]
"""Rows of a query with parameters."""

Special = Callable[[str, Sequence[str], Sequence[str]], str | None]
"""The name of a function, its arguments as they are kept, and the columns that their places mean ->
what stands for its call; None: nothing does."""

_OWN = "sqlml_"
_PLACE, _PIECE = f"{_OWN}raw_", f"{_OWN}piece_"
_PLACES = re.compile(rf"\b{_PLACE}(\d+)\b")
_PIECES = re.compile(rf"\b{_PIECE}(\d+)\b")

_PLAIN = frozenset({"CONSTANT", "COMPARISON", "CONJUNCTION", "CASE", "CAST", "BETWEEN", "COLLATE"})
"""Kinds of expressions that call no function by a name; TYPE is what a CAST names."""

_OPERATORS = frozenset(
    "OPERATOR_NOT OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL OPERATOR_COALESCE OPERATOR_TRY COMPARE_IN "
    "COMPARE_NOT_IN".split()
)
_CALLS: Mapping[str, str] = {
    "ARRAY_EXTRACT": "array_extract",
    "ARRAY_SLICE": "array_slice",
    "STRUCT_EXTRACT": "struct_extract",
}
"""Operators that look for a function by its bare name."""

_WORDS: Mapping[str, str] = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "PARAMETER": "a parameter",
    "STAR": "a star",
    "POSITIONAL_REFERENCE": "a column by its number",
    "DEFAULT": "DEFAULT",
}


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression as it is kept: `sqlml_raw_0` stands for the first of `columns`.

    type: what it gives: a number of the engine's, or VARCHAR.
    """

    sql: str
    columns: tuple[str, ...]
    type: str

    def of(self, columns: Mapping[str, str]) -> str:
        """The expression over other expressions: column -> SQL.

        >>> RowExpression("abs(sqlml_raw_0)", ("a",), "DOUBLE").of({"a": "t.a"})
        'CAST(abs(t.a) AS DOUBLE)'
        """
        return f"CAST({self.plain(columns)} AS {self.type})"

    def plain(self, columns: Mapping[str, str]) -> str:
        """As `of`, of the type that the engine gives to it."""
        return _PLACES.sub(lambda found: columns[self.columns[int(found[1])]], self.sql)


def may_be_kept(text: str) -> bool:
    """Whether a text may be a constant in a kept expression.

    >>> may_be_kept("a"), may_be_kept("sqlml_raw_0")
    (True, False)
    """
    return _OWN not in text


@dataclass(frozen=True, slots=True)
class Item:
    """What TRANSFORM (..) or a SELECT lists: a tree of the engine's parser, or a star.

    name: its alias, or that of its column; "" if it has none. text: as it was written.
    """

    name: str
    tree: Mapping[str, Any]
    text: str
    star: bool = False
    excluded: frozenset[str] = field(default_factory=frozenset)

    @property
    def column(self) -> str | None:
        """The column that it is, and no more."""
        names = self.tree.get("column_names", ())
        return str(names[0]) if self.tree["class"] == "COLUMN_REF" and len(names) == 1 else None


def shown(sql: str) -> str:
    """What is kept, as people read it: functions by their plain names.

    >>> shown('"system".main.ln("system".main."+"("charges", 1))')
    'ln("+"("charges", 1))'
    """
    return sql.replace('"system".main.', "").replace("system.main.", "")


def items_of(read: Read, texts: Sequence[str]) -> list[Item]:
    """What a list of expressions says.

    Raises:
        ParseError: one of them is none.
    """
    made = []
    for text in texts:
        (tree,) = _parsed(read, text)
        if tree["class"] == "STAR":
            if tree.get("columns") or tree.get("replace_list") or tree.get("rename_list"):
                raise ParseError(f"TRANSFORM takes * and * EXCLUDE (..), not {text}")
            gone = frozenset(fold(_name(column)) for column in tree.get("exclude_list") or ())
            made.append(Item("", tree, text, True, gone))
            continue
        names = tree.get("column_names", ())
        made.append(Item(str(tree.get("alias") or (names[-1] if names else "")), tree, text))
    return made


def _name(column: Any) -> str:
    """A column in EXCLUDE (..), as either version of the engine tells it."""
    return str(column["column"] if isinstance(column, Mapping) else column)


def kept(
    read: Read, item: Item, columns: Sequence[str], special: Special | None = None
) -> tuple[str, tuple[str, ...]]:
    """An expression as it is kept, without its type, and the columns that it reads.

    Args:
        columns: those of the rows.
        special: what stands for calls of functions that are none of the engine's.

    Raises:
        ParseError: it has something else than the engine's own functions over a row.
    """
    writer = _Writer(read, {fold(name): name for name in columns}, special)
    sql = writer.text(item.tree)
    return sql, tuple(writer.places)


def checked(read: Read, expression: RowExpression) -> RowExpression:
    """An expression that was read back, printed anew, so that it is as `kept` makes them.

    Raises:
        ArtifactError: it has something in it that `kept` refuses.
    """
    try:
        if not (NUMBERS.fullmatch(expression.type) or expression.type == "VARCHAR"):
            raise ParseError(f"its type is {expression.type}")
        (tree,) = _parsed(read, expression.sql)
        places = {f"{_PLACE}{n}": name for n, name in enumerate(expression.columns)}
        writer = _Writer(read, places, None)
        return RowExpression(writer.text(tree), tuple(writer.places), expression.type)
    except ParseError as error:
        raise ArtifactError(
            f"the model's expression {expression.sql!r:.200} is damaged ({error.message}); train "
            "it again"
        ) from None


def _parsed(read: Read, text: str) -> list[Mapping[str, Any]]:
    """The one expression of a text, as the engine's parser reads it."""
    ((told,),) = read(f"SELECT {builtin('json_serialize_sql')}(?)", [f"SELECT {text}\n"])
    tree = json.loads(told)
    if tree.get("error"):
        raise ParseError(f"{text!r} is not an expression: {tree.get('error_message')}")
    nodes = [statement["node"] for statement in tree["statements"]]
    plain = len(nodes) == 1 and nodes[0]["type"] == "SELECT_NODE"
    if not plain or any(nodes[0].get(part) for part in _CLAUSES) or _has_from(nodes[0]):
        raise ParseError(f"{text!r} is not an expression over a row")
    listed: list[Mapping[str, Any]] = nodes[0]["select_list"]
    if len(listed) != 1:
        raise ParseError(f"{text!r} is more than one expression")
    return listed


_CLAUSES = ("where_clause", "group_expressions", "having", "sample", "qualify", "modifiers")


def _has_from(node: Mapping[str, Any]) -> bool:
    return bool((node.get("from_table") or {}).get("type", "EMPTY") not in ("EMPTY", "EMPTY_FROM"))


class _Writer:
    """Prints trees; `places` are the columns that they read, in the order of their numbers."""

    def __init__(self, read: Read, columns: Mapping[str, str], special: Special | None) -> None:
        self._read = read
        self._columns = columns
        self._special = special
        self._pieces: list[str] = []
        self.places: list[str] = []

    def text(self, tree: Mapping[str, Any]) -> str:
        """An expression as it is kept."""
        return self._inner_text(tree, _NONE)

    def _inner_text(self, tree: Mapping[str, Any], names: Names) -> str:
        """An expression, or a part of one in a lambda."""
        node = self._node(tree.get("expression", tree), names)
        ask = f"SELECT {builtin('json_serialize_sql')}('SELECT 1')"
        ((frame,),) = self._read(ask, [])
        made = json.loads(frame)
        made["statements"][0]["node"]["select_list"] = [{**node, "alias": ""}]
        ask = f"SELECT {builtin('json_deserialize_sql')}(CAST(? AS JSON))"
        ((sql,),) = self._read(ask, [json.dumps(made)])
        return _PIECES.sub(lambda found: self._pieces[int(found[1])], sql.removeprefix("SELECT "))

    def _node(self, tree: Mapping[str, Any], names: Names) -> dict[str, Any]:
        """A tree with full names; `names` are the parameters of lambdas around it."""
        kind = tree["class"]
        if kind == "COLUMN_REF":
            return self._column(tree, names)
        if kind == "FUNCTION":
            return self._function(tree, names)
        if kind == "LAMBDA":
            own = {n: f"{_OWN}p{len(names) + k}" for k, n in _parameters(tree["lhs"])}
            inner = {**names, **own}
            left = _renamed(tree["lhs"], inner)
            return {**tree, "lhs": left, "expr": self._node(tree["expr"], inner)}
        if kind == "WINDOW":
            made = self._special_call(tree, names)
            if made is not None:
                return made
        if kind == "OPERATOR" and tree["type"] in _CALLS:
            arguments = [self._inner_text(child, names) for child in tree["children"]]
            return self._piece(f"{builtin(_CALLS[tree['type']])}({', '.join(arguments)})")
        if kind == "CONSTANT" and not may_be_kept(json.dumps(tree)):
            raise ParseError(f"a text in TRANSFORM cannot contain {_OWN}")
        if kind in _PLAIN or (kind == "OPERATOR" and tree["type"] in _OPERATORS):
            return {key: self._inside(value, names) for key, value in tree.items()}
        what = _WORDS.get(kind, str(tree["type"]).lower().replace("_", " "))
        raise ParseError(
            f"TRANSFORM takes expressions over one row, not {what}: compute it in the query"
        )

    def _inside(self, value: Any, names: Names) -> Any:
        """A part of a tree: expressions in it are printed as well; what names a type is not one."""
        if isinstance(value, list):
            return [self._inside(item, names) for item in value]
        if not isinstance(value, Mapping):
            return value
        if value.get("class") == "TYPE":
            return value
        if "class" in value and "type" in value:
            return self._node(value, names)
        return {key: self._inside(item, names) for key, item in value.items()}

    def _column(self, tree: Mapping[str, Any], names: Names) -> dict[str, Any]:
        written = [str(name) for name in tree["column_names"]]
        if len(written) == 1 and fold(written[0]) in names:
            return _renamed(tree, names)
        name = self._columns.get(fold(written[0]))
        if len(written) > 1 or name is None:
            known = ", ".join(list(self._columns.values())[:30])
            shown = ".".join(written)
            advice = f"its columns: {known}"
            if name is not None:
                advice = f"write struct_extract({written[0]}, '{written[1]}')"
            raise ParseError(f"the query has no column {shown!r}; {advice}")
        if name not in self.places:
            self.places.append(name)
        return {**tree, "column_names": [f"{_PLACE}{self.places.index(name)}"]}

    def _function(self, tree: Mapping[str, Any], names: Names) -> dict[str, Any]:
        made = self._special_call(tree, names)
        if made is not None:
            return made
        name = str(called(tree))
        body = _macro_body(self._read, name, [*argument_trees(tree)])
        if body is not None:
            return self._node(body, names)
        odd = tree.get("distinct") or tree.get("filter") or is_ordered(tree)
        odd = odd or (name in _OF_TWO and len(argument_trees(tree)) < 2)
        if tree.get("schema") not in ("", "main", None) or odd or not _is_scalar(self._read, name):
            raise ParseError(
                f"TRANSFORM cannot call {name}: it takes only scalar functions of DuckDB's own "
                "whose result depends on nothing but the row; compute it in the query"
            )
        made = {key: self._inside(value, names) for key, value in tree.items()}
        path = ["system", "main", name]
        made |= {"function_name": name, "catalog": "system", "schema": "main"}
        made |= {"is_operator": False}
        if "qualified_name" in made:
            made["qualified_name"] = {"path": path}
        return made

    def _special_call(self, tree: Mapping[str, Any], names: Names) -> dict[str, Any] | None:
        """What stands for a call of a function that is none of the engine's."""
        name = called(tree)
        if self._special is None or name is None or not name.startswith("ml_") or names:
            return None
        check_plain_call(tree)
        arguments = tree.get("arguments", tree.get("children"))
        texts = [self._inner_text(argument, names) for argument in arguments]
        made = self._special(name, texts, self.places)
        return None if made is None else self._piece(made)

    def _piece(self, sql: str) -> dict[str, Any]:
        """A tree that is printed as some text."""
        self._pieces.append(f"({sql})")
        name = f"{_PIECE}{len(self._pieces) - 1}"
        return {
            "class": "COLUMN_REF",
            "type": "COLUMN_REF",
            "alias": "",
            "query_location": 0,
            "column_names": [name],
        }


Names = Mapping[str, str]
"""A lambda's parameter, folded -> the name that it has in what is kept, which no column has."""

_NONE: Names = {}


def _parameters(tree: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The parameters of a lambda, numbered."""
    found = tree.get("column_names")
    if found:
        return [(0, fold(str(found[0])))]
    arguments = tree.get("arguments", tree.get("children")) or ()
    names = [_parameters(a.get("expression", a))[0][1] for a in arguments]
    return list(enumerate(names))


def _renamed(tree: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """The parameters of a lambda, or one of them, under other names."""
    found = tree.get("column_names")
    if found:
        return {**tree, "column_names": [names[fold(str(found[0]))]]}
    key = "arguments" if "arguments" in tree else "children"
    made = []
    for argument in tree[key]:
        inner = _renamed(argument.get("expression", argument), names)
        made.append({**argument, "expression": inner} if "expression" in argument else inner)
    return {**tree, key: made}


_UNSAFE = frozenset(
    "current_setting getenv getvariable nextval currval current_query error sleep_ms "
    "current_localtime current_localtimestamp version".split()
)
"""Functions that tell what is not in the row, or do something; not of all the engine says so."""

_OF_TWO = frozenset({"age"})
"""Functions that compare with the present day, if they are given one argument."""


def _is_scalar(read: Read, name: str) -> bool:
    """Whether it is a scalar function of the engine's own that gives the same for the same row.

    Its forms for times with a zone depend on the session (2.0.1 says so, 2.0.0 did not);
    `training/transform/fitted_rows.py` refuses these.
    """
    known = _KNOWN.get(name)
    if known is None:
        forms = read(
            "SELECT function_type, stability, CAST(parameter_types AS VARCHAR), return_type "
            "FROM system.main.duckdb_functions() "
            "WHERE database_name = 'system' AND function_name = ? AND function_type <> 'table'",
            [name],
        )
        steady = [form for form in forms if form[:2] == ("scalar", "CONSISTENT")]
        known = bool(steady) and name not in _UNSAFE
        known &= all(form in steady or _is_zoned(*form) for form in forms)
        _KNOWN[name] = known
    return known


def _is_zoned(kind: str, stability: str, parameters: str, returned: str) -> bool:
    """Whether a form of a function depends on the session's time zone, and on nothing else."""
    plain = (kind, stability) == ("scalar", "CONSISTENT_WITHIN_QUERY")
    return plain and _ZONED.search(f"{parameters} {returned}") is not None


_ZONED = re.compile("TIME ZONE|TIMESTAMPTZ")


_KNOWN: dict[str, bool] = {}
"""What the engine, which is one in a process, has said of its functions."""


def _macro_body(
    read: Read, name: str, arguments: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """What a macro of the engine's own (nullif, list_sum) stands for; None if it is none."""
    if name not in _MACROS:
        _MACROS[name] = [
            (list(map(fold, parameters)), str(text))
            for parameters, text in read(
                "SELECT parameters, macro_definition FROM system.main.duckdb_functions() WHERE "
                "database_name = 'system' AND function_name = ? AND function_type = 'macro'",
                [name],
            )
        ]
    for parameters, text in _MACROS[name]:
        if len(parameters) == len(arguments):
            (body,) = _parsed(read, text)
            if called(body) == name:  # it passes on to the engine's function of its name
                return None
            made: Mapping[str, Any] = _put_in(body, dict(zip(parameters, arguments, strict=True)))
            return made
    return None


_MACROS: dict[str, list[tuple[list[str], str]]] = {}
"""Parameters and bodies of the engine's macros, as far as they were asked for."""


def _put_in(value: Any, arguments: Mapping[str, Mapping[str, Any]]) -> Any:
    """A tree with arguments in place of parameters."""
    if isinstance(value, list):
        return [_put_in(item, arguments) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.get("class") == "COLUMN_REF" and len(value["column_names"]) == 1:
        found = arguments.get(fold(str(value["column_names"][0])))
        return value if found is None else {**found, "alias": ""}
    return {key: _put_in(item, arguments) for key, item in value.items()}
