"""`partial_dependence`: ml_partial_dependence: what a model says of the rows, were one of their
columns each of some values.

The mean over the rows for each value (Friedman, "Greedy function approximation", 2001, section
8.2), and quantiles of the rows' own curves (Goldstein and others, "Peeking inside the black box",
2015).
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.planner.binding.requested_output import index_of, spelled_class
from sqlml.planner.evaluation.evaluated_model import check_column
from sqlml.planner.syntax.table_form import TableForm
from sqlml.types import fold, list_classes

_POINTS, _MOST_POINTS = 20, 1000


def partial_dependence(
    form: TableForm,
    model: Model,
    columns: Mapping[str, str] | None,
    dialect: Dialect,
    sql: str,
) -> tuple[str, str]:
    """The text before and after the rows.

    Args:
        columns: name -> type of the rows' columns; None where the engine cannot say it yet.

    Raises:
        BindError: an unknown feature, or a model or an option that does not fit.
    """

    def refused(message: str, option: str | None = None) -> BindError:
        place = form.span if option is None else form.options[option].span
        return BindError(message, sql, place.start)

    quote, call = dialect.quote_name, dialect.call
    given = form.options.get("feature")
    if given is None:
        raise refused("name the feature, as in ml_partial_dependence(MODEL m, TABLE t, 'tenure')")
    names = model.read_columns
    feature = next((name for name in names if fold(name) == fold(given.value)), None)
    if feature is None:
        raise refused(
            f"model {model.name!r} does not read {given.value!r}; it reads "
            f"{', '.join(map(repr, names[:20]))}",
            "feature",
        )
    if columns is not None:
        try:
            check_column(feature, columns)
        except BindError as error:
            raise refused(error.message, "feature") from None
    points = form.whole("points", _POINTS, 2, _MOST_POINTS, sql)
    values = ", ".join(
        f"{quote(name)} := " + (f"g.{quote('value')}" if name == feature else f"r.{quote(name)}")
        for name in names
    )
    predicted = _predicted(form, model, values, dialect, refused)
    column = quote(feature)
    steps = []
    for one in ("sqlml_place", dialect.operator("-", "sqlml_place", "1")):
        product = dialect.operator("*", one, str(points - 1))  # whole numbers: no rounding
        share = dialect.divided(f"CAST({product} AS DOUBLE)", "sqlml_count", "DOUBLE")
        steps.append(call("floor", share))
    chosen = f"sqlml_count < {points} OR sqlml_place = 0 OR {steps[0]} > {steps[1]}"
    place = dialect.operator("-", f"row_number() OVER (ORDER BY {column})", "1")
    count = dialect.operator("-", "count(*) OVER ()", "1")
    quantiles = ", ".join(
        f"{dialect.quantile('p', q)} AS {name}"
        for name, q in (("low", 0.1), ("median", 0.5), ("high", 0.9))
    )
    before = "(SELECT * FROM (WITH sqlml_rows AS (SELECT * FROM "
    after = (
        f"), sqlml_values AS (SELECT {column} AS {quote('value')}, "
        f"{place} AS sqlml_place, {count} AS sqlml_count FROM (SELECT DISTINCT {column} FROM "
        f"sqlml_rows WHERE {column} IS NOT NULL) AS sqlml_distinct), "
        f"sqlml_grid AS (SELECT {quote('value')} FROM sqlml_values WHERE {chosen}), "
        f"sqlml_scored AS (SELECT g.{quote('value')}, CAST({predicted} AS DOUBLE) AS p "
        "FROM sqlml_rows AS r CROSS JOIN sqlml_grid AS g) "
        f"SELECT {quote('value')}, {call('avg', 'p')} AS mean, {quantiles}, "
        f"{call('count', 'p')} AS {quote('rows')} FROM sqlml_scored GROUP BY {quote('value')} "
        f"ORDER BY {quote('value')}) AS sqlml_dependence)"
    )
    return before, after


def _predicted(
    form: TableForm, model: Model, values: str, dialect: Dialect, refused: object
) -> str:
    """What the model says of a row: a probability, or a number."""
    assert callable(refused)
    program, name = model.program, dialect.quote_string(str(form.model))
    option = form.options.get("class")
    if not program.labels:
        if "label" not in program.outputs or program.output_type("label").width > 1:
            raise refused(f"model {model.name!r} does not predict one value per row")
        if option is not None:
            raise refused(f"model {model.name!r} has no classes", "class")
        return f"predict({name}, {values})"
    if "proba" not in program.outputs or len(program.labels) > 1:
        raise refused(f"model {model.name!r} gives no probabilities of one label per row")
    (labels,) = program.labels
    wanted = model.options.get("positive_class") if option is None else option.value
    place = len(labels) - 1 if wanted is None else index_of(labels, wanted)
    if wanted is None and len(labels) > 2:
        raise refused("name the class, as in class := 'yes', since the model has more than two")
    if place is None:
        known = list_classes(labels.values)
        raise refused(f"model {model.name!r} has no class {wanted!r}; its classes are {known}")
    label = labels.values[place]
    text = spelled_class(label)
    return f"predict_proba({name}, {values}, class := {dialect.quote_string(text)})"
