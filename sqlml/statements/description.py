"""`ModelDescription`: one version of a model, as DESCRIBE MODEL and `Session.model` tell of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml import html
from sqlml.cascades.recipe import Recipe
from sqlml.catalog.model import Model, Reference
from sqlml.catalog.row_expressions import shown
from sqlml.catalog.training_facts import TrainingFacts
from sqlml.dialects import DUCKDB
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.statements.models import Models
from sqlml.statements.options import ESTIMATOR, given
from sqlml.statements.show_create import sql_type
from sqlml.statements.told_small_models import told
from sqlml.types import Feature, class_text

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
