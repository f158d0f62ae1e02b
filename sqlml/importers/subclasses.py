"""`plain`: an object of a subclass that overrides nothing, as one of the class that it extends."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

TRAINING = frozenset(
    "__init__ __module__ __qualname__ __slotnames__ __doc__ __dict__ __weakref__ __annotations__ "
    "__orig_bases__ __parameters__ __static_attributes__ __firstlineno__ __abstractmethods__ "
    "_abc_impl __repr__ __str__ _repr_html_ __sklearn_tags__ _more_tags _parameter_constraints "
    "_estimator_type _sklearn_auto_wrap_output_keys _get_param_names get_params set_params fit "
    "partial_fit fit_predict fit_transform score".split()
)
"""What a subclass may define: how a model is made and shown, not what it says of rows."""

REQUESTS = re.compile(r"set_\w+_request|__metadata_request__\w+")
"""What scikit-learn itself adds to each subclass."""


def plain(model: Any, is_known: Callable[[str], bool]) -> Any:
    """The object as one of the nearest class that is known; as it is where that may be another.

    Args:
        is_known: whether a class, by the path of its module and name, has an importer.
    """
    classes = type(model).__mro__
    paths = [f"{c.__module__}.{c.__qualname__}" for c in classes]
    place = next((k for k, path in enumerate(paths) if is_known(path)), None)
    if not place:  # it is known itself, or nothing that it extends is
        return model
    base = classes[place]
    held = getattr(model, "__dict__", {})
    for own in classes[:place]:
        for name in vars(own):
            overrides = hasattr(base, name) or name in held or name == "__getattr__"
            if overrides and name not in TRAINING and not REQUESTS.fullmatch(name):
                return model
    return as_class(model, base)


def as_class(model: Any, kind: type[Any]) -> Any:
    """An object of another class with what this one holds."""
    made: Any = object.__new__(kind)
    made.__dict__.update(model.__dict__)
    return made
