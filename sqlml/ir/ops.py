"""The table of the IR's operators, the inference of their result types, and `verify`.

Importers emit *model* operators, such as trees, which the native backend runs; `passes.lower`
lowers them to the *tensor* operators of torch and onnxruntime. A Program is verified after import,
after the passes and after loading.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir.operators import (
    by_partition,
    categories,
    contributions,
    distances,
    elementwise,
    forests,
    imputation,
    matrices,
    neighbours,
    opaque,
    piecewise,
    sparse_rows,
    text,
    torch_module,
)
from sqlml.ir.operators.op import Op, Types, require
from sqlml.ir.program import Attrs, Program
from sqlml.limits import MAX_CONSTANT_VALUES, MAX_ROW_VALUES
from sqlml.types import (
    DATETIME,
    DTYPES,
    LABEL_TYPES,
    NESTED,
    Labels,
    TensorType,
    dtype_of,
    is_unicode,
    matrix,
)


def _input_type(types: Types, attrs: Attrs) -> TensorType:
    dtype, width = attrs["dtype"], attrs["width"]
    require(isinstance(width, int) and width >= 0, "input width must be an integer of 0 or more")
    require(dtype not in NESTED or width == 1, "a column of lists or maps must have width 1")
    if "kind" in attrs:
        is_date_column = attrs["kind"] == DATETIME and dtype == "float64" and width == 1
        require(is_date_column, "the only kind is datetime, for one float64 column")
    return matrix(dtype, width)


def _constant_type(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(dtype_of(attrs["value"]), attrs["value"].shape)


_INPUT = "name: str, dtype: str, width: int, kind: str?"

FAMILIES = (
    *(elementwise, matrices, distances, neighbours, categories, imputation, piecewise, forests),
    *(contributions, torch_module, opaque, sparse_rows, text, by_partition),
)
"""The modules of `operators/`."""

TABLE: tuple[Op, ...] = (
    Op("input", "source", _input_type, None, _INPUT, arity=(0, 0)),
    Op("constant", "source", _constant_type, lambda args, attrs: attrs["value"], "value", (0, 0)),
    *(operator for family in FAMILIES for operator in family.OPERATORS),
)

NEVER_STORED = frozenset({"tree_contributions", "sampled_contributions"})
"""Operators that compute contributions for a query; stored models do not contain them."""

OPS: Mapping[str, Op] = {op.name: op for op in TABLE}


def infer(op: str, types: Types, attrs: Attrs) -> TensorType:
    """Return the result type of `op`; raise ProgramError if `types` or `attrs` are invalid."""
    operator = OPS.get(op)
    if operator is None:
        raise ProgramError(f"unknown operator {op!r}")
    min_inputs, max_inputs = operator.arity
    if len(types) < min_inputs or (max_inputs is not None and len(types) > max_inputs):
        raise ProgramError(f"{op} takes {min_inputs} to {max_inputs} inputs, not {len(types)}")
    _check_attrs(operator, attrs)
    if not operator.sparse and any(t.sparse for t in types):
        raise ProgramError(f"{op} does not take sparse rows; densify them first")
    if not operator.nested and any(t.dtype in NESTED for t in types):
        raise ProgramError(f"{op} does not take lists or maps")
    result_type = operator.rule(types, attrs)
    # An axis of length 0 counts as 1, because numpy limits the product of the other lengths, too.
    num_values = math.prod(max(d, 1) for d in result_type.shape[1 if result_type.rowwise else 0 :])
    is_dense = result_type.rowwise and not result_type.sparse
    max_values = MAX_ROW_VALUES if is_dense else MAX_CONSTANT_VALUES
    if num_values > max_values:
        raise ProgramError(f"{op} makes {num_values} numbers, too many: the limit is {max_values}")
    return result_type


def _check_attrs(operator: Op, attrs: Attrs) -> None:
    for name, attr_type in operator.attrs.items():
        if name not in attrs:
            require(attr_type.endswith("?"), f"{operator.name} lacks attribute {name}")
            continue
        value = attrs[name]
        expected_type = _PYTHON_TYPES[attr_type.removesuffix("?")]
        if not isinstance(value, expected_type) or (
            expected_type is int and isinstance(value, bool)
        ):
            raise ProgramError(f"{operator.name}: attribute {name} is not {attr_type}")
    for name in attrs:
        if name not in operator.attrs:
            raise ProgramError(f"{operator.name} has no attribute {name}")
    for key in ("dtype", "sum_dtype"):
        if key in operator.attrs and attrs[key] not in DTYPES:
            raise ProgramError(f"{operator.name}: unknown dtype {attrs[key]!r}")
        if key in operator.attrs and attrs[key] in NESTED and operator.name != "input":
            raise ProgramError(f"{operator.name} does not make lists or maps")


_PYTHON_TYPES: Mapping[str, type] = {
    **{kind.__name__: kind for kind in (str, int, float, bool, tuple)},
    "array": np.ndarray,
}

OUTPUTS = ("label", "proba", "score", "samples", "transform")
"""Names of a model's outputs; intermediate Programs may use other names."""

CALIBRATED_OUTPUTS = ("interval", "set")
"""Names of the additional outputs of a calibrated model."""


def verify(program: Program) -> Program:
    """Return `program` if it is legal; otherwise raise ProgramError."""
    for i, node in enumerate(program.nodes):
        if any(not 0 <= j < i for j in node.inputs):
            raise ProgramError(f"node {i} ({node.op}) reads a node that does not come before it")
        try:
            inferred_type = infer(node.op, [program.nodes[j].type for j in node.inputs], node.attrs)
        except ProgramError as error:
            raise ProgramError(f"node {i} ({node.op}): {error}") from None
        if inferred_type != node.type:
            raise ProgramError(f"node {i} ({node.op}) is {inferred_type!r}, not {node.type!r}")
    for name, i in program.inputs.items():
        if not 0 <= i < len(program.nodes) or program.nodes[i].op != "input":
            raise ProgramError(f"input {name!r} is not an input node")
        if program.nodes[i].attrs["name"] != name:
            raise ProgramError(f"input {name!r} has a different name in its node")
    input_nodes = {i for i, node in enumerate(program.nodes) if node.op == "input"}
    if unnamed_inputs := input_nodes - set(program.inputs.values()):
        raise ProgramError(f"node {min(unnamed_inputs)} is an input without a name")
    if not program.outputs:
        raise ProgramError("the Program has no output")
    for name, i in program.outputs.items():
        if not 0 <= i < len(program.nodes):
            raise ProgramError(f"output {name!r} refers to a node that does not exist")
        output_type = program.nodes[i].type
        if not output_type.rowwise or len(output_type.shape) != 2:
            raise ProgramError(f"output {name!r} is {output_type!r}, not (n, k)")
        if output_type.dtype in NESTED:
            raise ProgramError(f"output {name!r} is {output_type!r}, not numbers")
        if output_type.sparse:
            raise ProgramError(f"output {name!r} is {output_type!r}: densify it")
    if program.labels:
        for labels in program.labels:
            _verify_labels(labels)
        if len(program.labels) > 1 and any(labels.sql_type for labels in program.labels):
            raise ProgramError("labels of several targets have no SQL type of their own")
        _verify_classifier(program)
    return program


def find_invalid_unicode(program: Program) -> str | None:
    """Return a string with an unpaired surrogate, which databases reject, or None."""
    values = (value for node in program.nodes for value in node.attrs.values())
    strings = (text for value in values for text in _iterate_strings(value))
    return next((text for text in strings if not is_unicode(text)), None)


def _iterate_strings(value: Any) -> Iterator[str]:
    """Yield the strings in an attribute, except those of arrays with only valid Unicode."""
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist() if value.dtype.kind in "OU" else ()
        value = () if is_unicode("".join(v for v in value if isinstance(v, str))) else value
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _iterate_strings(item)


def _verify_labels(labels: Labels) -> None:
    if not labels.values or len(set(labels.values)) != len(labels):
        raise ProgramError("a classifier needs distinct labels")
    sql_type, pattern = labels.sql_type, LABEL_TYPES[labels.kind]
    if sql_type and not (isinstance(sql_type, str) and pattern.fullmatch(sql_type)):
        raise ProgramError(f"labels of kind {labels.kind} cannot be {sql_type!r}")
    for label in labels.values:
        if isinstance(label, str) and not is_unicode(label):
            raise ProgramError(f"the label {label!r} is not valid Unicode")


def _verify_classifier(program: Program) -> None:
    num_targets, num_classes = len(program.labels), sum(map(len, program.labels))
    if "label" in program.outputs:
        label_type = program.output_type("label")
        if label_type.dtype != "int64" or label_type.width != num_targets:
            expected = f"the index of a label for {num_targets} targets"
            raise ProgramError(f"output 'label' is {label_type!r}, not {expected}")
    if "proba" in program.outputs:
        width = program.output_type("proba").width
        are_binary = num_targets > 1 and all(len(labels) == 2 for labels in program.labels)
        has_one_column_per_target = are_binary and width == num_targets
        if width != num_classes and not has_one_column_per_target:
            raise ProgramError(f"{width} probabilities for {num_classes} labels")
