"""Replace each call of a metric, such as `rmse(y, p)`, with aggregates of the engine.

::

    SELECT g, rmse(y, p) FILTER (WHERE ok) FROM t GROUP BY g
    SELECT g, sqrt(favg(CASE WHEN (ok) AND (y) IS NOT NULL AND (p) IS NOT NULL
                        THEN pow(CAST(y AS DOUBLE) - CAST(p AS DOUBLE), 2) END)) AS "rmse(...)" ...

The metrics equal those of `sklearn.metrics`. The condition of a FILTER moves into the arguments,
so that a label or a probability that is no such value only fails in the rows that count. A function
or macro of the user with the name of a metric is called instead.

`roc_auc` counts the pairs of a positive and a negative row by the ranks of the positive rows: once
with the positive rows last among equal scores, and once with them first. `average_precision` reads
the last positive row of each score, whose rank counts the rows that score at least as high. Both
need no prefix sums, which lists do not have. With weights and in Spark, a fold over the sorted list
computes them, which takes DuckDB several times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.parsing.places import Span, find_outermost
from sqlml.planner.rewrites.draft import Draft, ExpandedStatement, TextPiece
from sqlml.planner.syntax.outline import MetricCall
from sqlml.planner.syntax.read_outline import read_outline
from sqlml.planner.table_functions.metric_queries import EPSILON

_PLACE = re.compile("\0(\\d+):(\\d+)\0")
"""The mark of a span of the user's text in a formula."""

_LABELS = (
    "a label is neither 0 nor 1, true nor false; name the positive class, as in class := 'yes'"
)
_PROBABILITIES = "a probability is not between 0 and 1"
_SCORES = "a score is infinite or NaN"


def metric_aggregates(draft: Draft) -> Draft:
    """Replace the metrics of a statement, the outermost first, until none is left."""
    while True:
        is_users = draft.context.is_user_function
        calls = [call for call in draft.outline.metrics if not is_users(call.function)]
        if not calls:
            return draft
        expanded = ExpandedStatement(draft.text, tuple(_build_pieces(draft, calls)), draft.expanded)
        outline = read_outline(expanded.sql, draft.dialect.name)
        draft = draft.with_expanded(expanded, outline)


def _build_pieces(draft: Draft, calls: Sequence[MetricCall]) -> Iterator[TextPiece]:
    sql, dialect = draft.text, draft.dialect
    outermost = set(find_outermost(call.span for call in calls))
    edits: dict[Span, str] = {}
    for call in calls:
        if call.span in outermost:
            edits[call.span] = f"({_Metric.read(call, sql, dialect).build()})"
            edits |= dict(_name_items(call, sql, dialect))
    edits |= _number_parameters(draft, edits)
    offset = 0
    for span, text in sorted(edits.items(), key=lambda edit: (edit[0].start, -edit[0].end)):
        if span.start < offset:  # A parameter in a call.
            continue
        yield TextPiece(sql[offset : span.start], offset, True)
        copied_end = 0
        for place in _PLACE.finditer(text):
            yield TextPiece(text[copied_end : place.start()], span.start, False)
            inner = Span(int(place[1]), int(place[2]))
            yield from _copy(sql, inner, edits)
            copied_end = place.end()
        yield TextPiece(text[copied_end:], span.start, False)
        offset = span.end
    yield TextPiece(sql[offset:], offset, True)


def _copy(sql: str, span: Span, edits: Mapping[Span, str]) -> Iterator[TextPiece]:
    """Yield the user's text at a span, in which numbers replace the parameters `?`."""
    offset = span.start
    for inner in sorted(edits, key=lambda inner: inner.start):
        if span.contains(inner) and sql[inner.start : inner.end] == "?":
            yield TextPiece(sql[offset : inner.start], offset, True)
            yield TextPiece(edits[inner], inner.start, False)
            offset = inner.end
    yield TextPiece(sql[offset : span.end], offset, True)


def _name_items(call: MetricCall, sql: str, dialect: Dialect) -> Iterator[tuple[Span, str]]:
    """Yield ` AS "rmse(y, p)"` for each unnamed select item around a call, and where it belongs."""
    for item in call.items:
        if item.name is None and not item.may_expand:
            name = " ".join(sql[item.span.start : item.span.end].split())
            with suppress(BindError):  # A name with Spark's variable ${...} cannot be quoted.
                yield Span(item.span.end, item.span.end), f" AS {dialect.quote_name(name)}"


def _number_parameters(draft: Draft, edits: Mapping[Span, str]) -> Mapping[Span, str]:
    """Return a number for each parameter `?` if a metric contains one, which it may repeat."""
    parameters = [p for p in draft.outline.parameters if p.text == "?"]
    if not any(span.contains(p.span) for p in parameters for span in edits):
        return {}
    return {p.span: f"${n + 1}" for n, p in enumerate(parameters)}


@dataclass(frozen=True, slots=True)
class _Metric:
    """The arguments of a call as SQL, in which marks stand for the user's text."""

    call: MetricCall
    sql: str
    dialect: Dialect
    label: str
    prediction: str
    weight: str | None
    positive_class: str | None

    @classmethod
    def read(cls, call: MetricCall, sql: str, dialect: Dialect) -> _Metric:
        """Read the arguments of a call; raise BindError if they do not fit the metric."""

        def error(message: str) -> BindError:
            return BindError(message, sql, call.span.start)

        if call.modifier is not None:
            raise error(
                f"{call.function} takes no {call.modifier} between its brackets; write it in a "
                "subquery in FROM"
            )
        names = ["label", "prediction", "weight"]
        values: dict[str, str] = {}
        takes_class = call.function in _CLASS_METRICS
        for name, span in call.arguments:
            if name is None:
                if not names:
                    raise error(f"{call.function} takes a label, a prediction and a weight")
                name = names.pop(0)
            elif name not in ("weight", "class") or (name == "class" and not takes_class):
                options = "weight and class" if takes_class else "weight"
                raise error(f"unknown option {name} of {call.function}; options: {options}")
            if name in values:
                raise error(f"{name} is given twice")
            values[name] = f"(\0{span.start}:{span.end}\0)"
        if "prediction" not in values:
            raise error(f"{call.function} takes a label and a prediction, as in (y, p)")
        weight, positive_class = values.get("weight"), values.get("class")
        fields = values["label"], values["prediction"], weight, positive_class
        return cls(call, sql, dialect, *fields)

    def build(self) -> str:
        return _FORMULAS[self.call.function](self)

    @property
    def predicted(self) -> str:
        return f"CAST({self.prediction} AS DOUBLE)"

    @property
    def error(self) -> str:
        return f"CAST({self.label} AS DOUBLE) - {self.predicted}"

    @property
    def target(self) -> str:
        """1 for the positive class and 0 for the other class."""
        if self.positive_class is not None:
            return f"CASE WHEN {self.label} = {self.positive_class} THEN 1e0 ELSE 0e0 END"
        return (
            f"CASE TRY_CAST({self.label} AS DOUBLE) WHEN 1e0 THEN 1e0 WHEN 0e0 THEN 0e0 "
            f"ELSE {self._fail(_LABELS)} END"
        )

    @property
    def probability(self) -> str:
        value = self.predicted
        return (
            f"CASE WHEN {value} BETWEEN 0 AND 1 THEN {value} ELSE {self._fail(_PROBABILITIES)} END"
        )

    def _fail(self, message: str) -> str:
        return self.dialect.error(self.dialect.text(f"{self.call.function}: {message}"))

    def of_rows(self, value: str) -> str:
        """Return `value` in the rows that count, and NULL in other rows."""
        conditions = [f"{self.label} IS NOT NULL", f"{self.prediction} IS NOT NULL"]
        if self.weight is not None:
            conditions.append(f"{self.weight} IS NOT NULL")
        if self.call.condition is not None:
            conditions.insert(0, f"(\0{self.call.condition.start}:{self.call.condition.end}\0)")
        return f"CASE WHEN {' AND '.join(conditions)} THEN {value} END"

    def aggregate(self, function: str, value: str) -> str:
        """Aggregate `value` over the rows that count, in the window of the call if it has one."""
        if self.dialect.name == "spark":
            function = {"favg": "avg", "fsum": "sum"}.get(function, function)
        window = self.call.window
        over = "" if window is None else f" OVER \0{window.start}:{window.end}\0"
        return f"{function}({self.of_rows(value)}){over}"

    def average(self, value: str) -> str:
        if self.weight is None:
            return self.aggregate("favg", value)
        weight = f"CAST({self.weight} AS DOUBLE)"
        total = self.aggregate("fsum", weight)
        return f"{self.aggregate('fsum', f'{weight} * ({value})')} / nullif({total}, 0)"

    @property
    def needs_fold(self) -> bool:
        """True if a curve needs prefix sums: DuckDB folds a list slower than it maps it."""
        return self.dialect.name == "spark" or self.weight is not None

    def require_group(self, advice: str) -> None:
        """Raise BindError for a window: each of its rows would hold a list of all rows."""
        if self.call.window is not None:
            message = f"{self.call.function} {advice}takes no OVER; group by the key in a subquery"
            raise BindError(f"{message} and join it", self.sql, self.call.span.start)

    def require_curve(self) -> str:
        """Return the label of a row with a finite score; raise BindError for a window."""
        self.require_group("")
        is_finite = self.dialect.is_finite(self.predicted)
        return f"CASE WHEN {is_finite} THEN {self.target} ELSE {self._fail(_SCORES)} END"


def _build_log_loss(metric: _Metric) -> str:
    # |1 - y - p| is the probability of the label, with the same rounding as p and 1 - p.
    likelihood = f"abs(1e0 - {metric.target} - {metric.probability})"
    clipped = f"least(greatest({likelihood}, {EPSILON}), 1e0 - {EPSILON})"
    return f"-({metric.average(f'ln({clipped})')})"


def _build_r2(metric: _Metric) -> str:
    error, label = metric.average(f"pow({metric.error}, 2)"), f"CAST({metric.label} AS DOUBLE)"
    variance = metric.aggregate("var_pop", label)
    if metric.weight is not None:
        metric.require_group("with a weight ")
        dialect, weight = metric.dialect, f"CAST({metric.weight} AS DOUBLE)"
        row = dialect.struct({"y": label, "w": weight})
        list_function = "collect_list" if dialect.name == "spark" else "list"
        rows = f"{list_function}({metric.of_rows(row)})"
        if dialect.name == "duckdb":  # Spark's function skips NULL.
            rows += f" FILTER (WHERE {metric.of_rows('true')})"
        y, w = dialect.member("e", "y"), dialect.member("e", "w")
        square = f"{w} * pow({y} - {dialect.member('s', 'mean')}, 2)"
        body = dialect.summed(dialect.each(dialect.member("s", "rows"), "e", square))
        state = dialect.struct({"rows": rows, "mean": metric.average(label)})
        total = metric.aggregate("fsum", weight)
        variance = f"{dialect.let('s', state, body)} / nullif({total}, 0)"
    return (
        f"CASE WHEN {metric.aggregate('count', label)} < 2 THEN NULL "
        f"WHEN {variance} > 0 THEN 1 - ({error}) / ({variance}) "
        f"WHEN {error} = 0 THEN 1 WHEN {error} > 0 THEN 0 END"
    )


def _build_roc_auc(metric: _Metric) -> str:
    label = metric.require_curve()
    if metric.needs_fold:
        return _fold_curve(
            metric,
            label,
            lambda a: f"({a['fp']} - {a['fp0']}) * ({a['tp']} + {a['tp0']}) / 2",
            lambda a, s: (
                f"CASE WHEN {a['tp']} > 0 AND {a['fp']} > 0 THEN {s} / ({a['tp']} * {a['fp']}) END"
            ),
        )
    y, dialect = metric.of_rows(label), metric.dialect

    def sort(order: str) -> str:
        ordered = f"list({y} ORDER BY {metric.predicted} ASC, {y} {order})"
        return f"{ordered} FILTER (WHERE {metric.of_rows('true')})"

    def sum_ranks(labels: str) -> str:
        return f"list_sum(list_transform({labels}, lambda y, i: y * i))"

    last, first = dialect.field("s", "last"), dialect.field("s", "first")
    positives = f"list_sum({last})"
    pairs = f"{positives} * (len({last}) - {positives})"
    ranks = f"({sum_ranks(last)} + {sum_ranks(first)}) / 2"
    area = f"({ranks} - {positives} * ({positives} + 1) / 2) / nullif({pairs}, 0)"
    return dialect.let("s", dialect.struct({"last": sort("ASC"), "first": sort("DESC")}), area)


def _build_average_precision(metric: _Metric) -> str:
    label = metric.require_curve()
    if metric.needs_fold:
        return _fold_curve(
            metric,
            label,
            lambda a: (
                f"CASE WHEN {a['tp']} > 0 THEN "
                f"({a['tp']} - {a['tp0']}) * {a['tp']} / ({a['tp']} + {a['fp']}) ELSE 0e0 END"
            ),
            lambda a, s: (
                f"CASE WHEN {a['tp']} > 0 THEN {s} / {a['tp']} WHEN {a['fp']} > 0 THEN 0e0 END"
            ),
        )
    y, field = metric.of_rows(label), metric.dialect.field
    ordered = (
        f"list({{'p': {metric.predicted}, 'y': {y}}} ORDER BY {metric.predicted} DESC, {y} ASC) "
        f"FILTER (WHERE {metric.of_rows('true')})"
    )
    # DuckDB's HAVING reads `e.p` as a column, so fields are read by a function.
    ranked = f"{{'p': {field('e', 'p')}, 'y': {field('e', 'y')}, 'i': i}}"
    positives = (
        f"list_filter(list_transform({ordered}, lambda e, i: {ranked}), "
        f"lambda e: {field('e', 'y')} = 1)"
    )
    # A score's last positive row has rank i among all rows, and rank j among the positive rows.
    # Each row is zipped with a neighbor. The ends have one, too: in a struct that list_zip pads
    # with NULL, DuckDB reads fields of other rows.
    end = "{'p': CAST(NULL AS DOUBLE), 'y': 0e0, 'i': CAST(0 AS BIGINT)}"
    is_last = f"{field('e[1]', 'p')} IS DISTINCT FROM {field('e[2]', 'p')}"
    last = (
        f"list_filter(list_transform(list_zip(q, list_append(q, {end})[2:]), lambda e, j: "
        f"{{'i': {field('e[1]', 'i')}, 'j': j, 'is_last': {is_last}}}), "
        f"lambda e: {field('e', 'is_last')})"
    )
    start = "{'i': CAST(0 AS BIGINT), 'j': CAST(0 AS BIGINT), 'is_last': true}"
    i, j, j_before = field("e[1]", "i"), field("e[1]", "j"), field("e[2]", "j")
    precision = (
        f"list_sum(list_transform(list_zip(r, list_prepend({start}, r)[:-2]), lambda e: "
        f"({j} - {j_before}) * ({j} / {i})))"
    )
    no_positives = "CASE WHEN q IS NOT NULL THEN 0e0 END"
    area = f"list_transform([{last}], lambda r: coalesce({precision} / len(q), {no_positives}))[1]"
    return f"list_transform([{positives}], lambda q: {area})[1]"


_Fields = Mapping[str, str]
"""Name of a field of the fold's state -> its SQL."""


def _fold_curve(
    metric: _Metric,
    label: str,
    build_step: Callable[[_Fields], str],
    divide: Callable[[_Fields, str], str],
) -> str:
    """Build a fold over the rows by falling score, which sums `build_step` of each score.

    `tp` and `fp` are the weights of the positive and negative rows so far, and `tp0` and `fp0` are
    those of the rows with higher scores. A row has the same fields as the state, which DuckDB's
    fold starts with the first row.
    """
    dialect = metric.dialect
    is_spark = dialect.name == "spark"
    weight = "1e0" if metric.weight is None else f"CAST({metric.weight} AS DOUBLE)"
    zeros = dict.fromkeys(("tp0", "fp0", "s"), "0e0")
    weights = {"tp": f"{weight} * {label}", "fp": f"{weight} * (1e0 - {label})"}
    score = f"-{metric.predicted}"
    row = metric.of_rows(dialect.struct({"p": score, **weights, **zeros}))

    def read(name: str) -> dict[str, str]:
        return {n: dialect.field(name, n) for n in ("p", "tp", "fp", "tp0", "fp0", "s")}

    a, e = read("a"), read("e")
    step = build_step(a)
    sums = {"p": e["p"], "tp": f"{a['tp']} + {e['tp']}", "fp": f"{a['fp']} + {e['fp']}"}
    same = dialect.struct({**sums, "tp0": a["tp0"], "fp0": a["fp0"], "s": a["s"]})
    lower = dialect.struct({**sums, "tp0": a["tp"], "fp0": a["fp"], "s": f"{a['s']} + {step}"})
    merge = f"CASE WHEN {a['p']} IS NOT DISTINCT FROM {e['p']} THEN {same} ELSE {lower} END"
    result = divide(a, f"({a['s']} + {step})")
    if is_spark:
        start = dialect.struct({"p": "CAST(NULL AS DOUBLE)", "tp": "0e0", "fp": "0e0", **zeros})
        rows = f"array_sort(collect_list({row}))"
        return f"aggregate({rows}, {start}, (a, e) -> {merge}, a -> {result})"
    rows = f"list({row} ORDER BY {score} ASC) FILTER (WHERE {metric.of_rows('true')})"
    return dialect.let("a", f"list_reduce({rows}, lambda a, e: {merge})", result)


_CLASS_METRICS = frozenset({"roc_auc", "average_precision", "log_loss", "brier_score"})

_FORMULAS: Mapping[str, Callable[[_Metric], str]] = {
    "roc_auc": _build_roc_auc,
    "average_precision": _build_average_precision,
    "log_loss": _build_log_loss,
    "brier_score": lambda m: m.average(f"pow({m.target} - {m.probability}, 2)"),
    "rmse": lambda m: f"sqrt({m.average(f'pow({m.error}, 2)')})",
    "mae": lambda m: m.average(f"abs({m.error})"),
    "r2": _build_r2,
}
