"""`print_sql`: print a Program as SQL expressions that the engine computes without sqlml.

`print_encoders` looks categories up in a constant MAP. With 256 categories and 300K strings in
DuckDB 2.0, a MAP took 22 ms, list_position 55 ms, CASE 65 ms, and TRY_CAST to an ENUM 1300 ms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count

from sqlml.backends.sql import column_sql, elementwise_sql, expression
from sqlml.backends.sql.column_sql import format_quoted_value
from sqlml.backends.sql.expression import TYPES, Bindings, Expression, NodePrinter, Printer, Value
from sqlml.backends.sql.tree_sql import print_tree_columns, print_trees
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError
from sqlml.ir.program import Attrs, Node, Program
from sqlml.limits import MAX_SQL_CHARACTERS
from sqlml.types import TensorType

MAX_TEXT = 16 << 20
"""Maximum number of characters of one expression."""

_LONGEST_TEXT = 200
"""Maximum number of characters of a string expression that is repeated to report the value."""


def print_encoders(
    program: Program,
    inputs: Mapping[str, str],
    dialect: Dialect = DUCKDB,
    unknown: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Print a Program of string operators; return the SQL expression of each output by name.

    `inputs` maps input names to expressions of type VARCHAR. `unknown` maps output names to SQL
    functions that return the code of an unknown string; for other outputs, this code is -1. Raise
    BackendError if an operator is unsupported.
    """
    function_of_unknown = {program.outputs[name]: f for name, f in (unknown or {}).items()}
    node_sql: list[str] = []
    for i, node in enumerate(program.nodes):
        if node.op == "input":
            node_sql.append(inputs[str(node.attrs["name"])])
            continue
        printer = TEXT_PRINTERS.get(node.op)
        if printer is None:
            raise BackendError(f"operator {node.op} is not printed as SQL")
        operands = [node_sql[j] for j in node.inputs]
        node_sql.append(printer(operands, node.attrs, dialect, function_of_unknown.get(i)))
        if len(node_sql[-1]) > MAX_TEXT:
            raise BackendError(
                f"encoding {', '.join(inputs)} takes more than {MAX_TEXT} characters of SQL; "
                "fit the encoder with fewer categories (min_frequency, max_categories)"
            )
    return {name: node_sql[i] for name, i in program.outputs.items()}


def _print_fill(args: Sequence[str], attrs: Attrs, dialect: Dialect, unknown: str | None) -> str:
    value = expression.string_literal(str(attrs["value"]), dialect)
    if "missing" in attrs:
        missing_literal = expression.string_literal(str(attrs["missing"]), dialect)
        # Compare bytes, because a comparison of texts would use the column's collation.
        text_bytes, missing_bytes = dialect.bytes(args[0]), dialect.bytes(missing_literal)
        return f"CASE WHEN {text_bytes} = {missing_bytes} THEN {value} ELSE {args[0]} END"
    return f"coalesce({args[0]}, {value})"


def _print_encode(args: Sequence[str], attrs: Attrs, dialect: Dialect, unknown: str | None) -> str:
    categories: Sequence[str] = attrs["categories"].tolist()
    missing_code = attrs["missing"]
    code = "-1"
    if categories:
        vocabulary = [expression.string_literal(c, dialect) for c in categories]
        can_report = unknown is not None and len(args[0]) <= _LONGEST_TEXT
        unknown_code = f"{unknown}({args[0]})" if can_report else "-1"
        code = dialect.place_of(args[0], vocabulary, unknown_code)
    if missing_code == -1:
        return code
    return f"CASE WHEN {args[0]} IS NULL THEN {missing_code} ELSE {code} END"


def _print_isnan(args: Sequence[str], attrs: Attrs, dialect: Dialect, unknown: str | None) -> str:
    return f"CAST({args[0]} IS NULL AS INTEGER)"


TEXT_PRINTERS = {"fill": _print_fill, "encode": _print_encode, "isnan": _print_isnan}
"""Map an operator on strings to a printer."""

PRINTERS: Mapping[str, Printer] = {
    **elementwise_sql.PRINTERS,
    **column_sql.PRINTERS,
    "tree_ensemble": print_trees,
}
"""Map an operator on numbers to a printer."""


def explain_unprintable(program: Program) -> str | None:
    """Return which operators cannot be printed as SQL, or None if all can be printed."""
    names = {"input", "constant", *PRINTERS, *TEXT_PRINTERS}
    missing = sorted({node.op for node in program.nodes} - names)
    return f"no SQL for operator {', '.join(missing)}" if missing else None


def print_sql(
    program: Program, output: str, inputs: Mapping[str, Sequence[str]], dialect: Dialect = DUCKDB
) -> str:
    """Return SQL for an output of `program`: a number, or a list if there are several columns.

    `inputs` maps input names to a short expression per column, of any numeric type; values may be
    NULL. Raise BackendError if an operator cannot be printed.
    """
    used_names = " ".join(c.lower() for columns in inputs.values() for c in columns)
    row_name = next(name for k in count() if (name := f"sqlml{k or ''}") not in used_names)
    bindings = Bindings(row_name, dialect)
    node = program.outputs[output]
    value = print_columns(program, [node], inputs, bindings)[node]
    sql = value[0].sql if len(value) == 1 else dialect.array([operand.sql for operand in value])
    sql = bindings.wrap(sql)
    if len(sql) > MAX_SQL_CHARACTERS:
        raise BackendError(
            f"the model takes {len(sql):,} characters of SQL; the limit is {MAX_SQL_CHARACTERS:,}"
        )
    return sql


def print_columns(
    program: Program, roots: Sequence[int], inputs: Mapping[str, Sequence[str]], bindings: Bindings
) -> dict[int, Value]:
    """Print the nodes `roots` and all nodes that they need; return the columns by node."""
    nodes = program.nodes
    needed = program.find_needed_nodes(roots)
    num_readers = Counter(j for i in needed for j in nodes[i].inputs)
    columns: dict[int, Value] = {}
    for i in needed:
        node = nodes[i]
        if node.op == "input":
            value = _print_input(node, inputs[str(node.attrs["name"])], bindings.dialect)
        else:
            types = tuple(nodes[j].type for j in node.inputs)
            value = _print_node(node, types, tuple(columns[j] for j in node.inputs), bindings)
        if num_readers[i] > 1 and node.type.dtype != "string":
            is_condition = node.type.dtype == "bool"
            value = (bindings.bind_conditions if is_condition else bindings.bind)(value)
        if sum(len(operand.sql) for operand in value) > MAX_SQL_CHARACTERS:
            raise BackendError("the SQL expression of the model is too long")
        columns[i] = value
    return columns


def _print_node(
    node: Node, operand_types: tuple[TensorType, ...], values: tuple[Value, ...], bindings: Bindings
) -> Value:
    if node.op == "constant":
        if node.type.dtype not in TYPES:
            raise BackendError(f"a constant {node.type!r} is not printed as SQL")
        return expression.literals(node.attrs["value"], node.type.dtype, bindings.dialect)
    if "string" in (t.dtype for t in operand_types):
        return _print_text_operator(node, values, bindings.dialect)
    printer = PRINTERS.get(node.op)
    if node.op == "tree_ensemble" and bindings.dialect.missing_is_null:
        printer = print_tree_columns
    if printer is None or node.type.dtype not in TYPES:
        raise BackendError(f"operator {node.op} with a {node.type!r} is not printed as SQL")
    return printer(NodePrinter(node.op, node.attrs, node.type, values, operand_types, bindings))


def _print_input(node: Node, columns: Sequence[str], dialect: Dialect) -> Value:
    if node.type.dtype == "string" or (dialect.missing_is_null and node.type.dtype == "float64"):
        return tuple(Expression(c, cheap=True) for c in columns)
    if node.type.dtype not in ("float32", "float64"):
        raise BackendError(f"an input of {node.type.dtype} is not printed as SQL")
    sql_type = TYPES[node.type.dtype]
    nan, casts = f"'nan'::{sql_type}", [f"CAST({column} AS {sql_type})" for column in columns]
    return tuple(Expression(f"coalesce({sql}, {nan})", cheap=True, raw=sql) for sql in casts)


def _print_text_operator(node: Node, values: tuple[Value, ...], dialect: Dialect) -> Value:
    printer = TEXT_PRINTERS.get(node.op)
    if printer is None:
        raise BackendError(f"operator {node.op} on strings is not printed as SQL")
    (x,) = values
    results = []
    for operand in x:
        sql = printer([operand.sql], node.attrs, dialect, None)
        if node.type.dtype != "string":
            sql = f"CAST({sql} AS {TYPES[node.type.dtype]})"
        category = format_quoted_value(operand.sql, dialect)
        results.append(Expression(sql, nan=False, category=category))
    return tuple(results)
