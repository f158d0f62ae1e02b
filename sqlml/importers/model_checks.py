"""Checks of models before import: fitted, of a known class and, if foreign, runnable."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from sqlml.errors import MissingDependencyError, UnsupportedModelError
from sqlml.importers.onnx.whole_graph import try_graphs
from sqlml.importers.torch.importer import check_rows_in_child
from sqlml.ir.ops import NEVER_STORED, OUTPUTS
from sqlml.ir.partition_programs import check_partitions
from sqlml.ir.program import Program


def make_unfitted_error(model: Any) -> UnsupportedModelError:
    return UnsupportedModelError(f"{type(model).__name__} is not fitted; call its fit() first")


def make_missing_columns_error(model: Any) -> UnsupportedModelError:
    if not has_fitted_attributes(model):
        return make_unfitted_error(model)
    return UnsupportedModelError(
        f"{type(model).__name__} does not know its columns: it is only partly fitted, or comes "
        "from another version of its library; fit it again"
    )


def has_fitted_attributes(model: Any) -> bool:
    return any(name.endswith("_") and name[0] != "_" for name in getattr(model, "__dict__", {}))


def check_model(program: Program, known_outputs: Collection[str] = OUTPUTS) -> None:
    """Check that a Program is a model: it reads columns, returns `known_outputs`, and runs."""
    query_ops = [node.op for node in program.nodes if node.op in NEVER_STORED]
    if query_ops:
        raise UnsupportedModelError(f"operator {query_ops[0]} belongs to a query, not to a model")
    inputs, outputs = program.inputs, program.outputs
    reasons = [f"input {n!r} is a matrix" for n in inputs if program.input_type(n).width != 1]
    reasons += [f"output {n!r} has no function" for n in outputs if n not in known_outputs]
    if reasons:
        raise UnsupportedModelError(f"this Program is a part of a model: its {reasons[0]}")
    check_partitions(program)
    try_foreign(program)


def try_foreign(program: Program) -> None:
    """Run the ONNX graphs and torch modules of `program` in child processes, as they may crash."""
    try_graphs(program)
    for node in program.nodes:
        if node.op == "torch_module":
            try:
                check_rows_in_child(node.attrs["archive"].tobytes(), node.attrs)
            except MissingDependencyError:
                return


TRAINING_MEMBERS = frozenset(
    "__init__ __module__ __qualname__ __slotnames__ __doc__ __dict__ __weakref__ __annotations__ "
    "__orig_bases__ __parameters__ __static_attributes__ __firstlineno__ __abstractmethods__ "
    "_abc_impl __repr__ __str__ _repr_html_ __sklearn_tags__ _more_tags _parameter_constraints "
    "_estimator_type _sklearn_auto_wrap_output_keys _get_param_names get_params set_params fit "
    "partial_fit fit_predict fit_transform score".split()
)
"""Members that a subclass may override, because they are for training or display only."""

REQUEST_MEMBERS = re.compile(r"set_\w+_request|__metadata_request__\w+")
"""Matches the names of members that scikit-learn adds to each subclass."""


def to_known_class(model: Any, is_known: Callable[[str], bool]) -> Any:
    """Convert a model to its nearest base class for which `is_known` is true.

    Return `model` unchanged if there is no such class, or if a subclass overrides a member that may
    change predictions.
    """
    classes = type(model).__mro__
    paths = [f"{c.__module__}.{c.__qualname__}" for c in classes]
    base_index = next((k for k, path in enumerate(paths) if is_known(path)), None)
    if not base_index:  # The model's class itself is known, or no base class is.
        return model
    base = classes[base_index]
    attributes = getattr(model, "__dict__", {})
    for subclass in classes[:base_index]:
        for name in vars(subclass):
            overrides = hasattr(base, name) or name in attributes or name == "__getattr__"
            if overrides and name not in TRAINING_MEMBERS and not REQUEST_MEMBERS.fullmatch(name):
                return model
    return convert_class(model, base)


def convert_class(model: Any, cls: type[Any]) -> Any:
    converted: Any = object.__new__(cls)
    converted.__dict__.update(model.__dict__)
    return converted
