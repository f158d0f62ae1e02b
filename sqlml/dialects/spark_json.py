"""JSON of Spark's lists, maps and structs, as Python's json module reads it back."""

from __future__ import annotations

from sqlml.dialects.spark_text import exact
from sqlml.dialects.type_names import element, map_types, struct_fields


def json_text(value: str, type: str, depth: int = 0) -> str:
    """The JSON of an expression of a type, as DuckDB spells it; NULL where it is NULL.

    Numbers are written as a cast to STRING writes them: NaN and Infinity, each DOUBLE with enough
    digits, and a FLOAT as the DOUBLE that it is.

    >>> json_text("x", "FLOAT[]")
    "concat('[', array_join(transform(x, e0 -> \
coalesce(CAST(CAST(e0 AS DOUBLE) AS STRING), 'null')), ','), ']')"
    """
    inner, types, fields = element(type), map_types(type), struct_fields(type)
    each = f"e{depth}"
    if inner is not None:
        items = f"transform({value}, {each} -> {_or_null(each, inner, depth)})"
        return f"concat('[', array_join({items}, ','), ']')"
    if types is not None:
        key = _text(f"CAST({each}.key AS STRING)")
        pair = f"concat({key}, ':', {_or_null(f'{each}.value', types[1], depth)})"
        items = f"transform(map_entries({value}), {each} -> {pair})"
        return f"concat('{{', array_join({items}, ','), '}}')"
    if fields is not None:
        pairs = []
        for field in fields:
            read = f"({value}).`{field.name.replace('`', '``')}`"
            name = _text(exact(field.name))
            pairs.append(f"concat({name}, ':', {_or_null(read, field.type, depth)})")
        made = f"concat('{{', concat_ws(',', {', '.join(pairs)}), '}}')"
        return f"CASE WHEN {value} IS NOT NULL THEN {made} END"
    if type == "VARCHAR":
        return _text(value)
    number = f"CAST({value} AS DOUBLE)" if type == "FLOAT" else value
    return f"CAST({number} AS STRING)"


def _or_null(value: str, type: str, depth: int) -> str:
    return f"coalesce({json_text(value, type, depth + 1)}, 'null')"


def _text(value: str) -> str:
    """The JSON of a text: that of a list of it, which Spark can write, without the brackets."""
    made = f"to_json(array({value}))"
    return f"CASE WHEN {value} IS NOT NULL THEN substr({made}, 2, length({made}) - 2) END"
