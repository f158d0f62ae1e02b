"""SHOW CREATE MODEL: the statements that create a version again.

The catalog may come from a stranger. Text from the catalog is put into a statement only if the
parser returns the same text from this statement.
"""

from __future__ import annotations

import json
from typing import Any

from sqlml.catalog.lookup import Catalog
from sqlml.catalog.model import Model, Reference, TrainingFacts
from sqlml.catalog.small_models import (
    Calibration,
    CalibrationFacts,
    Cascade,
    CascadeFacts,
    FoldModels,
    TopKFilter,
)
from sqlml.dialects import Dialect
from sqlml.errors import ArtifactError, ParseError
from sqlml.ir.operators.sparse_rows import unpack_items
from sqlml.ir.program import Program
from sqlml.parsing import statements
from sqlml.parsing.parse import parse
from sqlml.parsing.statement_parts import option_text
from sqlml.parsing.statements import Call, OptionValue
from sqlml.planner.program.result_sql import find_result_type
from sqlml.statements.connection_models import Answer, Models, format_pairs_answer, resolve_name
from sqlml.statements.model_options import OUTPUT, select_user_options
from sqlml.training.conformal import find_calibration_options
from sqlml.training.model_types import MODEL_TYPES
from sqlml.types import Feature, Kind

_SQL_TYPES: dict[Kind, str] = {
    "number": "DOUBLE",
    "string": "VARCHAR",
    "datetime": "TIMESTAMP",
    "list": "VARCHAR[]",
    "map": "MAP(VARCHAR, DOUBLE)",
    "pairs": "STRUCT(name VARCHAR, value DOUBLE)[]",
    "any": "DOUBLE",
}
"""Maps the kind of a feature to an accepted SQL type. An unused feature accepts any type."""


def show_create(models: Models, statement: statements.ShowCreate) -> Answer:
    """Carry out SHOW CREATE MODEL: return CREATE MODEL and the ALTER MODEL statements."""
    reference = resolve_name(statement.name)
    model = models.catalog.get(reference)
    catalog = models.catalog
    dialect = models.dialect
    name = dialect.quote_name(model.name)
    if reference.database is not None:
        name = f"{dialect.quote_name(reference.database)}.{name}"
    comment = catalog.comment(reference)
    training = catalog.training(model)
    if training is not None and training.model_type in MODEL_TYPES:
        creation = _format_training(name, model, training, comment, dialect)
    else:
        creation = _format_file_import(name, reference, model, comment, dialect)
    alterations = _format_additions(catalog, reference, name, model, dialect)
    return format_pairs_answer(("name", "statement"), [(model.name, f"{creation};{alterations}")])


def _format_training(
    name: str, model: Model, facts: TrainingFacts, comment: str | None, dialect: Dialect
) -> str:
    quoted_keywords = {keyword: dialect.quote_name(keyword) for keyword in ("group", "lambda")}
    options = ", ".join(
        f"{quoted_keywords.get(option, option)} = {option_text(decode_option(value), dialect)}"
        for option, value in {**facts.options, **select_user_options(model.options)}.items()
        if option != "partition_by"
    )
    lines = [f"CREATE MODEL {name}"]
    if facts.partition_by:
        lines.append(f"PARTITION BY {', '.join(map(dialect.quote_name, facts.partition_by))}")
    if facts.transform is not None:
        lines.append(f"TRANSFORM ({', '.join(facts.transform)})")
    lines.append(f"OPTIONS ({options})")
    if comment is not None:
        lines.append(f"COMMENT {dialect.quote_string(comment)}")
    lines.append(f"AS {facts.query}")
    statement_sql = "\n".join(lines)
    statement = _parse_single(statement_sql)
    training = statement.training if isinstance(statement, statements.TrainModel) else None
    if training is None or (training.query, training.transform) != (facts.query, facts.transform):
        message = f"the stored training of model {model.label} is damaged; train the model again"
        raise ArtifactError(message)
    return statement_sql


def _format_file_import(
    name: str, reference: Reference, model: Model, comment: str | None, dialect: Dialect
) -> str:
    """Write the CREATE MODEL ... FROM 'path' statement of a version, without a semicolon."""
    origin = model.origin
    if origin.path is None:  # EXPORT MODEL must first write a file.
        path = dialect.quote_string(f"{model.name}.sqlml")
        version = f"/{model.version}" if reference.has_version else ""
        lines = [
            f"-- came from an object of Python: EXPORT MODEL {name}{version} TO {path} writes the "
            "file",
            f"CREATE MODEL {name}",
        ]
        source = f"FROM {path} FORMAT SQLML"
    else:
        quote = dialect.quote_name
        columns = ", ".join(f"{quote(f.name)} {sql_type(model.program, f)}" for f in model.features)
        lines = [f"CREATE MODEL {name}", f"INPUT ({columns})"]
        source = f"FROM {dialect.quote_string(origin.path)} FORMAT {origin.format}"
    label = model.options.get(OUTPUT)
    if label is not None:
        label_type = find_result_type(model.program, "label", None)
        lines.append(f"OUTPUT ({dialect.quote_name(str(label))} {label_type})")
    lines.append(source)
    options = select_user_options(model.options)
    if origin.sha256 is not None:
        options["sha256"] = origin.sha256
    if options:
        values = ", ".join(
            f"{option} = {dialect.quote_string(v) if isinstance(v, str) else json.dumps(v)}"
            for option, v in options.items()
        )
        lines.append(f"OPTIONS ({values})")
    if comment is not None:
        lines.append(f"COMMENT {dialect.quote_string(comment)}")
    return "\n".join(lines)


def _format_additions(
    catalog: Catalog, reference: Reference, name: str, model: Model, dialect: Dialect
) -> str:
    additions = ""
    training = catalog.training(model)
    is_in_file = model.origin.path is None and training is None
    is_calibrated = False
    if not is_in_file:  # The file that EXPORT MODEL writes contains the small models.
        for small_model in catalog.small_models(model).values():
            if isinstance(small_model, FoldModels):
                continue  # The options of CREATE MODEL request the folds.
            if isinstance(small_model, Calibration):
                is_calibrated = True
                if _is_from_training(small_model, training):
                    continue
            additions += f"\n{_format_small_model(name, small_model, dialect)}"
    if training is not None and find_calibration_options(training.options) and not is_calibrated:
        additions += f"\nALTER MODEL {name} DROP CALIBRATION;"
    for tag, value in catalog.tags(reference).items():
        assignment = f"{dialect.quote_name(tag)} = {dialect.quote_string(value)}"
        additions += f"\nALTER MODEL {name} SET TAG {assignment};"
    return additions


def _is_from_training(calibration: Calibration, training: TrainingFacts | None) -> bool:
    """Return whether the options of CREATE MODEL request this calibration."""
    facts = calibration.facts
    options = {} if training is None else find_calibration_options(training.options)
    if training is None or not options or facts.query or facts.weight or not facts.symmetric:
        return False
    method = str(options.get("method", "mondrian")).lower()
    default_method = "lac" if calibration.output == "set" else "split"
    has_method = facts.method == (default_method if method == "mondrian" else method)
    return has_method and (facts.by, facts.label) == (options.get("by", ""), training.label)


def _format_small_model(
    name: str, small_model: Cascade | TopKFilter | Calibration, dialect: Dialect
) -> str:
    facts = small_model.facts
    if isinstance(facts, CalibrationFacts):
        kind, action = "CALIBRATION", "CALIBRATE"
        options = _format_calibration_options(facts, dialect)
    elif isinstance(facts, CascadeFacts):
        kind, action = "CASCADE", "ADD CASCADE"
        label = dialect.quote_string(facts.label)
        options = f"label = {label}, accuracy_loss = {facts.accuracy_loss!r}"
    else:
        kind, action = "TOP_K FILTER", "ADD TOP_K FILTER"
        options = f"k = {facts.k}, precision = {facts.precision!r}"
        options += f", class = {facts.chosen}" if facts.chosen else ""
    if not isinstance(facts, CalibrationFacts) and facts.unique_keys:
        options += f", unique_keys = [{', '.join(map(dialect.quote_string, facts.unique_keys))}]"
    end = "\n" if "--" in facts.query else ""  # Otherwise, a comment could hide the bracket.
    using = f" USING ({facts.query}{end})" if facts.query else ""
    text = f"ALTER MODEL {name} {action}{using}\nOPTIONS ({options})"
    statement = _parse_single(text)
    change = statement.change if isinstance(statement, statements.AlterModel) else None
    if (
        not isinstance(
            change, statements.AddCascade | statements.AddTopKFilter | statements.Calibrate
        )
        or (change.query or "").strip() != facts.query.strip()
    ):
        advice = f"ALTER MODEL {name} DROP {kind} removes it"
        raise ArtifactError(f"the stored {kind.lower()} of model {name} is damaged; {advice}")
    return f"{text};"


def _format_calibration_options(facts: CalibrationFacts, dialect: Dialect) -> str:
    texts = {name: getattr(facts, name) for name in ("label", "method", "by", "weight")}
    texts |= {name: getattr(facts, name) for name in ("difficulty", "lower", "upper")}
    options = [f"{name} = {dialect.quote_string(text)}" for name, text in texts.items() if text]
    if facts.method == "normalized":
        options.append(f"beta = {facts.beta!r}")
    if not facts.symmetric:
        options.append("symmetric = false")
    return ", ".join(options)


def _parse_single(text: str) -> statements.Statement | None:
    try:
        (statement,) = parse(text)
    except (ParseError, ValueError):  # The catalog may contain any text.
        return None
    return statement


def encode_option(value: OptionValue | list[Any]) -> Any:
    """Convert the value of an option to a value that JSON can represent."""
    if isinstance(value, Call):
        return {"call": value.name, "arguments": [encode_option(v) for v in value.arguments]}
    return [encode_option(v) for v in value] if isinstance(value, tuple | list) else value


def decode_option(value: Any) -> OptionValue:
    """Convert a result of `encode_option` back, or raise ArtifactError if it is invalid."""
    if isinstance(value, dict):
        name, arguments = value.get("call"), value.get("arguments")
        if not isinstance(name, str) or not name.isidentifier() or not isinstance(arguments, list):
            raise ArtifactError(f"an option of the stored training is damaged: {value!r:.80}")
        return Call(name, tuple(decode_option(element) for element in arguments))
    if isinstance(value, list | tuple):
        return tuple(decode_option(element) for element in value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def sql_type(program: Program, feature: Feature) -> str:
    """Return a SQL type that a feature accepts, or for a list the type of the items to look up."""
    for node in program.nodes:
        if node.op == "has_items" and node.attrs["feature"] == feature.name:
            sought_items = unpack_items(node.attrs["words"], node.attrs["ends"])
            for item_type, list_type in ((int, "BIGINT[]"), (int | float, "DOUBLE[]")):
                if all(isinstance(element, item_type) for element in sought_items):
                    return list_type
    return "BOOLEAN" if feature.is_boolean else _SQL_TYPES[feature.kind]
