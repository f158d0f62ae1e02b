"""`regularised`: the regularisation of linear models, in scikit-learn's words or BigQuery's.

scikit-learn has a class for each kind of linear regression, and one for logistic regression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlml.errors import ConfigError
from sqlml.parsing.option_text import option_text
from sqlml.parsing.statements import Call
from sqlml.training.model_types import Trainer

WEIGHTS = ("l1_reg", "l2_reg")
"""What the sums of the coefficients' absolute values and squares weigh."""


def regularised(
    model_type: str, trainer: Trainer, options: Mapping[str, Any]
) -> tuple[Trainer, dict[str, Any]]:
    """The estimator with that regularisation, and the options with its parameters.

    Args:
        options: without those of sqlml's own. If one of `WEIGHTS` is searched for, they are still
            among the options that are returned: each trial has its own `penalty`.

    Raises:
        ConfigError: a weight that is no positive number.
    """
    if model_type not in ("linear_reg", "logistic_reg"):
        return trainer, dict(options)
    rest = {name: value for name, value in options.items() if name not in WEIGHTS}
    weights = {name: options[name] for name in WEIGHTS if name in options}
    searched = {name for name, value in weights.items() if isinstance(value, Call)}
    fixed = {n: checked_weight(n, v) for n, v in weights.items() if n not in searched}
    if model_type == "linear_reg":
        asked = searched | {name for name, value in fixed.items() if value}
        trainer = _linear(trainer, asked, rest)
        if trainer.path.endswith("ElasticNet") and not asked:
            rest.setdefault("alpha", 1.0)
        if not trainer.path.endswith(_PENALISED):
            weights = {}
    elif rest.get("l1_ratio"):
        rest.setdefault("solver", "saga")
    if searched:
        return trainer, {**rest, **weights, **fixed}
    if weights:
        made = penalty(trainer.path, fixed)
        rest = {**made, **rest}
    return trainer, rest


_PENALISED = ("ElasticNet", "Lasso", "Ridge")


def penalty(path: str, weights: Mapping[str, float]) -> dict[str, Any]:
    """The parameters of an estimator with those `WEIGHTS`; one that is not there is 0.

    >>> penalty("sklearn.linear_model.LogisticRegression", {"l1_reg": 1.0, "l2_reg": 3.0})
    {'C': 0.25, 'l1_ratio': 0.25, 'solver': 'saga'}
    """
    l1, l2 = (weights.get(name, 0.0) for name in WEIGHTS)
    total = l1 + l2
    share = l1 / total if total else 0.0
    if path.endswith("LogisticRegression"):
        made = {"C": 1 / total if total else float("inf"), "l1_ratio": share}
        return {**made, "solver": "saga"} if l1 else made
    if path.endswith("ElasticNet"):
        return {"alpha": total, "l1_ratio": share if total else 0.5}
    return {"alpha": l1 if path.endswith("Lasso") else l2}


def _linear(trainer: Trainer, asked: set[str], options: Mapping[str, Any]) -> Trainer:
    """The linear regression that has those weights, or these options."""
    if len(asked) == 2 or options.get("l1_ratio") is not None:
        name = "ElasticNet"
    elif "l1_reg" in asked:
        name = "Lasso"
    elif asked or options.get("alpha") is not None:
        name = "Ridge"
    else:
        return trainer
    path = f"sklearn.linear_model.{name}"
    return replace(trainer, path=path, seed="random_state", defaults=MappingProxyType({}))


def checked_weight(name: str, value: Any) -> float:
    """A weight.

    Raises:
        ConfigError: it is no number of at least 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ConfigError(f"option {name} must be a number of at least 0, not {option_text(value)}")
    return float(value)
