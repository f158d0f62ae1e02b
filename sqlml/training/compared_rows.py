"""`compared_rows`: the rows that a training held out, as another model takes them."""

from __future__ import annotations

from dataclasses import replace

from sqlml.catalog.model import Model
from sqlml.errors import ConfigError
from sqlml.host import RowHost
from sqlml.training.features.columns import Role, TrainingColumn
from sqlml.training.progress import Progress
from sqlml.training.reading.rows import read_rows
from sqlml.training.reading.shaped_rows import frame_of, part_of
from sqlml.training.storage.part import Part
from sqlml.training.train import Trained
from sqlml.types import NESTED


def compared_rows(host: RowHost, query: str, trained: Trained, model: Model) -> Part:
    """The rows of a training query that were held out, with the features of another model.

    Args:
        query: of the training, whose columns the model needs, too.

    Raises:
        ConfigError: the model takes lists or maps.
    """
    made = {} if model.transform is None else model.transform.made
    features = []
    for feature in model.features:
        if feature.kind == "any":
            continue  # the model never looks at it
        expression = made.get(feature.name)
        if feature.kind in NESTED:
            raise ConfigError(
                f"PROMOTE IF cannot compare with {model.label}, whose feature {feature.name!r} is "
                f"a {feature.kind}"
            )
        kind = trained.columns.raw[feature.name] if expression is None else expression.type
        role: Role = "category" if feature.kind == "string" else "number"
        features.append(TrainingColumn(feature.name, kind, role, expression))
    columns = replace(trained.columns, features=tuple(features), left_out=())
    trainer = replace(trained.request.trainer, features="scaled")  # columns by name, in memory
    request = replace(trained.request, trainer=trainer, out_of_core=False)
    rows = read_rows(host, query, columns, request, Progress())
    assert rows.held_out is not None
    return part_of(rows.held_out, frame_of(rows, rows.held_out, rows.order), request, rows)
