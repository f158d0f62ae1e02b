"""Programs that read strings, as SQL expressions: what makes codes of categories.

Categories become codes by a look-up in a constant MAP. Measured on DuckDB 2.0 with 256 categories,
300K distinct-ish strings: MAP 22 ms, list_position 55, CASE 65, and a TRY_CAST to an ENUM 1300,
since each unknown string makes an error text. NULL and unknown values are spelled out, since they
decide which branch of a model a row takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from sqlml.backends.sql.literals import string_literal
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError
from sqlml.ir.program import Attrs, Program

MAX_TEXT = 16 << 20
"""Most characters of one expression."""


_LONGEST_TEXT = 200
"""Characters of an expression that is written once more, to say what its value was."""


def expressions(
    program: Program,
    inputs: Mapping[str, str],
    dialect: Dialect = DUCKDB,
    unknown: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """One expression per output of `program`.

    Args:
        program: operators of `PRINTERS` over string inputs.
        inputs: input name -> SQL expression of type VARCHAR.
        unknown: output -> the function that gives the code of a text it does not know; -1 for those
            of other outputs.

    Raises:
        BackendError: an operator has no printer.
    """
    functions = {program.outputs[name]: f for name, f in (unknown or {}).items()}
    made: list[str] = []
    for i, node in enumerate(program.nodes):
        if node.op == "input":
            made.append(inputs[str(node.attrs["name"])])
            continue
        printer = PRINTERS.get(node.op)
        if printer is None:
            raise BackendError(f"operator {node.op} is not printed as SQL")
        made.append(printer([made[j] for j in node.inputs], node.attrs, dialect, functions.get(i)))
        if len(made[-1]) > MAX_TEXT:
            raise BackendError(
                f"encoding {', '.join(inputs)} takes more than {MAX_TEXT} characters of SQL; "
                "fit the encoder with fewer categories (min_frequency, max_categories)"
            )
    return {name: made[i] for name, i in program.outputs.items()}


def _fill(args: Sequence[str], attrs: Attrs, dialect: Dialect, unknown: str | None) -> str:
    value = string_literal(str(attrs["value"]), dialect)
    if "missing" in attrs:
        gone = string_literal(str(attrs["missing"]), dialect)
        # As bytes: a comparison of texts would follow the column's collation.
        own, wanted = dialect.bytes(args[0]), dialect.bytes(gone)
        return f"CASE WHEN {own} = {wanted} THEN {value} ELSE {args[0]} END"
    return f"coalesce({args[0]}, {value})"


def _encode(args: Sequence[str], attrs: Attrs, dialect: Dialect, unknown: str | None) -> str:
    categories: Sequence[str] = attrs["categories"].tolist()
    missing = attrs["missing"]
    code = "-1"
    if categories:
        vocabulary = [string_literal(c, dialect) for c in categories]
        again = unknown is not None and len(args[0]) <= _LONGEST_TEXT
        other = f"{unknown}({args[0]})" if again else "-1"
        code = dialect.place_of(args[0], vocabulary, other)
    if missing == -1:
        return code
    return f"CASE WHEN {args[0]} IS NULL THEN {missing} ELSE {code} END"


def _isnan(args: Sequence[str], attrs: Attrs, dialect: Dialect, unknown: str | None) -> str:
    return f"CAST({args[0]} IS NULL AS INTEGER)"


PRINTERS: Mapping[str, Callable[[Sequence[str], Attrs, Dialect, str | None], str]] = (
    MappingProxyType({"fill": _fill, "encode": _encode, "isnan": _isnan})
)
