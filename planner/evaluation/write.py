"""`written`: the query in brackets that an evaluating form stands for, around the user's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlml.planner.evaluation import curves, metric_queries
from sqlml.planner.evaluation.answer import Answer
from sqlml.planner.evaluation.evaluated_model import OF_CLASSES, OF_NUMBERS
from sqlml.planner.evaluation.metric_queries import confusion_matrix, pairs
from sqlml.planner.evaluation.scored_rows import ScoredRows
from sqlml.planner.program.result_sql import label_array
from sqlml.types import fold

_POINTS, _BINS = 1000, 10
"""What is answered at most unless the form says otherwise: thresholds of a curve, bins."""

_MOST_BINS, _MOST_QUANTILES = 1000, 100
_MOST_COLUMNS = 200
"""Classes that are columns of a confusion matrix."""


def written(rows: ScoredRows) -> tuple[str, str]:
    """The text before and after the user's rows.

    Raises:
        BindError: an option that does not fit the model, or a model that the form does not fit.
    """
    if rows.targets > 1:
        _refuse(rows, ("class",), "has several targets")
    return _FORMS[rows.form.function](rows)


def _evaluate(rows: ScoredRows) -> tuple[str, str]:
    if rows.task == "numbers":
        _refuse(rows, ("threshold", "class", "per_class"), "predicts numbers")
        answer = metric_queries.numbers(rows.grouping)
        metrics: Sequence[str] = OF_NUMBERS
    elif rows.task == "clusters":
        _refuse(rows, ("threshold", "class", "per_class"), "finds clusters")
        answer = metric_queries.clusters(rows.grouping, bool(rows.labels))
        metrics = (
            *metric_queries.COMPACT,
            *(metric_queries.MATCHES if rows.labels else ()),
            "clusters",
        )
    elif rows.task == "two classes":
        _refuse(rows, ("per_class",), "has two classes; `class` names the one to look at")
        answer = metric_queries.two_classes(rows.grouping, rows.hit)
        metrics = OF_CLASSES
    else:
        _refuse(rows, ("threshold", "class"), "has more than two classes")
        if _option(rows, "per_class", False):
            _check_classes(rows)
        answer = metric_queries.classes(
            rows.grouping,
            rows.class_counts,
            _option(rows, "per_class", False),
            rows.scores == "probabilities",
        )
        metrics = OF_CLASSES
    keys = [_label(rows, "k", "class")] if _option(rows, "per_class", False) else []
    counts = [f"rows_evaluated AS {rows.dialect.quote_name('rows')}", "null_labels"]
    return _around(rows, answer, [*keys, *metrics, *counts, "null_predictions"])


def _confusion_matrix(rows: ScoredRows) -> tuple[str, str]:
    _check_classes(rows)
    if rows.task == "classes":
        _refuse(rows, ("threshold", "class"), "has more than two classes")
    predicted = "hat"
    if "threshold" in rows.form.options:
        predicted = f"CASE WHEN {rows.hit} THEN 1 ELSE 0 END"
    count = "DOUBLE" if "weight" in rows.form.options else "BIGINT"
    expected = _label(rows, "k", "expected_label")
    quote = rows.dialect.quote_name
    if _option(rows, "pairs", False):
        items = [expected, _label(rows, "taken_for", "predicted_label"), f"c AS {quote('rows')}"]
        return _around(rows, pairs(rows.grouping, predicted, count), items)
    if rows.classes > _MOST_COLUMNS:
        raise rows.error(
            f"model {rows.model.name!r} has {rows.classes} classes, too many for a column each; "
            "pairs := true gives a row for each pair of classes"
        )
    answer = confusion_matrix(rows.grouping, rows.classes, predicted, count)
    shown = [_header(v) for v in rows.class_labels.values]
    taken = [f"c{k} AS {quote(name)}" for k, name in enumerate(shown)]
    if len({fold(name) for name in ("expected_label", *shown)}) <= len(shown):
        raise rows.error("classes differ only in case, or are called as a column is: pairs := true")
    return _around(rows, answer, [expected, *taken])


def _header(label: Any) -> str:
    """The name of the column of a class."""
    return (str(label).lower() if isinstance(label, bool) else str(label)) or "(empty)"


def _curve(rows: ScoredRows, items: Sequence[str], make: Callable[..., Answer]) -> tuple[str, str]:
    """A curve of one class, or of each of several."""
    _check_classes(rows)
    if rows.classes < 2:
        raise rows.error(f"model {rows.model.name!r} has only one class, so it has no curve")
    if rows.scores == "none":
        raise rows.error(
            f"model {rows.model.name!r} returns neither probabilities nor scores, so it has no "
            "curve"
        )
    each = rows.classes > 2 and "class" not in rows.form.options
    k = rows.positive if rows.classes > 2 and not each else None
    by, queries = curves.by_score(rows.grouping, k, rows.classes)
    keys = [_label(rows, "k", "class")] if each else []
    return _around(rows, make(by, queries), [*keys, *items])


def _roc_curve(rows: ScoredRows) -> tuple[str, str]:
    points = _whole(rows, "points", _POINTS, 0)
    items = (
        *("threshold", "recall", "false_positive_rate", "true_positives", "false_positives"),
        *("true_negatives", "false_negatives"),
    )
    return _curve(rows, items, lambda by, queries: curves.roc_curve(by, queries, points))


def _pr_curve(rows: ScoredRows) -> tuple[str, str]:
    points = _whole(rows, "points", _POINTS, 0)
    items = ("threshold", "recall", "precision")
    return _curve(rows, items, lambda by, queries: curves.pr_curve(by, queries, points))


def _calibration_curve(rows: ScoredRows) -> tuple[str, str]:
    if rows.scores != "probabilities":
        raise rows.error(f"model {rows.model.name!r} gives no probabilities to compare with labels")
    bins, quantiles = _whole(rows, "bins", _BINS, 1), _option(rows, "quantiles", False)
    if quantiles and bins > _MOST_QUANTILES:
        raise rows.error(f"option bins is at most {_MOST_QUANTILES} with quantiles := true", "bins")
    items = ("bin", "lowest", "highest", "mean_predicted", "fraction_of_positives")
    return _curve(
        rows,
        [*items, f"rows_in_bin AS {rows.dialect.quote_name('rows')}"],
        lambda by, queries: curves.calibration_curve(by, queries, bins, quantiles),
    )


def _lift(rows: ScoredRows) -> tuple[str, str]:
    bins = _whole(rows, "bins", _BINS, 1)
    items = [
        *("bin", "lowest", "highest", f"rows_in_bin AS {rows.dialect.quote_name('rows')}"),
        *("positives", "response_rate", "lift", "cumulative_share", "cumulative_gain"),
        "cumulative_lift",
    ]
    return _curve(rows, items, lambda by, queries: curves.lift(by, queries, bins))


def _check_classes(rows: ScoredRows) -> None:
    """Raise for a model without classes, or whose targets have different ones."""
    if rows.task in ("numbers", "clusters"):
        what = "predicts numbers" if rows.task == "numbers" else "finds clusters"
        raise rows.error(
            f"ml_{rows.form.function} needs a classifier, and model {rows.model.name!r} {what}"
        )
    if len({labels.values for labels in rows.model.program.labels}) > 1:
        raise rows.error(f"the targets of model {rows.model.name!r} have different classes")


def _label(rows: ScoredRows, place: str, name: str) -> str:
    """The class of a number, as a select item."""
    dialect = rows.dialect
    at = dialect.operator("+", place, "1")
    label = dialect.at(label_array(rows.class_labels, dialect), at)
    return f"{label} AS {dialect.quote_name(name)}"


def _around(rows: ScoredRows, answer: Answer, items: Sequence[str]) -> tuple[str, str]:
    _check_names(rows, items)
    pairs = zip(rows.grouping.keys, rows.grouping.names, strict=True)
    keys = [f"{_target(rows) if key == 't' else key} AS {name}" for key, name in pairs]
    return answer.around(rows, [*keys, *items])


def _check_names(rows: ScoredRows, items: Sequence[str]) -> None:
    """Raise BindError where a column of `by` is called as another column of the answer is."""
    by = rows.form.options.get("by")
    taken = {fold(item.rpartition(" AS ")[2].strip('"`')) for item in items}
    taken |= {"target"} if rows.targets > 1 else set()
    for name in by.value if by else ():
        if fold(name) in taken:
            raise rows.error(
                f"the answer would have two columns {name!r}; rename the one of `by` in the rows",
                "by",
            )
        taken.add(fold(name))


def _target(rows: ScoredRows) -> str:
    """The column of labels of a target."""
    names = rows.dialect.array([rows.dialect.text(name) for name in rows.labels])
    return rows.dialect.at(names, rows.dialect.operator("+", "t", "1"))


def _option(rows: ScoredRows, name: str, default: bool) -> bool:
    option = rows.form.options.get(name)
    return default if option is None else bool(option.value)


def _whole(rows: ScoredRows, name: str, default: int, least: int) -> int:
    """An option that is a whole number.

    Raises:
        BindError: it is none, or out of range.
    """
    most = _MOST_BINS if name == "bins" else 10**9
    return rows.form.whole(name, default, least, most, rows.sql)


def _refuse(rows: ScoredRows, options: Sequence[str], why: str) -> None:
    """Raise for an option that makes no sense for a model."""
    for name in options:
        if name in rows.form.options:
            raise rows.error(
                f"option {name} does not apply to model {rows.model.name!r}, which {why}", name
            )


_FORMS: Mapping[str, Callable[[ScoredRows], tuple[str, str]]] = MappingProxyType(
    {
        "evaluate": _evaluate,
        "confusion_matrix": _confusion_matrix,
        "roc_curve": _roc_curve,
        "pr_curve": _pr_curve,
        "calibration_curve": _calibration_curve,
        "lift": _lift,
    }
)
"""Form -> what writes it."""
