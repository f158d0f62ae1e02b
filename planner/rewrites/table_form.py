"""`table_form`: the table form of a call becomes the subquery that it stands for.

::

    FROM ml_predict(MODEL m, TABLE t)
    FROM (SELECT *, predict('m', *) AS predicted_label,
                 predict_proba('m', *) AS predicted_label_probs FROM t)

    FROM ml_training_info(MODEL m)
    FROM (SELECT .. FROM (VALUES (1, 0.52, 0.53, 0.01), ..))

So all is as with the calls themselves: how columns are bound and pruned, that both share one
evaluation, and that the engine computes only what the query around reads. A label is called
`label`, as in BigQuery, where OUTPUT of CREATE MODEL does not say its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.errors import BindError, SqlmlError, UnknownModelError
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import spelled_class
from sqlml.planner.evaluation.evaluated_model import EvaluatedModel
from sqlml.planner.evaluation.scored_rows import ScoredRows
from sqlml.planner.evaluation.write import written
from sqlml.planner.explanation.explained_rows import explained_rows, mean_contributions
from sqlml.planner.explanation.model_tables import TABLES, facts_query, model_table
from sqlml.planner.explanation.partial_dependence import partial_dependence
from sqlml.planner.explanation.shuffled_columns import ShuffledColumns, shuffled_columns
from sqlml.planner.program.result_sql import label_array
from sqlml.planner.rewrites.cascaded_calls import called_models
from sqlml.planner.rewrites.draft import Draft, Piece, WrittenOut
from sqlml.planner.syntax.forms import FORMS
from sqlml.planner.syntax.outline import ModelCall, Outline
from sqlml.planner.syntax.parameters import Parameters
from sqlml.planner.syntax.read import outline_of
from sqlml.planner.syntax.table_form import TableForm, defined_names, names_in, table_forms
from sqlml.planner.table_data.write import compared_tables, skew_of
from sqlml.types import fold


def table_form(draft: Draft) -> Draft:
    """The statement with a subquery in place of each table form.

    Raises:
        BindError: a table form that is not well formed, or a model that predicts nothing.
        UnknownModelError: no such model.
        ParseError: the rows in a form cannot be read.
    """
    made = written_out(draft.outline, draft.context)
    if made is None:
        return draft
    try:
        outline = outline_of(made.sql, draft.dialect.name)
    except SqlmlError as error:
        raise made.located(error) from None
    given = replace(draft.given, parameters=outline.parameters)
    return replace(draft, outline=outline, given=given, written_out=made)


def written_out(outline: Outline, context: Context) -> WrittenOut | None:
    """The statement with a subquery in place of each table form; None if it has none.

    Raises:
        BindError: a table form that is not well formed, or a model that predicts nothing.
        UnknownModelError: no such model.
    """
    forms = table_forms(outline.sql, context.dialect.name)
    if not forms:
        return None
    for form in forms:
        if form.span.start in outline.values:
            raise BindError(
                "the table form returns rows and belongs in FROM; for one value per row write "
                "predict('model', *)",
                outline.sql,
                form.span.start,
            )
    around = partial(_around, outline.sql, context)
    alone = partial(_alone, outline.sql, context)
    pieces = _pieces(outline.sql, forms, 0, len(outline.sql), around, alone)
    return WrittenOut(outline.sql, tuple(pieces))


def refuse_hidden(
    outline: Outline, call: ModelCall, columns: Iterable[str], dialect: Dialect
) -> None:
    """Refuse rows with a column of the name that a call gives to its result.

    Of two columns with one name the engine reads the first: the rows' own, not the new one.

    Raises:
        BindError: there is such a column; the message says how to leave it out.
    """
    added = call.items[0].name if call.items else None
    taken = next((c for c in columns if added is not None and fold(c) == fold(added)), None)
    if taken is not None:
        others = dialect.star_without([dialect.quote_name(taken)])
        raise BindError(
            f"the rows already have a column {taken!r}, which would hide the new one; leave it "
            f"out, as in ml_predict(MODEL m, (SELECT {others} FROM ..)), or rename it there",
            outline.sql,
            call.span.start,
        )


def parsable(sql: str) -> str:
    """The statement with the plain rows in place of each table form, which any engine can parse."""
    forms = table_forms(sql)

    def plain_rows(form: TableForm) -> list[str]:
        """The first rows alone."""
        return ["(SELECT * FROM ", *([", "] * (len(form.rows) - 1)), ")"]

    plain = _pieces(sql, forms, 0, len(sql), plain_rows, lambda form: "(SELECT 1)")
    return "".join(piece.text for piece in plain)


def _pieces(
    sql: str,
    forms: Sequence[TableForm],
    start: int,
    end: int,
    around: Callable[[TableForm], Sequence[str]],
    alone: Callable[[TableForm], str],
) -> Iterator[Piece]:
    """sql[start:end] with the forms in it written out.

    `around` is what stands before, between and after the rows of a form, `alone` the query of one
    without.
    """
    for form in forms:
        if not start <= form.span.start < end:
            continue  # in the rows of one that has been written out
        place = form.span.start
        yield Piece(sql[start:place], start, True)
        if not form.rows:
            yield Piece(alone(form), place, False)
            start = form.span.end
            continue
        before, *others = around(form)
        yield Piece(before, place, False)
        for rows, after in zip(form.rows, others, strict=True):
            yield from _pieces(sql, forms, rows.start, rows.end, around, alone)
            yield Piece(after, place, False)
        start = form.span.end
    yield Piece(sql[start:end], start, True)


def _alone(sql: str, context: Context, form: TableForm) -> str:
    """The query of a form without rows: what is known of a model, or an evaluation on the rows
    that its training held out."""
    model = _model(sql, context, form)
    if form.function in TABLES:
        return model_table(form, model, context.dialect, sql)
    facts = context.training(model)
    measured = form.function == "evaluate" and not form.options and facts is not None
    if measured or FORMS[form.function].tables == (0, 0):
        return facts_query(form.function, model, context)
    rows = None if facts is None else context.held_out(facts)
    if rows is None:
        raise BindError(
            f"no rows of model {model.label} were held out by sqlml; name the rows, as in "
            f"ml_{form.function}(MODEL m, TABLE t"
            + (", label := 'churned')" if "label" in FORMS[form.function].options else ")"),
            sql,
            form.span.start,
        )
    dialect = context.dialect.name
    shadowed = defined_names(sql, dialect) & names_in(rows, dialect)
    if shadowed:
        raise BindError(
            f"the query that trained model {model.label} reads {min(shadowed)!r}, which a WITH of "
            "this statement redefines: give that query another name",
            sql,
            form.span.start,
        )
    before, after = _of_rows(sql, context, form, model, rows)
    return f"{before}{rows}{after}"


def _around(sql: str, context: Context, form: TableForm) -> Sequence[str]:
    """What stands before, between and after the rows of a form."""
    tables = [sql[rows.start : rows.end] for rows in form.rows]
    if not FORMS[form.function].has_model:
        return compared_tables(
            form, [_columns(rows, context, sql) for rows in tables], context, sql
        )
    if form.function == "predict":
        calls = _calls_by_name(sql, form) if form.column else _calls(sql, context, form)
        return f"(SELECT {', '.join(['*', *calls])} FROM ", ")"
    model = _model(sql, context, form)
    return _of_rows(sql, context, form, model, tables[0])


def _of_rows(
    sql: str, context: Context, form: TableForm, model: Model, rows: str
) -> tuple[str, str]:
    """What stands before and after the rows of a form that explains or evaluates."""
    dialect = context.dialect
    explain = _EXPLAINING.get(form.function)
    if explain is not None:
        return explain(form, model, dialect, sql)
    if form.function == "validate_data_skew":
        return skew_of(form, model, context.training(model), dialect, sql)
    if form.function == "partial_dependence":
        return partial_dependence(form, model, _columns(rows, context, sql), dialect, sql)
    return _evaluated(sql, context, form, model, rows)


_EXPLAINING = {"explain_predict": explained_rows, "global_explain": mean_contributions}


def _evaluated(
    sql: str, context: Context, form: TableForm, model: Model, rows: str
) -> tuple[str, str]:
    """What stands before and after rows on which a model is evaluated."""
    facts = context.training(model)
    label = None if facts is None else facts.label
    columns = _columns(rows, context, sql)
    given = (form, model, context.dialect, sql, columns, label)
    if form.function == "permutation_importance":
        return shuffled_columns(ShuffledColumns(*given))
    return written(ScoredRows(*given))


def _columns(rows: str, context: Context, sql: str) -> Mapping[str, str] | None:
    """The names and types of the columns of rows; None where the engine cannot say it yet: where
    they name a query of a WITH in the statement around them."""
    dialect = context.dialect.name
    if defined_names(sql, dialect) & names_in(rows, dialect):
        return None
    if rows not in context.known_columns:
        context.known_columns[rows] = _described(rows, context)
    return context.known_columns[rows]


def _described(rows: str, context: Context) -> Mapping[str, str] | None:
    try:
        outline = outline_of(f"SELECT * FROM {rows}", context.dialect.name)
        given = Parameters(outline.parameters, None)
        draft = called_models(table_form(Draft(outline=outline, context=context, given=given)))
        return {column.name: column.type for column in context.describe(draft.probe)}
    except (ProbeError, SqlmlError):  # a query in WITH, or a fault that is told later
        return None


def _calls_by_name(sql: str, form: TableForm) -> list[str]:
    """What is added to rows that name their models; probabilities are NULL where these have none.

    Raises:
        BindError: an option that does not apply.
    """
    assert form.column is not None
    for name in form.options.keys() & {"threshold", "class"}:
        raise BindError(
            f"option {name} goes with one model, as in ml_predict(MODEL m, TABLE t, ..)",
            sql,
            form.options[name].span.start,
        )
    model, more = f"MODEL {sql[form.column.start : form.column.end]}", ""
    option = form.options.get("unknown_model")
    if option is not None:
        if option.value not in ("error", "null"):
            raise BindError("option unknown_model takes 'error' or 'null'", sql, option.span.start)
        more = f", unknown_model := '{option.value}'"
    label = "predicted_label"
    return [
        f"predict({model}, *{more}) AS {label}",
        f"predict_proba({model}, *{more}) AS {label}_probs",
    ]


def _calls(sql: str, context: Context, form: TableForm) -> list[str]:
    """What is added to the rows: the calls that the model has an answer to.

    Raises:
        BindError: it predicts nothing, or an option does not apply.
    """
    option = form.options.get("unknown_model")
    if option is not None:
        raise BindError(
            "option unknown_model goes with a model per row, as in "
            "ml_predict(MODEL (shop_model), TABLE t)",
            sql,
            option.span.start,
        )
    dialect, found = context.dialect, _model(sql, context, form)
    outputs = found.program.outputs
    if "label" not in outputs:
        raise BindError(
            f"the table form gives predictions, and model {form.model!r} predicts nothing; use "
            "predict_score(..) or transform(..)",
            sql,
            form.model_span.start,
        )
    written, quote_name = dialect.quote_string(str(form.model)), dialect.quote_name
    label = f"predicted_{found.options.get('output', 'label')}"
    predicted = f"predict({written}, *)"
    if form.options.keys() & {"threshold", "class"}:
        predicted = _above_threshold(EvaluatedModel(form, found, dialect, sql), written)
    calls = [f"{predicted} AS {quote_name(label)}"]
    if "proba" in outputs:
        calls.append(f"predict_proba({written}, *) AS {quote_name(f'{label}_probs')}")
    return calls


def _above_threshold(asked: EvaluatedModel, written: str) -> str:
    """The class of two that is looked for, where its probability reaches the form's threshold; the
    other one below.

    Args:
        written: the model's name as a string of SQL.

    Raises:
        BindError: the model has other than two classes, or no probabilities.
    """
    if "threshold" not in asked.form.options:
        raise asked.error("option class goes with threshold", "class")
    name, dialect = asked.model.name, asked.dialect
    if asked.scores != "probabilities":
        raise asked.error(f"model {name!r} gives no probabilities", "threshold")
    if asked.task != "two classes" or asked.targets > 1:
        raise asked.error(
            f"model {name!r} does not tell two classes apart; threshold is for models that do",
            "threshold",
        )
    positive = spelled_class(asked.class_labels.values[1])
    probability = f"predict_proba({written}, *, class := {dialect.quote_string(positive)})"
    threshold = f"CAST({float(asked.form.options['threshold'].value)!r} AS DOUBLE)"
    classes = label_array(asked.class_labels, dialect)
    below, reached = dialect.at(classes, "1"), dialect.at(classes, "2")
    is_above = f"{probability} >= {threshold}"
    return f"CASE WHEN {is_above} THEN {reached} WHEN {probability} IS NOT NULL THEN {below} END"


def _model(sql: str, context: Context, form: TableForm) -> Model:
    """The model of a form.

    Raises:
        BindError: a parameter stands in place of its name.
        UnknownModelError: no such model.
    """
    place = form.model_span.start
    if form.column is not None:
        raise BindError(
            f"ml_{form.function} takes the name of one model; a model per row works in ml_predict",
            sql,
            place,
        )
    if form.model is None:
        raise BindError(
            "the table form takes a model name; a parameter works in predict(?, *)", sql, place
        )
    try:
        return context.model(form.model)
    except UnknownModelError as error:
        raise UnknownModelError(error.message, sql, place) from None
