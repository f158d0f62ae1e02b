"""`KeptRows`: rows that a model has scored and a temporary table keeps, so that every measure of an
evaluation comes from one run of the model over one run of the query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import Model
from sqlml.dialects import DUCKDB
from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.planner.evaluation.scored_rows import ScoredRows
from sqlml.planner.evaluation.write import written
from sqlml.planner.syntax.form_options import FormOption
from sqlml.planner.syntax.table_form import TableForm

_NOWHERE = Span(0, 0)


@dataclass(frozen=True)
class KeptRows(ScoredRows):
    """Rows that are `sqlml_scored` already."""

    @property
    def calls(self) -> str:
        return "*"

    @property
    def columns(self) -> str:
        return "*"

    @property
    def sources(self) -> str:
        return "sqlml_calls"


def form(function: str, reference: str, options: Mapping[str, Any]) -> TableForm:
    """`ml_evaluate(MODEL m, .., label := 'y')` and its like, as if somebody had written it."""
    made = {name: FormOption(name, value, _NOWHERE) for name, value in options.items()}
    return TableForm(_NOWHERE, function, reference, _NOWHERE, (_NOWHERE,), MappingProxyType(made))


def scoring(
    model: Model, reference: str, columns: Mapping[str, str], options: Mapping[str, Any]
) -> ScoredRows:
    """What scores rows: `calls`, `columns` and `sources` are its SQL.

    Args:
        columns: name -> type of the columns of the rows.
        options: `label`, a tuple of columns, and `by`, likewise.

    Raises:
        BindError: a column does not hold what the model predicts.
    """
    made = ScoredRows(form("evaluate", reference, options), model, DUCKDB, "", columns)
    try:
        assert made.calls
    except BindError as error:
        raise BindError(error.message) from None  # there is no statement to show the place in
    return made


def evaluation(rows: ScoredRows, table: str, function: str, options: Mapping[str, Any]) -> str:
    """The query of a form such as ml_evaluate over rows that `table` keeps.

    Args:
        rows: what scored them. options: the form's, beside the label.

    Raises:
        BindError: the form does not fit the model.
    """
    label = rows.form.options.get("label")
    given = {} if label is None else {"label": label.value}
    made = form(function, str(rows.form.model), {**given, **options})
    before, after = written(KeptRows(made, rows.model, rows.dialect, "", rows.columns_of_rows))
    return f"SELECT * FROM {before}{table}{after}"
