"""A call of a table function, with the facts from which its SQL is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlml.catalog.model import Model, TrainingFacts
from sqlml.catalog.small_models import Calibration, FoldFacts, FoldModels
from sqlml.dialects import Dialect
from sqlml.errors import BindError, ConfigError, UnknownModelError
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.requested_output import explain_no_calibration
from sqlml.planner.syntax.table_forms import FORMS, TableForm, find_defined_names, find_names
from sqlml.types import fold

ColumnTypes = Mapping[str, str] | None
"""Column name -> SQL type, or None if the engine cannot bind the rows yet, as rows of a CTE."""


@dataclass(frozen=True)
class TableFunctionCall:
    """A call of a table function in a statement.

    Attributes:
        sql: the statement, in which errors point at positions.
        rows: the SQL of each relation that the call reads.
        describe_rows: returns the column types of a relation.
    """

    form: TableForm
    context: Context
    sql: str
    rows: tuple[str, ...]
    describe_rows: Callable[[str], ColumnTypes]

    @property
    def name(self) -> str:
        """The name of the function, without `ml_`."""
        return self.form.function

    @property
    def dialect(self) -> Dialect:
        return self.context.dialect

    @cached_property
    def model(self) -> Model:
        """The model that the call names. Errors point at the model's name in the statement."""
        offset = self.form.model_span.start
        message = "a table function takes a model name; a parameter works in predict(?, *)"
        if self.form.column is not None:
            message = (
                f"ml_{self.name} takes the name of one model; only ml_predict takes a model per row"
            )
        if self.form.column is not None or self.form.model is None:
            raise BindError(message, self.sql, offset)
        try:
            return self.context.model(self.form.model)
        except UnknownModelError as error:
            raise UnknownModelError(error.message, self.sql, offset) from None

    @cached_property
    def training(self) -> TrainingFacts | None:
        """The record of the model's training, or None if sqlml did not train the model."""
        return self.context.training(self.model)

    @cached_property
    def column_types(self) -> tuple[ColumnTypes, ...]:
        return tuple(map(self.describe_rows, self.rows))

    def read_integer(self, option: str, default: int, min_value: int, max_value: int) -> int:
        return self.form.read_integer(option, default, min_value, max_value, self.sql)

    def error(self, message: str, option: str | None = None) -> BindError:
        """Return an error that points at `option`, or at the call if the call lacks that option."""
        named_option = self.form.options.get(option or "")
        return BindError(message, self.sql, (named_option or self.form).span.start)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration of the model's version, or None if the version is not calibrated."""
        calibration = self.context.small_models(self.model).get("calibration")
        return calibration if isinstance(calibration, Calibration) else None

    def require_calibration(self) -> Calibration:
        if self.calibration is None:
            raise self.error(explain_no_calibration(self.model, self.dialect), "coverage")
        return self.calibration

    @property
    def folds(self) -> FoldFacts | None:
        """The folds of the version's cross-validation, or None if there was none."""
        folds = self.context.small_models(self.model).get("folds")
        return folds.facts if isinstance(folds, FoldModels) else None

    def require_folds(self) -> FoldFacts:
        folds = self.folds
        if folds is None:
            raise self.error(
                f"model {self.model.label} was not cross-validated: train it with the option cv, "
                "such as cv = 5"
            )
        return folds

    def find_fold_rows(self) -> str:
        """Return the query, in parentheses, of the model's training rows with their folds."""
        folds = self.require_folds()
        rows_sql = None
        if self.training is not None:
            try:
                rows_sql = self.context.fold_rows(self.training, folds)
            except ConfigError as error:
                raise self.error(error.message) from None
        if rows_sql is None:
            raise self.error(
                f"the training rows of model {self.model.label} are not known here: "
                "ml_cross_predict works in DuckDB, in the database that the model was trained in"
            )
        return self._check_names(rows_sql)

    def check_trial(self) -> None:
        """Raise BindError if the option `trial_id` names another trial than the model's."""
        option = self.form.options.get("trial_id")
        if option is None:
            return
        trials = () if self.training is None else self.training.trials
        best = next((trial_id for trial_id, *_, is_best in trials if is_best), None)
        if best is None:
            raise self.error(f"model {self.model.label} has no trials", "trial_id")
        if option.value != best:
            raise self.error(
                f"model {self.model.label} is trial {best}, and the models of other trials are not "
                "kept: train a model with the hyperparameters that ml_trial_info shows",
                "trial_id",
            )

    def find_held_out_rows(self) -> str:
        """Return the query, in parentheses, of the rows that the model's training held out."""
        rows_sql = None if self.training is None else self.context.held_out(self.training)
        if rows_sql is None:
            label_argument = ", label := 'churned'" if "label" in FORMS[self.name].options else ""
            raise self.error(
                f"sqlml held out no rows for model {self.model.label}; name the rows, as in "
                f"ml_{self.name}(MODEL m, TABLE t{label_argument})"
            )
        return self._check_names(rows_sql)

    def find_training_rows(self) -> str | None:
        """Return the query, in parentheses, of the model's training rows, or None if unknown."""
        if self.training is None:
            return None
        rows_sql = self._check_names(f"(\n{self.training.query}\n)")
        if self.describe_rows(rows_sql) is None:
            raise self.error(
                f"the query that trained model {self.model.label} cannot run any more, so its "
                "training rows are unknown: train the model again"
            )
        return f"{rows_sql} AS sqlml_training"

    def _check_names(self, rows_sql: str) -> str:
        dialect_name = self.dialect.name
        redefined = find_defined_names(self.sql, dialect_name) & find_names(rows_sql, dialect_name)
        if redefined:
            raise self.error(
                f"the query that trained model {self.model.label} reads {min(redefined)!r}, which "
                "a WITH clause of this statement redefines: give that query another name"
            )
        return rows_sql

    def reject_columns(self, names: Iterable[str]) -> None:
        """Raise BindError if the rows have a column with one of the `names` of the result."""
        existing = {fold(name) for types in self.column_types for name in types or ()}
        conflict = next((name for name in names if fold(name) in existing), None)
        if conflict is not None:
            raise self.error(
                f"the rows already have a column {conflict!r}, which the result also has; leave it "
                "out or rename it in the rows"
            )
