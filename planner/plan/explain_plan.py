"""The output of EXPLAIN: a plan as text or as HTML for notebooks, and a model's description."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlml import html
from sqlml.catalog.row_expressions import shorten_names
from sqlml.catalog.small_models import CascadeFacts, FilterFacts
from sqlml.ir.program import Program
from sqlml.passes import MODEL_PASSES, run
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.planner.program.choose import Choice, choose_way
from sqlml.planner.program.cost import BATCH
from sqlml.planner.program.function_spec import Output, ResultPart
from sqlml.planner.program.prepare_program import prepare_output, select_parts

if TYPE_CHECKING:
    from sqlml.planner.plan.plan import Plan, PlannedCall


@dataclass(frozen=True, slots=True)
class FunctionMeasurement:
    """The measurements of one engine function on all threads. `again` counts remembered rows."""

    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    again: int = 0


@dataclass(frozen=True, slots=True)
class QueryMeasurement:
    """The measurements of one run of a query, and of each engine function, keyed by name."""

    seconds: float
    function_seconds: float  # The time during which at least one thread was in a function.
    functions: Mapping[str, FunctionMeasurement]


_LINE_WIDTH = 96
_TITLE_WIDTH = len("columns not read")
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))

_NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
"""The character between a column and its type, which keeps both on one line."""


def format_plan(plan: Plan) -> str:
    blocks: list[str] = []
    count = len(plan.calls)
    for index in range(count):
        title = "SQLML" if count == 1 else f"SQLML {index + 1}/{count}"
        blocks += [title, *_format_lines(describe_call(plan, index))]
    return "\n".join([*blocks, *_format_lines(describe_statement(plan))])


def describe_call(plan: Plan, index: int) -> list[tuple[str, str]]:
    """Return the lines of EXPLAIN for `plan.calls[index]`, each as a pair of a title and a text."""
    return [*_describe_planned_call(plan.calls[index]), *_describe_measurement(plan, index)]


def describe_statement(plan: Plan) -> list[tuple[str, str]]:
    lines = [
        ("join left out", f"{join}: its key is unique, and nothing reads it")
        for join in plan.dropped_joins
    ]
    analysis = plan.analysis
    if analysis is not None:
        text = format_duration(analysis.seconds)
        if analysis.functions:
            share = analysis.function_seconds / analysis.seconds if analysis.seconds else 0.0
            text += f", {share:.0%} of it in functions of sqlml"
        lines.append(("whole query", text))
    return lines


def _format_lines(lines: Sequence[tuple[str, str]]) -> list[str]:
    return [
        textwrap.fill(
            text,
            _LINE_WIDTH,
            initial_indent=f"  {title:<{_TITLE_WIDTH}}  ",
            subsequent_indent=" " * (_TITLE_WIDTH + 4),
            break_long_words=False,
            break_on_hyphens=False,
        ).replace(_NO_BREAK_SPACE, " ")
        for title, text in lines
    ]


def _describe_planned_call(call: PlannedCall) -> list[tuple[str, str]]:
    strategy = f", strategy {call.choice.strategy}" if call.has_trees else ""
    arguments = _describe_arguments(call)
    function_text = f"{call.spec.backend} backend{strategy}, device {call.spec.device}, {arguments}"
    transformed_features = [f"{name} = {shorten_names(sql)}" for name, sql in call.transformed]
    constants = [f"{n} = {'NULL' if v is None else repr(v)}" for n, v in call.constants.items()]
    functions = [function.name for function in call.functions_of_models]
    optional_lines = [
        ("made in SQL", transformed_features, ""),
        ("other columns", call.other_columns, ": no features of the model"),
        ("NULL where missing", call.null_where, ": as option on_null says"),
        ("unknown is NULL", call.unknown_as_null, ": as option on_unknown says"),
        ("in the model", constants, ": literal arguments"),
    ]
    return [
        ("call", call.call_text),
        _describe_model(call),
        ("output", call.output),
        ("columns read", _list_reads(call) or "none"),
        ("columns not read", _describe_unread(call) or "none"),
        *((title, _join_items(items) + reason) for title, items, reason in optional_lines if items),
        ("in SQL", _describe_sql_part(call)),
        ("in UDF", function_text if call.calls_function else "nothing"),
        *([("route", str(call.route))] if call.calls_function else []),
        ("rows", _describe_rows(call)),
        ("chosen by", call.choice.reason),
        *_describe_estimates(call.choice),
        *_describe_sharing(call),
        *_describe_approximation(call),
        ("function", _join_items(functions) or (call.spec.name if call.calls_function else "none")),
    ]


def _list_reads(call: PlannedCall) -> str:
    return _join_items([f"{name} {bound.type}" for name, bound in call.reads])


def _describe_model(call: PlannedCall) -> tuple[str, str]:
    if not call.functions_of_models:
        return "model", f"{call.model} (version {call.version})"
    return "models", f"{len(call.models):,} that the rows name: {_join_items(call.models)}"


def _describe_arguments(call: PlannedCall) -> str:
    if call.functions_of_models:
        sorts = call.shared is not None and call.shared.in_from
        return "the rows of each model together" + (", sorted by it in FROM" if sorts else "")
    number_type = {"f32": "FLOAT", "f64": "DOUBLE"}[call.spec.layout]
    number_count, string_count = call.feature_count - len(call.texts), len(call.texts)
    if not call.spec.by_column:
        string_columns = f", with the texts of {_join_items(call.texts)}" if string_count else ""
        return f"packed as {number_type}[{max(1, number_count)}]{string_columns}"
    counts = [f"{n} {t}" for n, t in ((number_count, number_type), (string_count, "VARCHAR")) if n]
    return f"{' and '.join(counts) or 'no'} column{'s' * (number_count + string_count != 1)}"


def _describe_unread(call: PlannedCall) -> str:
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in call.dropped_by.items():
        names_by_reason.setdefault("" if reason is None else f" ({reason})", []).append(name)
    return "; ".join(_join_items(names) + reason for reason, names in names_by_reason.items())


def _describe_sharing(call: PlannedCall) -> list[tuple[str, str]]:
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
    if call.exact_reason:
        return [("approximate", f"no: {call.exact_reason}")]
    if call.small_call is None or (call.filtered is None and call.cascade is None):
        return []
    function_text = call.small_call.spec.name if call.small_call.calls_function else "in SQL"
    reads = f"{function_text}, which reads {_list_reads(call.small_call)}"
    if call.filtered is not None:
        return _describe_filter(call.filtered, reads, call.idle_parts)
    cascade = call.cascade
    assert cascade is not None
    guarantee = (
        f"accuracy falls by at most {cascade.accuracy_loss:g} (97.5% sure); {cascade.loss:.4f} was "
        f"measured on {cascade.held_out:,} rows held out"
    )
    rarely_computed = _list_rarely_computed(call.idle_parts, cascade)
    return [
        ("approximate", f"a small model first, {reads}"),
        ("only if unsure", f"{rarely_computed}, for {1 - cascade.confident:.1%} of the rows"),
        ("guarantee", guarantee),
        ("expected gain", f"{cascade.gain:.2f} times as fast"),
    ]


def _list_rarely_computed(idle_parts: Sequence[str], record: CascadeFacts | FilterFacts) -> str:
    """List the query parts that are computed only for rows for which the small model is unsure."""
    unread_groups = [group.name for group in record.groups if group.inside and not group.chosen]
    return _join_items([*idle_parts, *unread_groups])


def _describe_filter(
    top_k: FilterFacts, reads: str, idle_parts: Sequence[str]
) -> list[tuple[str, str]]:
    row_count = top_k.ratio * top_k.k
    share = row_count / top_k.rows
    selection = f"for {math.ceil(row_count)} rows, or {share:.2%} of them if that is more"
    guarantee = (
        f"of the best {top_k.k} rows at least {top_k.precision:.0%} are right in 95% of queries "
        f"(97.5% sure), over {top_k.rows:,} rows"
    )
    return [
        ("approximate", f"a small model ranks all rows, {reads}"),
        ("only of the best", f"{_list_rarely_computed(idle_parts, top_k)}, {selection}"),
        ("guarantee", guarantee),
        ("expected gain", f"{top_k.gain:.2f} times as fast"),
    ]


def _describe_sql_part(call: PlannedCall) -> str:
    if call.choice.backend == "sql":
        restriction = ", for rows without NULL, NaN and infinities" if call.choice.guarded else ""
        return f"the whole model{restriction}"
    return _join_items([f"codes of {name}" for name in call.encoded]) or "nothing"


def _describe_rows(call: PlannedCall) -> str:
    rows = call.rows
    source = "estimated by the engine"
    if rows.estimate is None:
        reason = "the engine estimates none" if rows.was_asked else "the statement is long"
        source = f"assumed, since {reason}"
    text = f"{rows.count:,} {source}"
    if rows.chosen_by and rows.rounded != rows.count:
        text += f", taken as {rows.rounded:,}"
    return f"{text}; {BATCH:,} at a time"


def _describe_estimates(choice: Choice) -> list[tuple[str, str]]:
    if not choice.estimates:
        return []
    times = [f"{e.name} {format_duration(e.start + e.seconds)}" for e in choice.estimates]
    rows = "1 row" if choice.rows == 1 else f"{choice.rows:,} rows"
    lines = [("estimate", f"{times[0]} for {rows} on one thread")]
    return lines + ([("runners-up", _join_items(times[1:]))] if times[1:] else [])


def _describe_measurement(plan: Plan, index: int) -> list[tuple[str, str]]:
    """Describe what EXPLAIN ANALYZE measured for a call, or return [] if it used no function.

    If several calls share a function, the later calls refer to the first. For a cascade, another
    line shows the share of rows for which the small model was confident.
    """
    call, analysis = plan.calls[index], plan.analysis
    measurement = None if analysis is None else analysis.functions.get(call.spec.name)
    if analysis is None or measurement is None or not call.calls_function:
        return []
    first_index, *other_indices = plan.functions[call.spec.name]
    if index != first_index:
        return [("measured", f"with call {first_index + 1}, whose function it shares")]
    text = _describe_function_measurement(measurement, call.choice.backend == "sql")
    if other_indices:
        text += f", for calls {', '.join(str(k + 1) for k in (first_index, *other_indices))}"
    lines = [("measured", text)]
    if call.small_call is not None and call.cascade is not None:
        small_measurement = analysis.functions.get(call.small_call.spec.name)
        if small_measurement is not None and small_measurement.rows:
            share = 1 - measurement.rows / small_measurement.rows
            row_count = _format_count(small_measurement.rows, "row")
            expected = f"{call.cascade.confident:.1%} expected"
            lines.append(("confident", f"{share:.1%} of {row_count}; {expected}"))
    return lines


def _describe_function_measurement(measurement: FunctionMeasurement, is_sql: bool) -> str:
    if not measurement.batches:
        return "no row went to the function" + (": all were scored in SQL" if is_sql else "")
    destination = " went to the function" if is_sql else ""
    per_row = format_duration(measurement.seconds / max(1, measurement.rows))
    remembered = f", {measurement.again:,} of them remembered" if measurement.again else ""
    return (
        f"{_format_count(measurement.rows, 'row')}{destination} in "
        f"{_format_count(measurement.batches, 'batch')}{remembered}, "
        f"{format_duration(measurement.seconds)} in the function on all threads ({per_row} a row)"
    )


def _format_count(count: int, unit: str) -> str:
    """
    >>> _format_count(1, "row"), _format_count(1200, "batch")
    ('1 row', '1,200 batches')
    """
    plural = {"row": "rows", "batch": "batches"}[unit]
    return f"{count:,} {unit if count == 1 else plural}"


def format_duration(seconds: float) -> str:
    """
    >>> [format_duration(s) for s in (3.12e-7, 0.0000042, 0.0123, 2.5, 2100.0, float("inf"))]
    ['312 ns', '4.2 us', '12 ms', '2.5 s', '2,100 s', 'not feasible']
    """
    if seconds == float("inf"):
        return "not feasible"
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), _UNITS[-1])
    count = seconds / size
    return f"{count:,.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"


def _join_items(items: Sequence[str], max_items: int = 24) -> str:
    text = ", ".join(item.replace(" ", _NO_BREAK_SPACE) for item in items[:max_items])
    return text + (f", .. {len(items) - max_items} more" if len(items) > max_items else "")


_MAX_BOX_COLUMNS = 6


def draw_plan(plan: Plan) -> str:
    fragments = []
    for index, call in enumerate(plan.calls):
        lines = describe_call(plan, index)
        fragments += [html.flow(_draw_boxes(call, dict(lines))), html.table(("", ""), lines)]
    statement_lines = describe_statement(plan)
    return "".join(fragments + ([html.table(("", ""), statement_lines)] if statement_lines else []))


def _draw_boxes(call: PlannedCall, lines: Mapping[str, str]) -> list[tuple[str, str]]:
    names = [name for name, _ in call.reads]
    columns = ", ".join(names[:_MAX_BOX_COLUMNS])
    if len(names) > _MAX_BOX_COLUMNS:
        columns += f" and {len(names) - _MAX_BOX_COLUMNS} more"
    columns += f"; {len(call.unread)} not read" if call.unread else ""
    boxes = [("columns", columns or "none"), ("in SQL", lines["in SQL"])]
    if call.calls_function:
        boxes.append(("in a function", lines["in UDF"]))
    return [*boxes, (call.call_text, f"{call.output}: {call.type}")]


def explain_model(program: Program, options: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("program", str(program))]
    for output in (o for group in OUTPUTS_OF.values() for o in group if o in program.outputs):
        prepared = prepare_output(program, output)
        rows += [
            (f"{output}: passes", _describe_passes(program, output)),
            (f"{output}: program", str(prepared.program)),
            (f"{output}: reads", ", ".join(prepared.program.inputs) or "nothing"),
            (f"{output}: strategies", _describe_strategies(prepared.split.core, options)),
        ]
    return rows


def _describe_passes(program: Program, output: Output) -> str:
    current = select_parts(program, (ResultPart(output),))
    lines = []
    for model_pass in MODEL_PASSES:
        previous, current = current, run(current, passes=(model_pass,))
        if current.hash != previous.hash:
            sizes = f"{_describe_size(previous)} -> {_describe_size(current)}"
            lines.append(f"{model_pass.__name__}: {sizes}")
    return "\n".join(lines) or "none changes it"


def _describe_size(program: Program) -> str:
    return f"{len(program.nodes)} nodes of {len(program.inputs)} columns"


def _describe_strategies(core: Program, options: Mapping[str, Any]) -> str:
    choice = choose_way(core, options)
    if not choice.estimates:
        return f"{choice.backend}/{choice.strategy} on {choice.device}: {choice.reason}"
    times = [f"{e.name}: {format_duration(e.start + e.seconds)}" for e in choice.estimates]
    return "\n".join([f"{times[0]} for {choice.rows:,} rows on one thread", *times[1:]])
