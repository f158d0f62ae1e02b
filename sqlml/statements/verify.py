"""VERIFY MODEL: a stored model and its source asked about the same rows, and what its small models
lose on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import Model, Transform
from sqlml.catalog.small_models import Cascade, SmallModel, TopKFilter
from sqlml.dialects import DUCKDB
from sqlml.errors import ConfigError, MissingColumnError, ParseError
from sqlml.host import Host
from sqlml.importers.file_formats import check_trusted
from sqlml.importers.model_file import read_file
from sqlml.long_work import long_work, stage
from sqlml.parsing.statements import VerifyModel
from sqlml.planner.syntax.text import text_of
from sqlml.scorer.input_table import program_inputs
from sqlml.statements.models import Answer, Models, referred, table
from sqlml.statements.small_models import label_codes, label_column
from sqlml.training.cascades.real_loss import loss_of_cascade, loss_of_filter
from sqlml.types import fold
from sqlml.verifying.source import Source, source_of
from sqlml.verifying.verification import verify_rows


def verify_model(models: Models, statement: VerifyModel) -> Answer:
    """VERIFY MODEL .. USING (query) [AGAINST 'path'].

    Answers a row for each output of the model, where the file that it came from is known, and one
    for each small model: a cascade where the query has its column of true labels.

    Raises:
        ConfigError: there is nothing to compare, or the query has no rows.
        UntrustedArtifactError: reading the file would execute code.
        ParseError, MissingColumnError: the query does not fit.
    """
    model = models.catalog.get(referred(statement.name))
    small_models = models.catalog.small_models(model)
    path = statement.against or model.origin.path
    if path is None and not small_models:
        raise ConfigError(
            f"model {model.label} was made from a Python object, which is not kept; name a file "
            "of the original: VERIFY MODEL .. USING (..) AGAINST 'path'"
        )
    with long_work(f"verifying {model.label}"):
        with (
            nullcontext() if path is None else _original(models, model, statement.against)
        ) as source:
            stage("fetching the rows")
            frame = _rows(models.host, statement.query, model)
            stage("comparing the predictions")
            rows = [] if source is None else _differences(source, model, frame)
        rows += _losses(model, small_models, frame)
    if not rows:
        labels = [s.facts.label for s in small_models.values() if isinstance(s, Cascade)]
        raise ConfigError(
            f"the query has no column {', '.join(labels)} with the true labels, by which the "
            f"cascade of {model.label} is measured, and the model was made from a Python object, "
            "which is not kept; add the column, or name a file of the original: AGAINST 'path'"
        )
    return table(_COLUMNS, rows)


def _original(models: Models, model: Model, against: str | None) -> AbstractContextManager[Source]:
    """The source in a file that the statement names, or in the one of which the model was made."""
    path, sha256, form = against, None, "AUTO"
    if path is None:
        path, sha256, form = (
            str(model.origin.path),
            model.origin.sha256,
            model.origin.format or form,
        )
    trusted = models.allow_pickle
    check_trusted(form, path, trusted)  # before it is looked for
    file = read_file(path, models.host, format=form, sha256=sha256, allow_pickle=trusted)
    return source_of(file, model.program, allow_pickle=trusted)


def _differences(source: Source, model: Model, frame: Any) -> list[tuple[Any, ...]]:
    """A row for each output."""
    features = _features(model, frame)
    found = verify_rows(source, model.program, model.features, model.options, features)
    return [
        (d.output, d.rows, d.absolute, d.relative, d.bound, d.flips, d.agrees)
        for d in found.differences
    ]


def _losses(
    model: Model, small_models: Mapping[str, SmallModel], frame: Any
) -> Iterator[tuple[Any, ...]]:
    """A row for each small model; for a cascade only where the true labels are known."""
    for small in small_models.values():
        match small:
            case Cascade(facts=facts):
                if fold(facts.label) not in {fold(str(column)) for column in frame.columns}:
                    continue
                codes = label_codes(frame[label_column(facts.label, model, frame)], model)
                if (codes < 0).all():
                    raise ConfigError(f"all labels in column {facts.label} are NULL")
                inputs = program_inputs(model.program, frame[codes >= 0])
                found = loss_of_cascade(model.program, small, inputs, codes[codes >= 0])
                name = "cascade"
            case TopKFilter():
                found = loss_of_filter(model.program, small, program_inputs(model.program, frame))
                name = "top_k filter"
        yield name, found.rows, found.loss, None, found.allowed, found.differing, found.agrees


def _rows(host: Host, query: str, model: Model) -> Any:
    """The rows of a query as a pandas frame, which has the model's columns and may have more."""
    if text_of(query).calls_models:
        raise ParseError("VERIFY MODEL .. USING takes a query without model calls")
    if model.transform is not None:
        query = _with_features(query, model.transform)
    try:
        frame = host.fetch_frame(query)
    except ParseError as error:
        raise ParseError(f"VERIFY MODEL .. USING takes one query: {error}") from None
    if frame.empty:
        raise ConfigError("the query of VERIFY MODEL gives no rows, so nothing is compared")
    frame = frame.rename(columns=model.renamed([str(column) for column in frame.columns]))
    have = {fold(str(column)) for column in frame.columns}
    missing = [f.name for f in model.features if fold(f.name) not in have]
    if missing:
        raise MissingColumnError(
            f"model {model.label} needs {', '.join(missing)}; the query has "
            f"{', '.join(map(str, frame.columns))}"
        )
    return frame


def _with_features(query: str, transform: Transform) -> str:
    """The rows of a query with what TRANSFORM makes of their columns."""
    own = {name: f"sqlml_rows.{DUCKDB.quote_name(name)}" for name in transform.columns}
    made = {DUCKDB.quote_name(n): transform.sql(n, own) for n in transform.made}
    items = ", ".join(f"{sql} AS {name}" for name, sql in made.items())
    hidden = [name for name in made if fold(name) in {fold(quoted) for quoted in _quoted(own)}]
    star = f"* EXCLUDE ({', '.join(hidden)})" if hidden else "*"
    return f"SELECT {star}, {items} FROM (\n{query}\n) AS sqlml_rows"


def _quoted(columns: Mapping[str, str]) -> list[str]:
    return [DUCKDB.quote_name(name) for name in columns]


def _features(model: Model, frame: Any) -> Any:
    """The model's own columns of a frame, in their order and by their names."""
    have = {fold(str(column)): column for column in frame.columns}
    return frame[[have[fold(f.name)] for f in model.features]].set_axis(
        [f.name for f in model.features], axis=1
    )


_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "output": "VARCHAR",
        "rows": "BIGINT",
        "max_difference": "DOUBLE",
        "max_deviation": "DOUBLE",
        "allowed": "DOUBLE",
        "label_flips": "BIGINT",
        "agrees": "BOOLEAN",
    }
)
"""The columns of VERIFY MODEL's answer, with their types."""
