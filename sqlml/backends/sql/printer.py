"""`print_sql`: a Program as expressions that the engine computes by itself, without sqlml.

Long values that are read several times are bound (`expression.py`), so that the text grows with the
Program and not with the number of ways through it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MappingProxyType

from sqlml.backends.sql import columns as column_operators
from sqlml.backends.sql import elementwise, texts
from sqlml.backends.sql.expression import Bindings, Expression, Value, constants
from sqlml.backends.sql.literals import TYPES
from sqlml.backends.sql.messages import quoted_value
from sqlml.backends.sql.printing import Printing
from sqlml.backends.sql.trees import print_trees
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError
from sqlml.ir.program import Node, Program

LONGEST = 4 << 20
"""Characters of an expression at most."""

PRINTERS: Mapping[str, Callable[[Printing], Value]] = MappingProxyType(
    {
        **elementwise.PRINTERS,
        **column_operators.PRINTERS,
        "tree_ensemble": print_trees,
    }
)


def printable(program: Program) -> str | None:
    """Why `program` cannot be printed, as far as its operators say; None: all are known."""
    known = {"input", "constant", *PRINTERS, *texts.PRINTERS}
    missing = sorted({node.op for node in program.nodes} - known)
    return f"no SQL for operator {', '.join(missing)}" if missing else None


def print_sql(
    program: Program,
    output: str,
    inputs: Mapping[str, Sequence[str]],
    dialect: Dialect = DUCKDB,
) -> str:
    """One output of `program` as a SQL expression: a number, or a list of them (width above 1).

    Args:
        inputs: for each input a SQL expression for each of its columns, cheap enough to be written
            several times; numbers may be of any type, and NULL.

    Raises:
        BackendError: an operator cannot be printed, or the expression would be too long.
    """
    bindings, value = _Printer(program, inputs, dialect).value(program.outputs[output])
    sql = value[0].sql if len(value) == 1 else dialect.array([e.sql for e in value])
    sql = bindings.around(sql)
    if len(sql) > LONGEST:
        raise BackendError(
            f"the model takes {len(sql):,} characters of SQL; the limit is {LONGEST:,}"
        )
    return sql


class _Printer:
    """Prints what one node needs, node by node."""

    def __init__(
        self, program: Program, inputs: Mapping[str, Sequence[str]], dialect: Dialect
    ) -> None:
        self._program = program
        self._inputs = inputs
        taken = " ".join(c.lower() for columns in inputs.values() for c in columns)
        row = next(name for k in count() if (name := f"sqlml{k or ''}") not in taken)
        self._bindings = Bindings(row, dialect)

    def value(self, wanted: int) -> tuple[Bindings, Value]:
        """The columns of node `wanted`, and their bindings."""
        nodes = self._program.nodes
        live = self._program.live([wanted])
        readers = Counter(j for i in live for j in nodes[i].inputs)
        values: dict[int, Value] = {}
        for i in live:
            value = self._print(nodes[i], values)
            if readers[i] > 1 and nodes[i].type.dtype != "string":
                value = self._bindings.bind(value)
            if sum(len(e.sql) for e in value) > LONGEST:
                raise BackendError("the SQL expression of the model is too long")
            values[i] = value
        return self._bindings, values[wanted]

    def _print(self, node: Node, values: Mapping[int, Value]) -> Value:
        if node.op == "input":
            return _input(node, self._inputs[str(node.attrs["name"])])
        if node.op == "constant":
            if node.type.dtype not in TYPES:
                raise BackendError(f"a constant {node.type!r} is not printed as SQL")
            return constants(node.attrs["value"], node.type.dtype)
        below = [self._program.nodes[j].type for j in node.inputs]
        if "string" in (t.dtype for t in below):
            return _text(node, values, self._bindings.dialect)
        printer = PRINTERS.get(node.op)
        if printer is None or node.type.dtype not in TYPES:
            raise BackendError(f"operator {node.op} with a {node.type!r} is not printed as SQL")
        return printer(
            Printing(
                node.op,
                node.attrs,
                node.type,
                tuple(values[j] for j in node.inputs),
                tuple(below),
                self._bindings,
            )
        )


def _input(node: Node, columns: Sequence[str]) -> Value:
    if node.type.dtype == "string":
        return tuple(Expression(c, cheap=True) for c in columns)
    if node.type.dtype not in ("float32", "float64"):
        raise BackendError(f"an input of {node.type.dtype} is not printed as SQL")
    kind = TYPES[node.type.dtype]
    made = []
    for column in columns:
        raw = f"CAST({column} AS {kind})"
        made.append(Expression(f"coalesce({raw}, 'nan'::{kind})", cheap=True, raw=raw))
    return tuple(made)


def _text(node: Node, values: Mapping[int, Value], dialect: Dialect) -> Value:
    printer = texts.PRINTERS.get(node.op)
    if printer is None:
        raise BackendError(f"operator {node.op} on strings is not printed as SQL")
    (x,) = (values[j] for j in node.inputs)
    made = []
    for e in x:
        sql = printer([e.sql], node.attrs, dialect, None)
        if node.type.dtype != "string":
            sql = f"CAST({sql} AS {TYPES[node.type.dtype]})"
        made.append(Expression(sql, nan=False, category=quoted_value(e.sql, dialect)))
    return tuple(made)
