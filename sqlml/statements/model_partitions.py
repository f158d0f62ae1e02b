"""The partitions of a model: RETRAIN PARTITION, DROP PARTITION and EXPORT MODEL ... PARTITION."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlml.catalog.model import (
    TRANSFORM,
    Model,
    NewVersion,
    Reference,
    TrainingFacts,
    Transform,
)
from sqlml.dialects import Dialect
from sqlml.errors import CatalogError, ConfigError
from sqlml.ir.program import Program
from sqlml.parsing.statements import DropPartition, Training
from sqlml.statements.connection_models import Answer, Models, format_pairs_answer
from sqlml.training.partitioned_program import Key, Partitions, split_partitions
from sqlml.training.train_model_type import TrainedModel
from sqlml.types import fold

Values = Mapping[str, Any]
"""Values of partition columns, as PARTITION (column = value, ...) names them."""


def drop_partition(models: Models, reference: Reference, change: DropPartition) -> Answer:
    """Carry out DROP PARTITION (...): add a default version without the matching partitions."""
    model = models.catalog.get(reference)
    models.changes.check_writable(reference)
    small_models = models.catalog.small_models(model)
    facts, partitions = _read_partitions(model, models.catalog.training(model))
    dropped = _find_keys(model, facts, change.partition)
    programs = {k: p for k, p in partitions.programs.items() if k not in dropped}
    if not programs:
        raise CatalogError(
            f"this would drop all partitions of model {model.label}: DROP MODEL does"
        )
    kept = tuple(row for row in facts.partitions if tuple(row[0]) not in dropped)
    program = replace(partitions, programs=programs).combine()
    version = NewVersion(
        program,
        _select_features(model, program),
        model.used_features & program.inputs.keys(),
        model.origin,
        model.options,
        model.verification,
        training=with_partitions(facts, kept),
        transform=model.transform,
    )
    whole_model = Reference(reference.name, reference.database)
    models.changes.create(whole_model, version, or_replace=True)
    number = models.catalog.version(whole_model)
    pairs = [("version", str(number)), ("partitions", f"{len(programs):,}")]
    pairs += [(kind, "not kept") for kind in small_models]
    return format_pairs_answer(("property", "value"), pairs)


def select_partition(model: Model, facts: TrainingFacts | None, values: Values) -> Model:
    """Return the model of one partition, without the partition columns."""
    facts, partitions = _read_partitions(model, facts)
    keys = _find_keys(model, facts, values)
    if len(keys) > 1:
        names = ", ".join(facts.partition_by)
        raise CatalogError(f"{len(keys):,} partitions have these values: name one value of {names}")
    program = partitions.programs[keys[0]]
    return replace(
        model,
        program=program,
        features=_select_features(model, program),
        used_features=model.used_features & program.inputs.keys(),
    )


def select_rows(
    training: Training, facts: TrainingFacts, values: Values, dialect: Dialect
) -> Training:
    """Return a training on the rows of the partitions that `values` name, without a fallback."""
    conditions = " AND ".join(
        _format_condition(dialect.quote_name(name), value, dialect)
        for name, value in _resolve_columns(facts, values).items()
    )
    query = f"SELECT * FROM (\n{training.query}\n) AS sqlml_partitions WHERE {conditions}"
    return replace(training, query=query, options={**training.options, "unseen_partition": "error"})


def merge_partitions(
    model: Model, facts: TrainingFacts, trained: TrainedModel, values: Values
) -> TrainedModel:
    """Return `trained`, the model of some partitions, with all other partitions of `model`.

    The partitions that `values` name, but that were not trained again, are left out.
    """
    facts, partitions = _read_partitions(model, facts)
    new_keys = [tuple(row[0]) for row in trained.partitions]
    new = split_partitions(trained.model, facts.partition_by, new_keys)
    replaced = {*_match_keys(facts, values), *new_keys}
    programs = {k: p for k, p in partitions.programs.items() if k not in replaced}
    rows = [row for row in facts.partitions if tuple(row[0]) not in replaced]
    all_programs = {**programs, **new.programs}
    all_rows = [*rows, *trained.partitions]
    order = sorted(range(len(all_rows)), key=lambda k: tuple(all_rows[k][0]))
    keys = [tuple(all_rows[k][0]) for k in order]
    merged = replace(partitions, programs={key: all_programs[key] for key in keys})
    program = merged.combine()
    merged_facts = with_partitions(facts, [all_rows[k] for k in order])
    return replace(
        trained,
        model=program,
        labels=program.labels[0] if program.labels else None,
        rows=merged_facts.rows,
        held_out=merged_facts.held_out,
        metrics=merged_facts.metrics,
        partitions=merged_facts.partitions,
    )


def keep_definition(version: NewVersion, model: Model, facts: TrainingFacts) -> NewVersion:
    """Return the version with the query, options and features of all partitions of `model`."""
    assert version.training is not None
    transform = version.transform or model.transform
    if transform is not None and model.transform is not None:
        columns = dict.fromkeys((*model.transform.columns, *transform.columns))
        expressions = {**transform.expressions, **model.transform.expressions}
        transform = Transform(tuple(columns), expressions)
    options = version.options
    if transform is not None:
        options = {**options, TRANSFORM: transform.to_json()}
    training = replace(
        version.training, query=facts.query, options=facts.options, features=facts.features
    )
    return replace(version, training=training, transform=transform, options=options)


def with_partitions(facts: TrainingFacts, rows: Sequence[Sequence[Any]]) -> TrainingFacts:
    """Return the facts of a model with the partitions `rows`.

    The metrics are means over the partitions, weighted by their measured rows.
    """
    has_held_out = any(held_out for _, _, held_out, _, _ in rows)
    metrics: dict[str, float | None] = {}
    for name in facts.metrics:
        pairs = [
            (values[name], held_out if has_held_out else fitted)
            for _, fitted, held_out, values, _ in rows
            if values.get(name) is not None and (held_out or not has_held_out)
        ]
        total = sum(weight for _, weight in pairs)
        metrics[name] = sum(value * weight for value, weight in pairs) / total if total else None
    return replace(
        facts,
        rows=sum(row[1] for row in rows),
        held_out=sum(row[2] for row in rows),
        metrics=metrics,
        partitions=tuple(map(tuple, rows)),
    )


def _read_partitions(model: Model, facts: TrainingFacts | None) -> tuple[TrainingFacts, Partitions]:
    if facts is None or not facts.partitions:
        raise CatalogError(
            f"model {model.label} has no partitions: CREATE MODEL m PARTITION BY column ... trains "
            "a model for each value of a column"
        )
    keys = [tuple(row[0]) for row in facts.partitions]
    return facts, split_partitions(model.program, facts.partition_by, keys)


def _resolve_columns(facts: TrainingFacts, values: Values) -> dict[str, Any]:
    """Return `values` by the names of the partition columns.

    Raise ConfigError for other names, and for values of another type than the column has.
    """
    names = {fold(name): name for name in facts.partition_by}
    unknown = next((name for name in values if fold(name) not in names), None)
    if unknown is not None:
        columns = ", ".join(facts.partition_by)
        raise ConfigError(f"{unknown!r} is no partition column; the model has {columns}")
    resolved = {names[fold(name)]: value for name, value in values.items()}
    for name, value in resolved.items():
        first_value = facts.partitions[0][0][facts.partition_by.index(name)]
        if isinstance(value, str) != isinstance(first_value, str):
            kind = "strings" if isinstance(first_value, str) else "integers"
            raise ConfigError(f"partition column {name!r} has {kind}, so {value!r} is none of them")
    return resolved


def _match_keys(facts: TrainingFacts, values: Values) -> list[Key]:
    """Return the keys of the partitions with these values."""
    positions = {
        facts.partition_by.index(name): value
        for name, value in _resolve_columns(facts, values).items()
    }
    keys = [tuple(row[0]) for row in facts.partitions]
    return [key for key in keys if all(key[k] == value for k, value in positions.items())]


def _find_keys(model: Model, facts: TrainingFacts, values: Values) -> list[Key]:
    keys = _match_keys(facts, values)
    if not keys:
        text = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        raise CatalogError(
            f"model {model.label} has no partition with {text}; FROM ml_partitions(MODEL "
            f"{model.name}) lists them"
        )
    return keys


def _format_condition(column: str, value: Any, dialect: Dialect) -> str:
    """Return a condition that compares texts exactly, whatever the collation of the column is."""
    if isinstance(value, bool):
        return f"{column} = {'true' if value else 'false'}"
    if isinstance(value, int):
        return f"{column} = {value}"
    text = dialect.exact(f"CAST({column} AS {dialect.type('VARCHAR')})")
    return f"{text} = {dialect.quote_string(str(value))}"


def _select_features(model: Model, program: Program) -> tuple[Any, ...]:
    return tuple(feature for feature in model.features if feature.name in program.inputs)
