"""`explained_rows`, `mean_contributions`: the queries that explain_predict and global_explain are.

::

    FROM ml_explain_predict(MODEL m, TABLE t)
    FROM (SELECT * EXCLUDE (sqlml_contributions), .. AS top_feature_attributions, .. FROM (
          SELECT *, predict('m', *) AS predicted_label,
                 map_values(explain('m', *, baseline := true)) AS sqlml_contributions FROM t))
"""

from __future__ import annotations

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.planner.binding.requested_output import index_of, spelled_class
from sqlml.planner.syntax.table_form import TableForm

_TOP = 5
"""How many attributions a row has, as in BigQuery."""

_MOST_FEATURES = 4096
"""Features of which a mean each is taken."""


def explained_rows(form: TableForm, model: Model, dialect: Dialect, sql: str) -> tuple[str, str]:
    """The text before and after the rows of ml_explain_predict.

    Raises:
        BindError: a model of several targets, or an option of a wrong value.
    """
    _check(form, model, sql)
    features = list(model.program.inputs)
    top = form.whole("top_k_features", _TOP, 1, _MOST_FEATURES, sql)
    quote, values = dialect.quote_name, dialect.quote_name("sqlml_contributions")
    errors = quote("sqlml_errors") if "background" in form.options else None
    others = dialect.star_without([values, *([] if errors is None else [errors])])
    baseline = dialect.at(values, len(features) + 1)
    items = [
        others,
        f"{_greatest(features, values, errors, top, dialect)} AS top_feature_attributions",
        f"{baseline} AS baseline_prediction_value",
        f"{dialect.summed(values)} AS prediction_value",
        "CAST(0 AS DOUBLE) AS approximation_error",
    ]
    call = _explain(form, dialect, "baseline := true")
    name = dialect.quote_string(str(form.model))
    label = quote(f"predicted_{model.options.get('output', 'label')}")
    calls = [f"predict({name}, *) AS {label}"] if "label" in model.program.outputs else []
    calls += [f"{_probability(form, model, dialect)} AS probability"] if _is_sure(model) else []
    calls.append(f"{dialect.call('map_values', call)} AS {values}")
    if "background" in form.options:
        call = _explain(form, dialect, "standard_errors := true")
        calls.append(f"{dialect.call('map_values', call)} AS {errors}")
    return (
        f"(SELECT {', '.join(items)} FROM (SELECT *, {', '.join(calls)} FROM ",
        ") AS sqlml_rows)",
    )


def mean_contributions(
    form: TableForm, model: Model, dialect: Dialect, sql: str
) -> tuple[str, str]:
    """The text before and after the rows of ml_global_explain.

    Raises:
        BindError: a model of several targets or of very many features.
    """
    _check(form, model, sql)
    features = list(model.program.inputs)
    if len(features) > _MOST_FEATURES:
        raise BindError(
            f"ml_global_explain takes models of at most {_MOST_FEATURES} features, and model "
            f"{model.name!r} has {len(features)}; take the mean of those that matter, as in "
            "avg(abs(explain('m', *)['a']))",
            sql,
            form.span.start,
        )
    call = dialect.call
    means = [
        call("avg", call("abs", dialect.at("contributions", k)))
        for k in range(1, len(features) + 1)
    ]
    names = dialect.array([dialect.text(name) for name in features])
    places = ", ".join(f"({k})" for k in range(1, len(features) + 1))
    return (
        "(SELECT feature, attribution FROM (WITH sqlml_explained AS (SELECT "
        f"{call('map_values', _explain(form, dialect))} AS contributions FROM ",
        f"), sqlml_means AS (SELECT {dialect.array(means)} AS means FROM sqlml_explained) "
        f"SELECT {dialect.at(names, 'place')} AS feature, {dialect.at('means', 'place')} AS "
        f"attribution, place FROM sqlml_means CROSS JOIN (VALUES {places}) AS places(place)"
        ") AS sqlml_means_by_feature ORDER BY attribution DESC, place)",
    )


def _check(form: TableForm, model: Model, sql: str) -> None:
    program = model.program
    width = program.output_type("label").width if "label" in program.outputs else 1
    if width > 1:
        raise BindError(
            f"model {model.name!r} predicts {width} values per row, and ml_{form.function} "
            "explains one; explain('m', *) gives a MAP for each",
            sql,
            form.span.start,
        )


def _explain(form: TableForm, dialect: Dialect, *more: str) -> str:
    name = dialect.quote_string(str(form.model))
    rows = form.options.get("background")
    against = [] if rows is None else [f"background := {rows.value}"]
    permutations = form.options.get("permutations")
    if permutations is not None:
        against.append(f"permutations := {permutations.value!r}")
    return f"explain({', '.join([name, '*', *_class(form, dialect), *more, *against])})"


def _class(form: TableForm, dialect: Dialect) -> list[str]:
    """The argument that names the class, if the form does."""
    option = form.options.get("class")
    if option is None:
        return []
    value = option.value
    written = dialect.quote_string(value) if isinstance(value, str) else spelled_class(value)
    return [f"class := {written}"]


def _is_sure(model: Model) -> bool:
    return "proba" in model.program.outputs and len(model.program.labels) == 1


def _probability(form: TableForm, model: Model, dialect: Dialect) -> str:
    """The probability of the class that is explained."""
    (labels,) = model.program.labels
    name = dialect.quote_string(str(form.model))
    chosen = _class(form, dialect)
    positive = model.options.get("positive_class")
    if not chosen and positive is None and len(labels) > 2:
        return dialect.greatest(dialect.call("map_values", f"predict_proba({name}, *)"))
    if not chosen:
        place = None if positive is None else index_of(labels, positive)
        label = labels.values[len(labels) - 1 if place is None else place]
        chosen = [f"class := {dialect.quote_string(spelled_class(label))}"]
    return f"predict_proba({', '.join([name, '*', *chosen])})"


def _greatest(
    features: list[str], values: str, errors: str | None, top: int, dialect: Dialect
) -> str:
    """The features of the greatest contributions, of either sign, with these; a list of structs."""
    names = dialect.array([dialect.text(name) for name in features])
    places = dialect.array([str(k) for k in range(1, len(features) + 1)])
    amount = dialect.at(values, "sqlml_k")
    sized = dialect.struct(
        {
            "size": dialect.negated(dialect.call("abs", amount)),
            "place": "sqlml_k",
            "attribution": amount,
            **({} if errors is None else {"standard_error": dialect.at(errors, "sqlml_k")}),
        }
    )
    ordered = dialect.ordered(dialect.each(places, "sqlml_k", sized))
    told = dialect.struct(
        {
            "feature": dialect.at(names, dialect.member("sqlml_e", "place")),
            **{
                name: dialect.member("sqlml_e", name)
                for name in ("attribution", *([] if errors is None else ["standard_error"]))
            },
        }
    )
    made = dialect.each(dialect.part(ordered, 1, top), "sqlml_e", told)
    return f"CASE WHEN {values} IS NOT NULL THEN {made} END"
