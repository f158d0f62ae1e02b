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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.dialects.type_names import NUMBERS, UNTYPED
from sqlml.errors import BindError
from sqlml.ir.program import Program
from sqlml.planner.binding.class_argument import index_of
from sqlml.planner.evaluation.grouping import Grouping
from sqlml.planner.evaluation.label_place import label_place
from sqlml.planner.evaluation.rows_columns import check_column, check_labels
from sqlml.planner.syntax.table_form import TableForm
from sqlml.types import Labels

Task = Literal["two classes", "classes", "numbers", "clusters"]


@dataclass(frozen=True)
class ScoredRows:
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
        program = self.model.program
        if "label" not in program.outputs:
            raise self.error(f"model {self.model.name!r} predicts nothing that could be evaluated")
        if not program.labels:
            return "numbers"
        if _finds_clusters(program) and "VotingClassifier" not in self.model.origin.source:
            return "clusters"
        return "two classes" if all(len(s) == 2 for s in program.labels) else "classes"

    @cached_property
    def targets(self) -> int:
        """How many values the model predicts of a row."""
        program = self.model.program
        return len(program.labels) or program.output_type("label").width

    @property
    def class_labels(self) -> Labels:
        """The classes by their numbers; of several targets all have the same."""
        labels = self.model.program.labels[0]
        return replace(labels, values=labels.values[::-1]) if self._is_flipped else labels

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
                f"name the column of labels, as in ml_{self.form.function}(.., label := 'churned')"
            )
        if len(columns) != self.targets:
            raise self.error(
                f"model {self.model.name!r} predicts {self.targets} values of a row; name as many "
                "columns of labels, as in label := ['a', 'b']"
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
            known = ", ".join(repr(v) for v in labels.values[:20])
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

    @cached_property
    def calls(self) -> str:
        """What each of the user's rows gives, as the items of a SELECT."""
        quote = self.dialect.quote_name
        by, weight = self.form.options.get("by"), self.form.options.get("weight")
        for name in by.value if by else ():
            self._type(name, "by")
        if weight is not None:
            kind = self._type(weight.value, "weight")
            if kind is not None and (NUMBERS.fullmatch(kind) is None or kind == "BOOLEAN"):
                raise self.error(f"column {weight.value!r} is {kind}, not a weight", "weight")
        groups = [f"{quote(c)} AS g{n}" for n, c in enumerate(by.value if by else ())]
        labels = [f"{self._label(c, n)} AS y{n}" for n, c in enumerate(self.labels)]
        weights = [] if weight is None else [f"{quote(weight.value)} AS w"]
        return ", ".join([*groups, *labels, *weights, *self._predictions()])

    def _type(self, name: str, option: str) -> str | None:
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

    def _label(self, name: str, n: int) -> str:
        """A column of labels, as the classes are compared with it.

        Raises:
            BindError: there is no such column, or its type is not that of the classes.
        """
        kind, quoted = self._type(name, "label"), self.dialect.quote_name(name)
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

    def _predictions(self) -> list[str]:
        name = self.dialect.quote_string(str(self.form.model))
        made = [f"predict({name}, *) AS hat"]
        if self.task == "clusters" and self._has_distances:
            return [*made, f"transform({name}, *) AS distances"]
        if self.task in ("clusters", "numbers"):
            return made
        if self.scores == "scores":
            return [*made, f"predict_score({name}, *) AS p"]
        if self.scores == "none":
            return made
        if self._is_map:
            return [*made, f"predict_proba({name}, *) AS p"]
        (labels,) = self.model.program.labels
        spelled = [str(v).lower() if labels.kind == "bool" else str(v) for v in labels.values]
        classes = map(self.dialect.quote_string, spelled)
        return made + [
            f"predict_proba({name}, *, class := {c}) AS p{n}" for n, c in enumerate(classes)
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
        keys = ", ".join(self.grouping.keys)
        return f"{keys}{', ' if keys else ''}{self._weight()} AS w, {self._values()}"

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
            f"column {weight.value!r} holds a weight that is NULL or below 0"
        )
        failed = f"CAST({self.dialect.error(message)} AS DOUBLE)"
        return f"CASE WHEN w >= 0 THEN CAST(w AS DOUBLE) ELSE {failed} END"

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
        label, hat = f"y{n}", self._part("hat", n)
        if self.task == "clusters":
            return self._of_cluster()
        if not sets:
            return {"y": f"CAST({label} AS DOUBLE)", "hat": f"CAST({hat} AS DOUBLE)"}
        message = self.dialect.text(
            f"column {self.labels[n]!r} holds a label that is no class of model "
            f"{self.model.name!r}: "
        )
        labels = self.class_labels if self.targets == 1 else sets[n]
        return {
            "y": label_place(label, labels, self.dialect, message),
            "hat": label_place(hat, labels, self.dialect),
            **self._scores_of(n),
        }

    @property
    def _is_flipped(self) -> bool:
        """Whether the first of two classes is looked for: it is 1, then, and the second 0."""
        return self.task == "two classes" and self.targets == 1 and self.positive == 0

    @property
    def _has_distances(self) -> bool:
        """Whether transform gives the distances to the clusters."""
        program = self.model.program
        width = len(program.labels[0])
        return "transform" in program.outputs and program.output_type("transform").width == width

    def _of_cluster(self) -> dict[str, str]:
        many = self._has_distances and len(self.model.program.labels[0]) > 1
        distance = self.dialect.least("distances") if many else "CAST(NULL AS DOUBLE)"
        label = f"CAST(y0 AS {self.dialect.type('VARCHAR')})" if self.labels else "NULL"
        return {"y": label, "hat": "hat", "distance": distance}

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
                return {"p0": "p1", "p1": "p0"} if self._is_flipped else {"p0": "p0", "p1": "p1"}
            score = self.dialect.negated("p") if self._is_flipped else "p"
            return {"p0": null, "p1": score if self.scores == "scores" else null}
        if self.scores == "none":
            values = self.dialect.array([null] * classes)
        elif self.scores == "scores":
            values = "p"
        elif self._is_map:
            values = self.dialect.call("map_values", self._part("p", n))
        else:
            values = self.dialect.array([f"p{k}" for k in range(classes)])
        if self.task == "two classes":
            return {"p0": self.dialect.at(values, 1), "p1": self.dialect.at(values, 2)}
        return {"ps": values}


def _finds_clusters(program: Program) -> bool:
    """Whether the labels are numbers of clusters: a mixture's, or all that a model gives."""
    (labels,) = program.labels[:1]
    numbered = labels.kind == "int64" and labels.values == tuple(range(len(labels)))
    plain = not {"proba", "score"} & program.outputs.keys()
    return len(program.labels) == 1 and numbered and (plain or "samples" in program.outputs)
