"""`compared_tables`: the query in brackets that a form of tables alone stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlml.catalog.model import Model, TrainingFacts
from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.syntax.table_form import TableForm
from sqlml.planner.table_data.describe import DataColumn, Kind, data_columns, described
from sqlml.planner.table_data.drift import (
    METRICS,
    Judgement,
    Known,
    drifted,
    of_kinds,
    skewed,
)
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
    judgement = _judgement(form, [c.name for c in columns], sql)
    return drifted(columns, judgement, dialect)


def skew_of(
    form: TableForm, model: Model, facts: TrainingFacts | None, dialect: Dialect, sql: str
) -> tuple[str, str]:
    """The text before and after rows that are compared with those that a model was trained on.

    Raises:
        BindError: the model does not know these, or an option has a wrong value.
    """
    if facts is None:
        raise BindError(
            f"sqlml did not train model {model.label} and does not know its training rows; compare "
            "two tables, as in ml_validate_data_drift(TABLE training_rows, TABLE t)",
            sql,
            form.span.start,
        )
    features = [f for f in facts.features if f.get("values") or f["nulls"] == f.get("rows")]
    if not features:
        raise BindError(
            f"no distributions were kept when model {model.label} was trained; ALTER MODEL .. "
            "RETRAIN keeps them",
            sql,
            form.span.start,
        )
    kinds: dict[str, Kind] = {
        f["name"]: "name" if f["distinct"] is not None else "number" for f in features
    }
    columns = [DataColumn(name, "", kind) for name, kind in kinds.items()]
    columns = [c for part in of_kinds(columns) for c in part]
    place = {c.name: k for k, c in enumerate(columns)}
    values = [(place[f["name"]], value, n) for f in features for value, n in f["values"]]
    known = Known(
        numbers=[(k, float(v), n) for k, v, n in values if columns[k].kind == "number"],
        names=[(k, str(v), n) for k, v, n in values if columns[k].kind == "name"],
        others=[(place[f["name"]], f["others"]) for f in features if f.get("others")],
        shares=[(place[f["name"]], f["rows"], f["nulls"]) for f in features],
    )
    transform = model.transform
    made = frozenset[str]() if transform is None else transform.made.keys()
    names = {f["name"]: dialect.quote_name(f["name"]) for f in features}
    if transform is not None:
        raw = {column: dialect.quote_name(column) for column in transform.columns}
        names |= {name: transform.sql(name, raw) for name in names.keys() & made}
    judgement = _judgement(form, list(place), sql)
    return skewed(columns, names, known, judgement, dialect)


def _judgement(form: TableForm, columns: Sequence[str], sql: str) -> Judgement:
    """How the columns are compared, as the options say."""
    own = {fold(name): value for name, value in _value(form, "thresholds", {}).items()}
    unknown = own.keys() - {fold(name) for name in columns}
    if unknown:
        raise BindError(
            f"option thresholds names column {min(unknown)!r}; columns: {', '.join(columns)}",
            sql,
            form.options["thresholds"].span.start,
        )
    if any(value < 0 for value in own.values()):
        raise BindError("thresholds must be at least 0", sql, form.options["thresholds"].span.start)
    return Judgement(
        metrics=(
            _metric(form, "numerical_metric_type", frozenset(METRICS.values()), sql),
            _metric(form, "categorical_metric_type", _OF_NAMES, sql),
        ),
        thresholds=(
            _threshold(form, "numerical_default_threshold", sql),
            _threshold(form, "categorical_default_threshold", sql),
            _threshold(form, "null_share_threshold", sql),
        ),
        of_columns=own,
        bins=form.whole("bins", 10, 2, 100, sql),
    )


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
