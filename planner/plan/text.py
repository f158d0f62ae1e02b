"""`plan_text`: a Plan as EXPLAIN prints it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlml import html
from sqlml.catalog.row_expressions import shown
from sqlml.catalog.small_models import FilterFacts
from sqlml.ir.program import Program
from sqlml.passes.order import MODEL_PASSES, run
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.planner.choice.choose import Choice, choose
from sqlml.planner.choice.cost import BATCH
from sqlml.planner.program.function_names import Output, Part
from sqlml.planner.program.prepare import chosen, prepare

if TYPE_CHECKING:
    from sqlml.planner.plan.plan import Plan, PlannedCall


# `Analysis`: what EXPLAIN ANALYZE measured while a query ran.


@dataclass(frozen=True, slots=True)
class Measured:
    """What one engine function did: `batches` of rows, and seconds on all threads together.

    `again` are the rows among `rows` whose results were remembered.
    """

    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    again: int = 0


@dataclass(frozen=True, slots=True)
class Analysis:
    """A query that ran once: the whole in seconds, and its functions by name.

    `inside` are those of the seconds while one thread at least was in a function. A function that
    is missing was not measured.
    """

    seconds: float
    inside: float
    functions: Mapping[str, Measured]


_LINE = 96
"""Width of EXPLAIN's lines."""

_TITLE = len("columns not read")
"""Width of the titles."""

_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))

_TIED = "\N{NO-BREAK SPACE}"
"""Between a column and its type, so that they stay on one line."""


def plan_text(plan: Plan) -> str:
    """A block for each call, and what concerns the whole statement."""
    blocks = []
    for number in range(len(plan.calls)):
        count = len(plan.calls)
        title = "SQLML" if count == 1 else f"SQLML {number + 1}/{count}"
        blocks += [title, *_lines(call_lines(plan, number))]
    return "\n".join([*blocks, *_lines(statement_lines(plan))])


def call_lines(plan: Plan, place: int) -> list[tuple[str, str]]:
    """What EXPLAIN says of one call: titles and texts."""
    return [*_block(plan.calls[place]), *_measured(plan, place)]


def statement_lines(plan: Plan) -> list[tuple[str, str]]:
    """What EXPLAIN says of the whole statement."""
    ends = [
        ("join left out", f"{join}: its key is unique, and nothing reads it")
        for join in plan.dropped_joins
    ]
    if plan.analysis is not None:
        ends.append(("whole query", _whole(plan.analysis)))
    return ends


def _lines(parts: Sequence[tuple[str, str]]) -> list[str]:
    return [
        textwrap.fill(
            text,
            _LINE,
            initial_indent=f"  {title:<{_TITLE}}  ",
            subsequent_indent=" " * (_TITLE + 4),
            break_long_words=False,
            break_on_hyphens=False,
        ).replace(_TIED, " ")
        for title, text in parts
    ]


def _block(call: PlannedCall) -> list[tuple[str, str]]:
    reads = [f"{name} {bound.type}" for name, bound in call.reads]
    strategy = f", strategy {call.choice.strategy}" if call.has_trees else ""
    folded = [f"{name} = {'NULL' if v is None else repr(v)}" for name, v in call.constants.items()]
    made = [("made in SQL", _listed([f"{name} = {shown(sql)}" for name, sql in call.made]))]
    others = [("other columns", f"{_listed(call.others)}: no features of the model")]
    nulls = [("NULL where missing", f"{_listed(call.null_where)}: as option on_null says")]
    unknown = f"{_listed(call.unknown_as_null)}: as option on_unknown says"
    return [
        ("call", call.written),
        _model(call),
        ("output", call.output),
        ("columns read", _listed(reads) or "none"),
        ("columns not read", _unread(call) or "none"),
        *(made if call.made else []),
        *(others if call.others else []),
        *(nulls if call.null_where else []),
        *([("unknown is NULL", unknown)] if call.unknown_as_null else []),
        *([("in the model", f"{_listed(folded)}: literal arguments")] if folded else []),
        ("in SQL", _in_sql(call)),
        (
            "in UDF",
            f"{call.spec.backend} backend{strategy}, device {call.spec.device}, "
            + (_handed_over(call) if not call.named else _together(call))
            if call.calls_function
            else "nothing",
        ),
        *([("route", str(call.route))] if call.calls_function else []),
        ("rows", _rows(call)),
        ("chosen by", call.choice.reason),
        *_estimates(call.choice),
        *_shared(call),
        *_approximate(call),
        ("function", _functions(call)),
    ]


def _model(call: PlannedCall) -> tuple[str, str]:
    """The model, or those that the rows name."""
    if not call.named:
        return "model", f"{call.model} (version {call.version})"
    count = len(call.models)
    return "models", f"{count:,} that the rows name: {_listed(call.models)}"


def _together(call: PlannedCall) -> str:
    """How the rows of each model come together."""
    sorts = call.shared is not None and call.shared.in_from
    return "the rows of each model together" + (", sorted by it in FROM" if sorts else "")


def _functions(call: PlannedCall) -> str:
    if call.named:
        return _listed([function.name for function in call.named])
    return call.spec.name if call.calls_function else "none"


def _handed_over(call: PlannedCall) -> str:
    """The arguments of the function."""
    kind = {"f32": "FLOAT", "f64": "DOUBLE"}[call.spec.layout]
    numbers, texts = call.fed - len(call.texts), len(call.texts)
    if not call.spec.by_column:
        listed = f", with the texts of {_listed(call.texts)}" if texts else ""
        return f"packed as {kind}[{max(1, numbers)}]{listed}"
    parts = [f"{n} {t}" for n, t in ((numbers, kind), (texts, "VARCHAR")) if n]
    return f"{' and '.join(parts) or 'no'} column{'s' * (numbers + texts != 1)}"


def _unread(call: PlannedCall) -> str:
    """The features that are not read, by what dropped them."""
    groups: dict[str | None, list[str]] = {}
    for name, why in call.dropped.items():
        groups.setdefault(why, []).append(name)
    return "; ".join(
        _listed(names) + (f" ({why})" if why is not None else "") for why, names in groups.items()
    )


def _shared(call: PlannedCall) -> list[tuple[str, str]]:
    """What the call shares with others on the same row."""
    if call.shared is None or call.shared.calls == 1:
        return []
    parts = ", ".join(map(str, call.shared.parts))
    text = f"one evaluation of {parts} for {call.shared.calls} calls"
    if call.shared.again:
        text += "; rows that a filter passes on are remembered, and not scored again"
    if call.shared.in_from:
        text += ", made in FROM for WHERE and the other clauses to read"
    return [("shared", text)]


def _approximate(call: PlannedCall) -> list[tuple[str, str]]:
    """The small model that is asked first, or why there is none."""
    if call.exact:
        return [("approximate", f"no: {call.exact}")]
    if call.small is not None and call.filtered is not None:
        return _of_filter(call, call.small, call.filtered)
    if call.small is None or call.cascade is None:
        return []
    facts, reads = call.cascade, [f"{name} {bound.type}" for name, bound in call.small.reads]
    left = [group.name for group in facts.groups if group.inside and not group.chosen]
    where = call.small.spec.name if call.small.calls_function else "in SQL"
    return [
        ("approximate", f"a small model first, {where}, which reads {_listed(reads)}"),
        (
            "only if unsure",
            f"{_listed([*call.idle, *left])}, for {1 - facts.confident:.1%} of the rows",
        ),
        (
            "guarantee",
            f"accuracy falls by at most {facts.accuracy_loss:g} (97.5% sure); {facts.loss:.4f} "
            f"was measured on {facts.held_out:,} rows held out",
        ),
        ("expected gain", f"{facts.gain:.2f} times as fast"),
    ]


def _of_filter(call: PlannedCall, small: PlannedCall, facts: FilterFacts) -> list[tuple[str, str]]:
    """What a top-K filter does."""
    reads = [f"{name} {bound.type}" for name, bound in small.reads]
    where = small.spec.name if small.calls_function else "in SQL"
    left = [group.name for group in facts.groups if group.inside and not group.chosen]
    share = facts.ratio * facts.k / facts.rows
    return [
        ("approximate", f"a small model ranks all rows, {where}, which reads {_listed(reads)}"),
        (
            "only of the best",
            f"{_listed([*call.idle, *left])}, for {math.ceil(facts.ratio * facts.k)} rows, or "
            f"{share:.2%} of them if that is more",
        ),
        (
            "guarantee",
            f"of the best {facts.k} rows at least {facts.precision:.0%} are right in 95% of "
            f"queries (97.5% sure), over {facts.rows:,} rows",
        ),
        ("expected gain", f"{facts.gain:.2f} times as fast"),
    ]


def _in_sql(call: PlannedCall) -> str:
    if call.choice.backend == "sql":
        some = ", for rows without NULL, NaN and infinities" if call.choice.guarded else ""
        return f"the whole model{some}"
    return _listed([f"codes of {name}" for name in call.encoded]) or "nothing"


def _rows(call: PlannedCall) -> str:
    """How many, and how many at a time: devices too get the batches that the engine makes."""
    rows = call.rows
    if rows.estimate is None:
        text = f"{rows.count:,} assumed, since the engine estimates none"
    else:
        text = f"{rows.count:,} estimated by the engine"
    if rows.chosen_by and rows.rounded != rows.count:
        text += f", taken as {rows.rounded:,}"
    return f"{text}; {BATCH:,} at a time"


def _estimates(choice: Choice) -> list[tuple[str, str]]:
    """What the ways of running were estimated to take, the chosen one first."""
    if not choice.estimates:
        return []
    times = [f"{e.name} {duration(e.start + e.seconds)}" for e in choice.estimates]
    rows = "1 row" if choice.rows == 1 else f"{choice.rows:,} rows"
    shown = [("estimate", f"{times[0]} for {rows} on one thread")]
    return shown + ([("runners-up", _listed(times[1:]))] if times[1:] else [])


def _measured(plan: Plan, place: int) -> list[tuple[str, str]]:
    """What the function of a call did; shown only for the first of its calls."""
    name = plan.calls[place].spec.name
    measured = None if plan.analysis is None else plan.analysis.functions.get(name)
    if measured is None or not plan.calls[place].calls_function:
        return []
    first, *rest = plan.functions[name]
    if place != first:
        return [("measured", f"with call {first + 1}, whose function it shares")]
    text = _function(measured, plan.calls[place].choice.backend == "sql")
    if rest:
        text += f", for calls {', '.join(str(k + 1) for k in (first, *rest))}"
    return [("measured", text), *_confident(plan, plan.calls[place], measured)]


def _confident(plan: Plan, call: PlannedCall, full: Measured) -> list[tuple[str, str]]:
    """The share of rows of which the small model was sure."""
    if call.small is None or call.cascade is None or plan.analysis is None:
        return []
    small = plan.analysis.functions.get(call.small.spec.name)
    if small is None or not small.rows:
        return []
    share = 1 - full.rows / small.rows
    return [
        (
            "confident",
            f"{share:.1%} of {_count(small.rows, 'row')}; {call.cascade.confident:.1%} expected",
        )
    ]


def _function(measured: Measured, is_sql: bool) -> str:
    if not measured.batches:
        return "no row went to the function" + (": all were scored in SQL" if is_sql else "")
    went = " went to the function" if is_sql else ""
    each = duration(measured.seconds / max(1, measured.rows))
    again = f", {measured.again:,} of them remembered" if measured.again else ""
    return (
        f"{_count(measured.rows, 'row')}{went} in {_count(measured.batches, 'batch')}{again}, "
        f"{duration(measured.seconds)} in the function on all threads ({each} a row)"
    )


def _whole(analysis: Analysis) -> str:
    share = analysis.inside / analysis.seconds if analysis.seconds else 0.0
    text = duration(analysis.seconds)
    return f"{text}, {share:.0%} of it in functions of sqlml" if analysis.functions else text


def _count(count: int, what: str) -> str:
    """
    >>> _count(1, "row"), _count(1200, "batch")
    ('1 row', '1,200 batches')
    """
    plural = {"row": "rows", "batch": "batches"}[what]
    return f"{count:,} {what if count == 1 else plural}"


def duration(seconds: float) -> str:
    """
    >>> [duration(s) for s in (3.12e-7, 0.0000042, 0.0123, 2.5, 2100.0, float("inf"))]
    ['312 ns', '4.2 us', '12 ms', '2.5 s', '2,100 s', 'not feasible']
    """
    if seconds == float("inf"):
        return "not feasible"
    unit, size = next(((u, s) for u, s in _UNITS if seconds >= s), _UNITS[-1])
    count = seconds / size
    return f"{count:,.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"


def _listed(items: Sequence[str], most: int = 24) -> str:
    shown = ", ".join(item.replace(" ", _TIED) for item in items[:most])
    return shown + (f", .. {len(items) - most} more" if len(items) > most else "")


# `plan_html`: a Plan as a notebook draws it: the flow of rows through each call, and its lines.


_FEW = 6
"""Columns that a box names."""


def plan_html(plan: Plan) -> str:
    """The flow of each call above its lines, and what concerns the whole statement."""
    made = []
    for place, call in enumerate(plan.calls):
        lines = call_lines(plan, place)
        made.append(html.flow(_boxes(call, dict(lines))))
        made.append(html.table(("", ""), lines))
    ends = statement_lines(plan)
    return "".join(made + ([html.table(("", ""), ends)] if ends else []))


def _boxes(call: PlannedCall, lines: Mapping[str, str]) -> list[tuple[str, str]]:
    names = [name for name, _ in call.reads]
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    left = len(call.unread)
    read = f"{', '.join(names[:_FEW])}{more}" + (f"; {left} not read" if left else "")
    boxes = [("columns", read or "none")]
    boxes.append(("in SQL", lines["in SQL"]))
    if call.calls_function:
        boxes.append(("in a function", lines["in UDF"]))
    return [*boxes, (call.written, f"{call.output}: {call.type}")]


# `explain_model`: what EXPLAIN MODEL tells of a model, without a query.


def explain_model(program: Program, options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Titles and texts: the Program as it is stored, and for each of its outputs the passes that
    change it, what they make of it, what is read, and the ways to run it with their estimated cost.

    Args:
        options: those of the model, which the choice follows.

    Raises:
        ConfigError, BackendError: the options leave no way to run it.
    """
    rows = [("program", str(program))]
    for output in (o for group in OUTPUTS_OF.values() for o in group if o in program.outputs):
        prepared = prepare(program, output)
        rows += [
            (f"{output}: passes", _passes(program, output)),
            (f"{output}: program", str(prepared.program)),
            (f"{output}: reads", ", ".join(prepared.program.inputs) or "nothing"),
            (f"{output}: strategies", _strategies(prepared.split.core, options)),
        ]
    return rows


def _passes(program: Program, output: Output) -> str:
    """A line for each pass that changes something."""
    made = chosen(program, (Part(output),))
    lines = []
    for apply in MODEL_PASSES:
        after = run(made, passes=(apply,))
        if after.hash != made.hash:
            lines.append(f"{apply.__name__}: {_size(made)} -> {_size(after)}")
        made = after
    return "\n".join(lines) or "none changes it"


def _size(program: Program) -> str:
    return f"{len(program.nodes)} nodes of {len(program.inputs)} columns"


def _strategies(core: Program, options: Mapping[str, Any]) -> str:
    """The choice, and what was weighed against it."""
    choice = choose(core, options)
    if not choice.estimates:
        return f"{choice.backend}/{choice.strategy} on {choice.device}: {choice.reason}"
    times = [f"{e.name}: {duration(e.start + e.seconds)}" for e in choice.estimates]
    return "\n".join([f"{times[0]} for {choice.rows:,} rows on one thread", *times[1:]])
