"""VERIFY MODEL: a stored model and its source asked about the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import Model
from sqlml.errors import ConfigError, MissingColumnError, ParseError
from sqlml.host import Host
from sqlml.importers.file_formats import check_trusted
from sqlml.importers.model_file import read_file
from sqlml.parsing.statements import VerifyModel
from sqlml.planner.syntax.text import text_of
from sqlml.statements.answer import Answer, table
from sqlml.statements.models import Models, referred
from sqlml.types import fold
from sqlml.verifying.source import source_of
from sqlml.verifying.verify import verify_rows


def verify_model(models: Models, statement: VerifyModel) -> Answer:
    """VERIFY MODEL .. USING (query) [AGAINST 'path'].

    Raises:
        ConfigError: the model has no file, or the query no rows.
        UntrustedArtifactError: reading the file would execute code.
        ParseError, MissingColumnError: the query does not fit.
    """
    model = models.catalog.get(referred(statement.name))
    path, sha256, form = statement.against, None, "AUTO"
    if path is None:
        path, sha256, form = model.origin.path, model.origin.sha256, model.origin.format or form
    if path is None:
        raise ConfigError(
            f"model {model.label} was made from a Python object, which is not kept; name a file "
            "of the original: VERIFY MODEL .. USING (..) AGAINST 'path'"
        )
    trusted = models.allow_pickle
    check_trusted(form, path, trusted)  # before it is looked for
    file = read_file(path, models.host, format=form, sha256=sha256, allow_pickle=trusted)
    with source_of(file, model.program, allow_pickle=trusted) as source:
        frame = _rows(models.host, statement.query, model)
        found = verify_rows(source, model.program, model.features, model.options, frame)
    rows = [
        (d.output, d.rows, d.absolute, d.relative, d.bound, d.flips, d.agrees)
        for d in found.differences
    ]
    return table(_COLUMNS, rows)


def _rows(host: Host, query: str, model: Model) -> Any:
    """The rows of a query as a pandas frame with the model's own columns, in their order."""
    if text_of(query).calls_models:
        raise ParseError("VERIFY MODEL .. USING takes a query without model calls")
    try:
        frame = host.fetch_frame(query)
    except ParseError as error:
        raise ParseError(f"VERIFY MODEL .. USING takes one query: {error}") from None
    if frame.empty:
        raise ConfigError("the query of VERIFY MODEL gives no rows, so nothing is compared")
    have = {fold(str(column)): column for column in frame.columns}
    missing = [f.name for f in model.features if fold(f.name) not in have]
    if missing:
        raise MissingColumnError(
            f"model {model.label} needs {', '.join(missing)}; the query has "
            f"{', '.join(map(str, frame.columns))}"
        )
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
