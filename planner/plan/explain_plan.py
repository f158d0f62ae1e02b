"""The output of EXPLAIN: a plan as text, as HTML for notebooks, and the description of a model."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlml import html
from sqlml.catalog.row_expressions import shorten_names
from sqlml.catalog.small_models import FilterFacts
from sqlml.ir.program import Program
from sqlml.passes import MODEL_PASSES, run
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.planner.program.choose import Choice, choose
from sqlml.planner.program.cost import BATCH
from sqlml.planner.program.function_names import Output, Part
from sqlml.planner.program.prepare import prepare, select_parts

if TYPE_CHECKING:
    from sqlml.planner.plan.plan import Plan, PlannedCall


@dataclass(frozen=True, slots=True)
class FunctionMeasurement:
    """The measurements of one engine function, over all threads.

    Attributes:
        again: the number of `rows` whose results were remembered.
        seconds: the total time of all threads.
    """

    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    again: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurements of one run of a query.

    Attributes:
        seconds: the time of the query.
        function_seconds: the time during which at least one thread was in a function.
        functions: the functions by name, as far as they were measured.
    """

    seconds: float
    function_seconds: float
    functions: Mapping[str, FunctionMeasurement]


_LINE_WIDTH = 96
"""The width of EXPLAIN's lines."""

_TITLE_WIDTH = len("columns not read")
"""The width of the titles."""

_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))

_TIED = "\N{NO-BREAK SPACE}"
"""The character between a column and its type, which keeps them on one line."""


def format_plan(plan: Plan) -> str:
    """Return a block of text for each call, and one for the whole statement."""
    blocks = []
    for number in range(len(plan.calls)):
        count = len(plan.calls)
        title = "SQLML" if count == 1 else f"SQLML {number + 1}/{count}"
        blocks += [title, *_format_lines(describe_call(plan, number))]
    return "\n".join([*blocks, *_format_lines(describe_statement(plan))])


def describe_call(plan: Plan, index: int) -> list[tuple[str, str]]:
    """Return the titles and texts of one call."""
    return [*_describe_plan_of_call(plan.calls[index]), *_describe_measurement(plan, index)]


def describe_statement(plan: Plan) -> list[tuple[str, str]]:
    """Return the titles and texts of the whole statement."""
    lines = [
        ("join left out", f"{join}: its key is unique, and nothing reads it")
        for join in plan.dropped_joins
    ]
    if plan.analysis is not None:
        lines.append(("whole query", _describe_total(plan.analysis)))
    return lines


def _format_lines(parts: Sequence[tuple[str, str]]) -> list[str]:
    return [
        textwrap.fill(
            text,
            _LINE_WIDTH,
            initial_indent=f"  {title:<{_TITLE_WIDTH}}  ",
            subsequent_indent=" " * (_TITLE_WIDTH + 4),
            break_long_words=False,
            break_on_hyphens=False,
        ).replace(_TIED, " ")
        for title, text in parts
    ]


def _describe_plan_of_call(call: PlannedCall) -> list[tuple[str, str]]:
    reads = [f"{name} {bound.type}" for name, bound in call.reads]
    strategy = f", strategy {call.choice.strategy}" if call.has_trees else ""
    folded = [f"{name} = {'NULL' if v is None else repr(v)}" for name, v in call.constants.items()]
    transformed = [
        (
            "made in SQL",
            _join_items([f"{name} = {shorten_names(sql)}" for name, sql in call.transformed]),
        )
    ]
    others = [("other columns", f"{_join_items(call.other_columns)}: no features of the model")]
    nulls = [("NULL where missing", f"{_join_items(call.null_where)}: as option on_null says")]
    unknown = f"{_join_items(call.unknown_as_null)}: as option on_unknown says"
    return [
        ("call", call.call_text),
        _describe_model(call),
        ("output", call.output),
        ("columns read", _join_items(reads) or "none"),
        ("columns not read", _describe_unread(call) or "none"),
        *(transformed if call.transformed else []),
        *(others if call.other_columns else []),
        *(nulls if call.null_where else []),
        *([("unknown is NULL", unknown)] if call.unknown_as_null else []),
        *([("in the model", f"{_join_items(folded)}: literal arguments")] if folded else []),
        ("in SQL", _describe_sql_part(call)),
        (
            "in UDF",
            f"{call.spec.backend} backend{strategy}, device {call.spec.device}, "
            + (
                _describe_arguments(call)
                if not call.functions_of_models
                else _describe_sorting(call)
            )
            if call.calls_function
            else "nothing",
        ),
        *([("route", str(call.route))] if call.calls_function else []),
        ("rows", _describe_rows(call)),
        ("chosen by", call.choice.reason),
        *_describe_estimates(call.choice),
        *_describe_sharing(call),
        *_describe_approximation(call),
        ("function", _list_functions(call)),
    ]


def _describe_model(call: PlannedCall) -> tuple[str, str]:
    if not call.functions_of_models:
        return "model", f"{call.model} (version {call.version})"
    count = len(call.models)
    return "models", f"{count:,} that the rows name: {_join_items(call.models)}"


def _describe_sorting(call: PlannedCall) -> str:
    """Describe how the rows of each model are collected."""
    sorts = call.shared is not None and call.shared.in_from
    return "the rows of each model together" + (", sorted by it in FROM" if sorts else "")


def _list_functions(call: PlannedCall) -> str:
    if call.functions_of_models:
        return _join_items([function.name for function in call.functions_of_models])
    return call.spec.name if call.calls_function else "none"


def _describe_arguments(call: PlannedCall) -> str:
    kind = {"f32": "FLOAT", "f64": "DOUBLE"}[call.spec.layout]
    numbers, texts = call.feature_count - len(call.texts), len(call.texts)
    if not call.spec.by_column:
        listed = f", with the texts of {_join_items(call.texts)}" if texts else ""
        return f"packed as {kind}[{max(1, numbers)}]{listed}"
    parts = [f"{n} {t}" for n, t in ((numbers, kind), (texts, "VARCHAR")) if n]
    return f"{' and '.join(parts) or 'no'} column{'s' * (numbers + texts != 1)}"


def _describe_unread(call: PlannedCall) -> str:
    """List the unread features, grouped by the reason."""
    groups: dict[str | None, list[str]] = {}
    for name, why in call.dropped_by.items():
        groups.setdefault(why, []).append(name)
    return "; ".join(
        _join_items(names) + (f" ({why})" if why is not None else "")
        for why, names in groups.items()
    )


def _describe_sharing(call: PlannedCall) -> list[tuple[str, str]]:
    """Describe the parts that the call shares with others on the same row."""
    if call.shared is None or call.shared.calls == 1:
        return []
    parts = ", ".join(map(str, call.shared.parts))
    text = f"one evaluation of {parts} for {call.shared.calls} calls"
    if call.shared.again:
        text += "; rows that a filter passes on are remembered, and not scored again"
    if call.shared.in_from:
        text += ", made in FROM for WHERE and the other clauses to read"
    return [("shared", text)]


def _describe_approximation(call: PlannedCall) -> list[tuple[str, str]]:
    """Describe the small model that runs first, or the reason why there is none."""
    if call.exact:
        return [("approximate", f"no: {call.exact}")]
    if call.small is not None and call.filtered is not None:
        return _describe_filter(call, call.small, call.filtered)
    if call.small is None or call.cascade is None:
        return []
    facts, reads = call.cascade, [f"{name} {bound.type}" for name, bound in call.small.reads]
    unread_groups = [group.name for group in facts.groups if group.inside and not group.chosen]
    where = call.small.spec.name if call.small.calls_function else "in SQL"
    return [
        ("approximate", f"a small model first, {where}, which reads {_join_items(reads)}"),
        (
            "only if unsure",
            f"{_join_items([*call.idle, *unread_groups])}, "
            f"for {1 - facts.confident:.1%} of the rows",
        ),
        (
            "guarantee",
            f"accuracy falls by at most {facts.accuracy_loss:g} (97.5% sure); {facts.loss:.4f} "
            f"was measured on {facts.held_out:,} rows held out",
        ),
        ("expected gain", f"{facts.gain:.2f} times as fast"),
    ]


def _describe_filter(
    call: PlannedCall, small: PlannedCall, facts: FilterFacts
) -> list[tuple[str, str]]:
    """Describe a top-K filter."""
    reads = [f"{name} {bound.type}" for name, bound in small.reads]
    where = small.spec.name if small.calls_function else "in SQL"
    unread_groups = [group.name for group in facts.groups if group.inside and not group.chosen]
    share = facts.ratio * facts.k / facts.rows
    return [
        ("approximate", f"a small model ranks all rows, {where}, which reads {_join_items(reads)}"),
        (
            "only of the best",
            f"{_join_items([*call.idle, *unread_groups])}, "
            f"for {math.ceil(facts.ratio * facts.k)} rows, or {share:.2%} of them if that is more",
        ),
        (
            "guarantee",
            f"of the best {facts.k} rows at least {facts.precision:.0%} are right in 95% of "
            f"queries (97.5% sure), over {facts.rows:,} rows",
        ),
        ("expected gain", f"{facts.gain:.2f} times as fast"),
    ]


def _describe_sql_part(call: PlannedCall) -> str:
    if call.choice.backend == "sql":
        some = ", for rows without NULL, NaN and infinities" if call.choice.guarded else ""
        return f"the whole model{some}"
    return _join_items([f"codes of {name}" for name in call.encoded]) or "nothing"


def _describe_rows(call: PlannedCall) -> str:
    """Describe the number of rows, and that of a batch, which is the engine's on devices, too."""
    rows = call.rows
    if rows.estimate is None:
        text = f"{rows.count:,} assumed, since the engine estimates none"
    else:
        text = f"{rows.count:,} estimated by the engine"
    if rows.chosen_by and rows.rounded != rows.count:
        text += f", taken as {rows.rounded:,}"
    return f"{text}; {BATCH:,} at a time"


def _describe_estimates(choice: Choice) -> list[tuple[str, str]]:
    """List the estimated times of the ways to run the model, with the chosen one first."""
    if not choice.estimates:
        return []
    times = [f"{e.name} {format_duration(e.start + e.seconds)}" for e in choice.estimates]
    rows = "1 row" if choice.rows == 1 else f"{choice.rows:,} rows"
    lines = [("estimate", f"{times[0]} for {rows} on one thread")]
    return lines + ([("runners-up", _join_items(times[1:]))] if times[1:] else [])


def _describe_measurement(plan: Plan, index: int) -> list[tuple[str, str]]:
    """Describe the measurements of a call's function, for the first of its calls."""
    name = plan.calls[index].spec.name
    measured = None if plan.analysis is None else plan.analysis.functions.get(name)
    if measured is None or not plan.calls[index].calls_function:
        return []
    first, *rest = plan.functions[name]
    if index != first:
        return [("measured", f"with call {first + 1}, whose function it shares")]
    text = _describe_function(measured, plan.calls[index].choice.backend == "sql")
    if rest:
        text += f", for calls {', '.join(str(k + 1) for k in (first, *rest))}"
    return [("measured", text), *_describe_confidence(plan, plan.calls[index], measured)]


def _describe_confidence(
    plan: Plan, call: PlannedCall, full: FunctionMeasurement
) -> list[tuple[str, str]]:
    """Describe the share of rows for which the small model was confident."""
    if call.small is None or call.cascade is None or plan.analysis is None:
        return []
    small = plan.analysis.functions.get(call.small.spec.name)
    if small is None or not small.rows:
        return []
    share = 1 - full.rows / small.rows
    return [
        (
            "confident",
            f"{share:.1%} of {_format_count(small.rows, 'row')}; "
            f"{call.cascade.confident:.1%} expected",
        )
    ]


def _describe_function(measured: FunctionMeasurement, is_sql: bool) -> str:
    if not measured.batches:
        return "no row went to the function" + (": all were scored in SQL" if is_sql else "")
    destination = " went to the function" if is_sql else ""
    per_row = format_duration(measured.seconds / max(1, measured.rows))
    remembered = f", {measured.again:,} of them remembered" if measured.again else ""
    return (
        f"{_format_count(measured.rows, 'row')}{destination} in "
        f"{_format_count(measured.batches, 'batch')}{remembered}, "
        f"{format_duration(measured.seconds)} in the function on all threads ({per_row} a row)"
    )


def _describe_total(analysis: Measurement) -> str:
    share = analysis.function_seconds / analysis.seconds if analysis.seconds else 0.0
    text = format_duration(analysis.seconds)
    return f"{text}, {share:.0%} of it in functions of sqlml" if analysis.functions else text


def _format_count(count: int, what: str) -> str:
    """
    >>> _format_count(1, "row"), _format_count(1200, "batch")
    ('1 row', '1,200 batches')
    """
    plural = {"row": "rows", "batch": "batches"}[what]
    return f"{count:,} {what if count == 1 else plural}"


def format_duration(seconds: float) -> str:
    """
    >>> [format_duration(s) for s in (3.12e-7, 0.0000042, 0.0123, 2.5, 2100.0, float("inf"))]
    ['312 ns', '4.2 us', '12 ms', '2.5 s', '2,100 s', 'not feasible']
    """
    if seconds == float("inf"):
        return "not feasible"
    unit, size = next(((u, s) for u, s in _UNITS if seconds >= s), _UNITS[-1])
    count = seconds / size
    return f"{count:,.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"


def _join_items(items: Sequence[str], most: int = 24) -> str:
    text = ", ".join(item.replace(" ", _TIED) for item in items[:most])
    return text + (f", .. {len(items) - most} more" if len(items) > most else "")


_MOST_BOX_COLUMNS = 6
"""The most columns that a box names."""


def draw_plan(plan: Plan) -> str:
    """Return the HTML of a plan: the flow of rows through each call, and the lines of EXPLAIN."""
    parts = []
    for index, call in enumerate(plan.calls):
        lines = describe_call(plan, index)
        parts.append(html.flow(_draw_boxes(call, dict(lines))))
        parts.append(html.table(("", ""), lines))
    statement_lines = describe_statement(plan)
    return "".join(parts + ([html.table(("", ""), statement_lines)] if statement_lines else []))


def _draw_boxes(call: PlannedCall, lines: Mapping[str, str]) -> list[tuple[str, str]]:
    names = [name for name, _ in call.reads]
    more = f" and {len(names) - _MOST_BOX_COLUMNS} more" if len(names) > _MOST_BOX_COLUMNS else ""
    unread_count = len(call.unread)
    columns = f"{', '.join(names[:_MOST_BOX_COLUMNS])}{more}" + (
        f"; {unread_count} not read" if unread_count else ""
    )
    boxes = [("columns", columns or "none")]
    boxes.append(("in SQL", lines["in SQL"]))
    if call.calls_function:
        boxes.append(("in a function", lines["in UDF"]))
    return [*boxes, (call.call_text, f"{call.output}: {call.type}")]


def explain_model(program: Program, options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the titles and texts of EXPLAIN MODEL.

    They show the stored Program and, for each output, the passes that change it, the resulting
    Program, the inputs that it reads, and the ways to run it with their estimated times.

    Args:
        options: the model's options, which restrict the choice.

    Raises:
        ConfigError, BackendError: the options leave no way to run it.
    """
    rows = [("program", str(program))]
    for output in (o for group in OUTPUTS_OF.values() for o in group if o in program.outputs):
        prepared = prepare(program, output)
        rows += [
            (f"{output}: passes", _describe_passes(program, output)),
            (f"{output}: program", str(prepared.program)),
            (f"{output}: reads", ", ".join(prepared.program.inputs) or "nothing"),
            (f"{output}: strategies", _describe_strategies(prepared.split.core, options)),
        ]
    return rows


def _describe_passes(program: Program, output: Output) -> str:
    current = select_parts(program, (Part(output),))
    lines = []
    for apply in MODEL_PASSES:
        after = run(current, passes=(apply,))
        if after.hash != current.hash:
            lines.append(f"{apply.__name__}: {_describe_size(current)} -> {_describe_size(after)}")
        current = after
    return "\n".join(lines) or "none changes it"


def _describe_size(program: Program) -> str:
    return f"{len(program.nodes)} nodes of {len(program.inputs)} columns"


def _describe_strategies(core: Program, options: Mapping[str, Any]) -> str:
    """Describe the choice of backend, and the estimates of the alternatives."""
    choice = choose(core, options)
    if not choice.estimates:
        return f"{choice.backend}/{choice.strategy} on {choice.device}: {choice.reason}"
    times = [f"{e.name}: {format_duration(e.start + e.seconds)}" for e in choice.estimates]
    return "\n".join([f"{times[0]} for {choice.rows:,} rows on one thread", *times[1:]])
