"""`unfitted`: the one wording for an object that was never fitted."""

from __future__ import annotations

from typing import Any

from sqlml.errors import UnsupportedModelError


def unfitted(model: Any) -> UnsupportedModelError:
    """The error for an estimator, of whatever library, that has learned nothing yet."""
    return UnsupportedModelError(f"{type(model).__name__} is not fitted; call its fit() first")


def without_columns(model: Any) -> UnsupportedModelError:
    """The error for one that does not say how many columns it was fitted on: none, most likely."""
    if not learned(model):
        return unfitted(model)
    return UnsupportedModelError(
        f"{type(model).__name__} does not know its columns: it is only partly fitted, or comes "
        "from another version of its library; fit it again"
    )


def learned(model: Any) -> bool:
    """Whether it has what scikit-learn's conventions call fitted attributes."""
    return any(name.endswith("_") and name[0] != "_" for name in getattr(model, "__dict__", {}))
