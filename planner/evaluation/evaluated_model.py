"""`EvaluatedModel`: what a form evaluates: its model, the labels that it is compared with, and the
columns that its options name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.dialects.type_names import NUMBERS, UNTYPED
from sqlml.errors import BindError
from sqlml.planner.binding.class_argument import index_of
from sqlml.planner.evaluation.grouping import Grouping
from sqlml.planner.evaluation.rows_columns import check_column, check_labels
from sqlml.planner.evaluation.task import Task, task_of
from sqlml.planner.syntax.table_form import TableForm
from sqlml.types import Labels, list_classes


@dataclass(frozen=True)
class EvaluatedModel:
    """What a form evaluates: a model, on rows that have labels.

    Attributes:
        sql: the statement, for places in errors.
        columns_of_rows: name -> type of the columns of the user's rows; None where the engine
            cannot say it yet.
        label: the column that the model was trained to predict, if sqlml trained it.
    """

    form: TableForm
    model: Model
    dialect: Dialect
    sql: str
    columns_of_rows: Mapping[str, str] | None = None
    label: str | None = None

    @cached_property
    def task(self) -> Task:
        """What the model predicts.

        Raises:
            BindError: nothing.
        """
        found = task_of(self.model)
        if found is None:
            raise self.error(f"model {self.model.name!r} predicts nothing that could be evaluated")
        return found

    @cached_property
    def targets(self) -> int:
        """How many values the model predicts of a row."""
        program = self.model.program
        return len(program.labels) or program.output_type("label").width

    @property
    def class_labels(self) -> Labels:
        """The classes by their numbers; of several targets all have the same."""
        labels = self.model.program.labels[0]
        return replace(labels, values=labels.values[::-1]) if self.is_flipped else labels

    @property
    def class_counts(self) -> tuple[int, ...]:
        """How many classes each target has."""
        return tuple(map(len, self.model.program.labels))

    @property
    def classes(self) -> int:
        """How many classes there are, of targets with the same."""
        return self.class_counts[0]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The columns with the labels, one for each target.

        Raises:
            BindError: the form does not name them, or not as many as there are targets.
        """
        given = self.form.options.get("label")
        if given is not None:
            columns = tuple(given.value)
        elif self.label is not None:
            columns = (self.label,)
        elif self.task == "clusters":
            return ()
        else:
            raise self.error(
                f"name the label column, as in ml_{self.form.function}(.., label := 'churned')"
            )
        if len(columns) != self.targets:
            raise self.error(
                f"model {self.model.name!r} predicts {self.targets} values per row; name as many "
                "label columns, as in label := ['a', 'b']"
            )
        return columns

    @cached_property
    def scores(self) -> Literal["probabilities", "scores", "none"]:
        """What tells how sure the model is."""
        outputs = self.model.program.outputs
        if "proba" in outputs:
            return "probabilities"
        return "scores" if "score" in outputs and self.targets == 1 else "none"

    @cached_property
    def positive(self) -> int:
        """The place of the class that is looked for: of two the second, unless the form or the
        model says otherwise.

        Raises:
            BindError: an unknown class.
        """
        option = self.form.options.get("class")
        wanted = self.model.options.get("positive_class") if option is None else option.value
        (labels,) = self.model.program.labels
        if wanted is None:
            return len(labels) - 1
        place = index_of(labels, wanted)
        if place is None:
            known = list_classes(labels.values)
            raise self.error(
                f"model {self.model.name!r} has no class {wanted!r}; its classes are {known}",
                "class",
            )
        return place

    @property
    def hit(self) -> str:
        """Of two classes: whether the second is predicted, a condition on `sqlml_scored`.

        Raises:
            BindError: a threshold, and a model without probabilities.
        """
        option = self.form.options.get("threshold")
        if option is None:
            return "hat = 1"
        if self.scores != "probabilities":
            raise self.error(f"model {self.model.name!r} gives no probabilities", "threshold")
        return f"p1 >= {float(option.value)!r}"

    @cached_property
    def grouping(self) -> Grouping:
        """By what groups are told apart."""
        by = self.form.options.get("by")
        columns = () if by is None else by.value
        keys = [f"g{n}" for n in range(len(columns))]
        names = [self.dialect.quote_name(name) for name in columns]
        if self.targets > 1:
            keys, names = [*keys, "t"], [*names, self.dialect.quote_name("target")]
        return Grouping(tuple(keys), tuple(names))

    def error(self, message: str, option: str | None = None) -> BindError:
        """An error at the form, or at one of its options."""
        place = self.form.span if option is None else self.form.options[option].span
        return BindError(message, self.sql, place.start)

    @property
    def is_flipped(self) -> bool:
        """Whether the first of two classes is looked for: it is 1, then, and the second 0."""
        return self.task == "two classes" and self.targets == 1 and self.positive == 0

    def column_type(self, name: str, option: str) -> str | None:
        """The type of a column of the user's rows that an option names; None if not known.

        Raises:
            BindError: there is no such column.
        """
        if self.columns_of_rows is None:
            return None
        try:
            return check_column(name, self.columns_of_rows)
        except BindError as error:
            raise self.error(
                error.message, option if option in self.form.options else None
            ) from None

    def label_column(self, name: str, n: int) -> str:
        """A column of labels, as the classes are compared with it.

        Raises:
            BindError: there is no such column, or its type is not that of the classes.
        """
        kind, quoted = self.column_type(name, "label"), self.dialect.quote_name(name)
        sets = self.model.program.labels
        if kind is None or self.task == "clusters":
            return quoted
        if not sets:
            if NUMBERS.fullmatch(kind) is None and kind not in UNTYPED:
                raise self.error(
                    f"column {name!r} is {kind}, and model {self.model.name!r} predicts numbers",
                    "label" if "label" in self.form.options else None,
                )
            return quoted
        try:
            check_labels(name, kind, sets[n], self.model.name)
        except BindError as error:
            place = "label" if "label" in self.form.options else None
            raise self.error(error.message, place) from None
        is_truth = kind == "BOOLEAN" and sets[n].kind != "bool"
        return f"CAST({quoted} AS INTEGER)" if is_truth else quoted
