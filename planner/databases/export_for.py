"""Export of a model as SQL that another database can run without sqlml.

::

    WITH sqlml_0 AS (SELECT "tenure", ... AS sqlml_x0 FROM "customers"),
         sqlml_1 AS (SELECT "tenure", sqlml_x0, ... AS sqlml_v1 FROM sqlml_0), ...
    SELECT "tenure", CASE sqlml_v9 WHEN 0 THEN 'no' ... END AS "predicted_label", ... FROM sqlml_5

The prediction is NULL for a row that the model rejects, because of a NULL or an unknown category.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

from sqlml.backends.sql.expression import SumTrees
from sqlml.backends.sql.layers import PrintedLayers, print_layers
from sqlml.dialects import DUCKDB
from sqlml.errors import BackendError, ConfigError
from sqlml.ir.program import Program
from sqlml.parsing.statements import OtherDatabase
from sqlml.passes.fold_into_trees import fold_casts_into_trees
from sqlml.planner.binding import unknown_categories
from sqlml.planner.binding.refused_nulls import find_null_inputs
from sqlml.planner.binding.requested_output import find_label, render_class
from sqlml.planner.databases.targets import DATABASES, Database
from sqlml.planner.databases.transpiled import quote_name, transpile
from sqlml.planner.databases.tree_table import TreeTable
from sqlml.planner.program.function_spec import Output, ResultPart
from sqlml.planner.program.prepare_program import prepare_parts
from sqlml.suggestions import closest
from sqlml.types import FLOATS, Feature, Labels

EXPORT_FORMS = ("function", "nodes", "select", "view")


def export_for(
    program: Program,
    features: Sequence[Feature],
    name: str,
    target: OtherDatabase,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Build the SQL statements that compute a model's predictions in the database `target`.

    `name` is the model's name. Raises BackendError if the database's SQL cannot express the model.
    Raises ConfigError if the form of the export is unknown, if a required table is missing, or if
    a table is not allowed.
    """
    database = find_database(target.dialect)
    options = options or {}
    form = target.form or ("function" if target.table is None else "select")
    if form not in EXPORT_FORMS:
        raise ConfigError(f"unknown form {form!r}; forms: {', '.join(EXPORT_FORMS)}")
    if unknown_categories.find_known_categories(options, program):
        program = unknown_categories.accept_unknown_as_missing(program)
    predictions = list_predictions(program, options)
    model = ExportedModel(database, program, tuple(features), options)
    if form == "function":
        if target.table is not None or target.columns is not None:
            raise ConfigError("FORM function takes no TABLE and no COLUMNS")
        statements = [_build_function_statement(model, name, p) for p in predictions]
    else:
        if target.table is None:
            raise ConfigError(f"FORM {form} needs the table to score, as in TABLE customers")
        table_sql = ".".join(quote_name(identifier, database) for identifier in target.table)
        if form == "select" and database.settings:
            model = replace(model, database=replace(database, fence=""))
        if form == "nodes" and not database.has_node_tables:
            raise BackendError(f"{database.name} has no FORM nodes; write FORM select or view")
        tree_table = TreeTable(quote_name(f"{name}_nodes", database), database)
        walk_trees = tree_table.add_ensemble if form == "nodes" else None
        queries = build_queries(model, predictions, table_sql, target.columns, walk_trees)
        statements = [tree_table.build_statements()] if form == "nodes" else []
        statements.append(_build_statement(database, queries, None if form == "select" else name))
    return "\n".join([*_list_limit_statements(database, statements), *statements])


def _list_limit_statements(database: Database, statements: Sequence[str]) -> list[str]:
    """Return a list with the statement that raises the length limit, or [] if it is not needed."""
    length = max(map(len, statements))
    if length <= database.max_length:
        return []
    if not database.raise_limit:
        raise BackendError(
            f"the model needs {length:,} characters of SQL; {database.name} allows "
            f"{database.max_length:,}"
        )
    return [database.raise_limit]


def find_database(dialect: str) -> Database:
    database = DATABASES.get(dialect)
    if database is None:
        suggestion = closest(dialect, DATABASES)
        hint = f"did you mean {suggestion}?" if suggestion else f"databases: {', '.join(DATABASES)}"
        raise ConfigError(f"unknown database {dialect!r}; {hint}")
    return database


def _build_statement(database: Database, queries: ExportQuery, model_name: str | None) -> str:
    predictions = [f"{sql} AS {name}" for name, sql in queries.predictions.items()]
    select_items = ", ".join([*queries.table_columns, *predictions])
    query = f"{queries.with_clause}SELECT {select_items}\nFROM {queries.last_query}"
    if model_name is None:
        return f"{query}{database.settings};\n"
    return f"CREATE VIEW {quote_name(f'{model_name}_scores', database)} AS\n{query};\n"


def _build_function_statement(model: ExportedModel, name: str, prediction: PredictionColumn) -> str:
    database = model.database
    if database.function_template is None:
        raise BackendError(
            f"{database.name} has no functions written in SQL; write FORM select or view, and TABLE"
        )
    queries = build_queries(model, [prediction], None, ())
    ((_, value_sql),) = queries.predictions.items()
    names = [quote_name(feature.name, database) for feature in queries.parameters]
    type_names = database.type_names
    kinds = map(model.find_column_kind, queries.parameters)
    function_name = name if prediction.name == "predicted_label" else f"{name}_{prediction.name}"
    query = f"{queries.with_clause}SELECT {value_sql} FROM {queries.last_query}"
    tags = database.tags or (f"model{n or ''}" for n in count())
    tag = next((tag for tag in tags if f"${tag}$" not in query), None)
    if tag is None:
        raise BackendError(
            f"a string of the model contains $$, which would end the function in {database.name}"
        )
    return database.function_template.format(
        name=quote_name(function_name, database),
        parameters=", ".join(f"{n} {type_names[k]}" for n, k in zip(names, kinds, strict=True)),
        names=", ".join(names),
        type=type_names[prediction.kind],
        query=query,
        tag=tag,
    )


EXPORTED_OUTPUTS: tuple[Output, ...] = ("label", "proba", "score", "samples", "transform")
Kind = Literal["number", "string", "integer", "boolean"]


@dataclass(frozen=True, slots=True)
class PredictionColumn:
    """A result column of an export that holds one column of a model's output."""

    name: str
    output: Output
    column: int | None  # None if the output has only one column.
    kind: Kind
    labels: Labels | None = None
    is_complement: bool = False  # If true, the value is 1 minus the output's column.


def list_predictions(program: Program, options: Mapping[str, Any]) -> list[PredictionColumn]:
    """List the columns of an export: labels, probabilities, scores and transformed features.

    Each class has a probability column. If `options` name a positive class, only that class has
    one. If an output has several columns, the column names end with a 0-based index.
    """
    columns: list[PredictionColumn] = []
    for output in EXPORTED_OUTPUTS:
        if output not in program.outputs:
            continue
        if output == "label":
            columns += _list_label_columns(program)
        elif output == "proba" and program.labels:
            columns += _list_probability_columns(program, options.get("positive_class"))
        else:
            width = program.output_type(output).width
            names = [f"{output}{_make_index_suffix(k, width)}" for k in range(width)]
            columns += [
                PredictionColumn(name, output, k if width > 1 else None, "number")
                for k, name in enumerate(names)
            ]
    return columns


def _list_label_columns(program: Program) -> list[PredictionColumn]:
    width = program.output_type("label").width
    columns = []
    for k, labels in enumerate(program.labels or [None] * width):
        kind = "number" if labels is None else _PREDICTION_KINDS[labels.kind]
        name = f"predicted_label{_make_index_suffix(k, width)}"
        columns.append(PredictionColumn(name, "label", k if width > 1 else None, kind, labels))
    return columns


def _list_probability_columns(program: Program, positive_class: Any) -> list[PredictionColumn]:
    """List the columns of an export that hold class probabilities.

    If the model computes only the second class's probability, the first class gets 1 minus that.
    """
    columns: list[PredictionColumn] = []
    first_column = 0
    has_one_probability = program.has_one_probability_per_target
    for target, labels in enumerate(program.labels):
        suffix = _make_index_suffix(target, len(program.labels))
        positive_index = None if positive_class is None else find_label(labels, positive_class)
        for k, value in enumerate(labels.values):
            name = f"probability{suffix}_{render_class(value)}"
            column = target if has_one_probability else first_column + k
            if positive_class is None or positive_index == k:
                is_complement = has_one_probability and k == 0
                columns.append(
                    PredictionColumn(name, "proba", column, "number", is_complement=is_complement)
                )
        first_column += len(labels)
    return columns


def _make_index_suffix(index: int, width: int) -> str:
    return f"_{index}" if width > 1 else ""


_PREDICTION_KINDS: Mapping[str, Kind] = {
    "string": "string",
    "int64": "integer",
    "float64": "number",
    "bool": "boolean",
}


_INPUT = re.compile(r"\bsqlml_x\d+\b")


@dataclass(frozen=True, slots=True)
class ExportQuery:
    """The parts of a SELECT statement that computes predictions."""

    with_clause: str
    last_query: str  # The last query of `with_clause`, from which the SELECT reads.
    table_columns: tuple[str, ...]
    predictions: Mapping[str, str]  # Quoted name -> expression over `last_query`.
    parameters: tuple[Feature, ...]  # All features of the model.


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model, the features in the user's order, and the database of the export."""

    database: Database
    program: Program
    features: tuple[Feature, ...]
    options: Mapping[str, Any]

    def find_column_kind(self, feature: Feature) -> str:
        """Return the feature's kind, or "boolean" if the column needs `Database.boolean_sql`."""
        is_boolean = feature.is_boolean and self.database.boolean_sql is not None
        return "boolean" if is_boolean and feature.kind == "number" else feature.kind


def build_queries(
    model: ExportedModel,
    predictions: Sequence[PredictionColumn],
    source: str | None,
    columns: Sequence[str] | None,
    walk_trees: SumTrees | None = None,
) -> ExportQuery:
    """Build the queries that compute `predictions` for each row of `source`, a table.

    If `source` is None, the queries compute the predictions for a function's parameters.
    `columns` are the table columns to return, or None for the columns that the model reads.
    `walk_trees` builds the SQL of a sum of trees. If it is None, trees become nested CASEs.
    """
    database, program = model.database, model.program
    parts = tuple(ResultPart(prediction.output, prediction.column) for prediction in predictions)
    part_program = fold_casts_into_trees(prepare_parts(program, parts).program)
    input_names = {f.name for f in program.features}
    features = tuple(f for f in model.features if f.name in input_names)
    used_features = tuple(f for f in features if f.name in part_program.inputs)
    inputs = {feature.name: [f"sqlml_x{k}"] for k, feature in enumerate(used_features)}
    feature_sql = {
        f"sqlml_x{k}": _build_feature_sql(model, feature, source)
        for k, feature in enumerate(used_features)
    }
    null_inputs = find_null_inputs(model.options, program) & inputs.keys()
    null_tests = [f"{inputs[name][0]} IS NULL" for name in sorted(null_inputs)]
    if database.range_errors.overflow:
        limits = _find_limits(part_program)
        limited_inputs = [name for name in inputs if name in limits]
        null_tests += [f"abs({inputs[name][0]}) > {limits[name]}" for name in limited_inputs]
    names = list(part_program.outputs)
    printed = print_layers(part_program, names, inputs, database.numbers, null_tests, walk_trees)
    table_columns = [f.name for f in used_features] if columns is None else columns
    _reject_reserved_names([*table_columns, *(f.name for f in used_features)])
    ((_, values),) = printed.values.items()
    last_sql = [*values, printed.rejected]
    if source is None and database.max_merged_length is not None:
        max_length = max(map(printed.inlined_size, last_sql))
        if max_length > database.max_merged_length:
            raise BackendError(
                f"{database.name} would merge the queries of a function to an expression of "
                f"{max_length:,} characters; write FORM select or view, and TABLE"
            )
    queries = _build_layer_queries(database, printed, feature_sql, table_columns, source, last_sql)
    expressions = _build_prediction_sql(database, printed.rejected, predictions, values)
    ctes = [f"sqlml_{n} AS (\n  {query}\n)" for n, query in enumerate(queries)]
    return ExportQuery(
        f"WITH {', '.join(ctes)}\n",
        f"sqlml_{len(ctes) - 1}",
        tuple(quote_name(name, database) for name in table_columns),
        expressions,
        features,
    )


def _build_prediction_sql(
    database: Database,
    rejected_sql: str,
    predictions: Sequence[PredictionColumn],
    values: Sequence[str],
) -> dict[str, str]:
    """Map the quoted name of each prediction to SQL that returns NULL for rejected rows."""
    expressions = {}
    for prediction, value in zip(predictions, values, strict=True):
        if prediction.labels is None:
            sql = transpile(f"1 - ({value})" if prediction.is_complement else value, database)
        else:
            when_clauses = " ".join(
                f"WHEN {k} THEN {_build_class_literal(label, prediction.labels)}"
                for k, label in enumerate(prediction.labels.values)
            )
            sql = transpile(f"CASE {value} {when_clauses} END", database, for_display=True)
        if prediction.kind == "number" and not database.has_infinity:
            sql = f"CASE WHEN abs({sql}) < {database.infinity} THEN {sql} END"
        if rejected_sql:
            sql = f"CASE WHEN {transpile(rejected_sql, database)} THEN NULL ELSE {sql} END"
        expressions[quote_name(prediction.name, database)] = sql
    return expressions


_LIMITS: Mapping[str, str] = {"float64": "'1e+150'::DOUBLE", "float32": "'1e+18'::DOUBLE"}
"""dtype -> the largest input of arithmetic, whose square must fit, if overflow ends a query."""

_NO_ARITHMETIC = frozenset(
    "cast concat encode eq ge gt impute isnan le lt ne require_finite require_known reshape "
    "search_sorted select tree_ensemble".split()
)


def _find_limits(program: Program) -> dict[str, str]:
    """Map each input that is used in arithmetic to the SQL of the largest allowed value."""
    unchanged_inputs: list[set[str]] = []
    limits: dict[str, str] = {}
    for node in program.nodes:
        input_names = set[str]().union(*(unchanged_inputs[j] for j in node.inputs))
        is_number = node.type.dtype in FLOATS
        if node.op == "input":
            input_names = {str(node.attrs["name"])} if is_number else set()
        elif node.op not in _NO_ARITHMETIC and is_number:
            limit = _LIMITS[node.type.dtype]
            limits |= {n: limit for n in input_names if limits.get(n) != _LIMITS["float32"]}
        unchanged_inputs.append(input_names if is_number and node.op != "tree_ensemble" else set())
    return limits


_TABLE_ALIAS = "sqlml_t"
"""The alias of the user's table in the first query."""
_RESERVED_NAMES = re.compile(r"sqlml_(?:t|sum|[vx]?\d*)", re.IGNORECASE)


def _reject_reserved_names(names: Sequence[str]) -> None:
    for name in names:
        if _RESERVED_NAMES.fullmatch(name):
            raise BackendError(
                f"column {name!r} has a name that the exported queries reserve; rename it in a "
                "view, train the model on the view, and export that model"
            )


def _qualify_column(name: str, database: Database) -> str:
    """Return an unambiguous reference to the column `name` of the exported query's table.

    If the table lacks the column, a bare name could mean something else: a string in SQLite, a
    column of an outer query, or, in DuckDB and PostgreSQL, the whole row of a table of that name.
    """
    quoted = quote_name(name, database)
    return quoted if name in database.functions_of_rows else f"{_TABLE_ALIAS}.{quoted}"


def _build_feature_sql(model: ExportedModel, feature: Feature, table_sql: str | None) -> str:
    database = model.database
    templates = {
        "number": database.number_sql,
        "boolean": database.boolean_sql,
        "string": database.string_sql,
        "datetime": database.date_sql,
    }
    template = templates.get(model.find_column_kind(feature))
    if template is None:
        raise BackendError(
            f"feature {feature.name!r} is a {feature.kind}, which is not exported for "
            f"{database.name}"
        )
    build_column_sql = quote_name if table_sql is None else _qualify_column
    return template.replace("{c}", build_column_sql(feature.name, database))


def _build_layer_queries(
    database: Database,
    printed: PrintedLayers,
    feature_sql: Mapping[str, str],
    table_columns: Sequence[str],
    table_sql: str | None,
    last_expressions: Sequence[str],
) -> list[str]:
    """Build a query that reads the table, then a query per layer that reads the previous query."""
    quoted_columns = [quote_name(name, database) for name in table_columns]
    items = [f"{_qualify_column(n, database)} AS {quote_name(n, database)}" for n in table_columns]
    items += [f"{sql} AS {name}" for name, sql in feature_sql.items()]
    from_clause = "" if table_sql is None else f" FROM {table_sql} AS {_TABLE_ALIAS}"
    queries = [f"SELECT {', '.join(items or ['1 AS sqlml_x'])}{from_clause}{database.fence}"]
    needed_inputs: list[set[str]] = [set(_INPUT.findall(" ".join(last_expressions)))]
    for layer in reversed(printed.layers):
        needed_inputs.insert(0, needed_inputs[0] | set(_INPUT.findall(" ".join(layer.values()))))
    for n, layer in enumerate(printed.layers):
        items = [*quoted_columns, *(name for name in feature_sql if name in needed_inputs[n + 1])]
        items += [
            name if sql == name else f"{transpile(sql, database)} AS {name}"
            for name, sql in layer.items()
        ]
        if len(items) > database.max_columns:
            raise BackendError(
                f"the model needs {len(items):,} columns at a time; {database.name} allows "
                f"{database.max_columns:,}"
            )
        queries.append(f"SELECT {', '.join(items)} FROM sqlml_{n}{database.fence}")
    return queries


def _build_class_literal(value: Any, labels: Labels) -> str:
    if labels.kind == "string":
        if "\0" in value:
            raise BackendError(f"the class {value!r} contains a NUL character")
        return DUCKDB.quote_string(str(value))
    if labels.kind == "bool":
        return "TRUE" if value else "FALSE"
    return f"'{float(value)!r}'::DOUBLE" if labels.kind == "float64" else str(value)
