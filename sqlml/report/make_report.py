"""Make a report: collect the sections about a model and the data, and render the page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import duckdb

from sqlml.errors import MissingDependencyError
from sqlml.planner.plan.explain_plan import format_duration
from sqlml.report.about_model import describe_data, describe_model
from sqlml.report.importance import measure_drift, measure_importance
from sqlml.report.parts import Note, Pairs, Section, clip, format_number, make_code
from sqlml.report.predictions import compare_groups, describe_predictions
from sqlml.report.quality import measure_quality
from sqlml.report.subject import QueryRunner, Subject, Tables, build_call_sql, load_subject
from sqlml.report.uncertainty import measure_uncertainty
from sqlml.statements.connection_models import Models

_FRAME_STYLE = "width:100%;height:80vh;min-height:480px;border:1px solid;border-radius:4px"

_HEAD_IN_FRAME = '<head><base href="about:srcdoc">'
"""The start of the page. Links then lead to sections in the frame instead of the notebook."""


@dataclass(frozen=True, slots=True)
class Report:
    """A self-contained HTML page, returned by `Session.report`.

    Attributes:
        title: the model and its version.
        html: the page.
    """

    title: str
    html: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, and replace an existing file.

        Raises:
            OSError: the file cannot be written.
        """
        file = Path(path)
        file.write_text(self.html, encoding="utf-8", newline="\n")
        return file

    def _repr_html_(self) -> str:
        """Return the page in a frame that cannot run code or access the notebook."""
        page = self.html.replace("<head>", _HEAD_IN_FRAME, 1)
        return (
            f'<iframe title="{escape(self.title)}" sandbox="" style="{_FRAME_STYLE}" '
            f'srcdoc="{escape(page)}"></iframe>'
        )


_MIN_ROWS_FOR_RATE = 100_000
"""The minimum number of rows to show a rate. For fewer rows, loading would distort the rate."""


def describe_cost(subject: Subject) -> Section:
    """Make the section about the plan of a prediction and the time of scoring."""
    prediction = build_call_sql(subject.model, subject.reference)
    plan = subject.tables.session.plan(f"SELECT {prediction} FROM {subject.source}")
    calls = [] if plan is None else [planned_call.to_dict() for planned_call in plan.calls]
    version = (subject.model.name, subject.model.version)
    # The query of the data may call other models.
    calls = [call for call in calls if (call["model"], call["version"]) == version]
    if not calls:
        return Section("cost", "Cost and plan", "", (Note("sqlml makes no plan for this query."),))
    last_call = calls[-1]
    pairs = [
        ("Runs on", f"{last_call['backend']}, {last_call['strategy']}"),
        ("Why", last_call["reason"]),
        ("Rows reach it", last_call["route"]),
    ]
    scores = subject.scores
    if scores is not None and scores.count:
        measured_text = f"{scores.count:,} rows in {format_duration(scores.seconds)}"
        if scores.count >= _MIN_ROWS_FOR_RATE:
            rate = scores.count / max(scores.seconds, 1e-9)
            measured_text += f", {format_number(rate)} rows per second"
        pairs.append(("Measured here", f"{measured_text}, including loading, for all outputs"))
    for estimate in last_call["estimates"][:3]:
        duration = format_duration(estimate["loading"] + estimate["seconds"])
        rows_text = f"for {estimate['rows']:,} rows on one thread"
        pairs.append((f"Estimated, {estimate['way']}", f"{duration} {rows_text}"))
    properties = Pairs(tuple((name, str(text)) for name, text in pairs if text))
    plan_text = make_code("The plan, as EXPLAIN shows it", str(plan))
    return Section("cost", "Cost and plan", "", (properties, plan_text))


SECTIONS: tuple[tuple[str, Callable[[Subject], Section | None]], ...] = (
    ("measuring the quality", measure_quality),
    ("measuring intervals and sets", measure_uncertainty),
    ("counting predictions", describe_predictions),
    ("comparing groups", compare_groups),
    ("explaining a sample", measure_importance),
    ("comparing with the training", measure_drift),
    ("describing the model", describe_model),
    ("describing the data", describe_data),
    ("planning", describe_cost),
)
"""The progress message and the function of each section, in page order. None is left out."""

_TASKS = {
    "two classes": "a classifier of two classes",
    "classes": "a classifier of {} classes",
    "numbers": "a regressor",
    "clusters": "a clustering of {} clusters",
    None: "a model that predicts nothing",
}


def make_report(
    session: QueryRunner,
    models: Models,
    name: str,
    data: str,
    label: str | Sequence[str] | None,
    by: str | Sequence[str] | None,
    report_progress: Callable[[str], None],
) -> Report:
    """Make a report about model `name` on the rows of `data`, a query or the name of a table.

    `label` names the columns with the true values, and `by` names the columns with the groups.
    """
    for library in ("altair", "jinja2", "vl_convert"):
        try:
            import_module(library)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"a report needs {error.name}, which is not installed: pip install 'sqlml[report]'"
            ) from None
    with closing(Tables(session)) as tables:
        subject = load_subject(tables, models, name, data, label, by, report_progress)
        sections: list[Section] = []
        for progress_message, make_section in SECTIONS:
            report_progress(progress_message)
            section = make_section(subject)
            sections += [] if section is None else [section]
        report_progress("drawing the page")
        title = f"{clip(subject.model.name, 80)}, version {subject.model.version}"
        return Report(title, _render(title, _summarize(subject), sections))


def _summarize(subject: Subject) -> str:
    model, training = subject.model, subject.training_facts
    num_classes = len(model.program.labels[0]) if model.program.labels else 0
    summary = clip(model.origin.source.rpartition(".")[2], 80)
    if training is not None:
        summary = f"{clip(training.model_type)} by {clip(training.library)}"
    summary += f", {_TASKS[subject.task].format(num_classes)}"
    if subject.targets > 1:
        summary += f" for each of {subject.targets:,} targets"
    summary += f", on {subject.count:,} rows."
    return f"{summary} {clip(model.comment, 300)}" if model.comment else summary


def _render(title: str, summary: str, sections: Sequence[Section]) -> str:
    import jinja2

    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    folder = files("sqlml.report")
    file_names = ("page.html.j2", "page.css")
    templates = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in file_names}
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(templates),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("page.html.j2").render(
        title=title,
        about=summary,
        provenance=f"Made by sqlml in DuckDB {duckdb.__version__} on {now}. It contains "
        "only aggregates, and loads nothing from other places.",
        sections=sections,
        tiles=[tile for section in sections for tile in section.tiles],
    )
