"""`ml_validate_data_drift` and `ml_validate_data_skew`: which columns, and with which thresholds.

Drift compares two tables; skew compares a table with the rows that a model was trained on. The SQL
is that of `drift_queries.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.planner.table_functions.describe_data import (
    DataColumn,
    classify_columns,
    require_column_types,
)
from sqlml.planner.table_functions.drift_queries import (
    METRICS,
    DriftOptions,
    TrainingDistributions,
    compare_tables,
    compare_with_training,
    split_kinds,
)
from sqlml.planner.table_functions.table_function_call import TableFunctionCall
from sqlml.types import fold

_CATEGORICAL_METRICS = frozenset({"psi", "jensen_shannon_divergence", "l_infinity"})


def write_drift(call: TableFunctionCall) -> tuple[str, str, str]:
    """Return the SQL before, between and after the two tables of ml_validate_data_drift.

    Raises:
        BindError: the columns are unknown or do not match, or an option has a wrong value.
    """
    base, study = require_column_types(call)
    study_types = {fold(name): kind for name, kind in study.items()}
    shared = {name: kind for name, kind in base.items() if fold(name) in study_types}
    columns = [column for column in classify_columns(shared) if column.kind != "other"]
    study_columns = {
        column.name: column
        for column in classify_columns({name: study_types[fold(name)] for name in shared})
    }
    for column in columns:
        _check_same_kind(call, column, study_columns[column.name])
    if not columns:
        raise call.error("the two tables share no column that can be compared")
    options = _read_options(call, [column.name for column in columns])
    return compare_tables(columns, options, call.dialect)


def write_skew(call: TableFunctionCall) -> tuple[str, str]:
    """Return the SQL before and after the rows of ml_validate_data_skew.

    Raises:
        BindError: the model's training rows are unknown, or an option has a wrong value.
    """
    model, dialect = call.model, call.dialect
    if call.training is None:
        raise call.error(
            f"sqlml did not train model {model.label} and does not know its training rows; compare "
            "two tables, as in ml_validate_data_drift(TABLE training_rows, TABLE t)"
        )
    features = [f for f in call.training.features if f.get("values") or f["nulls"] == f.get("rows")]
    if not features:
        raise call.error(
            f"no distributions were kept when model {model.label} was trained; ALTER MODEL ... "
            "RETRAIN keeps them"
        )
    columns = [
        DataColumn(f["name"], "", "name" if f["distinct"] is not None else "number")
        for f in features
    ]
    numbers, names = split_kinds(columns)
    columns = [*numbers, *names]
    index = {column.name: k for k, column in enumerate(columns)}
    values = [(index[f["name"]], value, count) for f in features for value, count in f["values"]]
    distributions = TrainingDistributions(
        numbers=[(k, float(v), count) for k, v, count in values if columns[k].kind == "number"],
        names=[(k, str(v), count) for k, v, count in values if columns[k].kind == "name"],
        others=[(index[f["name"]], f["others"]) for f in features if f.get("others")],
        shares=[(index[f["name"]], f["rows"], f["nulls"]) for f in features],
    )
    items = _select_features(model, list(index), dialect)
    options = _read_options(call, list(index))
    return compare_with_training(columns, items, distributions, options, dialect)


def _select_features(model: Model, names: Sequence[str], dialect: Dialect) -> dict[str, str]:
    """Return the expression of each feature over the rows: a column, or an item of TRANSFORM."""
    items = {name: dialect.quote_name(name) for name in names}
    if model.transform is None:
        return items
    columns = {column: dialect.quote_name(column) for column in model.transform.columns}
    transformed = items.keys() & model.transform.expressions.keys()
    return items | {name: model.transform.sql(name, columns) for name in transformed}


def _check_same_kind(call: TableFunctionCall, base: DataColumn, study: DataColumn) -> None:
    """Raise BindError for a column that is a number in one table and a name in the other."""
    if (base.kind == "number") != (study.kind == "number") or study.kind == "other":
        raise call.error(
            f"column {base.name!r} is {base.type} in the first table and {study.type} in the "
            "second: cast one of them"
        )


def _read_options(call: TableFunctionCall, columns: Sequence[str]) -> DriftOptions:
    thresholds = {fold(name): value for name, value in _read_option(call, "thresholds", {}).items()}
    unknown = thresholds.keys() - {fold(name) for name in columns}
    if unknown:
        raise call.error(
            f"option thresholds names column {min(unknown)!r}; columns: {', '.join(columns)}",
            "thresholds",
        )
    if any(value < 0 for value in thresholds.values()):
        raise call.error("thresholds must be at least 0", "thresholds")
    return DriftOptions(
        metrics=(
            _read_metric(call, "numerical_metric_type", frozenset(METRICS.values())),
            _read_metric(call, "categorical_metric_type", _CATEGORICAL_METRICS),
        ),
        thresholds=(
            _read_threshold(call, "numerical_default_threshold"),
            _read_threshold(call, "categorical_default_threshold"),
            _read_threshold(call, "null_share_threshold"),
        ),
        column_thresholds=thresholds,
        bins=call.read_integer("bins", 10, 2, 100),
    )


def _read_metric(call: TableFunctionCall, option: str, allowed: frozenset[str]) -> str:
    name = str(_read_option(call, option, "jensen_shannon_divergence"))
    metric = METRICS.get(fold(name))
    if metric not in allowed:
        raise call.error(
            f"unknown metric {name!r} of option {option}; metrics: {', '.join(sorted(allowed))}",
            option,
        )
    return metric


def _read_threshold(call: TableFunctionCall, option: str) -> float:
    threshold = float(_read_option(call, option, 0.3))
    if threshold < 0:
        raise call.error(f"option {option} must be at least 0", option)
    return threshold


def _read_option(call: TableFunctionCall, name: str, default: Any) -> Any:
    option = call.form.options.get(name)
    return default if option is None else option.value
