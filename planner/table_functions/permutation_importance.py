"""The SQL of `ml_permutation_importance`: the loss of a metric when one column is shuffled.

The user's rows are joined with themselves in random order, once for each repetition. So there is
one prediction per row, repetition and column. The method is that of Breiman, "Random forests",
2001, section 10, as in `sklearn.inspection.permutation_importance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlml.planner.binding.requested_output import render_class
from sqlml.planner.table_functions.evaluated_model import EvaluatedModel
from sqlml.planner.table_functions.scored_rows import build_class_number
from sqlml.planner.table_functions.table_function_call import TableFunctionCall

_DEFAULT_REPEATS, _MAX_REPEATS = 5, 100
MAX_COLUMNS = 200
_CLASSIFIER_METRICS = ("accuracy", "log_loss")
_REGRESSOR_METRICS = ("r2_score", "mean_squared_error", "mean_absolute_error")


def build_permutation_importance(call: TableFunctionCall) -> tuple[str, str]:
    shuffled_columns = ShuffledColumns.of(call)
    if not shuffled_columns.features:
        raise shuffled_columns.error(f"model {shuffled_columns.model.name!r} reads no column")
    return shuffled_columns.build_sql(
        repeats=call.read_integer("repeats", _DEFAULT_REPEATS, 1, _MAX_REPEATS),
        seed=call.read_integer("seed", 0, 0, 2**31 - _MAX_REPEATS),
    )


@dataclass(frozen=True)
class ShuffledColumns(EvaluatedModel):
    """A model, and the SQL that measures a metric with one column shuffled at a time."""

    @cached_property
    def features(self) -> list[str]:
        columns = self.model.used_columns
        if len(columns) > MAX_COLUMNS:
            raise self.error(
                f"model {self.model.name!r} reads {len(columns)} columns, and "
                f"ml_permutation_importance shuffles at most {MAX_COLUMNS}; ml_global_explain and "
                "ml_feature_importance take more"
            )
        return columns

    @cached_property
    def metric(self) -> str:
        """The metric, whose decrease is the importance of a shuffled column."""
        if self.target_count > 1 or self.task == "clusters":
            raise self.error(
                f"model {self.model.name!r} does not predict one value per row that could be "
                "compared with a label"
            )
        metrics = _REGRESSOR_METRICS if self.task == "numbers" else _CLASSIFIER_METRICS
        option = self.form.options.get("metric")
        if option is None:
            return metrics[0]
        if option.value not in metrics:
            raise self.error(
                f"unknown metric {option.value!r}; metrics of model {self.model.name!r}: "
                f"{', '.join(metrics)}",
                "metric",
            )
        if option.value == "log_loss" and self.score_kind != "probabilities":
            raise self.error(f"model {self.model.name!r} gives no probabilities", "metric")
        return str(option.value)

    def build_sql(self, repeats: int, seed: int) -> tuple[str, str]:
        """Return the SQL before and after the user's rows.

        `sqlml_shuffled` numbers the rows in a random order for each repetition. `sqlml_scored`
        joins each row with the shuffled row of the same number, which provides the shuffled column.
        `score0` is a row's score without shuffling, and `score{k}` the one with feature k shuffled.
        """
        call, quote, metric = self.dialect.call, self.dialect.quote_name, self.metric
        (label,) = self.label_columns
        y = self.build_label_sql(label, 0)
        shuffle_key = call("hash", "n.place", "r.sqlml_n")
        seed_rows = ", ".join(f"({seed + k})" for k in range(repeats))
        columns = ", ".join(f"r.{quote(name)}" for name in self.features)
        shuffled_columns = enumerate((None, *self.features))
        scores = [f"{self._build_score(name)} AS score{k}" for k, name in shuffled_columns]
        positions = range(1, len(self.features) + 1)
        means = ", ".join(f"{self._build_mean(f'score{k}')} AS mean{k}" for k in (0, *positions))
        scored_label = "CASE WHEN score0 IS NOT NULL THEN y END"
        losses = self.dialect.array([self._build_loss(f"mean{k}") for k in positions])
        feature_rows = ", ".join(f"({k})" for k in positions)
        name_array = self.dialect.array([self.dialect.text(name) for name in self.features])
        prefix = (
            "(SELECT feature, importance, stddev, "
            f"{self.dialect.text(metric)} AS metric FROM (WITH sqlml_rows AS (SELECT *, "
            f"{self.dialect.row_number} AS sqlml_n FROM "
        )
        suffix = (
            f" WHERE {quote(label)} IS NOT NULL), "
            f"sqlml_shuffled AS (SELECT n.place AS sqlml_repeat, {columns}, row_number() OVER "
            f"(PARTITION BY n.place ORDER BY {shuffle_key}, r.sqlml_n) AS sqlml_n "
            f"FROM sqlml_rows AS r CROSS JOIN (VALUES {seed_rows}) AS n(place)), "
            f"sqlml_scored AS (SELECT s.sqlml_repeat, {self._build_label_number(f'r.{y}')} AS y, "
            f"{', '.join(scores)} FROM sqlml_rows AS r "
            "JOIN sqlml_shuffled AS s ON s.sqlml_n = r.sqlml_n), "
            f"sqlml_means AS (SELECT sqlml_repeat, {call('var_pop', scored_label)} AS spread, "
            f"{means} FROM sqlml_scored GROUP BY sqlml_repeat), "
            f"sqlml_worse AS (SELECT {losses} AS worse FROM sqlml_means) "
            f"SELECT {self.dialect.at(name_array, 'place')} AS feature, place, "
            f"{call('avg', self.dialect.at('worse', 'place'))} AS importance, "
            f"{call('stddev_pop', self.dialect.at('worse', 'place'))} AS stddev "
            f"FROM sqlml_worse CROSS JOIN (VALUES {feature_rows}) AS places(place) GROUP BY place"
            ") AS sqlml_importances ORDER BY importance DESC, place)"
        )
        return prefix, suffix

    def _build_call(self, function: str, shuffled: str | None, *arguments: str) -> str:
        """Build the SQL of a model call on row `r`, whose column `shuffled` is that of row `s`."""
        quote = self.dialect.quote_name
        aliases = {name: "s" if name == shuffled else "r" for name in self.features}
        values = [f"{quote(name)} := {alias}.{quote(name)}" for name, alias in aliases.items()]
        reference = self.dialect.quote_string(str(self.form.model))
        return f"{function}({', '.join([reference, *values, *arguments])})"

    def _build_score(self, shuffled: str | None) -> str:
        """Build the SQL of the score of one row's prediction, which `_build_mean` averages."""
        (label,) = self.label_columns
        y = self._build_label_number(f"r.{self.build_label_sql(label, 0)}")
        if self.metric == "log_loss":
            position = self.dialect.operator("+", y, "1")
            return self.dialect.at(self._build_probabilities(shuffled), position)
        prediction = self._build_call("predict", shuffled)
        if self.task != "numbers":
            (labels,) = self.model.program.labels
            return f"CAST({build_class_number(prediction, labels, self.dialect)} = {y} AS DOUBLE)"
        error = self.dialect.operator("-", f"CAST({prediction} AS DOUBLE)", y)
        if self.metric == "mean_absolute_error":
            return self.dialect.negated(self.dialect.call("abs", error))
        return self.dialect.negated(self.dialect.operator("*", error, error))

    def _build_probabilities(self, shuffled: str | None) -> str:
        if "positive_class" not in self.model.options:
            return self.dialect.call("map_values", self._build_call("predict_proba", shuffled))
        # With a positive class, a call returns the probability of one class.
        (labels,) = self.model.program.labels
        names = [self.dialect.quote_string(render_class(value)) for value in labels.values]
        calls = [self._build_call("predict_proba", shuffled, f"class := {name}") for name in names]
        return self.dialect.array(calls)

    def _build_mean(self, score: str) -> str:
        if self.metric == "log_loss":
            epsilon = "2.220446049250313e-16"  # The lower limit in sklearn.metrics.log_loss.
            clipped = f"CASE WHEN {score} < {epsilon} THEN {epsilon} ELSE {score} END"
            score = self.dialect.call("ln", clipped)
        return self.dialect.call("avg", score)

    def _build_label_number(self, label: str) -> str:
        """Build the SQL of a label as a number: the class number, or a numeric label itself."""
        if self.task == "numbers":
            return f"CAST({label} AS DOUBLE)"
        (labels,) = self.model.program.labels
        message = self.dialect.text(
            f"column {self.label_columns[0]!r} holds a label that is not a class of model "
            f"{self.model.name!r}: "
        )
        return build_class_number(label, labels, self.dialect, message)

    def _build_loss(self, mean: str) -> str:
        """Build the SQL of the amount by which shuffling a column decreases the metric.

        `mean` is the mean score with shuffling. `mean0` is the mean score without shuffling.
        """
        loss = self.dialect.operator("-", "mean0", mean)
        if self.metric == "r2_score":
            return self.dialect.operator("/", loss, self.dialect.call("nullif", "spread", "0"))
        return loss
