"""`FORMS`: the table forms, `ml_predict` and its like, and what each takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sqlml.types import fold

Kind = Literal["column", "columns", "number", "numbers", "boolean", "class", "text", "rows"]
"""What an option is: the name of a column, one such name or several, a number, numbers by names of
columns, true or false, a class of the model, a text; or rows, a query in brackets."""

_NONE: Mapping[str, Kind] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Form:
    """What a table form takes.

    tables: how many rows, each `TABLE t` or a query, at least and at most. options: those that it
    knows, by their names; `positional` ones may be given without, in that order. has_model: whether
    its first argument is MODEL m.
    """

    tables: tuple[int, int]
    options: Mapping[str, Kind] = field(default_factory=lambda: _NONE)
    has_model: bool = True
    positional: tuple[str, ...] = ()


_OF_LABELS: Mapping[str, Kind] = {"label": "columns", "weight": "column", "by": "columns"}
_BINARY: Mapping[str, Kind] = {**_OF_LABELS, "class": "class"}
_DRIFT: Mapping[str, Kind] = {
    "bins": "number",
    "categorical_metric_type": "text",
    "numerical_metric_type": "text",
    "categorical_default_threshold": "number",
    "numerical_default_threshold": "number",
    "null_share_threshold": "number",
    "thresholds": "numbers",
}

FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "predict": Form((1, 1), {"threshold": "number", "class": "class", "unknown_model": "text"}),
        "evaluate": Form(
            (0, 1), {**_OF_LABELS, "threshold": "number", "class": "class", "per_class": "boolean"}
        ),
        "confusion_matrix": Form((0, 1), {**_BINARY, "threshold": "number", "pairs": "boolean"}),
        "roc_curve": Form((0, 1), {**_BINARY, "points": "number"}),
        "pr_curve": Form((0, 1), {**_BINARY, "points": "number"}),
        "calibration_curve": Form((0, 1), {**_BINARY, "bins": "number", "quantiles": "boolean"}),
        "lift": Form((0, 1), {**_BINARY, "bins": "number"}),
        "describe_data": Form(
            (1, 1), {"num_quantiles": "number", "top_k": "number"}, has_model=False
        ),
        "validate_data_drift": Form((2, 2), _DRIFT, has_model=False),
        "validate_data_skew": Form((1, 1), _DRIFT),
        "explain_predict": Form(
            (1, 1),
            {
                "top_k_features": "number",
                "class": "class",
                "background": "rows",
                "permutations": "number",
            },
        ),
        "global_explain": Form(
            (0, 1), {"class": "class", "background": "rows", "permutations": "number"}
        ),
        "permutation_importance": Form(
            (0, 1), {"label": "columns", "metric": "text", "repeats": "number", "seed": "number"}
        ),
        "partial_dependence": Form(
            (0, 1),
            {"feature": "column", "points": "number", "class": "class"},
            positional=("feature",),
        ),
        "feature_importance": Form((0, 0)),
        "weights": Form((0, 0)),
        "tree": Form((0, 0), {"tree": "number"}, positional=("tree",)),
        "training_info": Form((0, 0)),
        "feature_info": Form((0, 0)),
        "trial_info": Form((0, 0)),
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
