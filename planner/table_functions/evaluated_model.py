"""The model of an evaluation, with its task, its labels, and the groups of the evaluated rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

from sqlml.catalog.model import Model, extend_version
from sqlml.catalog.small_models import DEFAULT_COVERAGE, Calibration
from sqlml.dialects import Dialect
from sqlml.dialects.type_names import NUMBERS, UNTYPED
from sqlml.errors import BindError
from sqlml.ir.program import Program
from sqlml.planner.binding.requested_output import find_label
from sqlml.planner.program.result_sql import find_label_type
from sqlml.planner.syntax.table_forms import TableForm
from sqlml.planner.table_functions.table_function_call import ColumnTypes, TableFunctionCall
from sqlml.suggestions import closest
from sqlml.types import Labels, fold, list_classes

CLASSIFIER_METRICS = (
    *("precision", "recall", "accuracy", "f1_score", "log_loss", "roc_auc"),
    *("average_precision", "brier_score"),
)

REGRESSOR_METRICS = (
    *("mean_absolute_error", "mean_squared_error", "mean_squared_log_error"),
    *("median_absolute_error", "max_error", "r2_score", "explained_variance"),
    "mean_absolute_percentage_error",
)

Task = Literal["two classes", "classes", "numbers", "clusters"]


def find_task(model: Model) -> Task | None:
    """Return what `model` predicts, or None if it predicts neither labels nor numbers."""
    program = model.program
    if "label" not in program.outputs:
        return None
    if not program.labels:
        return "numbers"
    if _has_cluster_labels(program) and "VotingClassifier" not in model.origin.source:
        return "clusters"
    return "two classes" if all(len(s) == 2 for s in program.labels) else "classes"


def _has_cluster_labels(program: Program) -> bool:
    """Return whether the labels of `program` are cluster numbers, as in k-means."""
    labels = program.labels[0]
    is_numbered = labels.kind == "int64" and labels.values == tuple(range(len(labels)))
    has_only_labels = not {"proba", "score"} & program.outputs.keys()
    is_mixture = "samples" in program.outputs
    return len(program.labels) == 1 and is_numbered and (has_only_labels or is_mixture)


@dataclass(frozen=True)
class EvaluatedModel:
    """A model that a table function evaluates on labelled rows.

    Errors point at positions in `sql`, the user's statement. `label` is the label column of the
    model's training, if known. `calibration` is set if intervals or sets are evaluated as well.
    """

    form: TableForm
    model: Model
    dialect: Dialect
    sql: str
    columns_of_rows: ColumnTypes = None
    label: str | None = None
    calibration: Calibration | None = None

    @classmethod
    def of(cls, call: TableFunctionCall) -> Self:
        label = None if call.training is None else call.training.label
        (types,) = call.column_types
        calibration = _find_evaluated_calibration(call, types)
        return cls(call.form, call.model, call.dialect, call.sql, types, label, calibration)

    @cached_property
    def task(self) -> Task:
        task = find_task(self.model)
        if task is None:
            name = self.model.name
            raise self.error(
                f"model {name!r} predicts nothing that could be evaluated on rows; "
                f"ml_evaluate(MODEL {name}) returns what its training measured"
            )
        return task

    @cached_property
    def target_count(self) -> int:
        program = self.model.program
        predicts_numbers = self.task == "numbers"  # Without a label, this raises an error.
        return program.output_type("label").width if predicts_numbers else len(program.labels)

    @property
    def class_labels(self) -> Labels:
        """The class labels in the order of the class numbers in the evaluation (`is_flipped`)."""
        labels = self.model.program.labels[0]
        return replace(labels, values=labels.values[::-1]) if self.is_flipped else labels

    @property
    def coverage(self) -> float:
        """The coverage of the evaluated intervals or sets."""
        option = self.form.options.get("coverage")
        return DEFAULT_COVERAGE if option is None else float(option.value)

    @property
    def class_counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.model.program.labels))

    @property
    def class_count(self) -> int:
        """The number of classes of the first target."""
        return self.class_counts[0]

    @cached_property
    def label_columns(self) -> tuple[str, ...]:
        option = self.form.options.get("label")
        if option is not None:
            columns = tuple(option.value)
        elif self.label is not None:
            columns = (self.label,)
        elif self.task == "clusters":
            return ()
        else:
            raise self.error(
                f"name the label column, as in ml_{self.form.function}(..., label := 'churned')"
            )
        if len(columns) != self.target_count:
            raise self.error(
                f"model {self.model.name!r} predicts {self.target_count} values per row; name as "
                "many label columns, as in label := ['a', 'b']"
            )
        return columns

    @cached_property
    def score_kind(self) -> Literal["probabilities", "scores", "none"]:
        outputs = self.model.program.outputs
        if "proba" in outputs:
            return "probabilities"
        return "scores" if "score" in outputs and self.target_count == 1 else "none"

    @cached_property
    def positive_index(self) -> int:
        """The index of the positive class, which is the last class by default."""
        option = self.form.options.get("class")
        class_name = self.model.options.get("positive_class") if option is None else option.value
        (labels,) = self.model.program.labels
        if class_name is None:
            return len(labels) - 1
        index = find_label(labels, class_name)
        if index is None:
            raise self.error(
                f"model {self.model.name!r} has no class {class_name!r}; its classes are "
                f"{list_classes(labels.values)}",
                "class",
            )
        return index

    @property
    def is_flipped(self) -> bool:
        """True if the evaluation swaps the numbers of two classes because the first is positive."""
        return self.task == "two classes" and self.target_count == 1 and self.positive_index == 0

    @property
    def positive_test(self) -> str:
        """The SQL condition for rows of `sqlml_scored` predicted as the second of two classes."""
        threshold = self.form.options.get("threshold")
        if threshold is None:
            return "hat = 1"
        if self.score_kind != "probabilities":
            raise self.error(f"model {self.model.name!r} gives no probabilities", "threshold")
        return f"p1 >= {float(threshold.value)!r}"

    @cached_property
    def grouping(self) -> Grouping:
        """The keys that group the result: the columns of option `by`, then the target."""
        option = self.form.options.get("by")
        columns = () if option is None else option.value
        keys = [f"g{n}" for n in range(len(columns))]
        names = [self.dialect.quote_name(name) for name in columns]
        if self.target_count > 1:
            keys, names = [*keys, "t"], [*names, self.dialect.quote_name("target")]
        return Grouping(tuple(keys), tuple(names))

    def error(self, message: str, option: str | None = None) -> BindError:
        named_option = self.form.options.get(option or "")
        return BindError(message, self.sql, (named_option or self.form).span.start)

    def get_column_type(self, name: str, option: str) -> str | None:
        if self.columns_of_rows is None:
            return None
        try:
            return find_column_type(name, self.columns_of_rows)
        except BindError as error:
            raise self.error(error.message, option) from None

    def build_label_sql(self, name: str, target_index: int) -> str:
        """Return SQL for the label column `name` that can be compared with a target's classes."""
        sql_type, quoted_name = self.get_column_type(name, "label"), self.dialect.quote_name(name)
        program, model_name = self.model.program, self.model.name
        if sql_type is None or self.task == "clusters":
            return quoted_name
        if not program.labels:
            if NUMBERS.fullmatch(sql_type) is None and sql_type not in UNTYPED:
                raise self.error(
                    f"column {name!r} is {sql_type}, but model {model_name!r} predicts numbers",
                    "label",
                )
            return quoted_name
        labels = program.labels[target_index]
        if not _can_hold_labels(sql_type, labels):
            examples = list_classes(labels.values, 3) + (", ..." if len(labels) > 3 else "")
            raise self.error(
                f"column {name!r} is {sql_type}, and the classes of model {model_name!r} are "
                f"{find_label_type(labels)} ({examples}); cast the column in the rows",
                "label",
            )
        casts_boolean = sql_type == "BOOLEAN" and labels.kind != "bool"
        return f"CAST({quoted_name} AS INTEGER)" if casts_boolean else quoted_name


def _find_evaluated_calibration(call: TableFunctionCall, types: ColumnTypes) -> Calibration | None:
    """Return the calibration to evaluate, or None if there is none or the rows do not suit it."""
    options = call.form.options
    if call.name != "evaluate":
        return None
    has_several = call.model.program.target_count > 1
    if "coverage" in options:
        if has_several or "per_class" in options:
            reason = "a model of several targets" if has_several else "per_class"
            raise call.error(f"option coverage cannot be combined with {reason}", "coverage")
        return call.require_calibration()
    if has_several or "per_class" in options or call.calibration is None or types is None:
        return None
    has_columns = has_calibration_columns(call.model, call.calibration, types)
    is_allowed = call.calibration.facts.highest >= DEFAULT_COVERAGE
    return call.calibration if has_columns and is_allowed else None


def has_calibration_columns(model: Model, calibration: Calibration, names: Iterable[str]) -> bool:
    """Return whether the columns `names` include all that the intervals or sets of a model read."""
    extended = extend_version(model, calibration.small)
    known, inputs = {fold(name) for name in names}, calibration.small.inputs
    read_columns = [c for c in extended.columns if c.name in inputs or extended.transform]
    return all(fold(column.name) in known for column in read_columns)


def find_column_type(name: str, columns: Mapping[str, str]) -> str:
    """Return the SQL type of the column `name`, or raise BindError if it is not in `columns`."""
    for column, sql_type in columns.items():
        if fold(column) == fold(name):
            return sql_type
    suggestion = closest(fold(name), map(fold, columns))
    listing = f"columns: {', '.join(list(columns)[:20])}"
    hint = f"did you mean {suggestion!r}?" if suggestion else listing
    raise BindError(f"the rows have no column {name!r}; {hint}")


def _can_hold_labels(sql_type: str, labels: Labels) -> bool:
    if sql_type in ('"NULL"', "NULL"):
        return True
    if labels.kind == "string":
        return sql_type in ("VARCHAR", labels.sql_type) or sql_type.startswith("ENUM")
    return sql_type == "BOOLEAN" if labels.kind == "bool" else bool(NUMBERS.fullmatch(sql_type))


@dataclass(frozen=True, slots=True)
class Grouping:
    """The keys that group the rows of an evaluation, and fragments of SQL that use the keys.

    Keys are `g0`, `g1`, ... for the user's columns and, if there are several targets, `t` for the
    number of the target. In the result, the keys have the quoted `names`.
    """

    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> str:
        """The keys as the first select items, such as `g0, g1, `."""
        return "".join(f"{key}, " for key in self.keys)

    def columns_of(self, table: str) -> str:
        """Return the keys of `table` as the first select items, such as `a.g0, a.g1, ` for `a`."""
        return "".join(f"{table}.{key}, " for key in self.keys)

    @property
    def group_by(self) -> str:
        return f"GROUP BY {', '.join(self.keys)}" if self.keys else ""

    def group_by_of(self, table: str) -> str:
        keys = ", ".join(f"{table}.{key}" for key in self.keys)
        return f"GROUP BY {keys}" if keys else ""

    def group_by_with(self, *columns: str) -> str:
        return f"GROUP BY {', '.join([*self.keys, *columns])}"

    @property
    def partition_by(self) -> str:
        return f"PARTITION BY {', '.join(self.keys)}" if self.keys else ""

    def join(self, left: str, right: str, join_type: str = "JOIN") -> str:
        """Return the SQL that joins two tables on the keys. NULL keys are equal."""
        if not self.keys:
            return f"{left} CROSS JOIN {right}"
        conditions = (f"{left}.{key} IS NOT DISTINCT FROM {right}.{key}" for key in self.keys)
        return f"{left} {join_type} {right} ON {' AND '.join(conditions)}"

    @property
    def require_rows(self) -> str:
        """The SQL condition that raises an error if no row was evaluated, or is true with keys."""
        if self.keys:
            return "n >= 0"
        message = "no row has a label and a prediction: there is nothing to evaluate"
        return f"CASE WHEN n > 0 THEN true ELSE CAST(error('{message}') AS BOOLEAN) END"
