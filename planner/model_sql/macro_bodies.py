"""The bodies of a model's macros, which score a row `r` without planning.

The types of the row's columns are known only when a query is bound. The bodies inspect them with
`typeof`, which the engine folds to a constant.

The engine binds all columns of a table for each `r` in a body, and discards those that are not
read. So it scans only the columns of the model, but the planning time grows with the number of the
table's columns times the number of the model's columns. A model that reads very many columns
therefore gets its row once, as the parameter of a lambda. DuckDB does not look through lambdas, and
scans all columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import Transform
from sqlml.catalog.scoring_macros import make_helper
from sqlml.catalog.small_models import COVERAGE, DEFAULT_COVERAGE, Calibration
from sqlml.catalog.tables import STORED_PREFIX
from sqlml.dialects import DUCKDB
from sqlml.dialects.type_names import (
    DATETIMES,
    NUMBERS,
    UNTYPED,
    element,
    map_types,
    struct_fields,
)
from sqlml.errors import SqlmlError
from sqlml.ir.ops import CALIBRATED_OUTPUTS
from sqlml.ir.program import Program
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.binding.refused_nulls import (
    build_missing_test,
    build_null_if,
    build_packed_numbers,
    build_text_argument,
    find_null_inputs,
)
from sqlml.planner.binding.requested_output import OUTPUTS_OF, find_label
from sqlml.planner.binding.unknown_categories import (
    find_known_categories,
    replace_unknown_with_null,
)
from sqlml.planner.model_sql.export_macros import MACRO_SUFFIXES
from sqlml.planner.program.choose import choose_way, read_batch_size
from sqlml.planner.program.cost import count_inline_categories
from sqlml.planner.program.function_spec import FunctionSpec, Output, ResultPart
from sqlml.planner.program.prepare_program import prepare_parts
from sqlml.planner.program.result_sql import (
    build_label_literal,
    decode_result,
    find_result_type,
)
from sqlml.types import DATETIME, NESTED, Feature, Kind, Labels, list_classes


def _build_call(name: str, *arguments: str) -> str:
    return DUCKDB.call(name, *arguments)


def _build_error(message: str) -> str:
    return _build_call("error", message)


def _build_concatenation(*texts: str) -> str:
    return reduce(partial(DUCKDB.operator, "||"), texts)


def _build_typed_macro(type_pattern: str, value: str, expected: str) -> str:
    """Build a macro that checks the type of its parameter `x`, the column of the feature named `f`.

    If the type matches `type_pattern`, the macro returns `value`, a SQL expression of `x`.
    Otherwise it raises an error that names the `expected` values, such as numbers.
    """
    pattern = DUCKDB.quote_string(f"(?s){type_pattern}|{'|'.join(UNTYPED)}")
    message_middle = f"' of the model takes {expected}, but the column is '"
    column_type = _build_call("typeof", "x")
    message = _build_concatenation("'feature '", "f", message_middle, column_type, "'; cast it'")
    type_test = _build_call("regexp_full_match", column_type, pattern)
    return f"(x, f) AS CASE WHEN {type_test} THEN {value} ELSE {_build_error(message)} END"


_NUMBER_MACRO = make_helper(
    "number", _build_typed_macro(NUMBERS.pattern, "CAST(x AS DOUBLE)", "numbers")
)
_STRING_MACRO = make_helper(
    "text", _build_typed_macro(r"VARCHAR|ENUM\(.*\)", "CAST(x AS VARCHAR)", "strings")
)
_DATETIME_MACRO = make_helper(
    "datetime", _build_typed_macro(DATETIMES.pattern, DUCKDB.microseconds("x"), "dates")
)
HELPER_MACROS = (_NUMBER_MACRO, _STRING_MACRO, _DATETIME_MACRO)

_MACROS_BY_KIND: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {"number": (_NUMBER_MACRO[0], "DOUBLE"), DATETIME: (_DATETIME_MACRO[0], "DOUBLE")}
)
"""Kind of a feature -> the macro that reads its column, and the SQL type of the macro's result.

Features of other kinds are read by `_STRING_MACRO`, as VARCHAR.
"""


@dataclass(frozen=True, slots=True)
class MacroBody:
    """The body of a macro, and the engine function that the body calls, if any."""

    kind: str  # The first output of the macro's function in `OUTPUTS_OF`, or "class".
    sql: str
    function: FunctionSpec | None
    client_sql: str  # The body for clients that run models without Python.


def build_macro_bodies(
    features: Sequence[Feature],
    program: Program,
    options: Mapping[str, Any],
    transform: Transform | None = None,
    key: str = "",
) -> list[MacroBody]:
    """Build the macro bodies of all functions in `OUTPUTS_OF` that the model `key` supports."""
    bodies = []
    for kind, *others in OUTPUTS_OF.values():
        output = next((o for o in (kind, *others) if o in program.outputs), None)
        if output is not None:
            call = _ClientCall(key, features, program, options, transform)
            bodies += _build_function_bodies(kind, output, call)
    return bodies


def build_calibrated_bodies(
    features: Sequence[Feature],
    calibration: Calibration,
    options: Mapping[str, Any],
    transform: Transform | None,
) -> list[MacroBody]:
    """Build the bodies of predict_interval or predict_set without and with a coverage.

    `features` and `transform` have the columns of the calibrated Program.
    """
    output = calibration.output
    call = _ClientCall("", features, calibration.small, options, transform)
    bodies = []
    for kind, sql in ((output, repr(DEFAULT_COVERAGE)), (f"{output}_at", "coverage")):
        coverage = BoundInput(f"CAST({sql} AS DOUBLE)", "DOUBLE")
        bodies += _build_function_bodies(kind, output, call, {COVERAGE: coverage})
    return bodies


def _build_function_bodies(
    kind: str,
    output: Output,
    client: _ClientCall,
    further_inputs: Mapping[str, BoundInput] = MappingProxyType({}),
) -> list[MacroBody]:
    """Build the macro body of a function, and for predict_proba another one that takes a class.

    `further_inputs` maps inputs that are no columns to the SQL that feeds them.
    """
    features, program = client.features, client.program
    options, transform = client.options, client.transform
    max_categories = count_inline_categories()
    try:
        prepared = prepare_parts(program, (ResultPart(output),), max_categories=max_categories)
        choice = choose_way(prepared.split.core, options)
    except SqlmlError as error:  # For example, a library is missing.
        message = f"this model cannot be scored: {error}"
        error_sql = _build_error(DUCKDB.quote_string(message))
        return [MacroBody(kind, error_sql, None, error_sql)]
    used_features = [f for f in features if f.name in prepared.program.inputs]
    if any(f.kind in NESTED for f in used_features):
        message = (
            "macros cannot score a model that reads lists or maps; use sqlml.attach(connection)"
        )
        error_sql = _build_error(DUCKDB.quote_string(message))
        return [MacroBody(kind, error_sql, None, error_sql)]
    spec = FunctionSpec(
        program.hash,
        (ResultPart(output),),
        "f64",
        choice.backend,
        choice.strategy,
        choice.device,
        batch_rows=read_batch_size(options),
        max_categories=None if prepared.split.lookup is None else max_categories,
    )
    is_wide = len(used_features) > MAX_SCANNED_COLUMNS and transform is None
    row = _ROW if is_wide else "r"
    bound_inputs = {f.name: _bind_column(f, transform, row) for f in used_features}
    bound_inputs |= further_inputs
    bound_inputs = replace_unknown_with_null(bound_inputs, find_known_categories(options, program))
    null_features = sorted(find_null_inputs(options, program) & bound_inputs.keys())
    null_condition = build_missing_test(bound_inputs, null_features)
    numbers = build_packed_numbers(prepared, bound_inputs, "DOUBLE")
    call_sql = f"{DUCKDB.scorer(spec.name)}({numbers}{build_text_argument(prepared, bound_inputs)})"
    result_sql = decode_result(call_sql, program, output, None)
    positive_class = options.get("positive_class")
    if kind == "proba" and positive_class is not None and len(program.labels) == 1:
        class_index = find_label(program.labels[0], positive_class)
        result_sql = _build_positive_class_error(positive_class)
        if class_index is not None:
            result_sql = DUCKDB.at(call_sql, class_index + 1)
    value_by_kind = {kind: result_sql}
    client_sql_by_kind = {kind: client.build(output)}
    if kind == "proba" and len(program.labels) == 1:
        value_by_kind["class"] = _build_class_lookup(call_sql, program.labels[0])
        probabilities = _build_call("map_values", client.build(output, has_class=True))
        client_sql_by_kind["class"] = _build_class_lookup(probabilities, program.labels[0])
    bodies = []
    for body_kind, value in value_by_kind.items():
        sql = build_null_if(null_condition, value)
        sql = _wrap_with_type_check(sql, used_features) if is_wide else sql
        bodies.append(MacroBody(body_kind, sql, spec, client_sql_by_kind[body_kind]))
    return bodies


def _build_positive_class_error(positive_class: Any) -> str:
    message = f"option positive_class names {positive_class!r}, which is no class of the model"
    return _build_error(DUCKDB.quote_string(message))


KEEP, SCORE = f"{STORED_PREFIX}keep", f"{STORED_PREFIX}score_"
"""The function of `runtime.c` that keeps a model's data, and the prefix of those that score."""

CLIENT_NAME, CLASS_NAME = "m", "c"
"""What the names of a model's functions in its data begin with (`export_macros.MACRO_SUFFIXES`
follows), and of the function that ignores the option `positive_class`."""


@dataclass(frozen=True, slots=True)
class _ClientCall:
    """Builds calls of the functions of a model's data, in clients that run it without Python."""

    key: str
    features: Sequence[Feature]
    program: Program
    options: Mapping[str, Any]
    transform: Transform | None

    def build(self, output: Output, has_class: bool = False) -> str:
        """Build a call for the row `r`; if `has_class`, one that returns all probabilities."""
        program, name, chosen = self.program, CLIENT_NAME, None
        if (
            output == "proba"
            and len(program.labels) == 1
            and self.options.get("positive_class") is not None
        ):
            name = CLASS_NAME if has_class else name
            index = find_label(program.labels[0], self.options["positive_class"])
            if index is None and not has_class:
                return _build_positive_class_error(self.options["positive_class"])
            chosen = None if has_class else (index,)
        if output in CALIBRATED_OUTPUTS:
            message = "intervals and sets need a session of sqlml, or a view that a session created"
            return _build_error(DUCKDB.quote_string(message))
        sql_type = find_result_type(program, output, chosen)
        if struct_fields(sql_type) is not None:
            message = "this model needs sqlml: its targets have labels of several types"
            return _build_error(DUCKDB.quote_string(message))
        # The features of a wide model are read in a lambda, which cannot contain the query.
        features = list_client_features(self.features, program)
        is_wide = len(features) > MAX_SCANNED_COLUMNS and self.transform is None
        row, data = "r", build_data_query(self.key)
        if is_wide:
            row, data = DUCKDB.field(_ROW, "r"), DUCKDB.field(_ROW, "d")
        columns = [
            DUCKDB.field(row, f.name) if is_wide else _bind_column(f, self.transform, row).sql
            for f in features
        ]
        function = DUCKDB.quote_string(name + MACRO_SUFFIXES[output])
        call = _build_call(f"{SCORE}{_name_type(sql_type)}", data, function, *columns)
        if not is_wide:
            return call
        return DUCKDB.let(_ROW, DUCKDB.struct({"r": "r", "d": build_data_query(self.key)}), call)


def build_data_query(key: str) -> str:
    """Build a subquery that returns the runtime's number of the data that the catalog keeps."""
    content = _build_call("from_base64", "content")
    query = f"SELECT {_build_call(KEEP, content)} FROM sqlml.catalog_compiled"
    return f"({query} WHERE key = {DUCKDB.quote_string(key)})"


def list_client_features(features: Sequence[Feature], program: Program) -> list[Feature]:
    """Return the features that the functions of a model's data take, in order."""
    return [feature for feature in features if feature.name in program.inputs]


def _name_type(sql_type: str) -> str:
    """Return the name of a result type in the names of the functions of `runtime.c`.

    >>> _name_type("BIGINT"), _name_type("MAP(VARCHAR, DOUBLE)[]")
    ('bigint', 'map_varchar_list')
    """
    element_type = element(sql_type)
    pair = map_types(element_type or sql_type)
    name = f"map_{pair[0]}" if pair is not None else element_type or sql_type
    return f"{name}{'_list' if element_type is not None else ''}".lower()


MAX_SCANNED_COLUMNS = 100
"""The maximum number of columns that a macro reads one by one.

Planning a scan of 100 columns of a table of 102 takes 0.3 s. Planning a scan of 300 columns of a
table of 302 takes 3 s, or 0.3 s if a lambda reads the whole row.
"""

_ROW = "sqlml_x"


def _wrap_with_type_check(value_sql: str, used_features: Sequence[Feature]) -> str:
    """Wrap `value_sql`, which reads the row `r` as `_ROW`, in a check of the numeric column types.

    The check matches one string of all types, which the engine folds to a constant. The engine does
    not fold lambdas, so a lambda is used only to find the wrong column for the error message.
    """
    numeric_columns = [f.name for f in used_features if f.kind == "number"]
    if numeric_columns:
        types = {n: _build_call("typeof", DUCKDB.field(_ROW, n)) for n in numeric_columns}
        type_pattern = f"(?:{NUMBERS.pattern}|{'|'.join(UNTYPED)})"
        type_list = _build_call("concat_ws", "';'", *types.values())
        list_pattern = DUCKDB.quote_string(f"{type_pattern}(?:;{type_pattern})*")
        pairs = [DUCKDB.array([DUCKDB.quote_string(n), type_sql]) for n, type_sql in types.items()]
        columns = DUCKDB.array(pairs)
        name, type_sql = DUCKDB.at("k", 1), DUCKDB.at("k", 2)
        is_number = _build_call("regexp_full_match", type_sql, DUCKDB.quote_string(type_pattern))
        wrong_columns = _build_call("list_filter", columns, f"lambda k: NOT {is_number}")
        message_middle = "' of the model takes numbers, but the column is '"
        messages = _build_concatenation("'feature '", name, message_middle, type_sql, "'; cast it'")
        messages = DUCKDB.at(DUCKDB.each(wrong_columns, "k", messages), 1)
        types_test = _build_call("regexp_full_match", type_list, list_pattern)
        value_sql = f"CASE WHEN {types_test} THEN {value_sql} ELSE {_build_error(messages)} END"
    return DUCKDB.let(_ROW, "r", value_sql)


def _bind_column(feature: Feature, transform: Transform | None, row: str) -> BoundInput:
    """Return the SQL that feeds `feature`: a field of `row`, or an item of TRANSFORM on `row`."""
    if transform is not None and feature.name in transform.expressions:
        fields = {name: DUCKDB.field(row, name) for name in transform.columns}
        return BoundInput(
            transform.sql(feature.name, fields), transform.expressions[feature.name].type
        )
    column = DUCKDB.field(row, feature.name)
    if row == _ROW and feature.kind == "number":  # `_wrap_with_type_check` checks the type.
        return BoundInput(f"CAST({column} AS DOUBLE)", "DOUBLE")
    name, sql_type = _MACROS_BY_KIND.get(feature.kind, (_STRING_MACRO[0], "VARCHAR"))
    return BoundInput(f"sqlml.{name}({column}, {DUCKDB.quote_string(feature.name)})", sql_type)


_CLASS_TEXT = "CAST(class AS VARCHAR)"
_CLASS_INTEGER = DUCKDB.call("regexp_replace", _CLASS_TEXT, "'\\.0+$'", "''")
_CLASS_TYPE = DUCKDB.call("typeof", "class")


def _build_class_lookup(call_sql: str, labels: Labels) -> str:
    """Build SQL for the probability of the class given by parameter `class`."""
    position_sql = f"coalesce({_build_class_position(labels)}, 0)"
    class_list = DUCKDB.quote_string(f"; its classes are {list_classes(labels.values)}")
    class_text = f"coalesce({_CLASS_TEXT}, 'NULL')"
    message = _build_concatenation("'the model has no class '", class_text, class_list)
    error_sql, value_sql = _build_error(message), DUCKDB.at(call_sql, position_sql)
    return f"CASE WHEN {position_sql} = 0 THEN {error_sql} ELSE {value_sql} END"


def _build_label_list(labels: Labels, function: str = "") -> str:
    values = [f"CAST({build_label_literal(v, labels.kind)} AS VARCHAR)" for v in labels.values]
    return DUCKDB.array([_build_call(function, value) for value in values] if function else values)


def _build_class_position(labels: Labels) -> str:
    """Build SQL for the 1-based position of the class given by parameter `class`."""
    if labels.kind == "float64":
        values = DUCKDB.array([build_label_literal(v, labels.kind) for v in labels.values])
        return _build_call("list_position", values, "TRY_CAST(class AS DOUBLE)")
    label_list = _build_label_list(labels)
    if labels.kind == "string":
        exact = _build_call("list_position", label_list, _CLASS_TEXT)
        folded = _build_call("list_position", _build_label_list(labels, "lower"), _CLASS_TEXT)
        integer = _build_call("list_position", label_list, _CLASS_INTEGER)
        return (
            f"coalesce({exact}, CASE WHEN {_CLASS_TYPE} = 'BOOLEAN' THEN {folded} "
            f"WHEN {_CLASS_TYPE} IN ('DOUBLE', 'FLOAT') THEN {integer} END)"
        )
    if labels.kind == "int64":
        class_text = (
            f"CASE {_CLASS_TYPE} WHEN 'VARCHAR' THEN {_CLASS_TEXT} WHEN 'BOOLEAN' THEN "
            f"CASE {_CLASS_TEXT} WHEN 'true' THEN '1' ELSE '0' END ELSE {_CLASS_INTEGER} END"
        )
    else:
        class_text = (
            f"CASE WHEN {_CLASS_TYPE} IN ('VARCHAR', 'BOOLEAN') THEN "
            f"{_build_call('lower', _CLASS_TEXT)} "
            f"WHEN {_CLASS_INTEGER} = '1' THEN 'true' WHEN {_CLASS_INTEGER} = '0' THEN 'false' END"
        )
    return _build_call("list_position", label_list, class_text)
