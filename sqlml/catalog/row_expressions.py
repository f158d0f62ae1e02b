"""Expressions over a row that are stored with a model, for TRANSFORM (...) and derived features.

The engine's parser reads the expressions (`json_serialize_sql`). They are printed with the full
name of each function, and with a placeholder for each column, so that they mean the same in every
database. Stored expressions are checked when they are read, because a database may be forged.
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

Read = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]
"""A function that returns the rows of a query with parameters."""

ReplaceCall = Callable[[str, Sequence[str], Sequence[str]], str | None]
"""A function that returns SQL to replace a call, or None. Its arguments are the name of the called
function, the call's arguments in stored form, and the columns behind their placeholders."""

_RESERVED_PREFIX = "sqlml_"
_COLUMN_PREFIX, _FRAGMENT_PREFIX = f"{_RESERVED_PREFIX}raw_", f"{_RESERVED_PREFIX}piece_"
_COLUMN_PATTERN = re.compile(rf"\b{_COLUMN_PREFIX}(\d+)\b")
_FRAGMENT_PATTERN = re.compile(rf"\b{_FRAGMENT_PREFIX}(\d+)\b")


@dataclass(frozen=True, slots=True)
class RowExpression:
    """A SQL expression over the `columns` of a row, as it is stored with a model.

    In `sql`, the placeholder `sqlml_raw_0` stands for the first column. The result type `type` is a
    numeric type of the engine or VARCHAR.
    """

    sql: str
    columns: tuple[str, ...]
    type: str

    def to_typed_sql(self, columns: Mapping[str, str]) -> str:
        """Return the SQL, cast to `type`, with each column replaced by its SQL in `columns`.

        >>> RowExpression("abs(sqlml_raw_0)", ("a",), "DOUBLE").to_typed_sql({"a": "t.a"})
        'CAST(abs(t.a) AS DOUBLE)'
        """
        return f"CAST({self.to_sql(columns)} AS {self.type})"

    def to_sql(self, columns: Mapping[str, str]) -> str:
        """Return the SQL with each column replaced by its SQL in `columns`, without a cast."""
        return _COLUMN_PATTERN.sub(lambda match: columns[self.columns[int(match[1])]], self.sql)


@dataclass(frozen=True, slots=True)
class Item:
    """An item of TRANSFORM (...) or of a SELECT list, parsed to a tree by the engine.

    `name` is the alias or column name of the item, or "". `text` is the item's SQL. `star` is set
    for `*`, and `excluded` contains the case-folded names in the EXCLUDE clause.
    """

    name: str
    tree: Mapping[str, Any]
    text: str
    star: bool = False
    excluded: frozenset[str] = field(default_factory=frozenset)

    @property
    def column(self) -> str | None:
        """The column name if the item is a plain column, or None."""
        names = self.tree.get("column_names", ())
        return str(names[0]) if self.tree["class"] == "COLUMN_REF" and len(names) == 1 else None


def parse_items(read: Read, texts: Sequence[str]) -> list[Item]:
    """Parse a list of expressions, or raise ParseError if a text is not an expression."""
    items = []
    for text in texts:
        tree = _parse_expression(read, text)
        if tree["class"] == "STAR":
            if tree.get("columns") or tree.get("replace_list") or tree.get("rename_list"):
                raise ParseError(f"TRANSFORM takes * and * EXCLUDE (...), not {text}")
            columns = tree.get("exclude_list") or ()  # Newer engines return mappings.
            excluded = [fold(str(c["column"] if isinstance(c, Mapping) else c)) for c in columns]
            items.append(Item("", tree, text, True, frozenset(excluded)))
            continue
        names = tree.get("column_names", ())
        items.append(Item(str(tree.get("alias") or (names[-1] if names else "")), tree, text))
    return items


def to_stored_sql(
    read: Read, item: Item, columns: Sequence[str], replace_call: ReplaceCall | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the stored form of an expression as SQL, and the columns that the expression reads.

    An expression may use the engine's functions, `columns`, and calls that `replace_call` replaces.
    If it uses anything else, ParseError is raised.
    """
    printer = _Printer(read, {fold(name): name for name in columns}, replace_call)
    return printer.print(item.tree), tuple(printer.read_columns)


def rewrite_stored(read: Read, expression: RowExpression) -> RowExpression:
    """Check and rewrite a stored expression, or raise ArtifactError if it is invalid."""
    try:
        if not (NUMBERS.fullmatch(expression.type) or expression.type == "VARCHAR"):
            raise ParseError(f"its type is {expression.type}")
        tree = _parse_expression(read, expression.sql)
        column_names = {f"{_COLUMN_PREFIX}{n}": name for n, name in enumerate(expression.columns)}
        printer = _Printer(read, column_names, None)
        return RowExpression(printer.print(tree), tuple(printer.read_columns), expression.type)
    except ParseError as error:
        fault = f"{expression.sql!r:.200} is damaged ({error.message})"
        raise ArtifactError(f"the model's expression {fault}; train it again") from None


def shorten_names(sql: str) -> str:
    """Shorten the function names in a stored expression to make it readable.

    >>> shorten_names('"system".main.ln("system".main."+"("charges", 1))')
    'ln("+"("charges", 1))'
    """
    return sql.replace('"system".main.', "").replace("system.main.", "")


def is_storable_text(text: str) -> bool:
    """Return whether a string may be a constant in a stored expression.

    >>> is_storable_text("a"), is_storable_text("sqlml_raw_0")
    (True, False)
    """
    return _RESERVED_PREFIX not in text


def _parse_expression(read: Read, text: str) -> Mapping[str, Any]:
    ((serialized,),) = read(f"SELECT {builtin('json_serialize_sql')}(?)", [f"SELECT {text}\n"])
    tree = json.loads(serialized)
    if tree.get("error"):
        raise ParseError(f"{text!r} is not an expression: {tree.get('error_message')}")
    nodes = [statement["node"] for statement in tree["statements"]]
    is_select = len(nodes) == 1 and nodes[0]["type"] == "SELECT_NODE"
    source = (nodes[0].get("from_table") or {}).get("type", "EMPTY") if is_select else None
    if source not in ("EMPTY", "EMPTY_FROM") or any(nodes[0].get(clause) for clause in _CLAUSES):
        raise ParseError(f"{text!r} is not an expression over a row")
    expressions: list[Mapping[str, Any]] = nodes[0]["select_list"]
    if len(expressions) != 1:
        raise ParseError(f"{text!r} is more than one expression")
    return expressions[0]


_CLAUSES = ("where_clause", "group_expressions", "having", "sample", "qualify", "modifiers")

LambdaNames = Mapping[str, str]
"""Maps the case-folded names of lambda parameters to stored names, which no column has."""

_PLAIN_CLASSES = frozenset("CONSTANT COMPARISON CONJUNCTION CASE CAST BETWEEN COLLATE".split())
"""Classes of expressions that call no function by name. A CAST names a TYPE."""

_OPERATORS = frozenset(
    "OPERATOR_NOT OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL OPERATOR_COALESCE OPERATOR_TRY COMPARE_IN "
    "COMPARE_NOT_IN".split()
)

_OPERATOR_FUNCTIONS: Mapping[str, str] = {
    "ARRAY_EXTRACT": "array_extract",
    "ARRAY_SLICE": "array_slice",
    "STRUCT_EXTRACT": "struct_extract",
}
"""Operators for which the engine looks up a function by its bare name."""

_CLASS_NAMES: Mapping[str, str] = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "PARAMETER": "a parameter",
    "STAR": "a star",
    "POSITIONAL_REFERENCE": "a column by its number",
    "DEFAULT": "DEFAULT",
}


class _Printer:
    """A printer of trees as stored SQL; `read_columns` lists the columns behind placeholders."""

    def __init__(
        self, read: Read, columns: Mapping[str, str], replace_call: ReplaceCall | None
    ) -> None:
        self._read = read
        self._columns = columns
        self._replace_call = replace_call
        self._fragments: list[str] = []
        self.read_columns: list[str] = []

    def print(self, tree: Mapping[str, Any], names: LambdaNames | None = None) -> str:
        """Print an expression, or a subexpression inside a lambda, in the stored form."""
        node = self._rewrite_node(tree.get("expression", tree), names or {})
        ((template,),) = self._read(f"SELECT {builtin('json_serialize_sql')}('SELECT 1')", [])
        statement = json.loads(template)
        statement["statements"][0]["node"]["select_list"] = [{**node, "alias": ""}]
        query = f"SELECT {builtin('json_deserialize_sql')}(CAST(? AS JSON))"
        ((sql,),) = self._read(query, [json.dumps(statement)])
        printed = sql.removeprefix("SELECT ")
        return _FRAGMENT_PATTERN.sub(lambda match: self._fragments[int(match[1])], printed)

    def _rewrite_node(self, tree: Mapping[str, Any], names: LambdaNames) -> dict[str, Any]:
        """Use full function names and placeholders; `names` are enclosing lambdas' parameters."""
        node_class = tree["class"]
        if node_class == "COLUMN_REF":
            return self._rewrite_column(tree, names)
        if node_class == "FUNCTION":
            return self._rewrite_call(tree, names)
        if node_class == "LAMBDA":
            parameters = enumerate(_list_lambda_parameters(tree["lhs"]), len(names))
            all_names = {**names, **{name: f"{_RESERVED_PREFIX}p{n}" for n, name in parameters}}
            lhs = _rename_lambda_parameters(tree["lhs"], all_names)
            return {**tree, "lhs": lhs, "expr": self._rewrite_node(tree["expr"], all_names)}
        if node_class == "WINDOW":
            replacement = self._replace_special_call(tree, names)
            if replacement is not None:
                return replacement
        if node_class == "OPERATOR" and tree["type"] in _OPERATOR_FUNCTIONS:
            arguments = [self.print(child, names) for child in tree["children"]]
            function = builtin(_OPERATOR_FUNCTIONS[tree["type"]])
            return self._make_fragment_node(f"{function}({', '.join(arguments)})")
        if node_class == "CONSTANT" and not is_storable_text(json.dumps(tree)):
            raise ParseError(f"a string in TRANSFORM cannot contain {_RESERVED_PREFIX}")
        is_operator = node_class == "OPERATOR" and tree["type"] in _OPERATORS
        if node_class in _PLAIN_CLASSES or is_operator:
            return {key: self._rewrite_value(value, names) for key, value in tree.items()}
        description = _CLASS_NAMES.get(node_class, str(tree["type"]).lower().replace("_", " "))
        raise ParseError(
            f"TRANSFORM takes expressions over one row, not {description}: compute it in the query"
        )

    def _rewrite_value(self, value: Any, names: LambdaNames) -> Any:
        if isinstance(value, list):
            return [self._rewrite_value(element, names) for element in value]
        if not isinstance(value, Mapping):
            return value
        if value.get("class") == "TYPE":
            return value
        if "class" in value and "type" in value:
            return self._rewrite_node(value, names)
        return {key: self._rewrite_value(element, names) for key, element in value.items()}

    def _rewrite_column(self, tree: Mapping[str, Any], names: LambdaNames) -> dict[str, Any]:
        path = [str(name) for name in tree["column_names"]]
        if len(path) == 1 and fold(path[0]) in names:
            return _rename_lambda_parameters(tree, names)
        name = self._columns.get(fold(path[0]))
        if len(path) > 1 or name is None:
            column_list = ", ".join(list(self._columns.values())[:30])
            advice = f"its columns: {column_list}"
            if name is not None:
                advice = f"write struct_extract({path[0]}, '{path[1]}')"
            raise ParseError(f"the query has no column {'.'.join(path)!r}; {advice}")
        if name not in self.read_columns:
            self.read_columns.append(name)
        return {**tree, "column_names": [f"{_COLUMN_PREFIX}{self.read_columns.index(name)}"]}

    def _rewrite_call(self, tree: Mapping[str, Any], names: LambdaNames) -> dict[str, Any]:
        rewritten = self._replace_special_call(tree, names)
        if rewritten is not None:
            return rewritten
        name = str(find_function_name(tree))
        body = _expand_macro(self._read, name, [*list_arguments(tree)])
        if body is not None:
            return self._rewrite_node(body, names)
        is_unsupported = (
            tree.get("schema") not in ("", "main", None)
            or tree.get("distinct")
            or tree.get("filter")
            or is_ordered(tree)
            # With one argument, `age` depends on the current date.
            or (name == "age" and len(list_arguments(tree)) < 2)
        )
        if is_unsupported or not _is_scalar(self._read, name):
            raise ParseError(
                f"TRANSFORM cannot call {name}: it takes only scalar functions of DuckDB's own "
                "whose result depends on nothing but the row; compute it in the query"
            )
        rewritten = {key: self._rewrite_value(value, names) for key, value in tree.items()}
        rewritten |= {"function_name": name, "catalog": "system", "schema": "main"}
        rewritten["is_operator"] = False
        if "qualified_name" in rewritten:
            rewritten["qualified_name"] = {"path": ["system", "main", name]}
        return rewritten

    def _replace_special_call(
        self, tree: Mapping[str, Any], names: LambdaNames
    ) -> dict[str, Any] | None:
        """Return a node with the SQL that replaces an `ml_` call, or None for any other call."""
        name = find_function_name(tree)
        if self._replace_call is None or name is None or not name.startswith("ml_") or names:
            return None
        check_plain_call(tree)
        arguments = tree.get("arguments", tree.get("children"))
        argument_sqls = [self.print(argument, names) for argument in arguments]
        replacement = self._replace_call(name, argument_sqls, self.read_columns)
        return None if replacement is None else self._make_fragment_node(replacement)

    def _make_fragment_node(self, sql: str) -> dict[str, Any]:
        self._fragments.append(f"({sql})")
        name = f"{_FRAGMENT_PREFIX}{len(self._fragments) - 1}"
        column = {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "query_location": 0}
        return {**column, "column_names": [name]}


def _list_lambda_parameters(tree: Mapping[str, Any]) -> list[str]:
    column_names = tree.get("column_names")
    if column_names:
        return [fold(str(column_names[0]))]
    arguments = tree.get("arguments", tree.get("children")) or ()
    return [_list_lambda_parameters(a.get("expression", a))[0] for a in arguments]


def _rename_lambda_parameters(tree: Mapping[str, Any], names: LambdaNames) -> dict[str, Any]:
    column_names = tree.get("column_names")
    if column_names:
        return {**tree, "column_names": [names[fold(str(column_names[0]))]]}
    key = "arguments" if "arguments" in tree else "children"
    arguments = []
    for argument in tree[key]:
        renamed = _rename_lambda_parameters(argument.get("expression", argument), names)
        is_wrapped = "expression" in argument
        arguments.append({**argument, "expression": renamed} if is_wrapped else renamed)
    return {**tree, key: arguments}


_UNSAFE_FUNCTIONS = frozenset(
    "current_setting getenv getvariable nextval currval current_query error sleep_ms "
    "current_localtime current_localtimestamp version".split()
)
"""Functions that depend on more than the row, or have side effects that the engine may not know."""

_SCALAR_FUNCTIONS: dict[str, bool] = {}
"""Cached results of `_is_scalar`, which are the same for all connections of a process."""


def _is_scalar(read: Read, name: str) -> bool:
    """Return whether `name` is an engine function whose result depends only on its arguments.

    Overloads for times with a zone depend on the session's time zone, which DuckDB before 2.0.1
    does not report. They are accepted here, and `training/transform/fitted_rows.py` rejects them.
    """
    is_allowed = _SCALAR_FUNCTIONS.get(name)
    if is_allowed is None:
        overloads = read(
            "SELECT function_type, stability, CAST(parameter_types AS VARCHAR), return_type "
            "FROM system.main.duckdb_functions() "
            "WHERE database_name = 'system' AND function_name = ? AND function_type <> 'table'",
            [name],
        )
        consistent_overloads = [o for o in overloads if o[:2] == ("scalar", "CONSISTENT")]
        is_allowed = bool(consistent_overloads) and name not in _UNSAFE_FUNCTIONS
        is_allowed &= all(o in consistent_overloads or _depends_on_time_zone(*o) for o in overloads)
        _SCALAR_FUNCTIONS[name] = is_allowed
    return is_allowed


def _depends_on_time_zone(
    function_type: str, stability: str, parameters: str, return_type: str
) -> bool:
    has_time_zone = re.search("TIME ZONE|TIMESTAMPTZ", f"{parameters} {return_type}") is not None
    return has_time_zone and (function_type, stability) == ("scalar", "CONSISTENT_WITHIN_QUERY")


_MACRO_DEFINITIONS: dict[str, list[tuple[list[str], str]]] = {}
"""Cached parameters and bodies of the engine's macros."""


def _expand_macro(
    read: Read, name: str, arguments: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Expand a call of an engine macro such as nullif, or return None for another function."""
    if name not in _MACRO_DEFINITIONS:
        _MACRO_DEFINITIONS[name] = [
            (list(map(fold, parameters)), str(text))
            for parameters, text in read(
                "SELECT parameters, macro_definition FROM system.main.duckdb_functions() WHERE "
                "database_name = 'system' AND function_name = ? AND function_type = 'macro'",
                [name],
            )
        ]
    for parameters, text in _MACRO_DEFINITIONS[name]:
        if len(parameters) == len(arguments):
            body = _parse_expression(read, text)
            if find_function_name(body) == name:  # The macro forwards to the engine's function.
                return None
            values = dict(zip(parameters, arguments, strict=True))
            expanded: Mapping[str, Any] = _substitute_arguments(body, values)
            return expanded
    return None


def _substitute_arguments(value: Any, arguments: Mapping[str, Mapping[str, Any]]) -> Any:
    if isinstance(value, list):
        return [_substitute_arguments(element, arguments) for element in value]
    if not isinstance(value, Mapping):
        return value
    if value.get("class") == "COLUMN_REF" and len(value["column_names"]) == 1:
        argument = arguments.get(fold(str(value["column_names"][0])))
        return value if argument is None else {**argument, "alias": ""}
    return {key: _substitute_arguments(element, arguments) for key, element in value.items()}


def find_function_name(tree: Mapping[str, Any]) -> str | None:
    """Return the case-folded name of the called function, or None if `tree` is not a call.

    BigQuery's `ML.name` is returned as `ml_name`.
    """
    name = fold(str(tree.get("function_name") or ""))
    if tree["class"] not in ("FUNCTION", "WINDOW") or not name:
        return None
    return f"ml_{name}" if fold(str(tree.get("schema") or "")) == "ml" else name


def list_arguments(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the arguments of a call. The key `sqlml_name` has the name of a named argument."""
    arguments: list[Mapping[str, Any]] = []
    for argument in tree.get("arguments", tree.get("children")) or ():
        expression = argument.get("expression", argument)
        name = argument.get("name") or expression.get("alias")
        arguments.append({**expression, **({"sqlml_name": name} if name else {})})
    return arguments


def is_ordered(tree: Mapping[str, Any]) -> bool:
    """Return whether a call has ORDER BY among its arguments."""
    return bool((tree.get("order_bys") or {}).get("orders"))


def check_plain_call(tree: Mapping[str, Any]) -> None:
    """Raise ParseError if a preprocessing function has named arguments or selects rows."""
    name = find_function_name(tree)
    if any("sqlml_name" in argument for argument in list_arguments(tree)):
        raise ParseError(f"{name} takes positional arguments only: leave out their names")
    if any(tree.get(clause) for clause in _ROW_CLAUSES) or is_ordered(tree) or _has_frame(tree):
        advice = "write an empty OVER (), without DISTINCT, FILTER or ORDER BY"
        raise ParseError(f"{name} is fitted to all training rows: {advice}")


_ROW_CLAUSES = ("distinct", "filter", "filter_expr", "partitions", "orders", "arg_orders")


def _has_frame(tree: Mapping[str, Any]) -> bool:
    bounds = (tree.get("start"), tree.get("end"))
    has_default_bounds = bounds in ((None, None), ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"))
    excludes_rows = tree.get("exclude_clause", "NO_OTHER") != "NO_OTHER"
    return not has_default_bounds or excludes_rows or bool(tree.get("ignore_nulls"))
