"""SHOW, DESCRIBE and EXPLAIN of models: what is there, as rows."""

from __future__ import annotations

from sqlml.dialects.duckdb import builtin
from sqlml.parsing.statements import DescribeModel, ExplainModel, ShowModels, ShowVersions
from sqlml.planner.plan.explain_model import explain_model
from sqlml.statements.answer import Answer, rows
from sqlml.statements.description import describe
from sqlml.statements.models import Models, referred, whole
from sqlml.statements.told_small_models import told


def show_models(models: Models, statement: ShowModels) -> Answer:
    """SHOW MODELS [LIKE ..] [FROM ..]; no rows where no model was ever registered."""
    catalog, database = models.catalog, statement.database
    columns = (
        "name, version, source, library, features, labels, versions, aliases, tags, comment, "
        "created_at"
    )
    catalog.check_database(database)
    if not catalog.schema_exists(database):
        empty = ", ".join(f"NULL::VARCHAR AS {c}" for c in columns.split(", "))
        return f"SELECT {empty} WHERE false", None
    query = f"SELECT {columns} FROM ({catalog.models_query(database)})"
    if statement.like is None:
        return f"{query} ORDER BY name", None
    return f"{query} WHERE {builtin('~~*')}(name, ?) ORDER BY name", [statement.like]


def show_versions(models: Models, statement: ShowVersions) -> Answer:
    """SHOW VERSIONS IN MODEL, the oldest first.

    Raises:
        UnknownModelError: no such model.
    """
    reference = whole(statement.name)
    models.catalog.version(reference)
    query = f"SELECT * EXCLUDE (name) FROM ({models.catalog.versions_query(reference.database)})"
    return f"{query} WHERE {builtin('lower')}(name) = ? ORDER BY version", [reference.key]


def describe_model(models: Models, statement: DescribeModel) -> Answer:
    """DESCRIBE MODEL: what a version is, and what it reads."""
    return rows(("property", "value"), describe(models, referred(statement.name)).properties)


def explain(models: Models, statement: ExplainModel) -> Answer:
    """EXPLAIN MODEL: what the passes make of a version."""
    model = models.catalog.get(referred(statement.name))
    training = models.catalog.training(model)
    found = [] if training is None else [("pipeline", training.pipeline)]
    found += explain_model(model.program, model.options)
    found += told(models.catalog.small_models(model))
    return rows(("explain_key", "explain_value"), found)
