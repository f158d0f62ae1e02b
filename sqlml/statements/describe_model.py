"""SHOW MODELS, SHOW VERSIONS, DESCRIBE MODEL, EXPLAIN MODEL, and the description of a version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

from sqlml import html
from sqlml.catalog.model import Model, Reference, TrainingFacts
from sqlml.catalog.row_expressions import shorten_names
from sqlml.catalog.small_models import (
    KINDS,
    CalibrationFacts,
    CascadeFacts,
    FeatureGroup,
    FilterFacts,
    FoldFacts,
    SmallModel,
    format_coverage,
)
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.parsing.statements import DescribeModel, ExplainModel, ShowModels, ShowVersions
from sqlml.planner.plan.explain_plan import explain_model as explain_program
from sqlml.statements.connection_models import (
    Answer,
    Models,
    format_pairs_answer,
    resolve_model,
    resolve_name,
)
from sqlml.statements.model_options import ESTIMATOR, select_user_options
from sqlml.statements.show_create_model import sql_type
from sqlml.training.cascades.recipe import Recipe
from sqlml.types import Feature, class_text

NOT_USED = "(not used)"
"""The text instead of the type of a column that no output of the model needs."""


def show_models(models: Models, statement: ShowModels) -> Answer:
    """Carry out SHOW MODELS [LIKE ...] [FROM ...]; the answer is empty without a catalog."""
    catalog = models.catalog
    database = statement.database
    columns = (
        "name, version, source, library, features, labels, versions, aliases, tags, comment, "
        "created_at"
    )
    catalog.check_database(database)
    if not catalog.schema_exists(database):
        null_columns = ", ".join(f"NULL::VARCHAR AS {column}" for column in columns.split(", "))
        return f"SELECT {null_columns} WHERE false", None
    query = f"SELECT {columns} FROM ({catalog.models_query(database)})"
    if statement.like is None:
        return f"{query} ORDER BY name", None
    return f"{query} WHERE {builtin('~~*')}(name, ?) ORDER BY name", [statement.like]


def show_versions(models: Models, statement: ShowVersions) -> Answer:
    """Carry out SHOW VERSIONS IN MODEL, which lists the oldest version first."""
    reference = resolve_model(statement.name)
    models.catalog.version(reference)
    query = f"SELECT * EXCLUDE (name) FROM ({models.catalog.versions_query(reference.database)})"
    return f"{query} WHERE {builtin('lower')}(name) = ? ORDER BY version", [reference.key]


def describe_model(models: Models, statement: DescribeModel) -> Answer:
    description = describe(models, resolve_name(statement.name))
    return format_pairs_answer(("property", "value"), description.properties)


def explain_model(models: Models, statement: ExplainModel) -> Answer:
    """Carry out EXPLAIN MODEL, which lists the pipeline, the operators and the small models."""
    model = models.catalog.get(resolve_name(statement.name))
    training = models.catalog.training(model)
    lines = [] if training is None else [("pipeline", training.pipeline)]
    lines += explain_program(model.program, model.options)
    lines += _describe_small_models(models.catalog.small_models(model))
    return format_pairs_answer(("explain_key", "explain_value"), lines)


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The description of a model version: its inputs, outputs, origin and metrics.

    Printing it shows the result of DESCRIBE MODEL; a notebook shows a table.

    Attributes:
        name: the name of the model, without its database.
        version: the number of the version.
        inputs: the columns that a model call passes, in order, with their SQL types. The type is
            followed by `(not used)` if no output needs the column, or by `(for a, b)` if
            TRANSFORM computes the features a and b from it.
        outputs: the outputs of the model, among label, proba, score, samples and transform.
        classes: the class labels of each target; empty for a regression.
        metrics: the metrics on the held-out training rows, keyed by name; empty if sqlml did not
            train the model. A metric that these rows do not define is None.
        properties: everything that DESCRIBE MODEL shows, as (name, text) pairs.
    """

    name: str
    version: int
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    classes: tuple[tuple[Any, ...], ...]
    metrics: Mapping[str, float | None]
    properties: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.properties)
        return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in self.properties)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html.table(("property", "value"), [pair for pair in self.properties if pair[1]])


def describe(models: Models, reference: Reference) -> ModelDescription:
    """Describe the version that a reference names, or raise UnknownModelError if it is missing."""
    catalog = models.catalog
    with catalog.check_once():
        model = catalog.get(reference)
        training = catalog.training(model)
        registration = _describe_registration(models, model)
        small_models = catalog.small_models(model)
    used_names = set(model.used_columns)
    inputs = {
        column.name: _describe_input(model, column) if column.name in used_names else NOT_USED
        for column in model.columns
    }
    properties = [
        *registration,
        *_describe_training(training),
        *_describe_small_models(small_models),
        *((f"input {n}", f"{name} {t}") for n, (name, t) in enumerate(inputs.items(), 1)),
        *_describe_transform(model),
    ]
    return ModelDescription(
        model.name,
        model.version,
        MappingProxyType(inputs),
        tuple(model.program.outputs),
        tuple(tuple(labels.values) for labels in model.program.labels),
        MappingProxyType({} if training is None else dict(training.metrics)),
        tuple(properties),
    )


def _describe_registration(models: Models, model: Model) -> list[tuple[str, str]]:
    catalog = models.catalog
    program = model.program
    origin = model.origin
    whole_model = Reference(model.name, model.database)
    classes = [", ".join(map(class_text, labels.values)) for labels in program.labels]
    if len(classes) > 1:
        classes = [f"t{t}: {values}" for t, values in enumerate(classes)]
    steps = [node for node in program.nodes if node.op not in ("input", "constant")]
    operators = Counter(node.op for node in steps)
    aliases = [a for a, number in catalog.aliases(whole_model).items() if number == model.version]
    return [
        ("name", model.name),
        ("version", str(model.version)),
        ("is_default", str(catalog.default_version(whole_model) == model.version).lower()),
        ("aliases", ", ".join(aliases)),
        ("tags", _format_pairs(catalog.tags(whole_model))),
        ("comment", model.comment or ""),
        ("source", origin.source),
        ("library", origin.library),
        ("path", origin.path or ""),
        ("sha256", origin.sha256 or ""),
        ("outputs", ", ".join(program.outputs)),
        ("targets", str(program.target_count or "")),
        ("classes", "; ".join(classes)),
        ("operators", ", ".join(op if n == 1 else f"{op} x{n}" for op, n in operators.items())),
        ("nodes", str(len(steps))),
        ("trees", _count_trees(program)),
        ("bytes", str(program.nbytes)),
        ("stored_bytes", str(catalog.measure_stored_size(model))),
        ("hash", program.hash),
        ("options", _format_pairs(select_user_options(model.options))),
        ("verification", _format_pairs(model.verification or {})),
        ("estimator", _describe_estimator(model.options.get(ESTIMATOR))),
        ("created_at", str(model.created_at)),
    ]


def _format_pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _count_trees(program: Program) -> str:
    forests = [Ensemble.of(node.attrs) for node in program.nodes if node.op == "tree_ensemble"]
    if not forests:
        return ""
    num_nodes = sum(forest.nodes + len(forest.leaf_values) for forest in forests)
    return f"{sum(forest.trees for forest in forests)} with {num_nodes} nodes"


def _describe_estimator(stored_recipe: Any) -> str:
    if stored_recipe is None:
        return ""
    recipe = Recipe.from_stored(stored_recipe)
    name = recipe.path.rpartition(".")[2]
    return f"{name}({', '.join(f'{k}={v!r}' for k, v in recipe.parameters.items())})"


def _describe_training(facts: TrainingFacts | None) -> list[tuple[str, str]]:
    if facts is None:
        return []
    metrics = {name: f"{value:.6g}" for name, value in facts.metrics.items() if value is not None}
    return [
        ("model_type", f"{facts.model_type} by {facts.library}"),
        ("trained_on", f"{facts.rows:,} rows, {facts.held_out:,} held out"),
        *_describe_partitions(facts),
        ("split", _format_pairs({k: v for k, v in facts.split.items() if v is not None})),
        ("metrics", _format_pairs(metrics)),
        ("query", facts.query),
    ]


def _describe_partitions(facts: TrainingFacts) -> list[tuple[str, str]]:
    if not facts.partitions:
        return []
    names = ", ".join(facts.partition_by)
    unseen = facts.options.get("unseen_partition", "error")
    return [("partitions", f"{len(facts.partitions):,} by {names}; unseen ones: {unseen}")]


def _describe_input(model: Model, column: Feature) -> str:
    if column.kind != "any" or model.transform is None:
        return sql_type(model.program, column)
    features = [n for n, e in model.transform.expressions.items() if column.name in e.columns]
    return f"(for {', '.join(features)})"


def _describe_transform(model: Model) -> list[tuple[str, str]]:
    if model.transform is None:
        return []
    features = model.transform.build_feature_sql(model.transform.expressions, DUCKDB.quote_name)
    return [("made in SQL", f"{name} = {shorten_names(sql)}") for name, sql in features.items()]


def _describe_small_models(small_models: Mapping[str, SmallModel]) -> list[tuple[str, str]]:
    return [
        (f"{KINDS[kind][2].lower()}: {name}", text)
        for kind, small_model in small_models.items()
        for name, text in describe_small_model(small_model.facts)
    ]


def describe_small_model(
    facts: CascadeFacts | FilterFacts | CalibrationFacts | FoldFacts,
) -> list[tuple[str, str]]:
    """Describe a calibration or folds, or the inputs, guarantee and savings of a small model."""
    if isinstance(facts, FoldFacts):
        return _describe_folds(facts)
    if isinstance(facts, CalibrationFacts):
        return _describe_calibration(facts)
    pairs = _describe_cascade(facts) if isinstance(facts, CascadeFacts) else _describe_filter(facts)
    unique_keys = [("unique keys", "; ".join(facts.unique_keys))] if facts.unique_keys else []
    times = f"{facts.expected_ns:,.0f} ns a row instead of {facts.exact_ns:,.0f}"
    return [
        ("small model reads", _join_group_names(facts.groups, True)),
        ("only the full model reads", _join_group_names(facts.groups, False)),
        *unique_keys,
        *pairs,
        ("expected", f"{facts.gain:.2f} times as fast: {times}"),
        *list_groups(facts.groups),
    ]


def _describe_calibration(facts: CalibrationFacts) -> list[tuple[str, str]]:
    options = {"by": facts.by, "weight": facts.weight, "difficulty": facts.difficulty}
    options |= {"lower": facts.lower, "upper": facts.upper}
    groups = f"{facts.groups:,}, the smallest of {facts.smallest:,} rows"
    return [
        ("method", facts.method),
        ("label", facts.label),
        *((name, value) for name, value in options.items() if value),
        ("rows", f"{facts.rows:,}"),
        *([("groups", groups)] if facts.by else []),
        ("highest coverage", format_coverage(facts.highest)),
    ]


def _describe_folds(facts: FoldFacts) -> list[tuple[str, str]]:
    """Describe the folds of a cross-validation with the mean and deviation of each metric."""
    rows = [fold[1] for fold in facts.folds]
    column = f" by column {facts.column}" if facts.column else ""
    smallest = "" if min(rows) == max(rows) else f"{min(rows):,} to "
    sizes = f"{len(rows)} {facts.method} folds{column} of {smallest}{max(rows):,} rows"
    pairs = [("folds", sizes)]
    for name in facts.metrics:
        values = [value for value in facts.list_values(name) if value is not None]
        if len(values) == len(rows):
            deviation = f"{stdev(values):.4g}" if len(values) > 1 else "0"
            pairs.append((name, f"{fmean(values):.6g} +/- {deviation}"))
    return pairs


def list_groups(groups: Sequence[FeatureGroup]) -> list[tuple[str, str]]:
    """Return pairs (property, text) with the costs and importances of feature groups."""
    return [
        (
            f"group {number}",
            f"{group.name}: {group.cost:,.0f} ns a row, importance {group.importance:.4f}"
            f"{'; the small model reads it' if group.chosen else ''}",
        )
        for number, group in enumerate(groups, 1)
    ]


def _join_group_names(groups: tuple[FeatureGroup, ...], chosen: bool) -> str:
    return "; ".join(group.name for group in groups if group.chosen == chosen)


def _describe_cascade(facts: CascadeFacts) -> list[tuple[str, str]]:
    loss_bound = f"accuracy falls by at most {facts.accuracy_loss:g}"
    accuracies = f"{facts.accuracy - facts.loss:.4f} instead of {facts.accuracy:.4f}"
    measured = f"accuracy {accuracies} on {facts.held_out:,} rows held out"
    return [
        ("guarantee", f"{loss_bound} on rows like those of column {facts.label} (97.5% sure)"),
        ("measured", f"{measured}; at most {facts.most_loss:.4f} is lost"),
        ("confident", f"{facts.confident:.1%} of the rows, surer than {facts.threshold:.4f}"),
    ]


def _describe_filter(facts: FilterFacts) -> list[tuple[str, str]]:
    precision_bound = f"at least {facts.precision:.0%} are right in 95% of queries (97.5% sure)"
    num_precise = facts.trials - facts.failures
    measured = f"{num_precise} of {facts.trials} queries over {facts.rows:,} rows"
    return [
        ("guarantee", f"of the best {facts.k} rows {precision_bound}"),
        ("measured", f"{measured}: {facts.low:.1%} to {facts.high:.1%}"),
        ("ratio", f"the full model ranks the best {facts.ratio:.2f} * {facts.k} rows"),
    ]
