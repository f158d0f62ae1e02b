"""The macros that views call to score rows, so that clients without Python can read the views.

::

    CREATE VIEW v AS SELECT predict('m', *) FROM t                     the user's statement
    CREATE VIEW v AS SELECT system.main.<function>(a, b) FROM t        planned for the engine
    CREATE VIEW v AS SELECT sqlml.<function>(client(), true, a, b) ..  stored
    sqlml.<function>(k INTEGER, n, p0, p1) AS system.main.<function>(p0, p1)
                    (k VARCHAR, n, p0, p1) AS the same for clients that run models without Python

The macro has the name of the function that it replaces, so a session finds that name in the view,
and registers the function. As in the models' macros (`catalog/scoring_macros.py`), the type of the
function `client` chooses between the two bodies. `n` is always true. It stops the engine from
looking up functions while it creates the macro.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from sqlml.catalog.scoring_macros import CLIENT
from sqlml.catalog.tables import HASH_DIGITS, STORED_PREFIX
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.dialects.type_names import element, struct_fields
from sqlml.planner.model_sql.macro_bodies import SCORE, build_data_query

VIEW_NAME = "view"
"""The name of the function in the data of a view's macro."""

_CALL = re.compile(
    rf"{re.escape(builtin(STORED_PREFIX))}([0-9a-f]{{{HASH_DIGITS}}}_[0-9a-z_]+)\((\))?"
)


def find_stored_functions(sql: str) -> list[str]:
    """Return the names of the functions that the planned statement `sql` calls, without repeats."""
    return list(dict.fromkeys(f"{STORED_PREFIX}{match[1]}" for match in _CALL.finditer(sql)))


def call_view_macros(sql: str) -> str:
    """Replace the calls of stored functions in a planned statement by calls of their macros."""

    def call_macro(match: re.Match[str]) -> str:
        end = ")" if match[2] else ", "
        return f"sqlml.{STORED_PREFIX}{match[1]}({builtin(CLIENT)}(), true{end}"

    return _CALL.sub(call_macro, sql)


def build_view_macro(
    name: str,
    argument_types: Sequence[str],
    result_type: str,
    text_count: int,
    groups: Sequence[int],
) -> str:
    """Build the overloads of the macro for the function `name`, as in CREATE MACRO after its name.

    A function whose first argument is an array takes packed numbers, and then a list of
    `text_count` strings if there are any. A list of lists has lists of the lengths `groups`.
    """
    parameters = [f"p{k}" for k in range(len(argument_types))]
    call = f"{DUCKDB.scorer(name)}({', '.join(parameters)})"
    width = _ARRAY.fullmatch(argument_types[0]) if argument_types else None
    data = build_data_query(name)
    if width is None:
        client_call = _build_client_call(data, parameters)
    else:  # A lambda reads the packed row, because a macro copies an argument wherever it is used.
        row, field = {"d": data, "r": "p0"}, DUCKDB.field
        columns = [DUCKDB.at(field(_ROW, "r"), k) for k in range(1, int(width[1]) + 1)]
        if text_count:
            row["t"] = "p1"
            texts = (DUCKDB.at(field(_ROW, "t"), k) for k in range(1, text_count + 1))
            columns += [DUCKDB.call("decode", text) for text in texts]
        client_call = _build_client_call(field(_ROW, "d"), columns)
        client_call = DUCKDB.let(_ROW, DUCKDB.struct(row), client_call)
    result = _convert_result(client_call, result_type, groups)
    return ", ".join(
        f"({', '.join([f'k {client_type}', 'n', *parameters])}) AS "
        f"CASE WHEN n IS NULL THEN NULL ELSE {body} END"
        for client_type, body in (("INTEGER", call), ("VARCHAR", result))
    )


_ARRAY = re.compile(r"(?:FLOAT|DOUBLE)\[(\d+)\]")
_ROW, _RESULT = "sqlml_x", "sqlml_y"


def _build_client_call(data: str, columns: Sequence[str]) -> str:
    return DUCKDB.call(f"{SCORE}double_list", data, DUCKDB.quote_string(VIEW_NAME), *columns)


def _convert_result(numbers: str, result_type: str, groups: Sequence[int]) -> str:
    """Convert a list of DOUBLE to the type of the function's result."""
    fields = struct_fields(result_type)
    if fields is not None:
        values = {
            name: f"CAST({DUCKDB.at(_RESULT, k)} AS {sql_type})"
            for k, (name, sql_type) in enumerate(fields, 1)
        }
        return DUCKDB.let(_RESULT, numbers, DUCKDB.struct(values))
    if groups:
        bounds = pairwise(accumulate(groups, initial=0))
        parts = [DUCKDB.part(_RESULT, start + 1, end) for start, end in bounds]
        return DUCKDB.let(_RESULT, numbers, DUCKDB.array(parts))
    value = numbers if element(result_type) is not None else DUCKDB.at(numbers, 1)
    return f"CAST({value} AS {result_type})"
