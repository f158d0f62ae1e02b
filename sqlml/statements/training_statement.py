"""`training_statement`: the CREATE MODEL .. AS SELECT that trains a version again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlml.catalog.lookup import Catalog
from sqlml.catalog.model import Model, Reference, TrainingFacts
from sqlml.catalog.small_models import CascadeFacts, SmallModel
from sqlml.dialects import Dialect
from sqlml.errors import ArtifactError, ParseError
from sqlml.ir.operators.sparse_rows import unpack_items
from sqlml.ir.program import Program
from sqlml.parsing.parse import parse
from sqlml.parsing.statement_parts import option_text
from sqlml.parsing.statements import (
    AddCascade,
    AddTopKFilter,
    AlterModel,
    Call,
    OptionValue,
    ShowCreate,
    TrainModel,
)
from sqlml.planner.program.result_sql import result_type
from sqlml.statements.models import Answer, Models, referred, rows
from sqlml.statements.options import OUTPUT, given
from sqlml.training.model_types import MODEL_TYPES
from sqlml.types import Feature, Kind


def training_statement(
    name: str, model: Model, facts: TrainingFacts, comment: str | None, dialect: Dialect
) -> str:
    """The statement, without a semicolon.

    Args:
        name: of the model, quoted.

    Raises:
        ArtifactError: what the catalog says of the training makes no such statement.
    """
    options = {**facts.options, **{n: as_json(v) for n, v in given(model.options).items()}}
    listed = ", ".join(
        f"{dialect.quote_name(n) if n in _WORDS else n} = {option_text(from_json(v), dialect)}"
        for n, v in options.items()
    )
    lines = [f"CREATE MODEL {name}"]
    if facts.transform is not None:
        lines.append(f"TRANSFORM ({', '.join(facts.transform)})")
    lines.append(f"OPTIONS ({listed})")
    if comment is not None:
        lines.append(f"COMMENT {dialect.quote_string(comment)}")
    lines.append(f"AS {facts.query}")
    text = "\n".join(lines)
    if not _says_the_same(text, facts):
        raise ArtifactError(
            f"what the catalog says of the training of model {model.label} is damaged; train it "
            "again"
        )
    return text


def _says_the_same(text: str, facts: TrainingFacts) -> bool:
    """Whether it is one statement about this query: a stranger may have written the catalog."""
    try:
        found = parse(text)
    except ParseError:
        return False
    if len(found) != 1 or not isinstance(found[0], TrainModel):
        return False
    training = found[0].training
    return training.query == facts.query and training.transform == facts.transform


_WORDS = frozenset({"group", "lambda"})
"""Options that an engine's reader takes for keywords."""


def as_json(value: OptionValue | list[Any]) -> Any:
    """The value of an option as JSON has it."""
    if isinstance(value, Call):
        return {"call": value.name, "arguments": [as_json(v) for v in value.arguments]}
    if isinstance(value, tuple | list):
        return [as_json(v) for v in value]
    return value


def from_json(value: Any) -> OptionValue:
    """The value of an option that `as_json` wrote.

    Raises:
        ArtifactError: somebody else wrote it.
    """
    if isinstance(value, dict):
        name, arguments = value.get("call"), value.get("arguments")
        if not isinstance(name, str) or not name.isidentifier() or not isinstance(arguments, list):
            raise ArtifactError(f"an option of the stored training is damaged: {value!r:.80}")
        return Call(name, tuple(from_json(v) for v in arguments))
    if isinstance(value, list | tuple):
        return tuple(from_json(v) for v in value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


# SHOW CREATE MODEL: the statements that make a version again.


def show_create(models: Models, statement: ShowCreate) -> Answer:
    """SHOW CREATE MODEL: statements that make the version, and what the model says about itself."""
    reference = referred(statement.name)
    model = models.catalog.get(reference)
    text = _text(models.catalog, reference, model, models.dialect)
    return rows(("name", "statement"), [(model.name, text)])


def _text(catalog: Catalog, reference: Reference, model: Model, dialect: Dialect) -> str:
    """CREATE MODEL, followed by what ALTER MODEL adds.

    A model that was trained is trained again. One made from a Python object has no file; its
    statement names one that EXPORT MODEL writes.
    """
    name, origin = dialect.quote_name(model.name), model.origin
    if reference.database is not None:
        name = f"{dialect.quote_name(reference.database)}.{name}"
    every = Reference(reference.name, reference.database)
    training = catalog.training(model)
    if training is not None and training.model_type in MODEL_TYPES:
        comment = catalog.comment(every)
        made = training_statement(name, model, training, comment, dialect)
        return f"{made};{_added(catalog, every, name, model, dialect)}"
    lines = []
    if origin.path is None:
        path = f"{model.name}.sqlml"
        version = "" if not reference.names_a_version else f"/{model.version}"
        lines.append(
            f"-- came from an object of Python: EXPORT MODEL {name}{version} TO "
            f"{dialect.quote_string(path)} writes the file"
        )
        lines += [f"CREATE MODEL {name}", f"FROM {dialect.quote_string(path)} FORMAT SQLML"]
    else:
        columns = ", ".join(
            f"{dialect.quote_name(f.name)} {sql_type(model.program, f)}" for f in model.features
        )
        lines += [f"CREATE MODEL {name}", f"INPUT ({columns})"]
        lines.append(f"FROM {dialect.quote_string(origin.path)} FORMAT {origin.format}")
    options = given(model.options)
    if origin.sha256 is not None:
        options["sha256"] = origin.sha256
    label = model.options.get(OUTPUT)
    if label is not None:
        kind = result_type(model.program, "label", None)
        lines.insert(-1, f"OUTPUT ({dialect.quote_name(str(label))} {kind})")
    if options:
        lines.append(
            f"OPTIONS ({', '.join(f'{k} = {_literal(v, dialect)}' for k, v in options.items())})"
        )
    comment = catalog.comment(every)
    if comment is not None:
        lines.append(f"COMMENT {dialect.quote_string(comment)}")
    return "\n".join(lines) + ";" + _added(catalog, every, name, model, dialect)


def _added(catalog: Catalog, every: Reference, name: str, model: Model, dialect: Dialect) -> str:
    """The statements that add small models and tags."""
    text = ""
    brought = model.origin.path is None and catalog.training(model) is None  # by a file of ours
    for small in () if brought else catalog.small_models(model).values():
        text += f"\n{_learned(name, small, dialect)}"
    for tag, value in catalog.tags(every).items():
        told = f"{dialect.quote_name(tag)} = {dialect.quote_string(value)}"
        text += f"\nALTER MODEL {name} SET TAG {told};"
    return text


def _learned(name: str, small: SmallModel, dialect: Dialect) -> str:
    """The statement that learns a small model again."""
    facts = small.facts
    if isinstance(facts, CascadeFacts):
        what = "CASCADE"
        label = dialect.quote_string(facts.label)
        options = f"label = {label}, accuracy_loss = {facts.accuracy_loss!r}"
    else:
        what = "TOP_K FILTER"
        options = f"k = {facts.k}, precision = {facts.precision!r}"
        options += f", class = {facts.chosen}" if facts.chosen else ""
    if facts.unique_keys:
        options += f", unique_keys = [{', '.join(map(dialect.quote_string, facts.unique_keys))}]"
    end = "\n" if "--" in facts.query else ""  # the bracket is no part of a comment
    text = f"ALTER MODEL {name} ADD {what} USING ({facts.query}{end})\nOPTIONS ({options})"
    if not _trains_on_query(text, facts.query):
        raise ArtifactError(
            f"what the catalog says of the {what.lower()} of model {name} is damaged; "
            f"ALTER MODEL {name} DROP {what} removes it"
        )
    return f"{text};"


def _trains_on_query(text: str, query: str) -> bool:
    """Whether it is one statement about this query: a stranger may have written the catalog."""
    try:
        found = parse(text)
    except ParseError:
        return False
    change = found[0].change if len(found) == 1 and isinstance(found[0], AlterModel) else None
    return isinstance(change, AddCascade | AddTopKFilter) and change.query.strip() == query.strip()


def _literal(value: Any, dialect: Dialect) -> str:
    if isinstance(value, str):
        return dialect.quote_string(value)
    return json.dumps(value)


def sql_type(program: Program, feature: Feature) -> str:
    """A type of column that feeds the feature; for a list that of the items that it looks for."""
    for node in program.nodes:
        if node.op == "has_items" and node.attrs["feature"] == feature.name:
            items = unpack_items(node.attrs["words"], node.attrs["ends"])
            if all(isinstance(item, int) for item in items):
                return "BIGINT[]"
            if all(isinstance(item, int | float) for item in items):
                return "DOUBLE[]"
    return _SQL_KIND[feature.kind]


_SQL_KIND: Mapping[Kind, str] = MappingProxyType(
    {
        "number": "DOUBLE",
        "string": "VARCHAR",
        "datetime": "TIMESTAMP",
        "list": "VARCHAR[]",
        "map": "MAP(VARCHAR, DOUBLE)",
        "pairs": "STRUCT(name VARCHAR, value DOUBLE)[]",
        "any": "DOUBLE",
    }
)
"""A type that feeds a feature; of one that the model never reads any would do."""
