"""The SQL of `ml_permutation_importance`: the loss of a metric when one column is shuffled.

The user's rows are joined with themselves in another order, once for each repetition. So there is
one prediction per row, repetition and column. (Breiman, "Random forests", 2001, section 10; the
results are those of `sklearn.inspection.permutation_importance`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlml.planner.binding.requested_output import spell_class
from sqlml.planner.table_functions.evaluated_model import EvaluatedModel
from sqlml.planner.table_functions.scored_rows import build_class_number
from sqlml.planner.table_functions.table_function_call import TableFunctionCall

_DEFAULT_REPEATS, _MAX_REPEATS = 5, 100
MOST_COLUMNS = 200
_CLASSIFIER_METRICS = ("accuracy", "log_loss")
_REGRESSOR_METRICS = ("r2_score", "mean_squared_error", "mean_absolute_error")


def write_permutation_importance(call: TableFunctionCall) -> tuple[str, str]:
    query = ShuffledColumns.of(call)
    if not query.features:
        raise query.error(f"model {query.model.name!r} reads no column")
    return query.write(
        repeats=call.read_integer("repeats", _DEFAULT_REPEATS, 1, _MAX_REPEATS),
        seed=call.read_integer("seed", 0, 0, 2**31 - _MAX_REPEATS),
    )


@dataclass(frozen=True)
class ShuffledColumns(EvaluatedModel):
    @cached_property
    def features(self) -> list[str]:
        """The columns to shuffle."""
        columns = self.model.used_columns
        if len(columns) > MOST_COLUMNS:
            raise self.error(
                f"model {self.model.name!r} reads {len(columns)} columns, and "
                f"ml_permutation_importance shuffles at most {MOST_COLUMNS}; ml_global_explain and "
                "ml_feature_importance take more"
            )
        return columns

    @cached_property
    def metric(self) -> str:
        """The metric whose decrease is the importance."""
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
        if option.value == "log_loss" and self.scores != "probabilities":
            raise self.error(f"model {self.model.name!r} gives no probabilities", "metric")
        return str(option.value)

    def write(self, repeats: int, seed: int) -> tuple[str, str]:
        call, quote, metric = self.dialect.call, self.dialect.quote_name, self.metric
        (label,) = self.labels
        y = self.label_column(label, 0)
        order = call("hash", "n.place", "r.sqlml_n")
        seed_rows = ", ".join(f"({seed + k})" for k in range(repeats))
        names = ", ".join(f"r.{quote(name)}" for name in self.features)
        scores = [f"{self._score(None)} AS good0"]
        scores += [f"{self._score(name)} AS good{k}" for k, name in enumerate(self.features, 1)]
        count = len(self.features)
        positions = range(1, count + 1)
        means = ", ".join(f"{self._average(f'good{k}')} AS mean{k}" for k in range(count + 1))
        scored_label = "CASE WHEN good0 IS NOT NULL THEN y END"
        losses = self.dialect.array([self._loss(f"mean{k}") for k in positions])
        feature_rows = ", ".join(f"({k})" for k in positions)
        name_array = self.dialect.array([self.dialect.text(name) for name in self.features])
        before = (
            "(SELECT feature, importance, stddev, "
            f"{self.dialect.text(metric)} AS metric FROM (WITH sqlml_rows AS (SELECT *, "
            f"{self.dialect.row_number} AS sqlml_n FROM "
        )
        after = (
            f" WHERE {quote(label)} IS NOT NULL), "
            f"sqlml_shuffled AS (SELECT n.place AS sqlml_repeat, {names}, row_number() OVER "
            f"(PARTITION BY n.place ORDER BY {order}, r.sqlml_n) AS sqlml_n FROM sqlml_rows AS r "
            f"CROSS JOIN (VALUES {seed_rows}) AS n(place)), "
            f"sqlml_scored AS (SELECT s.sqlml_repeat, {self._label_number(f'r.{y}')} AS y, "
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
        return before, after

    def _call(self, function: str, shuffled: str | None, *arguments: str) -> str:
        """Return a call of the model on the row `r`, in which `shuffled` comes from the row `s`."""
        quote = self.dialect.quote_name
        values = [
            f"{quote(name)} := {'s' if name == shuffled else 'r'}.{quote(name)}"
            for name in self.features
        ]
        name = self.dialect.quote_string(str(self.form.model))
        return f"{function}({', '.join([name, *values, *arguments])})"

    def _score(self, shuffled: str | None) -> str:
        """Return the score of a prediction as SQL; the metric is the mean of these scores.

        The score of a NULL prediction is NULL.
        """
        (label,) = self.labels
        y = self._label_number(f"r.{self.label_column(label, 0)}")
        if self.metric == "log_loss":
            position = self.dialect.operator("+", y, "1")
            return self.dialect.at(self._probabilities(shuffled), position)
        prediction = self._call("predict", shuffled)
        if self.task != "numbers":
            (labels,) = self.model.program.labels
            return f"CAST({build_class_number(prediction, labels, self.dialect)} = {y} AS DOUBLE)"
        error = self.dialect.operator("-", f"CAST({prediction} AS DOUBLE)", y)
        if self.metric == "mean_absolute_error":
            return self.dialect.negated(self.dialect.call("abs", error))
        return self.dialect.negated(self.dialect.operator("*", error, error))

    def _probabilities(self, shuffled: str | None) -> str:
        if "positive_class" not in self.model.options:
            return self.dialect.call("map_values", self._call("predict_proba", shuffled))
        # With a positive class, a call returns the probability of one class.
        (labels,) = self.model.program.labels
        names = [self.dialect.quote_string(spell_class(value)) for value in labels.values]
        calls = [self._call("predict_proba", shuffled, f"class := {name}") for name in names]
        return self.dialect.array(calls)

    def _average(self, score: str) -> str:
        if self.metric == "log_loss":
            min_probability = (
                "2.220446049250313e-16"  # sklearn.metrics.log_loss clips a float64 to this
            )
            score = self.dialect.call(
                "ln",
                f"CASE WHEN {score} < {min_probability} THEN {min_probability} ELSE {score} END",
            )
        return self.dialect.call("avg", score)

    def _label_number(self, label: str) -> str:
        """Return the SQL of a label as a number: its class number, or the numeric label itself."""
        if self.task == "numbers":
            return f"CAST({label} AS DOUBLE)"
        (labels,) = self.model.program.labels
        message = self.dialect.text(
            f"column {self.labels[0]!r} holds a label that is not a class of model "
            f"{self.model.name!r}: "
        )
        return build_class_number(label, labels, self.dialect, message)

    def _loss(self, mean: str) -> str:
        """Return the SQL of how much shuffling decreases the metric.

        `mean` is the mean score with shuffling; `mean0` is the mean score without.
        """
        loss = self.dialect.operator("-", "mean0", mean)
        if self.metric == "r2_score":
            return self.dialect.operator("/", loss, self.dialect.call("nullif", "spread", "0"))
        return loss
