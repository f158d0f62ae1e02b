"""`ml_validate_data_drift` and `ml_validate_data_skew`: compare the distributions of each column.

Drift compares two tables. Skew compares a table with the training rows of a model, for which some
numbers and names are stored with their frequencies (`training/column_statistics.py`). Numbers are
compared in bins that have equally many rows of the first table, and names are compared one by one.
NULLs are not part of a distribution. Separate result columns contain the shares of NULLs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlml.dialects import Dialect
from sqlml.planner.syntax.query_templates import build_literal_table, render_for_engine
from sqlml.planner.table_functions.curves import build_quantile_edges
from sqlml.planner.table_functions.describe_data import (
    DataColumn,
    classify_columns,
    require_column_types,
)
from sqlml.planner.table_functions.evaluated_model import Grouping
from sqlml.planner.table_functions.table_function_call import TableFunctionCall
from sqlml.types import fold

_METRICS: Mapping[str, str] = {
    "psi": "psi",
    "jensen_shannon_divergence": "jensen_shannon_divergence",
    "l_infty": "l_infinity",
    "l_infinity": "l_infinity",
    "kolmogorov_smirnov": "kolmogorov_smirnov",
}
"""Name of a metric in the options -> column of the result that holds the metric."""

_CATEGORICAL_METRICS = frozenset({"psi", "jensen_shannon_divergence", "l_infinity"})

_FLOOR = "1e-4"
"""The minimum share of a bin in the population stability index, which uses logarithms of shares."""

_KEYS = Grouping(("k",))


@dataclass(frozen=True, slots=True, kw_only=True)
class _DriftOptions:
    """The metrics for numeric and categorical columns, and the thresholds that mark anomalies."""

    metrics: tuple[str, str]
    thresholds: tuple[float, float, float]  # For numbers, names, and differences of NULL shares.
    column_thresholds: Mapping[str, float]  # Folded name of a column -> threshold.
    bins: int


def build_drift(call: TableFunctionCall) -> tuple[str, str, str]:
    """Return the SQL before, between and after the tables `base` (side 0) and `study` (side 1)."""
    base, study = require_column_types(call)
    study_types = {fold(name): sql_type for name, sql_type in study.items()}
    shared_types = {name: sql_type for name, sql_type in base.items() if fold(name) in study_types}
    columns = [column for column in classify_columns(shared_types) if column.kind != "other"]
    for column in columns:
        (study_column,) = classify_columns({column.name: study_types[fold(column.name)]})
        differs_in_kind = (column.kind == "number") != (study_column.kind == "number")
        if differs_in_kind or study_column.kind == "other":
            raise call.error(
                f"column {column.name!r} is {column.type} in the first table and "
                f"{study_column.type} in the second: cast one of them"
            )
    if not columns:
        raise call.error("the two tables share no column that can be compared")
    dialect, options = call.dialect, _read_options(call, [column.name for column in columns])
    column_sql = {column.name: dialect.quote_name(column.name) for column in columns}
    items = _build_side_items(columns, column_sql, dialect)
    prefix, suffix = _wrap_both_sides(columns, options, (), dialect)
    separator = f" UNION ALL SELECT 1 AS side, {items} FROM "
    return f"{prefix}0 AS side, {items} FROM ", separator, suffix


def build_skew(call: TableFunctionCall) -> tuple[str, str]:
    """Return the SQL before and after the user's rows, to compare them with training rows."""
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
        DataColumn(f["name"], "", "category" if f["distinct"] is not None else "number")
        for f in features
    ]
    number_columns, name_columns = _split_by_kind(columns)
    columns = [*number_columns, *name_columns]
    indices = {column.name: k for k, column in enumerate(columns)}
    values = [(indices[f["name"]], value, count) for f in features for value, count in f["values"]]
    number_rows = [(k, float(v), count) for k, v, count in values if columns[k].kind == "number"]
    name_rows = [(k, str(v), count) for k, v, count in values if columns[k].kind == "category"]
    other_rows = [(indices[f["name"]], f["others"]) for f in features if f.get("others")]
    share_rows = [(indices[f["name"]], f["rows"], f["nulls"]) for f in features]
    # Each row begins with a column index. `known_others` counts rows whose names were not recorded.
    tables: tuple[tuple[str, Mapping[str, str], Sequence[Sequence[Any]]], ...] = (
        ("known_numbers", {"k": "BIGINT", "p": "DOUBLE", "n": "DOUBLE"}, number_rows),
        ("known_names", {"k": "BIGINT", "name": "VARCHAR", "n": "DOUBLE"}, name_rows),
        ("known_others", {"k": "BIGINT", "n": "DOUBLE"}, other_rows),
        ("known_shares", {"k": "BIGINT", "num_rows": "BIGINT", "nulls": "BIGINT"}, share_rows),
    )
    ctes = [
        f"{name} AS {build_literal_table(types, rows, dialect)}" for name, types, rows in tables
    ]
    column_sql = {name: dialect.quote_name(name) for name in indices}
    if model.transform is not None:
        column_sql = model.transform.build_feature_sql(indices, dialect.quote_name)
    prefix, suffix = _wrap_both_sides(columns, _read_options(call, list(indices)), ctes, dialect)
    return f"{prefix}1 AS side, {_build_side_items(columns, column_sql, dialect)} FROM ", suffix


def _read_options(call: TableFunctionCall, columns: Sequence[str]) -> _DriftOptions:
    thresholds = {fold(name): value for name, value in _read_option(call, "thresholds", {}).items()}
    unknown = thresholds.keys() - {fold(name) for name in columns}
    if unknown:
        message = f"option thresholds names column {min(unknown)!r}; columns: {', '.join(columns)}"
        raise call.error(message, "thresholds")
    if any(value < 0 for value in thresholds.values()):
        raise call.error("thresholds must be at least 0", "thresholds")
    return _DriftOptions(
        metrics=(
            _read_metric(call, "numerical_metric_type", frozenset(_METRICS.values())),
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
    metric = _METRICS.get(fold(name))
    if metric not in allowed:
        listing = ", ".join(sorted(allowed))
        raise call.error(f"unknown metric {name!r} of option {option}; metrics: {listing}", option)
    return metric


def _read_threshold(call: TableFunctionCall, option: str) -> float:
    threshold = float(_read_option(call, option, 0.3))
    if threshold < 0:
        raise call.error(f"option {option} must be at least 0", option)
    return threshold


def _read_option(call: TableFunctionCall, name: str, default: Any) -> Any:
    option = call.form.options.get(name)
    return default if option is None else option.value


def _split_by_kind(columns: Sequence[DataColumn]) -> tuple[list[DataColumn], list[DataColumn]]:
    number_columns = [column for column in columns if column.kind == "number"]
    return number_columns, [column for column in columns if column.kind != "number"]


def _build_side_items(
    columns: Sequence[DataColumn], column_sql: Mapping[str, str], dialect: Dialect
) -> str:
    """Build two select items: the list of a row's numbers and the list of the row's names."""
    numbers, names = _split_by_kind(columns)
    return (
        f"{_build_cast_list([column_sql[c.name] for c in numbers], 'DOUBLE', dialect)} AS numbers, "
        f"{_build_cast_list([column_sql[c.name] for c in names], 'VARCHAR', dialect)} AS names"
    )


def _build_cast_list(items: list[str], sql_type: str, dialect: Dialect) -> str:
    """Build a SQL list of `items` cast to `sql_type`, or of one NULL if there are no items."""
    type_name = dialect.type(sql_type)
    return dialect.array([f"CAST({item} AS {type_name})" for item in items or ["NULL"]])


def _wrap_both_sides(
    columns: Sequence[DataColumn],
    options: _DriftOptions,
    training_ctes: Sequence[str],
    dialect: Dialect,
) -> tuple[str, str]:
    """Return the SQL before and after a query with the columns `side`, `numbers` and `names`."""
    numbers, names = _split_by_kind(columns)
    ctes = _build_ctes(len(numbers), len(names), options.bins, bool(training_ctes))
    stub = "WITH sqlml_both AS (SELECT 1), "
    cte_sql = ", ".join(f"{name} AS ({query})" for name, query in ctes.items())
    query = render_for_engine(f"{stub}{cte_sql}{_RESULT}", dialect.name).removeprefix(stub)
    query = ", ".join([*training_ctes, query])
    items = _build_result_items([*numbers, *names], len(numbers), options, dialect)
    return (f"(SELECT {items} FROM (WITH sqlml_both AS (SELECT ", f"), {query}) AS sqlml_drift)")


def _build_result_items(
    columns: Sequence[DataColumn], number_count: int, options: _DriftOptions, dialect: Dialect
) -> str:
    """Build select items that read `_RESULT`. The first `number_count` columns are numeric."""
    metrics, thresholds = options.metrics, options.thresholds
    name_array = dialect.array([dialect.text(column.name) for column in columns])
    column_name = dialect.at(name_array, dialect.operator("+", "k", "1"))
    is_number = f"k < {number_count}"
    value_sql = f"CASE WHEN {is_number} THEN {metrics[0]} ELSE {metrics[1]} END"
    cases = "".join(
        f"WHEN k = {k} THEN {options.column_thresholds[fold(column.name)]!r} "
        for k, column in enumerate(columns)
        if fold(column.name) in options.column_thresholds
    )
    cases += f"WHEN {is_number} THEN {thresholds[0]!r} ELSE {thresholds[1]!r}"
    threshold_sql = f"CAST(CASE {cases} END AS DOUBLE)"
    metric_sql = f"CASE WHEN {is_number} THEN '{metrics[0]}' ELSE '{metrics[1]}' END"
    difference = dialect.operator("-", "null_share_base", "null_share_study")
    return (
        f"{column_name} AS input, {metric_sql} AS metric, {value_sql} AS value, "
        f"{threshold_sql} AS threshold, coalesce({value_sql} > {threshold_sql}, false) OR coalesce("
        f"{dialect.call('abs', difference)} > {thresholds[2]!r}, false) AS is_anomaly, psi, "
        "jensen_shannon_divergence, l_infinity, kolmogorov_smirnov, null_share_base, "
        "null_share_study, rows_base, rows_study"
    )


def _build_ctes(
    number_count: int, name_count: int, bin_count: int, has_training: bool
) -> dict[str, str]:
    """Build the queries that compare `p` and `q`, the shares of each bin or name on both sides."""
    return {
        **_build_long_ctes(number_count, name_count, has_training),
        **_build_number_ctes(bin_count, has_training),
        "by_name": f"""
            SELECT k, name, CAST(sum(base) AS DOUBLE) AS base, CAST(sum(study) AS DOUBLE) AS study
            FROM long_names WHERE name IS NOT NULL
            GROUP BY k, name{", is_other" if has_training else ""}
        """,
        "all_bins": """
            SELECT k, base, study FROM binned UNION ALL SELECT k, base, study FROM by_name
        """,
        "in_bins": """
            SELECT k, base / nullif(sum(base) OVER whole, 0) AS p,
                study / nullif(sum(study) OVER whole, 0) AS q
            FROM all_bins WINDOW whole AS (PARTITION BY k)
        """,
        "measured": f"""
            SELECT k, max(abs(p - q)) AS l_infinity,
                fsum((greatest(p, {_FLOOR}) - greatest(q, {_FLOOR}))
                    * ln(greatest(p, {_FLOOR}) / greatest(q, {_FLOOR}))) AS psi,
                fsum((CASE WHEN p > 0 THEN p * ln(2 * p / (p + q)) ELSE 0 END
                    + CASE WHEN q > 0 THEN q * ln(2 * q / (p + q)) ELSE 0 END) / 2) AS js
            FROM in_bins WHERE p IS NOT NULL AND q IS NOT NULL GROUP BY k
        """,
        "shares": _build_shares(number_count, number_count + name_count, has_training),
    }


def _build_long_ctes(number_count: int, name_count: int, has_training: bool) -> dict[str, str]:
    """Build the queries `long_numbers` and `long_names`, which have a row per value of a column.

    Each row has the column's index `k`, the value, and the value's row counts on both sides, `base`
    and `study`.
    """
    number_rows = ", ".join(f"({k})" for k in range(max(number_count, 1)))
    name_rows = ", ".join(f"({k})" for k in range(number_count, number_count + max(name_count, 1)))
    long_numbers = f"""
        SELECT k, 1 - side AS base, side AS study, array_extract(numbers, k + 1) AS p
        FROM sqlml_both CROSS JOIN (VALUES {number_rows}) AS all_numbers(k) WHERE k < {number_count}
    """
    long_names = f"""
        SELECT k, 1 - side AS base, side AS study,
            array_extract(names, k - {number_count} + 1) AS name
        FROM sqlml_both CROSS JOIN (VALUES {name_rows}) AS all_names(k)
        WHERE k < {number_count + name_count}
    """
    if has_training:
        long_numbers += " UNION ALL SELECT k, n AS base, 0 AS study, p FROM known_numbers"
        long_names = f"""
            SELECT seen.k, base, study, CASE WHEN seen.name IS NULL OR known_others.k IS NULL
                OR known_names.k IS NOT NULL THEN seen.name ELSE '' END AS name,
                known_others.k IS NOT NULL AND known_names.k IS NULL AS is_other
            FROM ({long_names}) AS seen
            LEFT JOIN known_names ON seen.k = known_names.k AND seen.name = known_names.name
            LEFT JOIN known_others ON seen.k = known_others.k
            UNION ALL SELECT k, n AS base, 0 AS study, name, false AS is_other FROM known_names
            UNION ALL
            SELECT k, n AS base, 0 AS study, '' AS name, true AS is_other FROM known_others
        """
    return {"long_numbers": long_numbers, "long_names": long_names}


def _build_number_ctes(bin_count: int, has_training: bool) -> dict[str, str]:
    """Build the queries that count each side's numbers in bins and compare their distributions."""
    by_score = """
        SELECT k, p, CAST(sum(base) AS DOUBLE) AS pos, CAST(sum(study) AS DOUBLE) AS neg
        FROM long_numbers WHERE p IS NOT NULL GROUP BY k, p
    """
    cases = "".join(f"WHEN p <= e{n} THEN {n} " for n in range(1, bin_count))
    binned = f"""
        SELECT by_score.k, CASE {cases}ELSE {bin_count} END AS bin,
            sum(pos) AS base, sum(neg) AS study
        FROM {_KEYS.join("by_score", "edges", "LEFT JOIN")} GROUP BY by_score.k, bin
    """
    upto = """
        SELECT k, pos, sum(pos) OVER ascending AS base_upto, sum(neg) OVER ascending AS study_upto,
            sum(pos) OVER whole AS base, sum(neg) OVER whole AS study
        FROM by_score
        WINDOW ascending AS (PARTITION BY k ORDER BY p ROWS UNBOUNDED PRECEDING),
            whole AS (PARTITION BY k)
    """
    distances = f"""
        SELECT k, max(abs(base_upto / nullif(base, 0) - study_upto / nullif(study, 0))) AS ks
        FROM upto{" WHERE pos > 0" if has_training else ""} GROUP BY k
    """
    return {
        "by_score": by_score,
        **dict(build_quantile_edges(_KEYS, bin_count, "pos", interpolate=not has_training)),
        "binned": binned,
        "upto": upto,
        "distances": distances,
    }


def _build_shares(number_count: int, column_count: int, has_training: bool) -> str:
    column_rows = ", ".join(f"({k})" for k in range(column_count))
    counted = f"""
        SELECT k, sum(1 - side) AS rows_base, sum(side) AS rows_study,
            sum(CASE WHEN side = 0 AND is_null THEN 1 ELSE 0 END) AS nulls_base,
            sum(CASE WHEN side = 1 AND is_null THEN 1 ELSE 0 END) AS nulls_study
        FROM (
            SELECT k, side, CASE WHEN k < {number_count} THEN array_extract(numbers, k + 1) IS NULL
                ELSE array_extract(names, k - {number_count} + 1) IS NULL END AS is_null
            FROM sqlml_both CROSS JOIN (VALUES {column_rows}) AS all_columns(k)
        ) AS long_columns GROUP BY k
    """
    if not has_training:
        return counted
    return f"""
        SELECT known_shares.k, num_rows AS rows_base, nulls AS nulls_base,
            coalesce(rows_study, 0) AS rows_study, coalesce(nulls_study, 0) AS nulls_study
        FROM known_shares LEFT JOIN ({counted}) AS of_rows ON known_shares.k = of_rows.k
    """


_RESULT = """
    SELECT shares.k, psi, js AS jensen_shannon_divergence, l_infinity, ks AS kolmogorov_smirnov,
        CAST(nulls_base AS DOUBLE) / nullif(rows_base, 0) AS null_share_base,
        CAST(nulls_study AS DOUBLE) / nullif(rows_study, 0) AS null_share_study,
        CAST(rows_base AS BIGINT) AS rows_base, CAST(rows_study AS BIGINT) AS rows_study
    FROM shares LEFT JOIN measured ON shares.k = measured.k
        LEFT JOIN distances ON shares.k = distances.k
    ORDER BY shares.k
"""
