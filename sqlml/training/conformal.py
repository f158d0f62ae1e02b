"""Calibrate a model, so that its prediction intervals and sets have a guaranteed coverage.

Split conformal prediction: a score says how badly a prediction fits a row's true value. An interval
or set contains the values whose score is at most a quantile of the scores of n calibration rows, of
rank ceil((n + 1) * coverage). A row from the same distribution is then covered with at least this
probability, whatever the model.

================  ==================================  ==============================================
method            score                               source
================  ==================================  ==============================================
split             abs(y - prediction)                 Vovk et al., "Algorithmic Learning in a Random
                                                      World", 2005
normalized        abs(y - prediction) / difficulty    Papadopoulos et al., ICTAI 2008
cqr               max(lower - y, y - upper)           Romano et al., NeurIPS 2019
lac               1 - probability of y                Sadinle et al., JASA 2019
aps               probabilities >= that of y, summed  Romano et al., NeurIPS 2020 (not randomized)
================  ==================================  ==============================================

With groups (Mondrian), each group has a quantile of its own. Weighted scores count as in Barber et
al., "Conformal prediction beyond exchangeability", 2023: a new row weighs as much as the heaviest.

The quantile function is a table in the calibrated Program, which reads the coverage as one more
input: every coverage is served by one Program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sqlml.catalog.small_models import COVERAGE, format_coverage
from sqlml.errors import ConfigError
from sqlml.ir.builder import Builder, Value
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.passes.share_work import share_work
from sqlml.training.cascades.last_estimator import Rows, compute_output
from sqlml.types import Array, DType, Labels, list_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of calibration rows by a column, or by class if `column` is None.

    Attributes:
        categories: the column's values, an object array of strings or a float64 array.
        codes: int64 (n,), the index of each row's category, or `len(categories)` for NULL.
    """

    column: str | None
    categories: Array
    codes: Array

    @property
    def has_null(self) -> bool:
        return bool((self.codes == len(self.categories)).any())


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTask:
    """The model to calibrate, and the calibration rows.

    Attributes:
        program: the model.
        others: the Programs that predict the difficulty, or the lower and the upper quantile.
        method: a key of `METHODS`.
        rows: the inputs of all Programs, by name; each is (n,).
        truth: (n,), the true values, or the int64 indices of the true classes.
        groups: the groups of the rows, or None.
        weights: the positive weights of the rows (n,), or None.
        beta: the number that is added to the difficulty.
        symmetric: whether both ends of an interval are moved by the same amount.
    """

    program: Program
    others: Sequence[Program]
    method: str
    rows: Rows
    truth: Array
    groups: Groups | None = None
    weights: Array | None = None
    beta: float = 0.0
    symmetric: bool = True


class _Bounds(NamedTuple):
    """The bounds of an interval before it is widened by a multiple of `scale`, all (n, 1)."""

    lower: Value
    upper: Value
    scale: Value | None


@dataclass(frozen=True, slots=True)
class _Quantiles:
    """The quantile function of scores: `scores[i]` serves coverages up to `levels[i]`.

    Both are float64 and sorted, and the levels are positive. Higher coverages than the last level
    have an infinite quantile.
    """

    scores: Array
    levels: Array

    @classmethod
    def of(cls, scores: Array, weights: Array | None, symmetric: bool) -> _Quantiles:
        """Return the quantile function of the scores (n,) of calibration rows.

        If not `symmetric`, the scores are those of one side, which misses half of the rows that an
        interval may miss: a coverage c needs the quantile of (1 + c) / 2.
        """
        order = np.argsort(scores, kind="stable")
        if weights is None:
            heights, total = np.arange(1, scores.size + 1), scores.size + 1
        else:
            relative = weights[order] / weights.max(initial=0.0)
            heights, total = np.cumsum(relative), relative.sum() + 1
        # One division rounds k / (n + 1) as a literal of the same number is rounded.
        levels = (heights if symmetric else 2 * heights - total) / total
        sorted_scores = scores[order]
        is_last = np.append(sorted_scores[1:] != sorted_scores[:-1], True)[: scores.size]
        is_last &= levels > 0
        return cls(sorted_scores[is_last], levels[is_last])

    @property
    def highest(self) -> float:
        """The highest coverage with a finite quantile, or 0."""
        return float(self.levels[-1]) if self.levels.size else 0.0


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A calibrated Program, the rows of each group, and the highest coverage of any group."""

    program: Program
    group_rows: Array
    highest: float


def calibrate(task: CalibrationTask) -> Calibrated:
    """Return the model of `task` with the additional output `interval` or `set`.

    Raises ConfigError if the model predicts NaN, or if Programs read a column differently.
    """
    return METHODS[task.method].calibrate(task)


def _calibrate_intervals(
    task: CalibrationTask, build: Callable[[Builder, CalibrationTask], _Bounds]
) -> Calibrated:
    builder = Builder()
    bounds = build(builder, task)
    ends = [bounds.lower, bounds.upper, *([] if bounds.scale is None else [bounds.scale])]
    lower, upper, *scales = _compute(task, builder, builder.op("concat", *ends)).T
    scale = scales[0] if scales else 1.0
    below, above = (lower - task.truth) / scale, (task.truth - upper) / scale
    if task.symmetric:
        sides = [_list_quantiles(task, np.maximum(below, above))]
    else:
        sides = [_list_quantiles(task, below), _list_quantiles(task, above)]
    group = _append_group(builder, task)
    quantiles = [_append_quantile(builder, group, side) for side in sides]
    if bounds.scale is not None:
        quantiles = [builder.op("mul", quantile, bounds.scale) for quantile in quantiles]
    interval = builder.op(
        "concat",
        builder.op("sub", bounds.lower, quantiles[0]),
        builder.op("add", bounds.upper, quantiles[-1]),
    )
    return _build(task, builder, {"interval": interval}, max(q.highest for q in sides[0]))


def _calibrate_sets(
    task: CalibrationTask, build: Callable[[Builder, CalibrationTask], Value]
) -> Calibrated:
    builder = Builder()
    class_scores = build(builder, task)
    scores = _compute(task, builder, class_scores)[np.arange(task.truth.size), task.truth]
    quantiles = _list_quantiles(task, scores)
    if task.groups is not None and task.groups.column is None:
        threshold = _append_class_quantiles(builder, quantiles)
    else:
        threshold = _append_quantile(builder, _append_group(builder, task), quantiles)
    chosen = builder.op("cast", builder.op("le", class_scores, threshold), dtype="float64")
    return _build(task, builder, {"set": chosen}, max(q.highest for q in quantiles))


def _build(
    task: CalibrationTask, builder: Builder, outputs: Mapping[str, Value], highest: float
) -> Calibrated:
    # A query that also requests predictions evaluates the model once.
    (predictions,) = append_programs(builder, [task.program])
    shared = {name: predictions[name] for name in predictions if name in ("label", "proba")}
    program = share_work(verify(builder.build({**shared, **outputs}, task.program.labels)))
    codes = np.zeros(task.truth.size, np.int64) if task.groups is None else task.groups.codes
    group_rows = np.bincount(codes)
    return Calibrated(program, group_rows[group_rows > 0], highest)


def _compute(task: CalibrationTask, builder: Builder, value: Value) -> Array:
    """Compute a value (n, k) of float64 for the calibration rows, and reject NaN."""
    program = share_work(builder.build({"score": value}))
    result = compute_output(program, "score", task.rows)
    num_missing = int(np.isnan(result).any(axis=1).sum())
    if num_missing:
        raise ConfigError(f"the model predicts NaN for {num_missing:,} of the calibration rows")
    return result


def _list_quantiles(task: CalibrationTask, scores: Array) -> list[_Quantiles]:
    """Return the quantile function of each group, followed by that of NULL if it is a group."""
    groups, weights = task.groups, task.weights
    if groups is None:
        return [_Quantiles.of(scores, weights, task.symmetric)]
    order = np.argsort(groups.codes, kind="stable")
    num_groups = len(groups.categories) + groups.has_null
    starts = np.searchsorted(groups.codes[order], np.arange(num_groups + 1))
    quantiles = []
    for start, stop in zip(starts[:-1], starts[1:], strict=True):
        rows = order[start:stop]
        group_weights = None if weights is None else weights[rows]
        quantiles.append(_Quantiles.of(scores[rows], group_weights, task.symmetric))
    return quantiles


def _append_group(builder: Builder, task: CalibrationTask) -> Value | None:
    """Return the group of a row as int64 (n, 1): 0 for an unknown one, or 1 + its code."""
    groups = task.groups
    if groups is None or groups.column is None:
        return None
    dtype: DType = "string" if groups.categories.dtype == object else "float64"
    column = builder.input(groups.column, builder.input_dtype(groups.column) or dtype)
    column = column if dtype == "string" else builder.cast(column, "float64")
    missing = len(groups.categories) if groups.has_null else -1
    code = builder.op("encode", column, categories=groups.categories, missing=missing)
    return builder.op("add", code, builder.constant(np.array([1], np.int64)))


def _append_quantile(
    builder: Builder, group: Value | None, quantiles: Sequence[_Quantiles]
) -> Value:
    """Append the quantile (n, 1) of each row's group for the requested coverage."""
    coverage = _append_coverage(builder, quantiles)
    if group is None:
        (only,) = quantiles
        return _look_up(builder, coverage, [only.levels], np.append(only.scores, np.inf))
    # Group g has the levels g to g + 1, so that one search finds both the group and its quantile.
    unknown = _Quantiles(np.zeros(0), np.zeros(0))
    grouped = [unknown, *quantiles]
    edges = [np.append(g + quantile.levels, g + 1.0) for g, quantile in enumerate(grouped)]
    table = [np.append(quantile.scores, np.inf) for quantile in grouped]
    key = builder.op("add", builder.op("cast", group, dtype="float64"), coverage)
    return _look_up(builder, key, [np.concatenate(edges)], np.concatenate([*table, [np.inf]]))


def _append_class_quantiles(builder: Builder, quantiles: Sequence[_Quantiles]) -> Value:
    """Append the quantile of each class as (n, classes)."""
    coverage = _append_coverage(builder, quantiles)
    columns = builder.op("select", coverage, indices=np.zeros(len(quantiles), np.int64))
    table = np.concatenate([np.append(quantile.scores, np.inf) for quantile in quantiles])
    return _look_up(builder, columns, [quantile.levels for quantile in quantiles], table)


def _look_up(builder: Builder, x: Value, edges: Sequence[Array], table: Array) -> Value:
    """Append the element of `table` for each number: a column has len(edges) + 1 elements."""
    offsets = np.cumsum([0, *map(len, edges)], dtype=np.int64)
    search = {"edges": np.concatenate(edges), "offsets": offsets, "side": "left"}
    index = builder.op("search_sorted", x, **search)
    if len(edges) > 1:
        first = offsets[:-1] + np.arange(len(edges))
        index = builder.op("add", index, builder.constant(first))
    return builder.op("take", builder.constant(table), index)


def _append_coverage(builder: Builder, quantiles: Sequence[_Quantiles]) -> Value:
    """Append the requested coverage (n, 1), which must not be higher than all groups allow."""
    coverage = builder.input(COVERAGE, "float64")
    highest = max(quantile.highest for quantile in quantiles)
    is_positive, is_allowed = builder.op("gt", coverage, 0.0), builder.op("le", coverage, highest)
    message = (
        f"coverage must be greater than 0 and at most {format_coverage(highest)}; calibrate the "
        "model with more rows for a higher one"
    )
    return builder.op(
        "require", coverage, builder.op("and", is_positive, is_allowed), message=message
    )


def append_programs(builder: Builder, programs: Sequence[Program]) -> list[dict[str, Value]]:
    """Append Programs that share their inputs, and return the outputs of each.

    An input that one Program reads as float32 and another as float64 is read as float64. Raises
    ConfigError if one reads text where another reads numbers.
    """
    dtypes: dict[str, DType] = {}
    for program in programs:
        for name in program.inputs:
            dtype = program.input_type(name).dtype
            known = dtypes.setdefault(name, builder.input_dtype(name) or dtype)
            if known != dtype:
                if not {known, dtype} <= {"float32", "float64"}:
                    raise ConfigError(f"the models read column {name!r} as {known} and as {dtype}")
                dtypes[name] = "float64"
    outputs = []
    for program in programs:
        values: list[Value] = []
        for node in program.nodes:
            if node.op == "input":
                name = str(node.attrs["name"])
                shared = builder.input(**{**node.attrs, "dtype": dtypes[name]})
                values.append(builder.cast(shared, node.type.dtype))
            else:
                values.append(builder.copy_node(node, [values[i] for i in node.inputs]))
        outputs.append({name: values[i] for name, i in program.outputs.items()})
    return outputs


def _read_number(
    outputs: Mapping[str, Value], builder: Builder, column: int | None = None
) -> Value:
    value = outputs["label"]
    if column is not None:
        value = builder.op("select", value, indices=np.array([column], np.int64))
    return builder.cast(value, "float64")


def _build_split(builder: Builder, task: CalibrationTask) -> _Bounds:
    (outputs,) = append_programs(builder, [task.program])
    prediction = _read_number(outputs, builder)
    return _Bounds(prediction, prediction, None)


def _build_normalized(builder: Builder, task: CalibrationTask) -> _Bounds:
    outputs, difficulty = append_programs(builder, [task.program, *task.others])
    prediction, predicted = _read_number(outputs, builder), _read_number(difficulty, builder)
    scale = builder.op("add", builder.op("maximum", predicted, 0.0), task.beta)
    return _Bounds(prediction, prediction, scale)


def _build_cqr(builder: Builder, task: CalibrationTask) -> _Bounds:
    if task.others:
        lower, upper = (
            _read_number(outputs, builder) for outputs in append_programs(builder, task.others)
        )
    else:
        (outputs,) = append_programs(builder, [task.program])
        last = task.program.target_count - 1
        lower, upper = (_read_number(outputs, builder, column) for column in (0, last))
    return _Bounds(lower, upper, None)


def _build_lac(builder: Builder, task: CalibrationTask) -> Value:
    (outputs,) = append_programs(builder, [task.program])
    return builder.op("sub", 1.0, builder.cast(outputs["proba"], "float64"))


def _build_aps(builder: Builder, task: CalibrationTask) -> Value:
    """Return the sum of the probabilities that are at least as high as that of each class."""
    (outputs,) = append_programs(builder, [task.program])
    probabilities = builder.cast(outputs["proba"], "float64")
    width = probabilities.type.width
    as_column = builder.op("reshape", probabilities, shape=(width, 1))
    as_row = builder.op("reshape", probabilities, shape=(1, width))
    summands = builder.op("where", builder.op("ge", as_row, as_column), as_row, 0.0)
    return builder.op("reshape", builder.op("sum", summands, axis=2), shape=(width,))


@dataclass(frozen=True, slots=True)
class Method:
    """A method: whether it makes sets or intervals, what it needs, and how it is computed."""

    makes_sets: bool
    calibrate: Callable[[CalibrationTask], Calibrated]


METHODS: Mapping[str, Method] = {
    "split": Method(False, lambda task: _calibrate_intervals(task, _build_split)),
    "normalized": Method(False, lambda task: _calibrate_intervals(task, _build_normalized)),
    "cqr": Method(False, lambda task: _calibrate_intervals(task, _build_cqr)),
    "lac": Method(True, lambda task: _calibrate_sets(task, _build_lac)),
    "aps": Method(True, lambda task: _calibrate_sets(task, _build_aps)),
}
"""Maps names to methods; `mondrian` stands for the default method with groups."""


def list_missing_classes(codes: Array, labels: Labels) -> list[Any]:
    """Return the classes whose index is not among `codes`, int64 (n,)."""
    seen = set(np.unique(codes).tolist())
    return [value for code, value in enumerate(labels.values) if code not in seen]


def check_classes(truth: Array, program: Program, groups: Groups | None) -> None:
    """Raise ConfigError if classes are groups and the calibration rows lack one of them."""
    if groups is None or groups.column is not None:
        return
    missing = list_missing_classes(truth, program.labels[0])
    if missing:
        raise ConfigError(
            f"no calibration row has the class {list_classes(missing)}, and each class is a group: "
            "add such rows, or leave `by` out"
        )


def find_calibration_options(training_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of CALIBRATE that the options of a training request, or none."""
    names = {"calibration": "method", "calibration_by": "by"}
    return {new: training_options[n] for n, new in names.items() if n in training_options}
