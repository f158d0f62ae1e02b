"""`unfitted`: the one wording for an object that was never fitted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlml.errors import MissingDependencyError, UnsupportedModelError
from sqlml.importers.onnx.whole_graph import try_graphs
from sqlml.importers.torch.importer import check_rows_elsewhere
from sqlml.ir.ops import NEVER_STORED, OUTPUTS
from sqlml.ir.program import Program


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


# `check_model`: whether a Program that came as a file is a model that can be run.
#
# `try_foreign` tries the whole ONNX graphs and torch modules in it.
#
# Each runs in a process of its own first, as that of an ONNX file or a torch archive does: native
# code that a hostile graph crashes or hangs, or whose memory it fills, ends a child.


def check_model(program: Program) -> None:
    """Check that a Program reads columns and gives what a model gives, and try what is foreign.

    Raises:
        UnsupportedModelError: it is a part of a model, or something foreign in it cannot be run.
        SqlmlError: what scoring raises.
    """
    made = [node.op for node in program.nodes if node.op in NEVER_STORED]
    if made:
        raise UnsupportedModelError(f"operator {made[0]} belongs to a query, and to no model")
    wide = [n for n in program.inputs if program.input_type(n).width != 1]
    other = [n for n in program.outputs if n not in OUTPUTS]
    if wide or other:
        what = f"input {wide[0]!r} is a matrix" if wide else f"output {other[0]!r} has no function"
        raise UnsupportedModelError(f"this Program is a part of a model: its {what}")
    try_foreign(program)


def try_foreign(program: Program) -> None:
    """Try what other runtimes are to run; what is not installed here is not tried.

    Raises:
        UnsupportedModelError: one crashes its runtime, mixes rows, fills the memory, or makes
            something else than the Program says.
        SqlmlError: what scoring raises.
    """
    try_graphs(program)
    for node in program.nodes:
        if node.op == "torch_module":
            try:
                check_rows_elsewhere(node.attrs["archive"].tobytes(), node.attrs)
            except MissingDependencyError:
                return


# `plain`: an object of a subclass that overrides nothing, as one of the class that it extends.


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
