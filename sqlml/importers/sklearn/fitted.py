"""`check`: whether an estimator is fitted, and made by a scikit-learn whose parameters we know."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.unfitted import learned, unfitted

_TEXT = (files(__package__) / "parameters.txt").read_text("utf-8")

PARAMETERS: Mapping[str, str] = MappingProxyType(
    dict(line.split(": ", 1) for line in _TEXT.splitlines())
)
"""Class path -> the names of the constructor parameters that we know, separated by blanks.

One that is not listed came with another version of scikit-learn, and may change what the model
computes, so such a model is refused until the parameter has been reviewed.
"""


def path_of(model: Any) -> str:
    """The module and the name of the object's class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def check(model: Any, *attributes: str) -> None:
    """Refuse `model` unless it has the fitted `attributes` and no parameter unknown to us.

    Raises:
        UnsupportedModelError: not fitted, or fitted by a version of scikit-learn that has other
            parameters or attributes.
    """
    cls = type(model)
    known = set(PARAMETERS[path_of(model)].split())
    unknown = sorted(set(model.get_params(deep=False)) - known)
    if unknown:
        raise UnsupportedModelError(
            f"{cls.__name__} has parameter {', '.join(map(repr, unknown))}, which sqlml does not "
            "know: it comes from another version of scikit-learn; fit it with the version in "
            "constraints.txt or update sqlml"
        )
    missing = [name for name in attributes if not hasattr(model, name)]
    if missing and not learned(model):
        raise unfitted(model)
    if missing:
        raise UnsupportedModelError(
            f"{cls.__name__} lacks {', '.join(missing)}: it is only partly fitted, or comes from "
            "another version of scikit-learn; fit it again with the version in constraints.txt"
        )


def check_single_output(model: Any, outputs: int) -> None:
    """Refuse a model that predicts several targets at once.

    Raises:
        UnsupportedModelError: `outputs` is not 1.
    """
    if outputs != 1:
        raise UnsupportedModelError(
            f"{type(model).__name__} predicts {outputs} targets at once, where one is expected; "
            "fit one model per target"
        )
