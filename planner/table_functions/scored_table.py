"""The rows of an evaluation that have their predictions in columns, instead of calling a model.

::

    FROM ml_evaluate(TABLE scored, label := 'churned', prediction := 'p', probability := 'score')

The metrics and curves are those of a model with these predictions. Only its task and its classes
matter, so a Program without steps stands for the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from sqlml.catalog.model import Model, Origin
from sqlml.dialects.type_names import NUMBERS, map_types
from sqlml.errors import BindError, SqlmlError
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.planner.program.result_sql import build_label_literal
from sqlml.planner.table_functions.evaluated_model import find_column_type
from sqlml.planner.table_functions.scored_rows import ScoredRows
from sqlml.planner.table_functions.table_function_call import TableFunctionCall
from sqlml.types import LabelKind, Labels, list_classes

MAX_CLASSES = 1000
"""The maximum number of classes that the rows may have."""

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "INT", "LONG", "SHORT", "BYTE")


@dataclass(frozen=True)
class ScoredTable(ScoredRows):
    """Rows with a label and predictions in columns, for the functions that evaluate models."""

    @classmethod
    def of(cls, call: TableFunctionCall) -> Self:
        """Return the rows of a call without a model; raise BindError if its options do not fit."""
        (types,) = call.column_types
        if types is None:
            raise call.error(
                f"the columns of these rows are not known: ml_{call.name} without a model cannot "
                "read a name of a WITH clause; write the query in the brackets"
            )
        if "coverage" in call.form.options:
            raise call.error("option coverage goes with a calibrated model", "coverage")
        columns = _Columns.read(call, types)
        program = _build_stand_in(columns.find_labels(call), columns.probability is not None)
        origin = Origin("columns", "sqlml")
        identity: dict[str, Any] = {"name": call.rows[0][:60], "version": 1, "created_at": None}
        model = Model(program, program.features, frozenset(program.inputs), origin, **identity)
        return cls(call.form, model, call.dialect, call.sql, types)

    @property
    def _has_probability_map(self) -> bool:
        return False

    def _list_model_calls(self) -> list[str]:
        quote, options = self.dialect.quote_name, self.form.options
        prediction = options.get("prediction")
        hat = "" if prediction is None else quote(prediction.value)
        if self.task == "numbers":
            return [f"{hat} AS sqlml_hat"]
        labels = self.model.program.labels[0]
        literals = [build_label_literal(v, labels.kind, self.dialect) for v in labels.values]
        if "probability" not in options:
            return [f"{hat} AS sqlml_hat"]
        probability = quote(options["probability"].value)
        if map_types(self.get_column_type(options["probability"].value, "probability") or ""):
            values = [self.dialect.value_at(probability, literal) for literal in literals]
        else:
            others = f"1 - CAST({probability} AS DOUBLE)"
            values = [probability if k == self.positive_index else others for k in range(2)]
        if not hat:
            positive, negative = literals[self.positive_index], literals[1 - self.positive_index]
            score = values[self.positive_index]
            otherwise = f"WHEN {score} IS NOT NULL THEN {negative}"
            hat = f"CASE WHEN {score} >= 0.5 THEN {positive} {otherwise} END"
        return [
            f"{hat} AS sqlml_hat",
            *(f"CAST({value} AS DOUBLE) AS sqlml_p{k}" for k, value in enumerate(values)),
        ]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the options label, prediction and probability, with their types."""

    label: str
    label_type: str
    prediction: str | None
    prediction_type: str | None
    probability: str | None
    probability_type: str | None

    @classmethod
    def read(cls, call: TableFunctionCall, types: Any) -> Self:
        options = call.form.options
        if "label" not in options or len(options["label"].value) != 1:
            raise call.error(
                "without a model, name one label column and the column of its predictions, as in "
                f"ml_{call.name}(TABLE scored, label := 'churned', prediction := 'p')",
                "label",
            )
        found: dict[str, tuple[str | None, str | None]] = {}
        names = {"label": options["label"].value[0]}
        names |= {n: options[n].value for n in ("prediction", "probability") if n in options}
        for option in ("label", "prediction", "probability"):
            name = names.get(option)
            try:
                sql_type = None if name is None else find_column_type(name, types)
            except BindError as error:
                raise call.error(error.message, option) from None
            found[option] = name, sql_type
        if found["prediction"][0] is None and found["probability"][0] is None:
            message = "name the column of the predictions, as in prediction := 'p'"
            raise call.error(message)
        label, label_type = found["label"]
        assert label is not None and label_type is not None
        return cls(label, label_type, *found["prediction"], *found["probability"])

    def find_labels(self, call: TableFunctionCall) -> Labels | None:
        """Return the classes of the rows, or None if the predictions are numbers."""
        if not self._is_classification(call):
            for option, sql_type in (
                ("label", self.label_type),
                ("prediction", self.prediction_type),
            ):
                if sql_type is None or not NUMBERS.fullmatch(sql_type):
                    raise call.error(f"column {option} is {sql_type}, not a number", option)
            return None
        kind = self._find_kind(call)
        values: list[Any] = [False, True] if kind == "bool" else self._read_classes(call, kind)
        probability = self.probability_type
        if probability is not None and map_types(probability) is None:
            if not NUMBERS.fullmatch(probability) or len(values) > 2:
                raise call.error(
                    f"{probability} is the probability of one of two classes, but the rows have "
                    f"{len(values)} classes: name a MAP, such as predict_proba returns",
                    "probability",
                )
        if len(values) < 2:
            listing = list_classes(values) if values else "none"
            raise call.error(
                f"the rows need two classes, and have {listing}: name classes := [...]"
            )
        return Labels(kind, tuple(values))

    def _is_classification(self, call: TableFunctionCall) -> bool:
        if self.probability is not None or call.form.options.keys() & {"class", "classes"}:
            return True
        return any(
            sql_type is not None and not NUMBERS.fullmatch(sql_type) or sql_type == "BOOLEAN"
            for sql_type in (self.label_type, self.prediction_type)
        )

    def _find_kind(self, call: TableFunctionCall) -> LabelKind:
        sql_type = self.label_type
        if sql_type == "BOOLEAN":
            return "bool"
        if sql_type in ("VARCHAR", "STRING") or sql_type.startswith("ENUM"):
            return "string"
        if sql_type.removeprefix("U") in _INTEGERS:
            return "int64"
        message = f"label column {self.label!r} is {sql_type}: cast it to VARCHAR or an integer"
        raise call.error(message, "label")

    def _read_classes(self, call: TableFunctionCall, kind: LabelKind) -> list[Any]:
        """Return the classes of option `classes`, or the distinct labels and predictions."""
        option = call.form.options.get("classes")
        quote, varchar = call.dialect.quote_name, call.dialect.type("VARCHAR")
        if option is not None:
            texts = list(map(str, option.value))
        else:
            columns = [name for name in (self.label, self.prediction) if name is not None]
            parts = [f"SELECT {quote(name)} AS v FROM {call.rows[0]}" for name in columns]
            query = f"SELECT DISTINCT CAST(v AS {varchar}) AS v FROM ({' UNION ALL '.join(parts)})"
            query = f"{query} AS sqlml_rows WHERE v IS NOT NULL LIMIT {MAX_CLASSES + 1}"
            try:
                texts = list(call.context.read_names(query))
            except SqlmlError as error:
                message = f"the classes of the rows cannot be read ({error.message})"
                raise call.error(f"{message}; name them by classes := ['no', 'yes']") from None
        if len(texts) > MAX_CLASSES:
            raise call.error(f"the rows have more than {MAX_CLASSES:,} classes")
        if kind == "string":
            return sorted(set(texts))
        try:
            return sorted({int(text) for text in texts})
        except ValueError as error:
            raise call.error(
                f"the classes are integers in column {self.label!r}: {error}"
            ) from None


def _build_stand_in(labels: Labels | None, has_probabilities: bool) -> Program:
    """Return a Program with the outputs and classes of a model that would predict the columns."""
    builder = Builder()
    if labels is None:
        return builder.build({"label": builder.input("prediction", "float64")})
    x = builder.input("prediction", "float64")
    index = builder.op("cast", x, dtype="int64")
    outputs = {"label": index}
    if has_probabilities:
        outputs["proba"] = builder.op("select", x, indices=np.zeros(len(labels), np.int64))
    return builder.build(outputs, labels)
