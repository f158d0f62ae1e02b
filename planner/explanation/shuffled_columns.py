"""`shuffled_columns`: ml_permutation_importance: how much worse a model is where one column holds
the values of other rows.

::

    sqlml_rows      the user's rows, with a number
    sqlml_shuffled  the same rows in another order, once for each repetition
    sqlml_scored    for each row what the model makes of it, and of it with one column of the other

One prediction for each row, and for each row, column and repetition. (Breiman, "Random forests",
2001, section 10; as `sklearn.inspection.permutation_importance` does it.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlml.planner.binding.requested_output import spelled_class
from sqlml.planner.evaluation.evaluated_model import EvaluatedModel
from sqlml.planner.evaluation.scored_rows import label_place

_REPEATS, _MOST_REPEATS = 5, 100
MOST_COLUMNS = 200
"""Columns that may be shuffled in one query."""

_OF_CLASSES = ("accuracy", "log_loss")
_OF_NUMBERS = ("r2_score", "mean_squared_error", "mean_absolute_error")


@dataclass(frozen=True)
class ShuffledColumns(EvaluatedModel):
    """The SQL of that query."""

    @cached_property
    def features(self) -> list[str]:
        """The columns that are shuffled.

        Raises:
            BindError: they are too many.
        """
        model = self.model
        found = model.read_columns
        if len(found) > MOST_COLUMNS:
            raise self.error(
                f"model {model.name!r} reads {len(found)} columns, and ml_permutation_importance "
                f"shuffles at most {MOST_COLUMNS}; ml_global_explain and ml_feature_importance "
                "take more"
            )
        return found

    @cached_property
    def metric(self) -> str:
        """What is measured.

        Raises:
            BindError: the model has no such metric.
        """
        if self.targets > 1 or self.task == "clusters":
            raise self.error(
                f"model {self.model.name!r} does not predict one value per row that could be "
                "compared with a label"
            )
        numbers = self.task == "numbers"
        known = _OF_NUMBERS if numbers else _OF_CLASSES
        option = self.form.options.get("metric")
        if option is None:
            return known[0]
        if option.value not in known:
            raise self.error(
                f"unknown metric {option.value!r}; metrics of model {self.model.name!r}: "
                f"{', '.join(known)}",
                "metric",
            )
        if option.value == "log_loss" and self.scores != "probabilities":
            raise self.error(f"model {self.model.name!r} gives no probabilities", "metric")
        return str(option.value)

    def written(self) -> tuple[str, str]:
        """The text before and after the user's rows."""
        call, quote, metric = self.dialect.call, self.dialect.quote_name, self.metric
        (label,) = self.labels
        y = self.label_column(label, 0)
        order = call("hash", "n.place", "r.sqlml_n")
        repeats = ", ".join(f"({self._seed + k})" for k in range(self._repeats))
        names = ", ".join(f"r.{quote(name)}" for name in self.features)
        goods = [f"{self._good(None)} AS good0"]
        goods += [f"{self._good(name)} AS good{k}" for k, name in enumerate(self.features, 1)]
        count = len(self.features)
        places = range(1, count + 1)
        means = ", ".join(f"{self._mean(f'good{k}')} AS mean{k}" for k in range(count + 1))
        known = "CASE WHEN good0 IS NOT NULL THEN y END"
        worse = self.dialect.array([self._worse(f"mean{k}") for k in places])
        spread = ", ".join(f"({k})" for k in places)
        listed = self.dialect.array([self.dialect.text(name) for name in self.features])
        before = (
            "(SELECT feature, importance, stddev, "
            f"{self.dialect.text(metric)} AS metric FROM (WITH sqlml_rows AS (SELECT *, "
            f"{self.dialect.row_number} AS sqlml_n FROM "
        )
        after = (
            f" WHERE {quote(label)} IS NOT NULL), "
            f"sqlml_shuffled AS (SELECT n.place AS sqlml_repeat, {names}, row_number() OVER "
            f"(PARTITION BY n.place ORDER BY {order}, r.sqlml_n) AS sqlml_n FROM sqlml_rows AS r "
            f"CROSS JOIN (VALUES {repeats}) AS n(place)), "
            f"sqlml_scored AS (SELECT s.sqlml_repeat, {self._place(f'r.{y}')} AS y, "
            f"{', '.join(goods)} FROM sqlml_rows AS r "
            "JOIN sqlml_shuffled AS s ON s.sqlml_n = r.sqlml_n), "
            f"sqlml_means AS (SELECT sqlml_repeat, {call('var_pop', known)} AS spread, {means} "
            "FROM sqlml_scored GROUP BY sqlml_repeat), "
            f"sqlml_worse AS (SELECT {worse} AS worse FROM sqlml_means) "
            f"SELECT {self.dialect.at(listed, 'place')} AS feature, place, "
            f"{call('avg', self.dialect.at('worse', 'place'))} AS importance, "
            f"{call('stddev_pop', self.dialect.at('worse', 'place'))} AS stddev "
            f"FROM sqlml_worse CROSS JOIN (VALUES {spread}) AS places(place) GROUP BY place"
            ") AS sqlml_importances ORDER BY importance DESC, place)"
        )
        return before, after

    def _call(self, function: str, shuffled: str | None, *more: str) -> str:
        """A call of the model on a row, one of whose columns is another row's."""
        quote = self.dialect.quote_name
        values = [
            f"{quote(name)} := {'s' if name == shuffled else 'r'}.{quote(name)}"
            for name in self.features
        ]
        name = self.dialect.quote_string(str(self.form.model))
        return f"{function}({', '.join([name, *values, *more])})"

    def _good(self, shuffled: str | None) -> str:
        """How good a prediction is, a number; NULL where there is none, as where the model reads a
        NULL that it has no way for. Such rows are left out, as `ml_evaluate` leaves them out."""
        (label,) = self.labels
        y = self._place(f"r.{self.label_column(label, 0)}")
        if self.metric == "log_loss":
            (labels,) = self.model.program.labels
            spelled = map(spelled_class, labels.values)
            if "positive_class" in self.model.options:  # no call gives all of them
                given = [f"class := {self.dialect.quote_string(text)}" for text in spelled]
                calls = [self._call("predict_proba", shuffled, one) for one in given]
                values = self.dialect.array(calls)
            else:
                values = self.dialect.call("map_values", self._call("predict_proba", shuffled))
            return self.dialect.at(values, self.dialect.operator("+", y, "1"))
        predicted = self._call("predict", shuffled)
        if self.task != "numbers":
            (labels,) = self.model.program.labels
            place = label_place(predicted, labels, self.dialect)
            return f"CAST({place} = {y} AS DOUBLE)"
        missed = self.dialect.operator("-", f"CAST({predicted} AS DOUBLE)", y)
        if self.metric == "mean_absolute_error":
            return self.dialect.negated(self.dialect.call("abs", missed))
        return self.dialect.negated(self.dialect.operator("*", missed, missed))

    def _mean(self, good: str) -> str:
        """The metric, of how good the predictions are."""
        if self.metric == "log_loss":
            least = "2.220446049250313e-16"  # as sklearn.metrics.log_loss cuts a float64
            good = self.dialect.call(
                "ln", f"CASE WHEN {good} < {least} THEN {least} ELSE {good} END"
            )
        return self.dialect.call("avg", good)

    def _place(self, label: str) -> str:
        """A label as a number: the place of a class, or the number that it is."""
        if self.task == "numbers":
            return f"CAST({label} AS DOUBLE)"
        (labels,) = self.model.program.labels
        message = self.dialect.text(
            f"column {self.labels[0]!r} holds a label that is not a class of model "
            f"{self.model.name!r}: "
        )
        return label_place(label, labels, self.dialect, message)

    def _worse(self, mean: str) -> str:
        """By how much the metric falls, or the error rises."""
        lost = self.dialect.operator("-", "mean0", mean)
        if self.metric == "r2_score":
            return self.dialect.operator("/", lost, self.dialect.call("nullif", "spread", "0"))
        return lost

    @property
    def _repeats(self) -> int:
        return self.form.whole("repeats", _REPEATS, 1, _MOST_REPEATS, self.sql)

    @property
    def _seed(self) -> int:
        return self.form.whole("seed", 0, 0, 2**31 - _MOST_REPEATS, self.sql)


def shuffled_columns(rows: ShuffledColumns) -> tuple[str, str]:
    """The text before and after the rows of ml_permutation_importance.

    Raises:
        BindError: a model, a label or an option that does not fit.
    """
    if not rows.features:
        raise rows.error(f"model {rows.model.name!r} reads no column")
    return rows.written()
