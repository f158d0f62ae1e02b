"""The SQL that turns the result of an engine function into labels, maps and lists for users.

A model of one target returns a label, a MAP of probabilities, or a number. A model of several
targets returns a list of these values. If the labels of its targets differ in type, it returns a
struct with the fields t0, t1, ... instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.sql.expression import string_literal
from sqlml.dialects import DUCKDB, Dialect
from sqlml.explaining.explained import OWN, ensure_output, find_block_size
from sqlml.explaining.reconstruction import LOSSES
from sqlml.ir.program import Program
from sqlml.passes.tree_stages import LEAF
from sqlml.types import Labels, class_text

ChosenClass = tuple[int | None, ...]
"""The index of the requested class in each target, or None for a target without that class."""

_LABEL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "bool": "BOOLEAN", "float64": "DOUBLE"}


def find_result_type(program: Program, output: str, chosen: ChosenClass | None) -> str:
    labels = program.labels
    if output == OWN:
        return "MAP(VARCHAR, DOUBLE)" + "[]" * (_count_explained(program, chosen) > 1)
    if output == LOSSES:
        return "DOUBLE[]"
    if output == "interval":
        return "STRUCT(lower DOUBLE, upper DOUBLE)"
    if output == LEAF:
        return "INTEGER[]" if chosen is None else "INTEGER"
    if output == "set":
        return f"{find_label_type(labels[0])}[]"
    if output == "label" and labels:
        return _combine_types(list(map(find_label_type, labels)))
    if output == "proba" and labels and chosen is None:
        return _combine_types([f"MAP({find_label_type(s)}, DOUBLE)" for s in labels])
    is_single = len(labels) == 1 if output == "proba" else program.output_type(output).width == 1
    return "DOUBLE" if is_single else "DOUBLE[]"


def find_label_type(labels: Labels) -> str:
    """Return the DuckDB type of the labels of one target.

    >>> find_label_type(Labels("int64", (0, 1), "TINYINT"))
    'TINYINT'
    """
    return labels.sql_type or _LABEL_TYPES[labels.kind]


def _combine_types(sql_types: Sequence[str]) -> str:
    if len(sql_types) == 1:
        return sql_types[0]
    if len(set(sql_types)) == 1:
        return f"{sql_types[0]}[]"
    return f"STRUCT({', '.join(f't{t} {sql_type}' for t, sql_type in enumerate(sql_types))})"


def decode_result(
    call_sql: str,
    program: Program,
    output: str,
    chosen: ChosenClass | None,
    dialect: Dialect = DUCKDB,
    baseline: bool = False,
    standard_errors: bool = False,
) -> str:
    """Build the SQL that turns the result of `call_sql`, a function call, into a value for users.

    If `baseline` is true, contributions include the baseline. If `standard_errors` is true, the
    value has the standard errors of the contributions instead of the contributions.
    """
    labels = program.labels
    if _marks_missing(program):
        call_sql = _build_null_if_nan(call_sql, program, output, chosen, dialect)
    if output == OWN:
        value_count = _count_explained(program, chosen)
        if standard_errors:
            return _build_error_maps(call_sql, program, value_count, dialect)
        return _build_contribution_maps(call_sql, program, value_count, baseline, dialect)
    if output == "interval":
        ends = [dialect.at(_BOUND, position) for position in (1, 2)]
        interval = dialect.struct(dict(zip(("lower", "upper"), ends, strict=True)))
        interval = f"CASE WHEN {_BOUND} IS NOT NULL THEN {interval} END"
        return dialect.let(_BOUND, call_sql, interval)
    if output == LEAF:
        return f"CAST({call_sql} AS {dialect.type(find_result_type(program, output, chosen))})"
    if output == "set":
        members = dialect.where(build_label_array(labels[0], dialect), _BOUND)
        members = f"CASE WHEN {_BOUND} IS NOT NULL THEN {members} END"
        return dialect.let(_BOUND, call_sql, members)
    if output == "label" and labels:
        if len(labels) == 1:
            # A CASE would call the function too often: DuckDB evaluates the operand for a row of
            # NULLs under a LEFT JOIN, and Spark evaluates it for each WHEN.
            array = build_label_array(labels[0], dialect)
            return dialect.at(f"({array})", dialect.operator("+", call_sql, "1"))
        return _decode_labels(call_sql, labels, dialect)
    if output == "proba" and len(labels) == 1 and chosen is None:
        return _map_call(_make_label_keys(labels[0], dialect), call_sql, dialect)
    if output == "proba" and len(labels) > 1:
        if chosen is not None:
            return _build_class_probabilities(call_sql, program, chosen, dialect)
        has_one_probability = program.has_one_probability_per_target
        return _build_probability_maps(call_sql, labels, has_one_probability, dialect)
    return call_sql


def _marks_missing(program: Program) -> bool:
    """Return whether the outputs are NaN, or -1, for rows of a partition without a model."""
    nodes = program.nodes
    return any(
        node.op == "by_partition"
        and not node.attrs["has_default"]
        and nodes[node.inputs[0]].op != "require_known"
        for node in nodes
    )


def _build_null_if_nan(
    call_sql: str, program: Program, output: str, chosen: ChosenClass | None, dialect: Dialect
) -> str:
    """Build the SQL of a result that is NULL if its number, or its first number, is NaN."""
    labels = program.labels
    if output == "label" and labels:
        return call_sql  # The class number -1 has no label, so the label is NULL.
    is_list = output == OWN or (
        program.output_type(output).width > 1 and not (output == "proba" and chosen is not None)
    )
    number = dialect.at(_SCORE, 1) if is_list else _SCORE
    value = f"CASE WHEN {number} <> CAST('NaN' AS {dialect.type('DOUBLE')}) THEN {_SCORE} END"
    return dialect.let(_SCORE, call_sql, value)


_SCORE = "sqlml_s"
"""The variable for a result that may be NaN; `_BOUND` may be bound to the result around it."""


def _count_explained(program: Program, chosen: ChosenClass | None) -> int:
    if chosen is not None:
        return 1
    explained = ensure_output(program, OWN)
    return explained.output_type(OWN).width // find_block_size(explained)


def _build_contribution_maps(
    call_sql: str, program: Program, value_count: int, baseline: bool, dialect: Dialect
) -> str:
    baseline_key = "(baseline)" if "baseline" in program.inputs else "baseline"
    names = [*program.inputs, *([baseline_key] if baseline else [])]
    block_size = find_block_size(ensure_output(program, OWN))
    if value_count == 1:
        keys = _make_text_keys(names, dialect)
        return _map_call(keys, call_sql, dialect, is_whole=len(names) == block_size)
    starts = range(1, value_count * block_size, block_size)
    return dialect.let(_BOUND, call_sql, dialect.array(_map_parts(names, starts, dialect)))


def _build_error_maps(call_sql: str, program: Program, value_count: int, dialect: Dialect) -> str:
    """Build the SQL of a MAP of standard errors per value, which are 0 if they are exact."""
    names, block_size = list(program.inputs), find_block_size(ensure_output(program, OWN))
    if block_size > len(names) + 1:
        starts = [value * block_size + len(names) + 2 for value in range(value_count)]
        maps = _map_parts(names, starts, dialect)
    else:
        zeros = dialect.array(["CAST(0 AS DOUBLE)"] * len(names))
        zero_map = dialect.map(dialect.texts(names), zeros)
        maps = [f"CASE WHEN {_BOUND} IS NOT NULL THEN {zero_map} END"] * value_count
    return dialect.let(_BOUND, call_sql, maps[0] if value_count == 1 else dialect.array(maps))


_BOUND = "sqlml_p"
"""The variable for a result that is read several times.

In some lambdas of DuckDB 1.5, a macro's parameter hides a variable of the same name. Users do not
choose this name.
"""


@dataclass(frozen=True, slots=True)
class _MapKeys:
    """The constant keys of a MAP to DOUBLE.

    Attributes:
        array: SQL of the list of keys.
        type: the DuckDB type of a key.
        count: the number of keys.
        fields: names of the fields of a struct that DuckDB casts to the MAP, or None if a struct
            cannot have them.
    """

    array: str
    type: str
    count: int
    fields: tuple[str, ...] | None


_MAX_FIELDS = 128
"""The maximum number of fields of all structs in an expression.

DuckDB plans a field in 30 microseconds, and a struct of 100 fields saves 13 microseconds a row.
"""


def _make_text_keys(texts: Sequence[str], dialect: Dialect, num_maps: int = 1) -> _MapKeys:
    fields = _find_fields(texts, dialect, num_maps * len(texts))
    return _MapKeys(dialect.texts(texts), "VARCHAR", len(texts), fields)


def _make_label_keys(labels: Labels, dialect: Dialect, total_fields: int = 0) -> _MapKeys:
    """Return the labels as keys. An expression with several MAPs has `total_fields` keys."""
    fields = None
    if labels.kind != "float64":  # The text of a DOUBLE may be rounded to another FLOAT.
        texts = [class_text(v.item() if isinstance(v, np.generic) else v) for v in labels.values]
        fields = _find_fields(texts, dialect, max(total_fields, len(texts)))
    array = build_label_array(labels, dialect)
    return _MapKeys(array, find_label_type(labels), len(labels), fields)


def _find_fields(
    texts: Sequence[str], dialect: Dialect, total_fields: int
) -> tuple[str, ...] | None:
    """Return `texts` as names of the fields of a struct, or None if they cannot have these names.

    Names of fields must differ in more than case. Names that DuckDB distinguishes, but `casefold`
    does not, are left out as well.
    """
    if not dialect.casts_structs_to_maps or total_fields > _MAX_FIELDS:
        return None
    are_distinct = len({text.casefold() for text in texts}) == len(texts)
    can_be_quoted = all(text and "\0" not in text for text in texts)
    return tuple(texts) if are_distinct and can_be_quoted else None


def _map_call(keys: _MapKeys, call_sql: str, dialect: Dialect, is_whole: bool = True) -> str:
    """Build the SQL of a MAP from `keys` to the first elements of the list that a call returns.

    If `is_whole` is true, the list has no further elements.
    """
    if keys.fields is None:
        return _map_list(keys, call_sql, dialect, is_whole=is_whole)
    return dialect.let(_BOUND, call_sql, _map_list(keys, _BOUND, dialect))


def _map_parts(names: Sequence[str], starts: Sequence[int], dialect: Dialect) -> list[str]:
    """Build the SQL of a MAP from `names` to elements of the list `_BOUND` for each start."""
    keys = _make_text_keys(names, dialect, len(starts))
    return [_map_list(keys, _BOUND, dialect, start, is_whole=False) for start in starts]


def _map_list(
    keys: _MapKeys, values: str, dialect: Dialect, start: int = 1, is_whole: bool = True
) -> str:
    """Build the SQL of a MAP from `keys` to elements of a list, beginning at position `start`.

    `values` is the list, and is repeated for each key if the keys are fields. If `is_whole` is
    true, the MAP has all elements of the list.
    """
    stop = start + keys.count
    if keys.fields is None:
        list_sql = values if is_whole else dialect.part(values, start, stop - 1)
        return dialect.map(keys.array, list_sql)
    elements = [dialect.at(values, dialect.integer(k)) for k in range(start, stop)]
    return f"CASE WHEN {values} IS NOT NULL THEN {_map_elements(keys, elements, dialect)} END"


def _map_elements(keys: _MapKeys, elements: Sequence[str], dialect: Dialect) -> str:
    """Build the SQL of a MAP from `keys` to DOUBLEs, each of which is an expression."""
    if keys.fields is None:
        return dialect.map(keys.array, dialect.array(elements))
    # map() compares the keys of each row with each other: casting a struct takes a tenth of the
    # time (2 and 28 keys on DuckDB 1.5 and 2.0).
    fields = {dialect.quote_name(n): e for n, e in zip(keys.fields, elements, strict=True)}
    return f"CAST({dialect.struct(fields)} AS MAP({keys.type}, DOUBLE))"


def find_first_positions(labels: Sequence[Labels]) -> tuple[int, ...]:
    """Return the 1-based position of each target's first class in the list of all classes."""
    class_counts = [len(target_labels) for target_labels in labels]
    return tuple(int(n) for n in np.cumsum([1, *class_counts[:-1]]))


def _decode_labels(call_sql: str, labels: Sequence[Labels], dialect: Dialect) -> str:
    if _have_same_type(labels):
        all_labels = dialect.array([v for s in labels for v in _build_label_literals(s, dialect)])
        return dialect.pick(all_labels, call_sql)
    fields = []
    for target, first_position in enumerate(find_first_positions(labels)):
        position = dialect.operator("-", dialect.at(_BOUND, target + 1), str(first_position - 1))
        fields.append(dialect.at(f"({build_label_array(labels[target], dialect)})", position))
    return _build_struct(call_sql, fields, dialect)


def _build_probability_maps(
    call_sql: str, labels: Sequence[Labels], has_one_probability: bool, dialect: Dialect
) -> str:
    """Build the SQL of a MAP of probabilities for each target.

    `has_one_probability` means that `call_sql` returns only the second class's probability.
    """

    has_one_type = _have_same_type(labels)
    have_same_classes = has_one_type and len({s.values for s in labels}) == 1
    total_fields = len(labels[0]) if have_same_classes else sum(map(len, labels))

    def map_target(target_labels: Labels, proba_sql: str) -> str:
        keys = _make_label_keys(target_labels, dialect, total_fields)
        if not has_one_probability:
            return _map_list(keys, proba_sql, dialect)
        # If the probability is NULL, both values are NULL, but the MAP is not.
        return _map_elements(keys, [dialect.operator("-", "1", proba_sql), proba_sql], dialect)

    if have_same_classes:
        return dialect.each(call_sql, _BOUND, map_target(labels[0], _BOUND))
    maps = [map_target(s, dialect.at(_BOUND, t)) for t, s in enumerate(labels, 1)]
    if has_one_type:
        return dialect.let(_BOUND, call_sql, dialect.array(maps))
    return _build_struct(call_sql, maps, dialect)


def _build_class_probabilities(
    call_sql: str, program: Program, chosen: ChosenClass, dialect: Dialect
) -> str:
    probabilities = []
    for target, class_index in enumerate(chosen, 1):
        proba_sql = dialect.at(_BOUND, target)
        if class_index is None:
            probabilities.append("CAST(NULL AS DOUBLE)")
        elif program.has_one_probability_per_target:
            complement_sql = dialect.operator("-", "1", proba_sql)
            probabilities.append(proba_sql if class_index else complement_sql)
        else:
            probabilities.append(dialect.at(proba_sql, class_index + 1))
    return dialect.let(_BOUND, call_sql, dialect.array(probabilities))


def _build_struct(call_sql: str, fields: Sequence[str], dialect: Dialect) -> str:
    """Build the SQL of a struct of `fields`, which read the result of `call_sql` as `_BOUND`."""
    struct_sql = dialect.struct({f"t{t}": sql for t, sql in enumerate(fields)})
    return dialect.let(_BOUND, call_sql, struct_sql)


def _have_same_type(labels: Sequence[Labels]) -> bool:
    return len({target_labels.kind for target_labels in labels}) == 1


_MAX_LITERALS = 16


def build_label_array(labels: Labels, dialect: Dialect = DUCKDB) -> str:
    if labels.kind == "string" and not any("\0" in str(v) for v in labels.values):
        array = dialect.texts(list(map(str, labels.values)))
    elif labels.kind == "int64" and len(labels) > _MAX_LITERALS and dialect is DUCKDB:
        array = f"CAST({dialect.texts([str(int(v)) for v in labels.values])} AS BIGINT[])"
    else:
        array = dialect.array(_build_label_literals(labels, dialect))
    if not labels.sql_type:
        return array
    return f"CAST({array} AS {dialect.type(f'{find_label_type(labels)}[]')})"


def _build_label_literals(labels: Labels, dialect: Dialect) -> list[str]:
    return [build_label_literal(v, labels.kind, dialect) for v in labels.values]


def build_label_literal(value: Any, kind: str, dialect: Dialect = DUCKDB) -> str:
    if kind == "string":
        return string_literal(str(value), dialect)
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int64":
        return f"'{int(value)}'::BIGINT"  # -2^63 is only valid in quotes.
    return f"'{float(value)!r}'::DOUBLE"
