"""`FORMS`: the table forms, `ml_predict` and its like, and what each takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sqlml.types import fold

Kind = Literal["column", "columns", "number", "boolean", "class"]
"""What an option's literal is: the name of a column, one such name or several, a number, true or
false, or a class of the model."""

_NONE: Mapping[str, Kind] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Form:
    """What a table form takes after its model.

    rows: whether it takes rows, `TABLE t` or a query. options: those that it knows, by their names.
    """

    rows: Literal["needed", "optional", "none"]
    options: Mapping[str, Kind] = field(default_factory=lambda: _NONE)


_OF_LABELS: Mapping[str, Kind] = {"label": "columns", "weight": "column", "by": "columns"}
_BINARY: Mapping[str, Kind] = {**_OF_LABELS, "class": "class"}

FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "predict": Form("needed"),
        "evaluate": Form(
            "optional",
            {**_OF_LABELS, "threshold": "number", "class": "class", "per_class": "boolean"},
        ),
        "confusion_matrix": Form(
            "optional", {**_BINARY, "threshold": "number", "pairs": "boolean"}
        ),
        "roc_curve": Form("optional", {**_BINARY, "points": "number"}),
        "pr_curve": Form("optional", {**_BINARY, "points": "number"}),
        "calibration_curve": Form(
            "optional", {**_BINARY, "bins": "number", "quantiles": "boolean"}
        ),
        "lift": Form("optional", {**_BINARY, "bins": "number"}),
        "training_info": Form("none"),
        "feature_info": Form("none"),
        "trial_info": Form("none"),
    }
)
"""Form, without `ml_` -> what it takes."""


def form_of(name: str) -> str | None:
    """The form that a function of this name is, without `ml_`; None if it is none.

    >>> form_of("ML_Predict"), form_of("ml_predictions")
    ('predict', None)
    """
    short = fold(name).removeprefix("ml_")
    return short if short != fold(name) and short in FORMS else None
