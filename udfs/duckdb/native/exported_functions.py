"""Describe a model's outputs as functions of an extension (`extension_file.py`).

Each output is a function of one argument per feature: `m(..)` returns the label or the value,
`m_proba(..)` the probabilities, `m_score(..)`, `m_transform(..)` and `m_explain(..)` the rest. The
results are those of the SQL in `planner/program/result_sql.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.catalog.small_models import COVERAGE, DEFAULT_COVERAGE
from sqlml.dialects import DUCKDB
from sqlml.dialects.type_names import element, map_types, struct_fields
from sqlml.errors import BackendError, SqlmlError
from sqlml.explaining.explained import OWN, ensure_output, find_block_size
from sqlml.ir.program import Program
from sqlml.planner.binding.refused_nulls import find_null_inputs
from sqlml.planner.binding.requested_output import find_label
from sqlml.planner.binding.unknown_categories import (
    accept_unknown_as_missing,
    find_known_categories,
)
from sqlml.planner.databases.export_for import EXPORTED_OUTPUTS
from sqlml.planner.model_sql.export_macros import MACRO_SUFFIXES
from sqlml.planner.model_sql.macro_bodies import CLASS_NAME, CLIENT_NAME, list_client_features
from sqlml.planner.model_sql.view_macros import VIEW_NAME
from sqlml.planner.program.function_spec import FunctionSpec, Output, ResultPart
from sqlml.planner.program.prepare_program import prepare_parts
from sqlml.planner.program.result_sql import (
    find_first_positions,
    find_label_type,
    find_result_type,
)
from sqlml.types import DATETIME, Array, Feature, Labels
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.native.exported_checks import find_checks
from sqlml.udfs.duckdb.native.extension_file import (
    ARRAY_OF,
    COMPLEMENT,
    FIELDS,
    LABEL,
    LISTED,
    MEMBERS,
    NUMBER,
    PAIRS,
    PLAIN,
    RECORD,
    TAKES_ANYTHING,
    TAKES_NUMBER,
    TAKES_TEXT,
    TAKES_TIME,
    Argument,
    DataWriter,
    ExportedFunction,
    ExportedTable,
    Word,
)
from sqlml.udfs.duckdb.native.plan_bytecode import explain_obstacle
from sqlml.udfs.make_function import make_engine_function

SUFFIXES = {**MACRO_SUFFIXES, OWN: "_explain", "interval": "_interval", "set": "_set"}
"""Maps an output to what follows the model's name in the name of its function."""

_ARGUMENT_KINDS = {
    "number": TAKES_NUMBER,
    "string": TAKES_TEXT,
    DATETIME: TAKES_TIME,
    "any": TAKES_ANYTHING,
}


def make_exported_functions(
    program: Program, features: Sequence[Feature], name: str, options: Mapping[str, Any]
) -> tuple[ExportedFunction, ...]:
    """Return the functions of the model `name`, with an argument for each of `features`.

    Raises BackendError if the model needs Python to be scored.
    """
    return tuple(_make_functions(program, features, name, options, tuple(_list_outputs(program))))


def make_calibrated_function(
    program: Program, features: Sequence[Feature], name: str, options: Mapping[str, Any]
) -> ExportedFunction:
    """Return the function for the intervals or sets of a calibrated Program.

    Its last argument is the coverage. Raises BackendError if the model needs Python to be scored.
    """
    output: Output = "interval" if "interval" in program.outputs else "set"
    arguments = [*features, Feature(COVERAGE, "number")]
    (function,) = _make_functions(program, arguments, name, options, [output])
    return function


def _make_functions(
    program: Program,
    features: Sequence[Feature],
    name: str,
    options: Mapping[str, Any],
    outputs: Sequence[Output],
) -> Iterator[ExportedFunction]:
    for feature in features:
        if feature.kind not in _ARGUMENT_KINDS:
            raise BackendError(
                f"an extension cannot take column {feature.name!r}, which is of kind "
                f"{feature.kind!r}; export the model for Python instead"
            )
    known = find_known_categories(options, program)
    if known:
        program = accept_unknown_as_missing(program)
    for output in outputs:
        # Contributions are an addition, which the model may do without.
        with suppress(BackendError) if output == OWN else nullcontext():
            yield _make_function(program, features, name, output, options, known)


def make_client_functions(
    program: Program, features: Sequence[Feature], options: Mapping[str, Any]
) -> tuple[ExportedFunction, ...]:
    """Return the functions that the macros of a database call (`model_sql/macro_bodies.py`).

    They take the features that the Program reads. Raises BackendError if the model needs Python.
    """
    features = list_client_features(features, program)
    outputs = [*_list_plain_outputs(program)]
    functions = [*_make_functions(program, features, CLIENT_NAME, options, outputs)]
    if options.get("positive_class") is not None and "proba" in outputs:
        others = {name: value for name, value in options.items() if name != "positive_class"}
        functions += _make_functions(program, features, CLASS_NAME, others, ["proba"])
    return tuple(functions)


def make_view_function(program: Program, spec: FunctionSpec) -> ExportedFunction:
    """Return a function that computes what the function `spec` of a view does, as a list.

    Its arguments are the numbers and strings that the view packs, or passes as columns. Raises
    BackendError if the model needs Python.
    """
    spec = replace(
        spec,
        layout="f64",
        backend="native",
        strategy="traverse",
        device="cpu",
        remembers_rows=False,
        by_column=True,
        batch_rows=None,
    )
    function = _make_native_function(spec, program)
    kinds = (TAKES_NUMBER,) * function.packed + (TAKES_TEXT,) * function.texts
    shape, value = _make_number_list(function.columns)
    prepared = prepare_parts(program, spec.parts, "f64", spec.constants, spec.max_categories)
    return ExportedFunction(
        name=VIEW_NAME,
        function=function,
        arguments=tuple(
            Argument(kind, position, False, "the view does not fit the model; create it again")
            for position, kind in enumerate(kinds)
        ),
        type_code=lambda writer: list(_encode_type("DOUBLE[]", writer)),
        shape=shape,
        value=value,
        checks=find_checks(prepared),
        other_message="the model of the view cannot score a row",
    )


def _list_plain_outputs(program: Program) -> Iterator[Output]:
    """Yield the outputs that become functions."""
    # As in `predict_score`, the decision function comes before the score of samples.
    for output in EXPORTED_OUTPUTS:
        if output in program.outputs and (output, "score" in program.outputs) != ("samples", True):
            yield output


def _list_outputs(program: Program) -> Iterator[Output]:
    """Yield the outputs that become functions, and the contributions if the model has some."""
    yield from _list_plain_outputs(program)
    with suppress(SqlmlError):
        explained = ensure_output(program, OWN)
        if OWN in explained.outputs and all(op.op not in _SAMPLED for op in explained.nodes):
            yield OWN


_SAMPLED = frozenset({"sampled_contributions"})
"""Operators of contributions that are estimated from samples, in Python."""


def make_info_table(
    features: Sequence[Feature],
    name: str,
    facts: Mapping[str, str],
    functions: Sequence[ExportedFunction],
    calibrated: tuple[ExportedFunction, Sequence[Feature]] | None = None,
) -> ExportedTable:
    """Return the table function `<name>_info`: facts, features with types, and macros.

    A macro calls a function with the columns of a row by their names, as in `m_row(t)`.
    `calibrated` is the function of `make_calibrated_function`, with its features.
    """
    rows = list(facts.items())
    rows += [(f"feature {f.name}", _find_feature_type(f)) for f in features]
    quote = DUCKDB.quote_name
    columns = ", ".join(f"r.{quote(f.name)}" for f in features)
    for function in functions:
        macro = (
            f"CREATE MACRO {quote(function.name + '_row')}(r) AS {quote(function.name)}({columns})"
        )
        rows.append((f"macro {function.name}_row", macro))
    if calibrated is not None:
        function, features = calibrated
        columns = ", ".join([*(f"r.{quote(f.name)}" for f in features), "coverage"])
        macro_name = f"{function.name}_row"
        parameters = f"r, coverage := {DEFAULT_COVERAGE!r}"
        call = f"{quote(function.name)}({columns})"
        macro = f"CREATE MACRO {quote(macro_name)}({parameters}) AS {call}"
        rows.append((f"macro {macro_name}", macro))
    return ExportedTable(f"{name}_info", tuple(rows))


_FEATURE_TYPES = {"number": "DOUBLE", "string": "VARCHAR", DATETIME: "TIMESTAMP", "any": "ANY"}


def _find_feature_type(feature: Feature) -> str:
    return "BOOLEAN" if feature.is_boolean else _FEATURE_TYPES[feature.kind]


def _make_function(
    program: Program,
    features: Sequence[Feature],
    name: str,
    output: Output,
    options: Mapping[str, Any],
    known: Mapping[str, Array],
) -> ExportedFunction:
    column = None
    if output == "proba" and len(program.labels) == 1 and options.get("positive_class") is not None:
        column = find_label(program.labels[0], options["positive_class"])
    part = ResultPart(output, column)
    spec = FunctionSpec(
        program.hash,
        (part,),
        "f64",
        "native",
        "traverse",
        "cpu",
        max_categories=0,
        by_column=True,
    )
    function = _make_native_function(spec, program)
    chosen = None if column is None else (column,)
    shape, value = _make_result(program, output, chosen, function.columns)
    sql_type = find_result_type(program, output, chosen)
    return ExportedFunction(
        name=name + SUFFIXES[output],
        function=function,
        arguments=_make_arguments(program, features, part, options, known),
        type_code=lambda writer: list(_encode_type(sql_type, writer)),
        shape=shape,
        value=value,
        checks=find_checks(prepare_parts(program, (part,), max_categories=0)),
        other_message=f"a row cannot be scored by {name}{SUFFIXES[output]}",
    )


def _make_native_function(spec: FunctionSpec, program: Program) -> BatchFunction:
    """Make the function `spec`, or raise BackendError if it needs Python."""
    if any(node.op == "by_partition" for node in program.nodes):
        raise BackendError(
            "an extension cannot run a model with PARTITION BY, whose partitions are compiled when "
            "their rows arrive"
        )
    function = make_engine_function(spec, program).function
    assert isinstance(function, BatchFunction)
    obstacle = explain_obstacle(function)
    if obstacle is not None:
        raise BackendError(f"an extension cannot run this model: {obstacle}")
    return function


def _make_arguments(
    program: Program,
    features: Sequence[Feature],
    part: ResultPart,
    options: Mapping[str, Any],
    known: Mapping[str, Array],
) -> tuple[Argument, ...]:
    split = prepare_parts(program, (part,), max_categories=0).split
    numbers = {column.name: k for k, column in enumerate(split.packed_columns)}
    texts = {name: max(1, len(numbers)) + k for k, name in enumerate(split.text_inputs)}
    null_inputs = find_null_inputs(options, program)
    return tuple(
        Argument(
            kind=_ARGUMENT_KINDS[feature.kind],
            position=(texts if feature.kind == "string" else numbers).get(feature.name),
            refuses_null=feature.name in null_inputs,
            type_message=f"argument {feature.name!r} takes numbers; cast it",
            known=known.get(feature.name),
        )
        for feature in features
    )


# Results.

Value = Callable[[DataWriter], list[Word]]


def _make_result(
    program: Program, output: str, chosen: tuple[int] | None, width: int
) -> tuple[tuple[int, ...], Value]:
    """Return the shape of a result and its value, as `runtime.c` describes them."""
    labels = program.labels
    if output == OWN:
        return _make_contributions(program, width)
    if output == "interval":
        return (FIELDS, 2, PLAIN, PLAIN), lambda _: [RECORD, 2, NUMBER, 0, NUMBER, 1]
    if output == "set":
        return (LISTED, width, PLAIN), lambda writer: [
            *(MEMBERS, width),
            *_add_table(writer, labels[0]),
        ]
    if output == "label" and labels:
        return _make_labels(labels)
    if output == "proba" and labels and chosen is None:
        return _make_probabilities(program)
    if find_result_type(program, output, chosen) == "DOUBLE":
        return (PLAIN,), lambda _: [NUMBER, 0]
    return _make_number_list(width)


def _make_number_list(width: int) -> tuple[tuple[int, ...], Value]:
    numbers = [word for k in range(width) for word in (NUMBER, k)]
    return (LISTED, width, PLAIN), lambda _: [ARRAY_OF, width, *numbers]


def _make_labels(labels: Sequence[Labels]) -> tuple[tuple[int, ...], Value]:
    if len(labels) == 1:
        return (PLAIN,), lambda writer: [LABEL, 0, 0, *_add_table(writer, labels[0])]
    positions = find_first_positions(labels)

    def write(writer: DataWriter) -> list[Word]:
        words: list[Word] = [_join_kind(labels), len(labels)]
        for t, (target, position) in enumerate(zip(labels, positions, strict=True)):
            words += (LABEL, t, position, *_add_table(writer, target))
        return words

    if _join_kind(labels) == ARRAY_OF:
        return (LISTED, len(labels), PLAIN), write
    return (FIELDS, len(labels), *[PLAIN] * len(labels)), write


def _join_kind(labels: Sequence[Labels]) -> int:
    """Return ARRAY_OF if the results of all targets have one type, or else RECORD."""
    return ARRAY_OF if len({find_label_type(target) for target in labels}) == 1 else RECORD


def _make_probabilities(program: Program) -> tuple[tuple[int, ...], Value]:
    labels, has_one = program.labels, program.has_one_probability_per_target
    has_one = has_one and len(labels) > 1

    def write_map(writer: DataWriter, target: int, column: int) -> list[Word]:
        count = len(labels[target])
        words: list[Word] = [PAIRS, count, *_add_table(writer, labels[target])]
        if has_one:
            return [*words, COMPLEMENT, column, NUMBER, column]
        return [*words, *(word for k in range(count) for word in (NUMBER, column + k))]

    counts = [len(target) for target in labels]
    columns = range(len(labels)) if has_one else np.cumsum([0, *counts[:-1]]).tolist()
    if len(labels) == 1:
        return _shape_map(counts[0]), lambda writer: write_map(writer, 0, 0)

    def write(writer: DataWriter) -> list[Word]:
        maps = (write_map(writer, t, column) for t, column in enumerate(columns))
        return [_join_kind(labels), len(labels), *(word for words in maps for word in words)]

    if _join_kind(labels) == ARRAY_OF:
        return (LISTED, len(labels), *_shape_map(sum(counts))), write
    shapes = (word for count in counts for word in _shape_map(count))
    return (FIELDS, len(labels), *shapes), write


def _shape_map(pair_count: int) -> tuple[int, ...]:
    return (LISTED, pair_count, FIELDS, 2, PLAIN, PLAIN)


def _make_contributions(program: Program, width: int) -> tuple[tuple[int, ...], Value]:
    names = list(program.inputs)
    block_size = find_block_size(ensure_output(program, OWN))
    value_count = width // block_size

    def write(writer: DataWriter) -> list[Word]:
        keys = _add_texts(writer, names)
        words: list[Word] = [] if value_count == 1 else [ARRAY_OF, value_count]
        for start in range(0, value_count * block_size, block_size):
            words += (PAIRS, len(names), *keys)
            words += [word for k in range(len(names)) for word in (NUMBER, start + k)]
        return words

    shape = _shape_map(value_count * len(names))
    return (shape if value_count == 1 else (LISTED, value_count, *shape)), write


# Labels and types.

_FIXED_TYPES = {
    "BOOLEAN": (1, "?"),
    "TINYINT": (2, "b"),
    "SMALLINT": (3, "h"),
    "INTEGER": (4, "i"),
    "BIGINT": (5, "q"),
    "UTINYINT": (6, "B"),
    "USMALLINT": (7, "H"),
    "UINTEGER": (8, "I"),
    "UBIGINT": (9, "Q"),
    "FLOAT": (10, "f"),
    "DOUBLE": (11, "d"),
}
"""Maps SQL types to DuckDB's numbers of types and to the codes of numpy's dtypes."""

_VARCHAR, _LIST, _STRUCT, _MAP = 17, 24, 25, 26


def _add_table(writer: DataWriter, labels: Labels) -> list[Word]:
    """Add a table of labels; return the words that refer to it."""
    sql_type = find_label_type(labels)
    if sql_type not in _FIXED_TYPES:
        return _add_texts(writer, list(map(str, labels.values)))
    code = _FIXED_TYPES[sql_type][1]
    values = np.array(labels.values).astype(f"<{code}")
    return [len(labels), values.itemsize, writer.add_array(values)]


def _add_texts(writer: DataWriter, texts: Sequence[str]) -> list[Word]:
    places = [number for text in texts for number in writer.add_label(text)]
    return [len(texts), 0, writer.add_words(places)]


def _encode_type(sql_type: str, writer: DataWriter) -> Iterator[Word]:
    """Yield the words that describe a type to `runtime.c`."""
    if (element_type := element(sql_type)) is not None:
        yield _LIST
        yield from _encode_type(element_type, writer)
    elif (parts := map_types(sql_type)) is not None:
        yield _MAP
        for part in parts:
            yield from _encode_type(part, writer)
    elif (fields := struct_fields(sql_type)) is not None:
        yield from (_STRUCT, len(fields))
        for field in fields:
            yield writer.add_text(field.name)
            yield from _encode_type(field.type, writer)
    elif sql_type in _FIXED_TYPES:
        yield _FIXED_TYPES[sql_type][0]
    elif sql_type == "VARCHAR":
        yield _VARCHAR
    else:
        raise BackendError(f"an extension cannot return {sql_type}; cast the label before training")
