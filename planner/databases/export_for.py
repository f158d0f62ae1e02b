"""Export of a model as statements of a database in which sqlml does not run.

::

    WITH sqlml_0 AS (SELECT "tenure", ... AS sqlml_x0 FROM "customers"),
         sqlml_1 AS (SELECT "tenure", sqlml_x0, ... AS sqlml_v1 FROM sqlml_0), ...
    SELECT "tenure", CASE sqlml_v9 WHEN 0 THEN 'no' ... END AS "predicted_label", ... FROM sqlml_5

The prediction is NULL for a row that the model rejects, because of a NULL or an unknown category.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from sqlml.errors import BackendError, ConfigError
from sqlml.ir.program import Program
from sqlml.planner.binding.unknown_categories import (
    accept_unknown_as_missing,
    find_known_categories,
)
from sqlml.planner.databases.prediction_queries import (
    Prediction,
    Queries,
    Subject,
    build_queries,
    list_predictions,
)
from sqlml.planner.databases.targets import DATABASES, Database
from sqlml.planner.databases.transpiled import quote_name
from sqlml.planner.databases.tree_table import TreeTable
from sqlml.suggestions import closest
from sqlml.types import Feature

EXPORT_FORMS = ("function", "nodes", "select", "view")


def export_for(
    program: Program,
    features: Sequence[Feature],
    name: str,
    dialect: str,
    *,
    form: str | None = None,
    table: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    booleans: Collection[str] = (),
) -> str:
    """Return the statements that score in a database.

    Args:
        features: the model's features, in the order of a function's parameters.
        name: the model's name.
        dialect: a name in `DATABASES`.
        form: one of `EXPORT_FORMS`; None for a query over the table, or functions without one.
        table: the table to score: its name, preceded by that of its schema.
        columns: the table's columns next to the predictions; None for those that the model reads.
        options: the model's options; `on_null`, `on_unknown` and `positive_class` affect its
            results.
        booleans: the features whose columns are known to be BOOLEAN.

    Raises:
        BackendError: the database's SQL cannot express the model; the message says why.
        ConfigError: the database or the form is unknown, or the form needs a table or takes none.
    """
    database = find_database(dialect)
    form = form or ("function" if table is None else "select")
    if form not in EXPORT_FORMS:
        raise ConfigError(f"unknown form {form!r}; forms: {', '.join(EXPORT_FORMS)}")
    if find_known_categories(options or {}, program):
        program = accept_unknown_as_missing(program)
    outputs = list_predictions(program, options or {})
    subject = Subject(database, program, tuple(features), options or {}, frozenset(booleans))
    if form == "function":
        if table is not None or columns is not None:
            raise ConfigError("FORM function takes no TABLE and no COLUMNS")
        statements = [_write_function(subject, name, output) for output in outputs]
    else:
        if table is None:
            raise ConfigError(f"FORM {form} needs the table to score, as in TABLE customers")
        source = ".".join(quote_name(part, database) for part in table)
        if form == "select" and database.settings:
            subject = replace(subject, database=replace(database, fence=""))
        nodes = _create_tree_table(database, name) if form == "nodes" else None
        walk = None if nodes is None else nodes.walk
        query = build_queries(subject, outputs, source, columns, walk)
        statements = [] if nodes is None else [nodes.statements()]
        statements.append(_write_query(database, query, None if form == "select" else name))
    return "\n".join([*_raise_limit(database, statements), *statements])


def _raise_limit(database: Database, statements: Sequence[str]) -> list[str]:
    """Return the statement that allows statements as long as these, if one is needed."""
    longest = max(map(len, statements))
    if longest <= database.characters:
        return []
    if not database.raised:
        raise BackendError(
            f"the model takes {longest:,} characters of SQL; {database.name} takes "
            f"{database.characters:,}"
        )
    return [database.raised]


def find_database(dialect: str) -> Database:
    """Return the database of a name behind DIALECT.

    Raises:
        ConfigError: there is no such database.
    """
    database = DATABASES.get(dialect)
    if database is None:
        near = closest(dialect, DATABASES)
        hint = f"did you mean {near}?" if near else f"databases: {', '.join(DATABASES)}"
        raise ConfigError(f"unknown database {dialect!r}; {hint}")
    return database


def _create_tree_table(database: Database, name: str) -> TreeTable:
    if not database.has_nodes:
        raise BackendError(f"{database.name} has no FORM nodes; write FORM select or view")
    return TreeTable(quote_name(f"{name}_nodes", database), database)


def _write_query(database: Database, queries: Queries, view: str | None) -> str:
    items = [*queries.kept, *(f"{sql} AS {name}" for name, sql in queries.predictions.items())]
    query = f"{queries.below}SELECT {', '.join(items)}\nFROM {queries.last}"
    if view is None:
        return f"{query}{database.settings};\n"
    return f"CREATE VIEW {quote_name(f'{view}_scores', database)} AS\n{query};\n"


def _write_function(subject: Subject, name: str, prediction: Prediction) -> str:
    database = subject.database
    if database.function is None:
        raise BackendError(
            f"{database.name} has no functions written in SQL; write FORM select or view, and TABLE"
        )
    queries = build_queries(subject, [prediction], None, ())
    ((_, value),) = queries.predictions.items()
    names = [quote_name(feature.name, database) for feature in queries.parameters]
    types = [database.types[subject.column_kind(feature)] for feature in queries.parameters]
    parameters = ", ".join(f"{n} {t}" for n, t in zip(names, types, strict=True))
    function_name = name if prediction.name == "predicted_label" else f"{name}_{prediction.name}"
    query = f"{queries.below}SELECT {value} FROM {queries.last}"
    tags = database.tags or (f"model{n or ''}" for n in count())
    tag = next((tag for tag in tags if f"${tag}$" not in query), None)
    if tag is None:
        raise BackendError(
            f"a text of the model contains $$, which ends a function of {database.name}"
        )
    return database.function.format(
        name=quote_name(function_name, database),
        parameters=parameters,
        names=", ".join(names),
        type=database.types[prediction.kind],
        query=query,
        tag=tag,
    )
