"""`regularised`: the regularisation of linear models, in scikit-learn's words or BigQuery's.

scikit-learn has a class for each kind of linear regression, and one for logistic regression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlml.errors import ConfigError
from sqlml.training.model_types import Trainer


def regularised(
    model_type: str, trainer: Trainer, options: Mapping[str, Any]
) -> tuple[Trainer, dict[str, Any]]:
    """The estimator with that regularisation, and the options with its parameters.

    Args:
        options: without those of sqlml's own; `l1_reg` and `l2_reg` weigh the sums of the
            coefficients' absolute values and squares.

    Raises:
        ConfigError: a weight that is no positive number.
    """
    if model_type not in ("linear_reg", "logistic_reg"):
        return trainer, dict(options)
    rest = dict(options)
    l1, l2 = _weight(rest, "l1_reg"), _weight(rest, "l2_reg")
    if model_type == "logistic_reg":
        if l1 or l2:
            rest.setdefault("C", 1 / (l1 + l2))
            rest.setdefault("l1_ratio", l1 / (l1 + l2))
        if rest.get("l1_ratio"):
            rest.setdefault("solver", "saga")
        return trainer, rest
    if l1 and l2 or rest.get("l1_ratio") is not None:
        rest.setdefault("l1_ratio", l1 / (l1 + l2) if l1 + l2 else 0.5)
        rest.setdefault("alpha", l1 + l2 or 1.0)
        return _linear(trainer, "ElasticNet"), rest
    if l1:
        rest.setdefault("alpha", l1)
        return _linear(trainer, "Lasso"), rest
    if l2 or rest.get("alpha") is not None:
        rest.setdefault("alpha", l2)
        return _linear(trainer, "Ridge"), rest
    return trainer, rest


def _linear(trainer: Trainer, name: str) -> Trainer:
    path = f"sklearn.linear_model.{name}"
    return replace(trainer, path=path, seed="random_state", defaults=MappingProxyType({}))


def _weight(options: dict[str, Any], name: str) -> float:
    value = options.pop(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ConfigError(f"option {name} must be a number of at least 0, not {value!r}")
    return float(value)
