"""`scored_rows`: the rows of an evaluation: what each is, and what the model says of it.

::

    sqlml_calls AS (SELECT "churned" AS y, predict('m', *) AS hat, .. FROM <the user's rows>),
    sqlml_scored AS (SELECT .. FROM sqlml_calls)

`sqlml_scored` has one row for each row, and target where there are several, with these columns:

* `g0`, `g1`, ..: the columns of `by`; `t`: the number of the target.
* `w`: the row's weight, 1 without a column of weights.
* `y`, `hat`: the place of a class from 0, or a number: the label, and what is predicted.
* `p0`, `p1` (of two classes): the probabilities, or NULL and the decision function.
* `ps` (of more): a list of the same in the order of the classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlml.dialects import DUCKDB, Dialect
from sqlml.dialects.type_names import NUMBERS
from sqlml.planner.binding.requested_output import spelled_class
from sqlml.planner.evaluation.evaluated_model import EvaluatedModel
from sqlml.planner.program.result_sql import label_array
from sqlml.types import Labels

# `label_place`: the number of a class, from 0, that a label is.


def label_place(label: str, labels: Labels, dialect: Dialect, message: str | None = None) -> str:
    """The SQL of the place of a label among the classes; NULL for NULL.

    Args:
        label: an expression. message: the SQL of what an error for another label begins with;
            None: there are no others.
    """
    text = f"CAST({label} AS {dialect.type('VARCHAR')})"
    other = "NULL"
    if message is not None:
        failed = dialect.error(dialect.operator("||", message, text))
        other = f"CASE WHEN {label} IS NOT NULL THEN CAST({failed} AS INTEGER) END"
    plain = labels.kind == "string" and not any("\0" in str(v) for v in labels.values)
    if plain and dialect is DUCKDB:  # Spark's would give -1 for another label
        return dialect.place_of(text, [dialect.text(str(v)) for v in labels.values], other)
    place = dialect.position(label_array(labels, dialect), label)
    number = dialect.operator("-", dialect.call("nullif", place, "0"), "1")
    return f"coalesce({number}, {other})"


@dataclass(frozen=True)
class ScoredRows(EvaluatedModel):
    """The SQL of those rows."""

    @cached_property
    def calls(self) -> str:
        """What each of the user's rows gives, as the items of a SELECT."""
        quote = self.dialect.quote_name
        by, weight = self.form.options.get("by"), self.form.options.get("weight")
        for name in by.value if by else ():
            self.column_type(name, "by")
        if weight is not None:
            kind = self.column_type(weight.value, "weight")
            if kind is not None and (NUMBERS.fullmatch(kind) is None or kind == "BOOLEAN"):
                raise self.error(
                    f"weight column {weight.value!r} must be a number, not {kind}", "weight"
                )
        groups = [f"{quote(c)} AS sqlml_g{n}" for n, c in enumerate(by.value if by else ())]
        labels = [f"{self.label_column(c, n)} AS sqlml_y{n}" for n, c in enumerate(self.labels)]
        weights = [] if weight is None else [f"{quote(weight.value)} AS sqlml_w"]
        return ", ".join([*groups, *labels, *weights, *self._predictions()])

    def _predictions(self) -> list[str]:
        name = self.dialect.quote_string(str(self.form.model))
        made = [f"predict({name}, *) AS sqlml_hat"]
        if self.task == "clusters" and self._has_distances:
            return [*made, f"transform({name}, *) AS sqlml_distances"]
        if self.task in ("clusters", "numbers"):
            return made
        if self.scores == "scores":
            return [*made, f"predict_score({name}, *) AS sqlml_p"]
        if self.scores == "none":
            return made
        if self._is_map:
            return [*made, f"predict_proba({name}, *) AS sqlml_p"]
        (labels,) = self.model.program.labels
        classes = [self.dialect.quote_string(spelled_class(v)) for v in labels.values]
        return made + [
            f"predict_proba({name}, *, class := {c}) AS sqlml_p{n}" for n, c in enumerate(classes)
        ]

    @property
    def _is_map(self) -> bool:
        """Whether one call gives the probabilities of all classes."""
        single = self.targets == 1
        return not (
            single and (self.task == "two classes" or "positive_class" in self.model.options)
        )

    @cached_property
    def columns(self) -> str:
        """The items of a SELECT that makes `sqlml_scored` of `sqlml_calls`."""
        keys = "".join(
            f"{'' if key == 't' else 'sqlml_'}{key} AS {key}, " for key in self.grouping.keys
        )
        return f"{keys}{self._weight()} AS w, {self._values()}"

    @property
    def sources(self) -> str:
        """What `sqlml_scored` is made of."""
        if self.targets == 1:
            return "sqlml_calls"
        numbers = ", ".join(f"({n})" for n in range(self.targets))
        return f"sqlml_calls CROSS JOIN (VALUES {numbers}) AS targets(t)"

    def _weight(self) -> str:
        weight = self.form.options.get("weight")
        if weight is None:
            return "1"
        message = self.dialect.text(
            f"column {weight.value!r} holds a weight that is NULL, infinite or below 0"
        )
        number = "CAST(sqlml_w AS DOUBLE)"
        fits = f"sqlml_w >= 0 AND {self.dialect.is_finite(number)}"
        failed = f"CAST({self.dialect.error(message)} AS DOUBLE)"
        return f"CASE WHEN {fits} THEN {number} ELSE {failed} END"

    def _values(self) -> str:
        """The label, the prediction and the scores of one target."""
        values = [self._of_target(n) for n in range(self.targets)]
        place = self.dialect.operator("+", "t", "1")
        names = values[0].keys()
        if self.targets == 1:
            return ", ".join(f"{values[0][name]} AS {name}" for name in names)
        listed = {name: self.dialect.array([v[name] for v in values]) for name in names}
        return ", ".join(f"{self.dialect.at(listed[name], place)} AS {name}" for name in names)

    def _of_target(self, n: int) -> dict[str, str]:
        """The columns of one target, by their names."""
        sets = self.model.program.labels
        label, hat = f"sqlml_y{n}", self._part("sqlml_hat", n)
        if self.task == "clusters":
            return self._of_cluster()
        if not sets:
            number = f"CAST({label} AS DOUBLE)"
            message = self.dialect.text(f"column {self.labels[n]!r} holds NaN or an infinite label")
            failed = f"CAST({self.dialect.error(message)} AS DOUBLE)"
            fits = f"{label} IS NULL OR {self.dialect.is_finite(number)}"
            y = f"CASE WHEN {fits} THEN {number} ELSE {failed} END"
            return {"y": y, "hat": f"CAST({hat} AS DOUBLE)"}
        message = self.dialect.text(
            f"column {self.labels[n]!r} holds a label that is not a class of model "
            f"{self.model.name!r}: "
        )
        labels = self.class_labels if self.targets == 1 else sets[n]
        return {
            "y": label_place(label, labels, self.dialect, message),
            "hat": label_place(hat, labels, self.dialect),
            **self._scores_of(n),
        }

    @property
    def _has_distances(self) -> bool:
        """Whether transform gives the distances to the clusters."""
        program = self.model.program
        width = len(program.labels[0])
        return "transform" in program.outputs and program.output_type("transform").width == width

    def _of_cluster(self) -> dict[str, str]:
        distance = "CAST(NULL AS DOUBLE)"
        if self._has_distances:
            one = len(self.model.program.labels[0]) == 1
            distance = "sqlml_distances" if one else self.dialect.least("sqlml_distances")
        label = f"CAST(sqlml_y0 AS {self.dialect.type('VARCHAR')})" if self.labels else "NULL"
        return {"y": label, "hat": "sqlml_hat", "distance": distance}

    def _part(self, values: str, n: int) -> str:
        """What is predicted of one target; a struct where its types differ."""
        sets = self.model.program.labels
        if self.targets == 1:
            return values
        if len({s.kind for s in sets}) > 1:
            return self.dialect.field(values, f"t{n}")
        return self.dialect.at(values, n + 1)

    def _scores_of(self, n: int) -> dict[str, str]:
        null = "CAST(NULL AS DOUBLE)"
        classes = len(self.model.program.labels[n])
        if self.task == "two classes" and self.targets == 1:
            if self.scores == "probabilities":
                first, second = ("1", "0") if self.is_flipped else ("0", "1")
                return {"p0": f"sqlml_p{first}", "p1": f"sqlml_p{second}"}
            score = self.dialect.negated("sqlml_p") if self.is_flipped else "sqlml_p"
            return {"p0": null, "p1": score if self.scores == "scores" else null}
        if self.scores == "none":
            values = self.dialect.array([null] * classes)
        elif self.scores == "scores":
            values = "sqlml_p"
        elif self._is_map:
            values = self.dialect.call("map_values", self._part("sqlml_p", n))
        else:
            values = self.dialect.array([f"sqlml_p{k}" for k in range(classes)])
        if self.task == "two classes":
            return {"p0": self.dialect.at(values, 1), "p1": self.dialect.at(values, 2)}
        return {"ps": values}
