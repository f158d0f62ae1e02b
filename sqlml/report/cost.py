"""`cost`: how a query with the model runs, and what that costs."""

from __future__ import annotations

from sqlml.planner.plan.text import duration
from sqlml.report.parts import Note, Pairs, Part, Section, code
from sqlml.report.scores import call_of
from sqlml.report.shown import number
from sqlml.report.subject import Subject

_MANY = 100_000
"""Rows beside which it does not count how long a model takes to be loaded."""


def cost(subject: Subject) -> Section:
    """The plan of a prediction over the data, and the time that scoring took."""
    call = call_of(subject.model, subject.reference)
    found = subject.asking.plan(f"SELECT {call} FROM {subject.source}")
    parts: list[Part] = []
    calls = [] if found is None else [c.to_dict() for c in found.calls]
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
        text = f"{scores.count:,} rows in {duration(scores.seconds)}"
        if scores.count >= _MANY:
            text += f", {number(scores.count / max(scores.seconds, 1e-9))} rows per second"
        pairs.append(("Measured here", f"{text}, with loading the model, for all of its outputs"))
    for estimate in planned["estimates"][:3]:
        pairs.append(
            (
                f"Estimated, {estimate['way']}",
                f"{duration(estimate['loading'] + estimate['seconds'])} for "
                f"{estimate['rows']:,} rows on one thread",
            )
        )
    parts.append(Pairs(tuple((name, str(text)) for name, text in pairs if text)))
    parts.append(code("The plan, as EXPLAIN shows it", str(found)))
    return Section("cost", "Cost and plan", "", tuple(parts))
