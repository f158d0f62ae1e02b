"""`export_for`: a model as statements of a database in which sqlml does not run.

::

    WITH sqlml_0 AS (SELECT "tenure", .. AS sqlml_x0 FROM "customers"),
         sqlml_1 AS (SELECT "tenure", sqlml_x0, .. AS sqlml_v1 FROM sqlml_0), ..
    SELECT "tenure", CASE sqlml_v9 WHEN 0 THEN 'no' .. END AS "predicted_label", .. FROM sqlml_5

A row that the model refuses, for a NULL or an unknown category, has NULL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from sqlml.errors import BackendError, ConfigError
from sqlml.ir.program import Program
from sqlml.planner.binding.unknown_categories import known_categories, with_unknown_as_null
from sqlml.planner.databases.queries import Prediction, Queries, Subject, predictions, queries
from sqlml.planner.databases.targets import DATABASES, Database
from sqlml.planner.databases.transpiled import quoted_name
from sqlml.planner.databases.tree_table import TreeTable
from sqlml.suggestions import closest
from sqlml.types import Feature

FORMS = ("function", "nodes", "select", "view")


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
        features: of the model, in the order of a function's parameters.
        name: of the model.
        dialect: a name in `DATABASES`.
        form: one of `FORMS`; None: a query over the table, or functions without one.
        table: whose rows are scored: its name, with that of its schema before it.
        columns: of the table, beside the predictions; None: those that the model reads.
        options: of the model; `on_null`, `on_unknown` and `positive_class` affect its
            results.
        booleans: the features whose columns are known to be BOOLEAN.

    Raises:
        BackendError: the database's SQL cannot express the model; the message says why.
        ConfigError: an unknown database or form, no table, or no columns.
    """
    database = database_of(dialect)
    form = form or ("function" if table is None else "select")
    if form not in FORMS:
        raise ConfigError(f"unknown form {form!r}; forms: {', '.join(FORMS)}")
    if known_categories(options or {}, program):
        program = with_unknown_as_null(program)
    asked = predictions(program, options or {})
    subject = Subject(database, program, tuple(features), options or {}, frozenset(booleans))
    if form == "function":
        if table is not None or columns is not None:
            raise ConfigError("FORM function takes no TABLE and no COLUMNS")
        made = [_function(subject, name, one) for one in asked]
    else:
        if table is None:
            raise ConfigError(f"FORM {form} needs the table to score, as in TABLE customers")
        source = ".".join(quoted_name(part, database) for part in table)
        if form == "select" and database.settings:
            subject = replace(subject, database=replace(database, fence=""))
        nodes = _nodes(database, name) if form == "nodes" else None
        walked = None if nodes is None else nodes.walked
        query = queries(subject, asked, source, columns, walked)
        made = [] if nodes is None else [nodes.statements()]
        made.append(_query(database, query, None if form == "select" else name))
    longest = max(map(len, made))
    if longest > database.characters:
        if not database.raised:
            raise BackendError(
                f"the model takes {longest:,} characters of SQL; {database.name} takes "
                f"{database.characters:,}"
            )
        made.insert(0, database.raised)
    return "\n".join(made)


def database_of(dialect: str) -> Database:
    """Return the database that is named by the word behind DIALECT.

    Raises:
        ConfigError: there is no such database.
    """
    found = DATABASES.get(dialect)
    if found is None:
        near = closest(dialect, DATABASES)
        hint = f"did you mean {near}?" if near else f"databases: {', '.join(DATABASES)}"
        raise ConfigError(f"unknown database {dialect!r}; {hint}")
    return found


def _nodes(database: Database, name: str) -> TreeTable:
    if not database.has_nodes:
        raise BackendError(f"{database.name} has no FORM nodes; write FORM select or view")
    return TreeTable(quoted_name(f"{name}_nodes", database), database)


def _query(database: Database, made: Queries, view: str | None) -> str:
    items = [*made.kept, *(f"{sql} AS {name}" for name, sql in made.predictions.items())]
    query = f"{made.below}SELECT {', '.join(items)}\nFROM {made.last}"
    if view is None:
        return f"{query}{database.settings};\n"
    return f"CREATE VIEW {quoted_name(f'{view}_scores', database)} AS\n{query};\n"


def _function(subject: Subject, name: str, one: Prediction) -> str:
    database = subject.database
    if database.function is None:
        raise BackendError(
            f"{database.name} has no functions written in SQL; write FORM select or view, and TABLE"
        )
    made = queries(subject, [one], None, ())
    ((_, value),) = made.predictions.items()
    names = [quoted_name(feature.name, database) for feature in made.parameters]
    types = [database.types[subject.column_kind(feature)] for feature in made.parameters]
    parameters = ", ".join(f"{n} {t}" for n, t in zip(names, types, strict=True))
    own = name if one.name == "predicted_label" else f"{name}_{one.name}"
    query = f"{made.below}SELECT {value} FROM {made.last}"
    tags = database.tags or (f"model{n or ''}" for n in count())
    tag = next((tag for tag in tags if f"${tag}$" not in query), None)
    if tag is None:
        raise BackendError(
            f"a text of the model contains $$, which ends a function of {database.name}"
        )
    return database.function.format(
        name=quoted_name(own, database),
        parameters=parameters,
        names=", ".join(names),
        type=database.types[one.kind],
        query=query,
        tag=tag,
    )
