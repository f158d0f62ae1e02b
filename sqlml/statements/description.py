"""`ModelDescription`: one version of a model, as DESCRIBE MODEL and `Session.model` tell of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml import html
from sqlml.catalog.model import Model, Reference, TrainingFacts
from sqlml.catalog.row_expressions import shown
from sqlml.catalog.small_models import KINDS, CascadeFacts, FeatureGroup, FilterFacts, SmallModel
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.parsing.statements import DescribeModel, ExplainModel, ShowModels, ShowVersions
from sqlml.planner.plan.explain_plan import explain_model
from sqlml.statements.models import Answer, Models, referred, rows, whole
from sqlml.statements.options import ESTIMATOR, given
from sqlml.statements.training_statement import sql_type
from sqlml.training.cascades.recipe import Recipe
from sqlml.types import Feature, class_text

# `told`: what is known of small models, in words.


def told(small_models: Mapping[str, SmallModel]) -> list[tuple[str, str]]:
    """What the small models before a version are, do and save, as properties of it."""
    return [
        (f"{KINDS[kind][2].lower()}: {name}", text)
        for kind, small in small_models.items()
        for name, text in of_facts(small.facts)
    ]


def of_facts(facts: CascadeFacts | FilterFacts) -> list[tuple[str, str]]:
    """What one small model is, does and saves."""
    measured = _cascade(facts) if isinstance(facts, CascadeFacts) else _filter(facts)
    return [
        ("small model reads", _names(facts.groups, True)),
        ("only the full model reads", _names(facts.groups, False)),
        *((("unique keys", "; ".join(facts.unique_keys)),) if facts.unique_keys else ()),
        *measured,
        (
            "expected",
            f"{facts.gain:.2f} times as fast: {facts.expected_ns:,.0f} ns a row in place of "
            f"{facts.exact_ns:,.0f}",
        ),
        *((f"group {n}", of_group(group)) for n, group in enumerate(facts.groups, 1)),
    ]


def of_group(group: FeatureGroup) -> str:
    """A group with its cost and importance."""
    reads = "; the small model reads it" if group.chosen else ""
    return f"{group.name}: {group.cost:,.0f} ns a row, importance {group.importance:.4f}{reads}"


def _names(groups: tuple[FeatureGroup, ...], chosen: bool) -> str:
    return "; ".join(group.name for group in groups if group.chosen == chosen)


def _cascade(facts: CascadeFacts) -> list[tuple[str, str]]:
    return [
        (
            "guarantee",
            f"accuracy falls by at most {facts.accuracy_loss:g} on rows like those of "
            f"column {facts.label} (97.5% sure)",
        ),
        (
            "measured",
            f"accuracy {facts.accuracy - facts.loss:.4f} instead of {facts.accuracy:.4f} on "
            f"{facts.held_out:,} rows held out; at most {facts.most_loss:.4f} is lost",
        ),
        ("confident", f"{facts.confident:.1%} of the rows, surer than {facts.threshold:.4f}"),
    ]


def _filter(facts: FilterFacts) -> list[tuple[str, str]]:
    return [
        (
            "guarantee",
            f"of the best {facts.k} rows at least {facts.precision:.0%} are right in 95% of "
            "queries (97.5% sure)",
        ),
        (
            "measured",
            f"{facts.trials - facts.failures} of {facts.trials} queries over {facts.rows:,} rows: "
            f"{facts.low:.1%} to {facts.high:.1%}",
        ),
        ("ratio", f"the full model ranks the best {facts.ratio:.2f} * {facts.k} rows"),
    ]


NOT_USED = "(not used)"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What a version of a model is, and what it reads.

    Attributes:
        name: of the model, without its database.
        version: its number.
        inputs: the columns that a call brings, in order, and their SQL types; of a column that is
            not used, `(not used)`, and of one that TRANSFORM makes features of, what it makes.
        outputs: what the model can be asked for: label, proba, score, samples, transform.
        classes: the class labels of each target; empty for a regression.
        properties: all that DESCRIBE MODEL says, as pairs of name and text.
    """

    name: str
    version: int
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    classes: tuple[tuple[Any, ...], ...]
    properties: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.properties)
        return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in self.properties)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html.table(("property", "value"), [pair for pair in self.properties if pair[1]])


def describe(models: Models, reference: Reference) -> ModelDescription:
    """The version that a reference names.

    Raises:
        UnknownModelError: no such model or version.
    """
    catalog, model = models.catalog, models.catalog.get(reference)
    program, origin = model.program, model.origin
    every = Reference(model.name, model.database)
    classes = [", ".join(map(class_text, labels.values)) for labels in program.labels]
    if len(classes) > 1:
        classes = [f"t{t}: {values}" for t, values in enumerate(classes)]
    steps = [node for node in program.nodes if node.op not in ("input", "constant")]
    operators = Counter(node.op for node in steps)
    aliases = [a for a, version in catalog.aliases(every).items() if version == model.version]
    properties = [
        ("name", model.name),
        ("version", str(model.version)),
        ("is_default", str(catalog.default(every) == model.version).lower()),
        ("aliases", ", ".join(aliases)),
        ("tags", ", ".join(f"{k}={v}" for k, v in catalog.tags(every).items())),
        ("comment", model.comment or ""),
        ("source", origin.source),
        ("library", origin.library),
        ("path", origin.path or ""),
        ("sha256", origin.sha256 or ""),
        ("outputs", ", ".join(program.outputs)),
        ("targets", str(program.targets or "")),
        ("classes", "; ".join(classes)),
        ("operators", ", ".join(op if n == 1 else f"{op} x{n}" for op, n in operators.items())),
        ("nodes", str(len(steps))),
        ("trees", _trees(program)),
        ("bytes", str(program.nbytes)),
        ("stored_bytes", str(catalog.stored_bytes(model))),
        ("hash", program.hash),
        ("options", ", ".join(f"{k}={v}" for k, v in given(model.options).items())),
        ("verification", _verification(model.verification)),
        ("estimator", _estimator(model.options.get(ESTIMATOR))),
        ("created_at", str(model.created_at)),
    ]
    properties += _trained(catalog.training(model))
    properties += told(catalog.small_models(model))
    used = model.used if model.transform is None else model.transform.reads(model.used)
    inputs = {f.name: _taken(model, f) if f.name in used else NOT_USED for f in model.columns}
    properties += [(f"input {n}", f"{name} {t}") for n, (name, t) in enumerate(inputs.items(), 1)]
    return ModelDescription(
        model.name,
        model.version,
        MappingProxyType(inputs),
        tuple(program.outputs),
        tuple(tuple(labels.values) for labels in program.labels),
        tuple(properties + _made(model)),
    )


def _taken(model: Model, column: Feature) -> str:
    """The type of a column that feeds a feature, or what is made of it."""
    if column.kind != "any" or model.transform is None:
        return sql_type(model.program, column)
    made = model.transform.made.items()
    return f"(for {', '.join(name for name, e in made if column.name in e.columns)})"


def _made(model: Model) -> list[tuple[str, str]]:
    """The features that are made of columns, and how."""
    if model.transform is None:
        return []
    own = {name: DUCKDB.quote_name(name) for name in model.transform.columns}
    made = model.transform.made.items()
    return [("made in SQL", f"{name} = {shown(e.of(own))}") for name, e in made]


def _trees(program: Program) -> str:
    """How many trees with how many nodes, leaves included, a model has; empty if it has none."""
    forests = [Ensemble.of(node.attrs) for node in program.nodes if node.op == "tree_ensemble"]
    if not forests:
        return ""
    trees, nodes = sum(f.trees for f in forests), sum(f.nodes + len(f.leaf_values) for f in forests)
    return f"{trees} with {nodes} nodes"


def _estimator(kept: Any) -> str:
    """The class of the last estimator, with the parameters that are not its defaults."""
    if kept is None:
        return ""
    recipe = Recipe.of(kept)
    name = recipe.path.rpartition(".")[2]
    return f"{name}({', '.join(f'{k}={v!r}' for k, v in recipe.parameters.items())})"


def _trained(facts: TrainingFacts | None) -> list[tuple[str, str]]:
    """How a version was trained, and how good it is."""
    if facts is None:
        return []
    split = ", ".join(f"{k}={v}" for k, v in facts.split.items() if v is not None)
    metrics = ", ".join(f"{k}={v:.6g}" for k, v in facts.metrics.items() if v is not None)
    return [
        ("model_type", f"{facts.model_type} by {facts.library}"),
        ("trained_on", f"{facts.rows:,} rows, {facts.held_out:,} held out"),
        ("split", split),
        ("metrics", metrics),
        ("query", facts.query),
    ]


def _verification(found: Mapping[str, Any] | None) -> str:
    return "" if found is None else ", ".join(f"{k}={v}" for k, v in found.items())


# SHOW, DESCRIBE and EXPLAIN of models: what is there, as rows.


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
