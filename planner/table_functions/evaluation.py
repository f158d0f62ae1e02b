"""The SQL of the table functions that evaluate a model: metrics, confusion matrices and curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlml.planner.program.result_sql import build_label_array
from sqlml.planner.table_functions import curves, metric_queries
from sqlml.planner.table_functions.evaluated_model import (
    CLASSIFIER_METRICS,
    REGRESSOR_METRICS,
    Grouping,
)
from sqlml.planner.table_functions.scored_rows import EvaluationQuery, ScoredRows
from sqlml.planner.table_functions.scored_table import ScoredTable
from sqlml.planner.table_functions.table_function_call import TableFunctionCall
from sqlml.types import class_text, fold

_DEFAULT_POINTS, _DEFAULT_BINS = 1000, 10
_MAX_BINS, _MAX_QUANTILES = 1000, 100
_MAX_CLASS_COLUMNS = 200  # The maximum number of class columns of a confusion matrix.


def build_evaluation(call: TableFunctionCall) -> tuple[str, str]:
    call.check_trial()
    return build_scored_rows((ScoredRows if call.form.has_model else ScoredTable).of(call))


def build_scored_rows(rows: ScoredRows) -> tuple[str, str]:
    """Return the SQL before and after the rows of an evaluation."""
    if rows.target_count > 1:
        _reject_options(rows, ("class",), "has several targets")
    return BUILDERS[rows.form.function](rows)


def _build_metrics(rows: ScoredRows) -> tuple[str, str]:
    per_class = _read_flag(rows, "per_class")
    metrics: Sequence[str] = CLASSIFIER_METRICS
    if rows.task == "numbers":
        _reject_options(rows, ("threshold", "class", "per_class"), "predicts numbers")
        query = metric_queries.build_regression_metrics(rows.grouping)
        metrics = REGRESSOR_METRICS
    elif rows.task == "clusters":
        _reject_options(rows, ("threshold", "class", "per_class"), "finds clusters")
        query = metric_queries.build_clustering_metrics(rows.grouping, bool(rows.label_columns))
        match_metrics = metric_queries.CLUSTER_MATCH_METRICS if rows.label_columns else ()
        metrics = (*metric_queries.CLUSTER_METRICS, *match_metrics, "clusters")
    elif rows.task == "two classes":
        model_description = "has two classes; option class names the positive one"
        _reject_options(rows, ("per_class",), model_description)
        query = metric_queries.build_binary_metrics(rows.grouping, rows.positive_test)
    else:
        _reject_options(rows, ("threshold", "class"), "has more than two classes")
        if per_class:
            _require_classifier(rows)
        query = metric_queries.build_multiclass_metrics(
            rows.grouping, rows.class_counts, per_class, rows.score_kind == "probabilities"
        )
    calibration = rows.calibration
    if calibration is not None and rows.target_count == 1:
        query = query.with_coverage(rows.grouping)
        width = "mean_width" if calibration.output == "interval" else "mean_width AS mean_size"
        metrics = (*metrics, "coverage", width)
    class_items = [_build_label_item(rows, "k", "class")] if per_class else []
    count_items = [f"rows_evaluated AS {rows.dialect.quote_name('rows')}", "null_labels"]
    return _wrap_rows(rows, query, [*class_items, *metrics, *count_items, "null_predictions"])


def _build_confusion_matrix(rows: ScoredRows) -> tuple[str, str]:
    _require_classifier(rows)
    if rows.task == "classes":
        _reject_options(rows, ("threshold", "class"), "has more than two classes")
    predicted_class = "hat"
    if "threshold" in rows.form.options:
        predicted_class = f"CASE WHEN {rows.positive_test} THEN 1 ELSE 0 END"
    count_type = "DOUBLE" if "weight" in rows.form.options else "BIGINT"
    actual_label = _build_label_item(rows, "k", "expected_label")
    quote = rows.dialect.quote_name
    if _read_flag(rows, "pairs"):
        query = metric_queries.build_confusion_pairs(rows.grouping, predicted_class, count_type)
        predicted_label = _build_label_item(rows, "predicted_class", "predicted_label")
        return _wrap_rows(rows, query, [actual_label, predicted_label, f"c AS {quote('rows')}"])
    if rows.class_count > _MAX_CLASS_COLUMNS:
        raise rows.error(
            f"model {rows.model.name!r} has {rows.class_count} classes, but only "
            f"{_MAX_CLASS_COLUMNS} can be columns; pairs := true returns a row per pair of classes"
        )
    build_matrix = metric_queries.build_confusion_matrix
    query = build_matrix(rows.grouping, rows.class_count, predicted_class, count_type)
    class_names = [class_text(label) or "(empty)" for label in rows.class_labels.values]
    if len({fold(name) for name in ("expected_label", *class_names)}) <= len(class_names):
        raise rows.error(
            "two result columns would have the same name, since names of classes differ only in "
            "case or one of them is expected_label; use pairs := true"
        )
    columns = [f"c{k} AS {quote(name)}" for k, name in enumerate(class_names)]
    return _wrap_rows(rows, query, [actual_label, *columns])


def _build_roc_curve(rows: ScoredRows) -> tuple[str, str]:
    points = _read_integer(rows, "points", _DEFAULT_POINTS, 0)
    counts = ("true_positives", "false_positives", "true_negatives", "false_negatives")
    items = ("threshold", "recall", "false_positive_rate", *counts)
    option = rows.form.options.get("thresholds")
    if option is None:
        build = curves.build_roc_curve
        return _build_curve(rows, items, lambda by, scores: build(by, scores, points))
    if "points" in rows.form.options:
        raise rows.error("give either thresholds or points", "points")
    thresholds = [float(threshold) for threshold in dict.fromkeys(option.value)]
    build_points = curves.build_roc_points
    return _build_curve(rows, items, lambda by, scores: build_points(by, scores, thresholds))


def _build_pr_curve(rows: ScoredRows) -> tuple[str, str]:
    points = _read_integer(rows, "points", _DEFAULT_POINTS, 0)
    items = ("threshold", "recall", "precision")
    return _build_curve(rows, items, lambda by, scores: curves.build_pr_curve(by, scores, points))


def _build_calibration_curve(rows: ScoredRows) -> tuple[str, str]:
    if rows.score_kind != "probabilities":
        raise rows.error(f"model {rows.model.name!r} gives no probabilities to compare with labels")
    bins, by_quantile = _read_integer(rows, "bins", _DEFAULT_BINS, 1), _read_flag(rows, "quantiles")
    if by_quantile and bins > _MAX_QUANTILES:
        raise rows.error(f"option bins is at most {_MAX_QUANTILES} with quantiles := true", "bins")
    count = f"rows_in_bin AS {rows.dialect.quote_name('rows')}"
    items = ("bin", "lowest", "highest", "mean_predicted", "fraction_of_positives", count)
    build = curves.build_calibration_curve
    return _build_curve(rows, items, lambda by, scores: build(by, scores, bins, by_quantile))


def _build_lift(rows: ScoredRows) -> tuple[str, str]:
    bins = _read_integer(rows, "bins", _DEFAULT_BINS, 1)
    bin_columns = ("bin", "lowest", "highest", f"rows_in_bin AS {rows.dialect.quote_name('rows')}")
    cumulative_columns = ("cumulative_share", "cumulative_gain", "cumulative_lift")
    items = (*bin_columns, "positives", "response_rate", "lift", *cumulative_columns)
    return _build_curve(rows, items, lambda by, scores: curves.build_lift(by, scores, bins))


def _build_curve(
    rows: ScoredRows,
    items: Sequence[str],
    build_query: Callable[[Grouping, curves.Ctes], EvaluationQuery],
) -> tuple[str, str]:
    _require_classifier(rows)
    if rows.class_count < 2:
        raise rows.error(f"model {rows.model.name!r} has only one class, so it has no curve")
    if rows.score_kind == "none":
        missing_outputs = "neither probabilities nor scores, so it has no curve"
        raise rows.error(f"model {rows.model.name!r} returns {missing_outputs}")
    is_per_class = rows.class_count > 2 and "class" not in rows.form.options
    class_number = rows.positive_index if rows.class_count > 2 and not is_per_class else None
    grouping, score_ctes = curves.build_score_ctes(rows.grouping, class_number, rows.class_count)
    class_items = [_build_label_item(rows, "k", "class")] if is_per_class else []
    return _wrap_rows(rows, build_query(grouping, score_ctes), [*class_items, *items])


def _require_classifier(rows: ScoredRows) -> None:
    if rows.task in ("numbers", "clusters"):
        purpose = "predicts numbers" if rows.task == "numbers" else "finds clusters"
        raise rows.error(
            f"ml_{rows.form.function} needs a classifier, and model {rows.model.name!r} {purpose}"
        )
    if len({labels.values for labels in rows.model.program.labels}) > 1:
        raise rows.error(f"the targets of model {rows.model.name!r} have different classes")


def _build_label_item(rows: ScoredRows, class_number: str, name: str) -> str:
    dialect = rows.dialect
    position = dialect.operator("+", class_number, "1")
    label = dialect.at(build_label_array(rows.class_labels, dialect), position)
    return f"{label} AS {dialect.quote_name(name)}"


def _wrap_rows(rows: ScoredRows, query: EvaluationQuery, items: Sequence[str]) -> tuple[str, str]:
    """Return the SQL before and after the rows, which selects the group columns and `items`."""
    _reject_equal_names(rows, items)
    name_array = rows.dialect.array([rows.dialect.text(name) for name in rows.label_columns])
    target = rows.dialect.at(name_array, rows.dialect.operator("+", "t", "1"))
    pairs = zip(rows.grouping.keys, rows.grouping.names, strict=True)
    key_items = [f"{target if key == 't' else key} AS {name}" for key, name in pairs]
    return query.wrap_rows(rows, [*key_items, *items])


def _reject_equal_names(rows: ScoredRows, items: Sequence[str]) -> None:
    names = {fold(item.rpartition(" AS ")[2].strip('"`')) for item in items}
    if rows.target_count > 1:
        names.add("target")
    options = rows.form.options
    for name in options["by"].value if "by" in options else ():
        if fold(name) in names:
            raise rows.error(
                f"the result would have two columns {name!r}; rename that of option by in the rows",
                "by",
            )
        names.add(fold(name))


def _read_flag(rows: ScoredRows, name: str) -> bool:
    option = rows.form.options.get(name)
    return option is not None and bool(option.value)


def _read_integer(rows: ScoredRows, name: str, default: int, min_value: int) -> int:
    max_value = _MAX_BINS if name == "bins" else 10**9
    return rows.form.read_integer(name, default, min_value, max_value, rows.sql)


def _reject_options(rows: ScoredRows, options: Sequence[str], model_description: str) -> None:
    for name in options:
        if name in rows.form.options:
            subject = f"model {rows.model.name!r}, which {model_description}"
            raise rows.error(f"option {name} does not apply to {subject}", name)


BUILDERS: Mapping[str, Callable[[ScoredRows], tuple[str, str]]] = {
    "evaluate": _build_metrics,
    "confusion_matrix": _build_confusion_matrix,
    "roc_curve": _build_roc_curve,
    "pr_curve": _build_pr_curve,
    "calibration_curve": _build_calibration_curve,
    "lift": _build_lift,
}
"""Function name without `ml_` -> builder of the SQL before and after the function's rows."""
