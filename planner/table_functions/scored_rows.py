"""The rows of an evaluation as a relation, `sqlml_scored`, and the queries on top of it.

::

    WITH sqlml_calls AS (SELECT "churned" AS sqlml_y0, predict('m', *) AS sqlml_hat, ... FROM rows),
         sqlml_scored AS (SELECT ... FROM sqlml_calls), ...

`sqlml_scored` has one row for each of the user's rows, and for each target if there are several:

* `g0`, `g1`, ...: the columns of the option `by`; `t`: the number of the target.
* `w`: the weight of the row, or 1 if there is no weight column.
* `y`, `hat`: the label and the prediction: a class number from 0, or a number.
* `p0`, `p1` (two classes): the probabilities, or NULL and the decision function.
* `ps` (more classes): a list of the probabilities or scores, in the order of the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlml.dialects import DUCKDB, Dialect
from sqlml.dialects.type_names import NUMBERS
from sqlml.planner.binding.requested_output import render_class
from sqlml.planner.program.result_sql import build_label_array
from sqlml.planner.syntax.query_templates import render_for_engine
from sqlml.planner.table_functions.evaluated_model import EvaluatedModel, Grouping
from sqlml.types import Labels

IS_EVALUATED = "y IS NOT NULL AND hat IS NOT NULL"

ROW_COUNTS = (
    f"sum(CASE WHEN {IS_EVALUATED} THEN 1 ELSE 0 END) AS n, "
    "sum(CASE WHEN y IS NULL THEN 1 ELSE 0 END) AS null_labels, "
    "sum(CASE WHEN y IS NOT NULL AND hat IS NULL THEN 1 ELSE 0 END) AS null_predictions"
)
"""Select items that count evaluated rows, rows without a label and rows without a prediction."""

ROW_COUNT_SUMS = (
    "sum(n) AS n, sum(null_labels) AS null_labels, sum(null_predictions) AS null_predictions"
)

ROW_COUNT_COLUMNS = (
    "CAST(n AS BIGINT) AS rows_evaluated, CAST(null_labels AS BIGINT) AS null_labels, "
    "CAST(null_predictions AS BIGINT) AS null_predictions"
)

_ROWS_PLACEHOLDER = "sqlml_scored AS (SELECT 1)"
"""Replaces the user's rows while templates are translated, since the rows must not change."""


@dataclass(frozen=True)
class ScoredRows(EvaluatedModel):
    """An evaluated model, and the SQL that scores the rows: `sqlml_calls` and `sqlml_scored`."""

    @cached_property
    def call_items(self) -> str:
        """The select items of `sqlml_calls`: group columns, labels, the weight and model calls."""
        options, quote = self.form.options, self.dialect.quote_name
        group_columns = options["by"].value if "by" in options else ()
        for name in group_columns:
            self.get_column_type(name, "by")
        weight_items = []
        if "weight" in options:
            weight = options["weight"].value
            sql_type = self.get_column_type(weight, "weight")
            if sql_type is not None and (not NUMBERS.fullmatch(sql_type) or sql_type == "BOOLEAN"):
                message = f"weight column {weight!r} must be a number, not {sql_type}"
                raise self.error(message, "weight")
            weight_items = [f"{quote(weight)} AS sqlml_w"]
        group_items = [f"{quote(name)} AS sqlml_g{k}" for k, name in enumerate(group_columns)]
        label_sqls = [self.build_label_sql(name, k) for k, name in enumerate(self.label_columns)]
        label_items = [f"{label_sql} AS sqlml_y{k}" for k, label_sql in enumerate(label_sqls)]
        calls = self._list_model_calls()
        if self.calibration is not None:
            reference = self.dialect.quote_string(str(self.form.model))
            function = f"predict_{self.calibration.output}"
            calls.append(
                f"{function}({reference}, *, coverage := {self.coverage!r}) AS sqlml_range"
            )
        return ", ".join([*group_items, *label_items, *weight_items, *calls])

    @cached_property
    def scored_items(self) -> str:
        """The select items of `sqlml_scored`: keys, the weight, labels and predictions."""
        group_keys = [key for key in self.grouping.keys if key != "t"]
        keys = "".join(f"sqlml_{key} AS {key}, " for key in group_keys)
        targets = "t AS t, " if self.target_count > 1 else ""
        return f"{keys}{targets}{self._build_weight()} AS w, {self._build_value_items()}"

    @property
    def from_sql(self) -> str:
        """The FROM clause of `sqlml_scored`, which repeats each row for each of several targets."""
        if self.target_count == 1:
            return "sqlml_calls"
        target_rows = ", ".join(f"({n})" for n in range(self.target_count))
        return f"sqlml_calls CROSS JOIN (VALUES {target_rows}) AS targets(t)"

    def _list_model_calls(self) -> list[str]:
        reference = self.dialect.quote_string(str(self.form.model))
        calls = [f"predict({reference}, *) AS sqlml_hat"]
        if self.task == "clusters" and self._has_distances:
            return [*calls, f"transform({reference}, *) AS sqlml_distances"]
        if self.task in ("clusters", "numbers"):
            return calls
        if self.score_kind == "scores":
            return [*calls, f"predict_score({reference}, *) AS sqlml_p"]
        if self.score_kind == "none":
            return calls
        if self._has_probability_map:
            return [*calls, f"predict_proba({reference}, *) AS sqlml_p"]
        (labels,) = self.model.program.labels
        class_literals = [self.dialect.quote_string(render_class(value)) for value in labels.values]
        return calls + [
            f"predict_proba({reference}, *, class := {class_sql}) AS sqlml_p{n}"
            for n, class_sql in enumerate(class_literals)
        ]

    @property
    def _has_probability_map(self) -> bool:
        """True if one call returns a MAP of all probabilities, false if each class has a call."""
        calls_per_class = self.task == "two classes" or "positive_class" in self.model.options
        return self.target_count > 1 or not calls_per_class

    @property
    def _has_distances(self) -> bool:
        program = self.model.program
        width = len(program.labels[0])
        return "transform" in program.outputs and program.output_type("transform").width == width

    def _build_weight(self) -> str:
        weight = self.form.options.get("weight")
        if weight is None:
            return "1"
        message = f"column {weight.value!r} holds a weight that is NULL, infinite or below 0"
        number_sql = "CAST(sqlml_w AS DOUBLE)"
        valid_test = f"sqlml_w >= 0 AND {self.dialect.is_finite(number_sql)}"
        error_sql = f"CAST({self.dialect.error(self.dialect.text(message))} AS DOUBLE)"
        return f"CASE WHEN {valid_test} THEN {number_sql} ELSE {error_sql} END"

    def _build_value_items(self) -> str:
        target_values = [self._build_target_values(n) for n in range(self.target_count)]
        names = target_values[0].keys()
        if self.target_count == 1:
            values = {**target_values[0], **self._build_coverage_values()}
            return ", ".join(f"{sql} AS {name}" for name, sql in values.items())
        position = self.dialect.operator("+", "t", "1")
        arrays = {name: self.dialect.array([v[name] for v in target_values]) for name in names}
        return ", ".join(f"{self.dialect.at(arrays[name], position)} AS {name}" for name in names)

    def _build_target_values(self, target: int) -> dict[str, str]:
        label_sets = self.model.program.labels
        label, prediction = f"sqlml_y{target}", self._build_element("sqlml_hat", target)
        if self.task == "clusters":
            return self._build_cluster_values()
        if not label_sets:
            number_sql = f"CAST({label} AS DOUBLE)"
            message = f"column {self.label_columns[target]!r} holds NaN or an infinite label"
            error_sql = f"CAST({self.dialect.error(self.dialect.text(message))} AS DOUBLE)"
            valid_test = f"{label} IS NULL OR {self.dialect.is_finite(number_sql)}"
            y = f"CASE WHEN {valid_test} THEN {number_sql} ELSE {error_sql} END"
            return {"y": y, "hat": f"CAST({prediction} AS DOUBLE)"}
        message = self.dialect.text(
            f"column {self.label_columns[target]!r} holds a label that is not a class of model "
            f"{self.model.name!r}: "
        )
        labels = self.class_labels if self.target_count == 1 else label_sets[target]
        return {
            "y": build_class_number(label, labels, self.dialect, message),
            "hat": build_class_number(prediction, labels, self.dialect),
            **self._build_target_scores(target),
        }

    def _build_coverage_values(self) -> dict[str, str]:
        """Return whether a row's interval or set covers the label, and its width or size."""
        if self.calibration is None:
            return {}
        if self.calibration.output == "set":
            is_inside = f"{self.dialect.position('sqlml_range', 'sqlml_y0')} > 0"
            width = self.dialect.length("sqlml_range")
        else:
            lower, upper = (self.dialect.field("sqlml_range", end) for end in ("lower", "upper"))
            is_inside = f"sqlml_y0 BETWEEN {lower} AND {upper}"
            width = self.dialect.operator("-", upper, lower)
        is_known = "sqlml_y0 IS NOT NULL AND sqlml_range IS NOT NULL"
        inside = f"CASE WHEN {is_known} THEN CASE WHEN {is_inside} THEN 1 ELSE 0 END END"
        return {"inside": inside, "width": width}

    def _build_cluster_values(self) -> dict[str, str]:
        distance = "sqlml_distances" if self._has_distances else "CAST(NULL AS DOUBLE)"
        if self._has_distances and len(self.model.program.labels[0]) > 1:
            distance = self.dialect.least(distance)
        string_type = self.dialect.type("VARCHAR")
        label = f"CAST(sqlml_y0 AS {string_type})" if self.label_columns else "NULL"
        return {"y": label, "hat": "sqlml_hat", "distance": distance}

    def _build_element(self, result_sql: str, target: int) -> str:
        """Return the SQL of one target's element in `result_sql`, the result of a call.

        If the targets have labels of different types, the result is a struct instead of a list.
        """
        if self.target_count == 1:
            return result_sql
        if len({labels.kind for labels in self.model.program.labels}) > 1:
            return self.dialect.field(result_sql, f"t{target}")
        return self.dialect.at(result_sql, target + 1)

    def _build_target_scores(self, target: int) -> dict[str, str]:
        null = "CAST(NULL AS DOUBLE)"
        class_count = len(self.model.program.labels[target])
        if self.task == "two classes" and self.target_count == 1:
            if self.score_kind == "probabilities":
                p0, p1 = ("sqlml_p1", "sqlml_p0") if self.is_flipped else ("sqlml_p0", "sqlml_p1")
                return {"p0": p0, "p1": p1}
            score = self.dialect.negated("sqlml_p") if self.is_flipped else "sqlml_p"
            return {"p0": null, "p1": score if self.score_kind == "scores" else null}
        if self.score_kind == "none":
            scores = self.dialect.array([null] * class_count)
        elif self.score_kind == "scores":
            scores = "sqlml_p"
        elif self._has_probability_map:
            scores = self.dialect.call("map_values", self._build_element("sqlml_p", target))
        else:
            scores = self.dialect.array([f"sqlml_p{k}" for k in range(class_count)])
        if self.task == "two classes":
            return {"p0": self.dialect.at(scores, 1), "p1": self.dialect.at(scores, 2)}
        return {"ps": scores}


def build_class_number(
    label: str, labels: Labels, dialect: Dialect, message: str | None = None
) -> str:
    """Build the SQL of the 0-based class number of the SQL expression `label`.

    If the label is unknown, the SQL raises an error that begins with the SQL string `message`. If
    `message` is None, the SQL returns NULL instead.
    """
    label_text = f"CAST({label} AS {dialect.type('VARCHAR')})"
    unknown = "NULL"
    if message is not None:
        error = dialect.error(dialect.operator("||", message, label_text))
        unknown = f"CASE WHEN {label} IS NOT NULL THEN CAST({error} AS INTEGER) END"
    is_plain_text = labels.kind == "string" and not any("\0" in str(v) for v in labels.values)
    if is_plain_text and dialect is DUCKDB:  # Spark returns -1 for unknown labels.
        return dialect.place_of(label_text, [dialect.text(str(v)) for v in labels.values], unknown)
    position = dialect.position(build_label_array(labels, dialect), label)
    number_sql = dialect.operator("-", dialect.call("nullif", position, "0"), "1")
    return f"coalesce({number_sql}, {unknown})"


@dataclass(frozen=True, slots=True)
class EvaluationQuery:
    """The CTEs and the final SELECT of an evaluation, as templates for `render_for_engine`."""

    ctes: tuple[tuple[str, str], ...]  # Pairs of a name and its query.
    select: str

    def with_coverage(self, grouping: Grouping) -> EvaluationQuery:
        """Add the columns `coverage` and `mean_width`, the means of `inside` and `width`."""
        covered = f"""
            SELECT {grouping.columns} fsum(w * inside) / nullif(fsum(w), 0) AS coverage,
                fsum(w * width) / nullif(fsum(w), 0) AS mean_width
            FROM sqlml_scored WHERE {IS_EVALUATED} AND inside IS NOT NULL {grouping.group_by}
        """
        ctes = (*self.ctes, ("metrics", self.select), ("covered", covered))
        tables = grouping.join("metrics", "covered", "LEFT JOIN")
        return EvaluationQuery(ctes, f"SELECT metrics.*, coverage, mean_width FROM {tables}")

    def wrap_rows(self, rows: ScoredRows, items: Sequence[str]) -> tuple[str, str]:
        """Return the SQL before and after the user's rows, which selects `items` of the result."""
        ctes = ", ".join([_ROWS_PLACEHOLDER, *(f"{name} AS ({sql})" for name, sql in self.ctes)])
        query = render_for_engine(f"WITH {ctes} {self.select}", rows.dialect.name)
        remaining_sql = query.removeprefix(f"WITH {_ROWS_PLACEHOLDER}")
        scored = f"sqlml_scored AS (SELECT {rows.scored_items} FROM {rows.from_sql})"
        prefix = (
            f"(SELECT {', '.join(items)} FROM (WITH sqlml_calls AS (SELECT {rows.call_items} FROM "
        )
        return prefix, f"), {scored}{remaining_sql}) AS sqlml_answer)"
