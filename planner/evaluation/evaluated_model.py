"""`EvaluatedModel`: what a form evaluates: its model, the labels that it is compared with, and the
columns that its options name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.dialects.type_names import NUMBERS, UNTYPED
from sqlml.errors import BindError
from sqlml.ir.program import Program
from sqlml.planner.binding.requested_output import index_of
from sqlml.planner.program.result_sql import label_type
from sqlml.planner.syntax.table_form import TableForm
from sqlml.suggestions import closest
from sqlml.types import Labels, fold, list_classes

# `Grouping`: by what the rows of an evaluation are told apart: the user's columns, and targets.


@dataclass(frozen=True, slots=True)
class Grouping:
    """The keys of groups: columns of the SQL that evaluates, by the names that users see.

    Attributes:
        keys: our own names, `g0`, `g1`, ..; `t`, the number of a target, where there are several.
        names: what users call them, quoted.
    """

    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> str:
        """The keys as first items of a SELECT: `g0, g1, `."""
        return "".join(f"{key}, " for key in self.keys)

    @property
    def group_by(self) -> str:
        """GROUP BY the keys; nothing without keys."""
        return f"GROUP BY {', '.join(self.keys)}" if self.keys else ""

    def group_of(self, table: str) -> str:
        """GROUP BY the keys of one of two joined tables."""
        keys = ", ".join(f"{table}.{key}" for key in self.keys)
        return f"GROUP BY {keys}" if keys else ""

    def grouped_by(self, *others: str) -> str:
        """GROUP BY the keys and other columns."""
        return f"GROUP BY {', '.join([*self.keys, *others])}"

    @property
    def partition_by(self) -> str:
        """PARTITION BY the keys; nothing without keys."""
        return f"PARTITION BY {', '.join(self.keys)}" if self.keys else ""

    def join(self, left: str, right: str, how: str = "JOIN") -> str:
        """`right` joined to `left` by the keys, of which NULL is one like others."""
        if not self.keys:
            return f"{left} CROSS JOIN {right}"
        same = (f"{left}.{key} IS NOT DISTINCT FROM {right}.{key}" for key in self.keys)
        return f"{left} {how} {right} ON {' AND '.join(same)}"

    def of(self, table: str) -> str:
        """The keys of one of two joined tables: `a.g0, `."""
        return "".join(f"{table}.{key}, " for key in self.keys)

    @property
    def has_rows(self) -> str:
        """A condition on a row of the answer, which raises an error if nothing could be evaluated;
        with keys there is simply no group, and no error."""
        if self.keys:
            return "n >= 0"
        message = "no row has a label and a prediction: there is nothing to evaluate"
        return f"CASE WHEN n > 0 THEN true ELSE CAST(error('{message}') AS BOOLEAN) END"

    def named(self) -> str:
        """The keys under the names that users know: `g0 AS "region", `."""
        pairs = zip(self.keys, self.names, strict=True)
        return "".join(f"{key} AS {name}, " for key, name in pairs)


# The names of metrics, in the order in which they are told.


OF_CLASSES = (
    *("precision", "recall", "accuracy", "f1_score", "log_loss", "roc_auc"),
    *("average_precision", "brier_score"),
)
OF_NUMBERS = (
    *("mean_absolute_error", "mean_squared_error", "mean_squared_log_error"),
    *("median_absolute_error", "max_error", "r2_score", "explained_variance"),
    "mean_absolute_percentage_error",
)


# `check_columns`: the columns that an evaluation names are there, and hold what it needs.


def check_column(name: str, columns: Mapping[str, str]) -> str:
    """The type of a column.

    Args:
        columns: name -> type of those that there are.

    Raises:
        BindError: there is none of that name.
    """
    for column, kind in columns.items():
        if fold(column) == fold(name):
            return kind
    near = closest(fold(name), map(fold, columns))
    hint = (
        f"columns: {', '.join(list(columns)[:20])}" if near is None else f"did you mean {near!r}?"
    )
    raise BindError(f"the rows have no column {name!r}; {hint}")


def check_labels(name: str, kind: str, labels: Labels, model: str) -> None:
    """Check that a column may hold the classes of a model.

    Raises:
        BindError: its type is another.
    """
    fits = {
        "string": kind in ("VARCHAR", labels.sql_type) or kind.startswith("ENUM"),
        "int64": NUMBERS.fullmatch(kind) is not None,
        "float64": NUMBERS.fullmatch(kind) is not None,
        "bool": kind == "BOOLEAN",
    }
    if not fits[labels.kind] and kind not in ('"NULL"', "NULL"):
        wanted = label_type(labels)
        some = list_classes(labels.values, 3)
        raise BindError(
            f"column {name!r} is {kind}, and the classes of model {model!r} are {wanted} ({some}"
            f"{', ..' if len(labels) > 3 else ''}); cast the column in the rows"
        )


# `task_of`: what a model predicts, and so how it is evaluated.


Task = Literal["two classes", "classes", "numbers", "clusters"]


def task_of(model: Model) -> Task | None:
    """What a model predicts; None if it predicts nothing that could be evaluated."""
    program = model.program
    if "label" not in program.outputs:
        return None
    if not program.labels:
        return "numbers"
    if _finds_clusters(program) and "VotingClassifier" not in model.origin.source:
        return "clusters"
    return "two classes" if all(len(s) == 2 for s in program.labels) else "classes"


def _finds_clusters(program: Program) -> bool:
    """Whether the labels are numbers of clusters: a mixture's, or all that a model gives."""
    (labels,) = program.labels[:1]
    numbered = labels.kind == "int64" and labels.values == tuple(range(len(labels)))
    plain = not {"proba", "score"} & program.outputs.keys()
    return len(program.labels) == 1 and numbered and (plain or "samples" in program.outputs)


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
