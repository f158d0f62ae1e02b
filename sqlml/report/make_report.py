"""`make_report`: from a model and a query to a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module

import duckdb

from sqlml.errors import MissingDependencyError
from sqlml.report.about_model import about_data, about_model
from sqlml.report.contributions import importance
from sqlml.report.cost import cost
from sqlml.report.drift import drift
from sqlml.report.groups import groups
from sqlml.report.parts import Section
from sqlml.report.predictions import predictions
from sqlml.report.quality import quality
from sqlml.report.render import rendered
from sqlml.report.report import Report
from sqlml.report.shown import clipped
from sqlml.report.subject import Subject, Told, subject
from sqlml.report.tables import Asking
from sqlml.statements.models import Models

SECTIONS: tuple[tuple[str, Callable[[Subject], Section]], ...] = (
    ("measuring the quality", quality),
    ("counting predictions", predictions),
    ("comparing groups", groups),
    ("explaining a sample", importance),
    ("comparing with the training", drift),
    ("describing the model", about_model),
    ("describing the data", about_data),
    ("planning", cost),
)
"""What is being done, and the section that it makes, in the order of the page."""

_LIBRARIES = ("altair", "jinja2", "vl_convert")

_TASKS = {
    "two classes": "a classifier of two classes",
    "classes": "a classifier of {} classes",
    "numbers": "a regressor",
    "clusters": "a clustering of {} clusters",
    None: "a model that predicts nothing",
}


def make_report(
    asking: Asking,
    models: Models,
    name: str,
    data: str,
    label: str | Sequence[str] | None,
    by: str | Sequence[str] | None,
    told: Told,
) -> Report:
    """The report of a model on the rows of a query or a table.

    Args:
        told: is told what is being done.

    Raises:
        MissingDependencyError: the extra `report` is not installed.
        SqlmlError, duckdb.Error: as `subject`, or while the rows are scored.
    """
    _check_libraries()
    with subject(asking, models, name, data, label, by, told) as found:
        sections = []
        for doing, section in SECTIONS:
            told(doing)
            sections.append(section(found))
        told("drawing the page")
        return _page(found, sections)


def _check_libraries() -> None:
    for library in _LIBRARIES:
        try:
            import_module(library)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"a report needs {error.name}, which is not installed: pip install 'sqlml[report]'"
            ) from None


def _page(found: Subject, sections: Sequence[Section]) -> Report:
    model = found.model
    title = f"{clipped(model.name, 80)}, version {model.version}"
    classes = len(model.program.labels[0]) if model.program.labels else 0
    about = f"{clipped(model.origin.source.rpartition('.')[2], 80)}, "
    if found.facts is not None:
        about = f"{clipped(found.facts.model_type)} by {clipped(found.facts.library)}, "
    about += _TASKS[found.task].format(classes)
    if found.targets > 1:
        about += f" for each of {found.targets:,} targets"
    about += f", on {found.count:,} rows."
    if model.comment:
        about += f" {clipped(model.comment, 300)}"
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    made = (
        f"Made by sqlml in DuckDB {duckdb.__version__} on {now}. It holds aggregates, and loads "
        "nothing from elsewhere."
    )
    return Report(title, rendered(title, about, made, sections))
