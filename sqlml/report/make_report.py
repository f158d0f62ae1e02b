"""Make a report: from a model and a query to a page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb

from sqlml.errors import MissingDependencyError
from sqlml.planner.plan.explain_plan import format_duration
from sqlml.report.about_model import about_data, about_model
from sqlml.report.contributions import drift, groups, importance
from sqlml.report.parts import Note, Pairs, Part, Section, Tile, clipped, code, number
from sqlml.report.predictions import predictions
from sqlml.report.quality import quality
from sqlml.report.scores import Asking, call_of
from sqlml.report.subject import Subject, Told, subject
from sqlml.statements.models import Models


def rendered(title: str, about: str, made: str, sections: Sequence[Section]) -> str:
    """The page.

    Args:
        about: a line below the title. made: when and by what it was made, at the end.
    """
    import jinja2

    here = files("sqlml.report")
    texts = {
        name: here.joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html.j2", "page.css")
    }
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(texts),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    tiles: list[Tile] = [tile for section in sections for tile in section.tiles]
    values: dict[str, Any] = {
        "title": title,
        "about": about,
        "made": made,
        "sections": sections,
        "tiles": tiles,
    }
    return environment.get_template("page.html.j2").render(values)


_FRAME = "width:100%;height:80vh;min-height:480px;border:1px solid;border-radius:4px"

_HEAD_IN_FRAME = '<head><base href="about:srcdoc">'
"""Without this, links of the page would lead to the notebook's sections."""


@dataclass(frozen=True, slots=True)
class Report:
    """One self-contained page of HTML, as `Session.report` makes it.

    Attributes:
        title: the model and its version.
        html: the page.
    """

    title: str
    html: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, replacing an existing one.

        Raises:
            OSError: it cannot be written.
        """
        written = Path(path)
        written.write_text(self.html, encoding="utf-8", newline="\n")
        return written

    def _repr_html_(self) -> str:
        """Return the page in an isolated frame, where it can neither run code nor reach the
        notebook.
        """
        page = self.html.replace("<head>", _HEAD_IN_FRAME, 1)
        return (
            f'<iframe title="{escape(self.title)}" sandbox="" style="{_FRAME}" '
            f'srcdoc="{escape(page)}"></iframe>'
        )


_MANY = 100_000
"""Number of rows from which the time to load a model is negligible."""


def cost(subject: Subject) -> Section:
    """Show the plan of a prediction over the data, and the time that scoring took."""
    call = call_of(subject.model, subject.reference)
    plan = subject.asking.plan(f"SELECT {call} FROM {subject.source}")
    parts: list[Part] = []
    calls = [] if plan is None else [c.to_dict() for c in plan.calls]
    named = (subject.model.name, subject.model.version)
    mine = [c for c in calls if (c["model"], c["version"]) == named]  # the data may call others
    if not mine:
        return Section("cost", "Cost and plan", "", (Note("No plan is made of this query."),))
    planned = mine[-1]
    pairs = [
        ("Runs on", f"{planned['backend']}, {planned['strategy']}"),
        ("Why", planned["reason"]),
        ("Rows reach it", planned["route"]),
    ]
    scores = subject.scores
    if scores is not None and scores.count:
        text = f"{scores.count:,} rows in {format_duration(scores.seconds)}"
        if scores.count >= _MANY:
            text += f", {number(scores.count / max(scores.seconds, 1e-9))} rows per second"
        pairs.append(("Measured here", f"{text}, with loading the model, for all of its outputs"))
    for estimate in planned["estimates"][:3]:
        pairs.append(
            (
                f"Estimated, {estimate['way']}",
                f"{format_duration(estimate['loading'] + estimate['seconds'])} for "
                f"{estimate['rows']:,} rows on one thread",
            )
        )
    parts.append(Pairs(tuple((name, str(text)) for name, text in pairs if text)))
    parts.append(code("The plan, as EXPLAIN shows it", str(plan)))
    return Section("cost", "Cost and plan", "", tuple(parts))


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
"""Progress text and section function of each part, in the order of the page."""

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
    with subject(asking, models, name, data, label, by, told) as subject_of_report:
        sections = []
        for doing, section in SECTIONS:
            told(doing)
            sections.append(section(subject_of_report))
        told("drawing the page")
        return _page(subject_of_report, sections)


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
    provenance = (
        f"Made by sqlml in DuckDB {duckdb.__version__} on {now}. It holds aggregates, and loads "
        "nothing from elsewhere."
    )
    return Report(title, rendered(title, about, provenance, sections))
