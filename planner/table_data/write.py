"""`compared_tables`: the query in brackets that a form of tables alone stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.syntax.table_form import TableForm
from sqlml.planner.table_data.column_kinds import DataColumn, data_columns
from sqlml.planner.table_data.describe import described
from sqlml.planner.table_data.drift import METRICS, drifted
from sqlml.types import fold

_OF_NAMES = frozenset({"psi", "jensen_shannon_divergence", "l_infinity"})

Columns = Mapping[str, str] | None


def compared_tables(
    form: TableForm, columns: Sequence[Columns], context: Context, sql: str
) -> tuple[str, ...]:
    """The text before, between and after the rows of a form.

    Args:
        columns: of each of the rows, name -> type; None where the engine cannot say it.

    Raises:
        BindError: the columns are not known, or an option has a wrong value.
    """
    known = []
    for place, found in zip(form.rows, columns, strict=True):
        if found is None:
            raise BindError(_why_unknown(sql[place.start : place.end], context), sql, place.start)
        known.append(found)
    if form.function == "describe_data":
        return _described(form, known[0], context.dialect, sql)
    return _drifted(form, known[0], known[1], context.dialect, sql)


def _why_unknown(rows: str, context: Context) -> str:
    """Why the columns of rows are not known."""
    try:
        context.describe(f"SELECT * FROM {rows}")
    except ProbeError as error:
        return f"cannot determine the columns of these rows: {error}"
    return "cannot determine the columns of these rows"


def _described(
    form: TableForm, columns: Mapping[str, str], dialect: Dialect, sql: str
) -> tuple[str, ...]:
    quantiles = form.whole("num_quantiles", 2, 1, 100, sql)
    top = form.whole("top_k", 1, 0, 100, sql)
    return described(data_columns(columns), quantiles, top, dialect)


def _drifted(
    form: TableForm,
    base: Mapping[str, str],
    study: Mapping[str, str],
    dialect: Dialect,
    sql: str,
) -> tuple[str, ...]:
    there = {fold(name): kind for name, kind in study.items()}
    shared = {name: kind for name, kind in base.items() if fold(name) in there}
    columns = [c for c in data_columns(shared) if c.kind != "other"]
    others = {c.name: c for c in data_columns({n: there[fold(n)] for n in shared})}
    for column in columns:
        _check_alike(form, column, others[column.name], sql)
    if not columns:
        raise BindError("the two tables share no column that can be compared", sql, form.span.start)
    metrics = (
        _metric(form, "numerical_metric_type", frozenset(METRICS.values()), sql),
        _metric(form, "categorical_metric_type", _OF_NAMES, sql),
    )
    thresholds = (
        _threshold(form, "numerical_default_threshold", sql),
        _threshold(form, "categorical_default_threshold", sql),
        _threshold(form, "null_share_threshold", sql),
    )
    bins = form.whole("bins", 10, 2, 100, sql)
    return drifted(columns, metrics, thresholds, bins, dialect)


def _check_alike(form: TableForm, base: DataColumn, study: DataColumn, sql: str) -> None:
    """Raise BindError for a column that is a number in one table and a name in the other."""
    if (base.kind == "number") != (study.kind == "number") or study.kind == "other":
        raise BindError(
            f"column {base.name!r} is {base.type} in the first table and {study.type} in the "
            "second: cast one of them",
            sql,
            form.span.start,
        )


def _metric(form: TableForm, name: str, allowed: frozenset[str], sql: str) -> str:
    given = str(_value(form, name, "jensen_shannon_divergence"))
    found = METRICS.get(fold(given))
    if found not in allowed:
        raise BindError(
            f"unknown metric {given!r} of option {name}; metrics: {', '.join(sorted(allowed))}",
            sql,
            form.options[name].span.start,
        )
    return found


def _threshold(form: TableForm, name: str, sql: str) -> float:
    value = float(_value(form, name, 0.3))
    if value < 0:
        raise BindError(f"option {name} must be at least 0", sql, form.options[name].span.start)
    return value


def _value(form: TableForm, name: str, default: Any) -> Any:
    option = form.options.get(name)
    return default if option is None else option.value
