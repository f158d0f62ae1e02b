"""`training_statement`: the CREATE MODEL .. AS SELECT that trains a version again."""

from __future__ import annotations

from typing import Any

from sqlml.catalog.model import Model
from sqlml.catalog.training_facts import TrainingFacts
from sqlml.dialects import Dialect
from sqlml.errors import ArtifactError, ParseError
from sqlml.parsing.option_text import option_text
from sqlml.parsing.parse import parse
from sqlml.parsing.statements import Call, OptionValue, TrainModel
from sqlml.statements.options import given


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
