"""The SQL of functions for models without labels: anomalies, reconstruction losses, distances.

::

    FROM ml_detect_anomalies(MODEL m, TABLE t, contamination := 0.02)
    FROM (SELECT is_anomaly, mean_squared_error, * EXCLUDE (..) FROM (
          WITH sqlml_scored AS (SELECT *, reconstruction_loss('m', *) AS sqlml_measure FROM t),
               sqlml_threshold AS (SELECT quantile_cont(.., 0.98) AS sqlml_threshold
                                   FROM training query) ..))
"""

from __future__ import annotations

from sqlml.dialects import Dialect
from sqlml.errors import UnsupportedModelError
from sqlml.explaining.reconstruction import add_losses
from sqlml.ir.program import Program
from sqlml.planner.table_functions.table_function_call import TableFunctionCall

LOSS_COLUMNS = ("mean_absolute_error", "mean_squared_error", "mean_squared_log_error")


def has_distances(program: Program) -> bool:
    """Return whether `transform` returns the distances of a row to the centroids of clusters."""
    if len(program.labels) != 1 or "transform" not in program.outputs or "proba" in program.outputs:
        return False
    clusters = program.labels[0].values
    is_numbered = clusters == tuple(range(len(clusters)))
    return is_numbered and program.output_type("transform").width == len(clusters)


def list_distances(call: TableFunctionCall) -> str:
    """Return the SQL of a list of the distances to the centroids, which may be only one."""
    distances = f"transform({call.dialect.quote_string(str(call.form.model))}, *)"
    return distances if len(call.model.program.labels[0]) > 1 else call.dialect.array([distances])


def build_nearest_centroids(call: TableFunctionCall) -> str:
    """Return the SQL of a list of structs with each centroid and its distance, nearest first."""
    dialect, distances = call.dialect, "sqlml_distances"
    key = dialect.struct({"distance": dialect.at(distances, "sqlml_k"), "place": "sqlml_k"})
    positions = dialect.array([str(k) for k in range(1, len(call.model.program.labels[0]) + 1)])
    ordered = dialect.ordered(dialect.each(positions, "sqlml_k", key))
    place, distance = (dialect.member("sqlml_e", field) for field in ("place", "distance"))
    fields = {"CENTROID_ID": f"CAST({place} AS BIGINT)", "DISTANCE": distance}
    nearest = dialect.each(ordered, "sqlml_e", dialect.struct(fields))
    nearest = f"CASE WHEN {distances} IS NOT NULL THEN {nearest} END"
    return dialect.let(distances, list_distances(call), nearest)


def build_reconstruction_losses(call: TableFunctionCall) -> tuple[str, str]:
    call.reject_columns(LOSS_COLUMNS)
    dialect, losses = call.dialect, call.dialect.quote_name("sqlml_losses")
    items = [f"{dialect.at(losses, k)} AS {name}" for k, name in enumerate(LOSS_COLUMNS, 1)]
    items.append(dialect.star_without([losses]))
    reference = dialect.quote_string(str(call.form.model))
    model_call = f"reconstruction_loss({reference}, *) AS {losses}"
    prefix = f"(SELECT {', '.join(items)} FROM (SELECT *, {model_call} FROM "
    return prefix, ") AS sqlml_rows)"


def build_transformed_rows(call: TableFunctionCall) -> tuple[str, str]:
    """Return the SQL around the rows that computes the columns of the model's TRANSFORM clause."""
    transform = call.model.transform
    if transform is None or (call.training is not None and call.training.transform is None):
        raise call.error(
            f"model {call.model.label} has no TRANSFORM clause: its inputs are the columns of the "
            "rows"
        )
    quote = call.dialect.quote_name
    names = [feature.name for feature in call.model.features if feature.kind != "any"]
    features = transform.build_feature_sql(names, quote)
    return (
        f"(SELECT {', '.join(f'{sql} AS {quote(name)}' for name, sql in features.items())} FROM ",
        ")",
    )


def build_anomalies(call: TableFunctionCall) -> tuple[str, str]:
    program, dialect = call.model.program, call.dialect
    reference = dialect.quote_string(str(call.form.model))
    if has_distances(program):
        measure, model_call = "normalized_distance", list_distances(call)
    elif _has_losses(program):
        loss = f"reconstruction_loss({reference}, *)"
        measure, model_call = "mean_squared_error", dialect.at(loss, 2)
    elif "samples" in program.outputs:
        measure = "decision_score" if "score" in program.outputs else "log_density"
        model_call = f"predict_score({reference}, *)"
    else:
        raise call.error(
            f"model {call.model.label} does not detect anomalies; isolation forests, k-means, PCA, "
            "autoencoders, mixtures and other densities do"
        )
    columns = ["is_anomaly", measure, *["CENTROID_ID"] * (measure == "normalized_distance")]
    call.reject_columns(columns)
    scored_items = ["*", f"{model_call} AS sqlml_measure"]
    internal = ["sqlml_measure"]
    share = _read_contamination(call)
    if share is None:
        scored_items.append(f"predict({reference}, *) AS sqlml_label")
        internal.append("sqlml_label")
        items = f"sqlml_label = -1 AS is_anomaly, sqlml_measure AS {measure}"
        prefix = f"(SELECT {items}, {dialect.star_without(internal)} FROM (SELECT "
        return f"{prefix}{', '.join(scored_items)} FROM ", ") AS sqlml_scored)"
    prefix = f"(WITH sqlml_scored AS (SELECT {', '.join(scored_items)} FROM "
    training_rows = call.find_training_rows()
    seen = "sqlml_scored"
    if training_rows is not None:
        seen = f"(SELECT {model_call} AS sqlml_measure FROM {training_rows}) AS sqlml_seen"
    ctes, tables, value = [""], "sqlml_scored", "sqlml_measure"
    if measure == "normalized_distance":
        count = len(program.labels[0])
        ctes.append(f"sqlml_radii AS ({_build_radii(seen, count, dialect)})")
        tables += " CROSS JOIN sqlml_radii"
        value = _build_normalized_distance(count, dialect)
        seen += " CROSS JOIN sqlml_radii"
        internal.append("sqlml_radius")
    is_low = measure in ("decision_score", "log_density")
    threshold = dialect.quantile("sqlml_value", share if is_low else 1 - share)
    ctes.append(
        f"sqlml_limits AS (SELECT {threshold} AS sqlml_limit FROM (SELECT {value} AS sqlml_value "
        f"FROM {seen}) AS sqlml_values)"
    )
    tables += " CROSS JOIN sqlml_limits"
    ctes.append(f"sqlml_measured AS (SELECT *, {value} AS sqlml_value FROM {tables})")
    internal += ["sqlml_value", "sqlml_limit"]
    items = (
        f"sqlml_value {'<' if is_low else '>'} sqlml_limit AS is_anomaly, sqlml_value AS {measure}"
    )
    if measure == "normalized_distance":
        nearest = dialect.position("sqlml_measure", dialect.least("sqlml_measure"))
        items += f", CAST({nearest} AS BIGINT) AS CENTROID_ID"
    select = f"SELECT {items}, {dialect.star_without(internal)} FROM sqlml_measured"
    return prefix, f"){', '.join(ctes)} {select})"


def _has_losses(program: Program) -> bool:
    try:
        add_losses(program)
    except UnsupportedModelError:
        return False
    return True


def _read_contamination(call: TableFunctionCall) -> float | None:
    """Return the expected share of anomalies, or None for the threshold of an outlier detector."""
    option = call.form.options.get("contamination")
    if option is not None:
        if not 0 <= option.value <= 0.5:
            message = "option contamination takes a number from 0 to 0.5"
            raise call.error(message, "contamination")
        return float(option.value)
    labels = call.model.program.labels
    if len(labels) != 1 or labels[0].values != (-1, 1):
        raise call.error(
            "name the share of anomalies, as in ml_detect_anomalies(MODEL m, TABLE t, "
            "contamination := 0.02); only outlier detectors, such as isolation forests, have a "
            "threshold of their own"
        )
    return None


def _build_radii(seen: str, count: int, dialect: Dialect) -> str:
    """Return the query of a list of each cluster's root mean square distance to its centroid."""
    nearest = dialect.position("sqlml_measure", dialect.least("sqlml_measure"))
    radii = []
    for k in range(1, count + 1):
        distance = dialect.at("sqlml_measure", k)
        square = dialect.operator("*", distance, distance)
        mean = dialect.call("avg", f"CASE WHEN sqlml_nearest = {k} THEN {square} END")
        radii.append(dialect.call("sqrt", mean))
    nearest_rows = f"SELECT sqlml_measure, {nearest} AS sqlml_nearest FROM {seen}"
    return (
        f"SELECT {dialect.array(radii)} AS sqlml_radius FROM ({nearest_rows}) AS sqlml_nearest_rows"
    )


def _build_normalized_distance(count: int, dialect: Dialect) -> str:
    """Return the SQL of the least distance in radii; a cluster without rows has no radius."""
    positions = dialect.array([str(k) for k in range(1, count + 1)])
    radius = dialect.at("sqlml_radius", "sqlml_k")
    distance = dialect.at("sqlml_measure", "sqlml_k")
    quotient = (
        f"CASE WHEN {radius} > 0 THEN {dialect.divided(distance, radius, 'DOUBLE')} "
        f"WHEN {radius} = 0 THEN CASE WHEN {distance} > 0 THEN {dialect.overflow()} "
        "ELSE CAST(0 AS DOUBLE) END END"
    )
    least = dialect.least(dialect.each(positions, "sqlml_k", quotient))
    return f"CASE WHEN sqlml_measure IS NOT NULL THEN {least} END"
