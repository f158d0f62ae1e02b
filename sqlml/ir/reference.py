"""The reference interpreter, which runs a Program with the numpy functions in `operators/`.

These slow functions define what each operator means. Tests compare backends, lowerings and passes
with them, and compare them with the source libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sqlml.errors import InputTypeError
from sqlml.ir import store
from sqlml.ir.operators.by_partition import score_by_partition
from sqlml.ir.operators.contributions import sample_contributions
from sqlml.ir.operators.op import Function
from sqlml.ir.ops import TABLE
from sqlml.ir.partition_programs import load_program
from sqlml.ir.program import Attrs, Node, Program
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import TEXTUAL, Array, numpy_dtype


def _sampled_contributions(args: Sequence[Array], attrs: Attrs) -> Array:
    program = store.loads(attrs["program"].tobytes())
    return sample_contributions(lambda inputs: run(program, inputs)["y"], args, attrs)


def _score_by_partition(args: Sequence[Array], attrs: Attrs) -> Array:
    def run_partition(index: int, rows: Mapping[str, Array]) -> Array:
        output = attrs["output"]
        return run(load_program(attrs, index), rows, (output,))[output]

    return score_by_partition(run_partition, args, attrs)


FUNCTIONS: Mapping[str, Function] = {
    **{op.name: op.function for op in TABLE if op.function is not None},
    "sampled_contributions": _sampled_contributions,
    "by_partition": _score_by_partition,
}


def run(
    program: Program, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
) -> dict[str, Array]:
    """Compute `outputs` (default: all) for a batch of rows; return (n, k) arrays by output name.

    `inputs` are (n,) or (n, width) arrays, where n may be 0, and are cast to the dtypes of the
    model. Strings are objects, with None for NULL. Raise InputTypeError if an input does not fit,
    and MissingValueError or UnknownCategoryError if a check in the model fails.
    """
    output_names = tuple(program.outputs) if outputs is None else tuple(outputs)
    values: dict[int, Array] = {}
    last_use = _find_last_uses(program, output_names)
    with np.errstate(all="ignore"):
        for i, node in enumerate(program.nodes):
            if i not in last_use:
                continue
            if node.op == "input":
                values[i] = convert_input(node, inputs)
            else:
                values[i] = FUNCTIONS[node.op]([values[j] for j in node.inputs], node.attrs)
            for j in node.inputs:
                if last_use[j] == i:
                    values.pop(j, None)
    return {name: values[program.outputs[name]] for name in output_names}


def compute_node(program: Program, known_values: Mapping[int, Array], target: int) -> Array | None:
    """Compute node `target` from known values, or return None if that needs an input or a check."""
    values = dict(known_values)
    pending = [target]
    while pending:
        node = program.nodes[pending[-1]]
        if pending[-1] not in values:
            if node.op == "input" or node.op.startswith("require"):
                return None
            missing_inputs = [j for j in node.inputs if j not in values]
            if missing_inputs:
                pending += missing_inputs
                continue
            with np.errstate(all="ignore"):
                arguments = [values[j] for j in node.inputs]
                values[pending[-1]] = FUNCTIONS[node.op](arguments, node.attrs)
        pending.pop()
    return values[target]


def _find_last_uses(program: Program, outputs: Sequence[str]) -> dict[int, int]:
    last_use = {program.outputs[name]: len(program.nodes) for name in outputs}
    for i in range(len(program.nodes) - 1, -1, -1):
        if i in last_use:
            for j in program.nodes[i].inputs:
                last_use.setdefault(j, i)
    return last_use


def convert_input(node: Node, inputs: Mapping[str, Array]) -> Array:
    """Return the array for the input `node` as (n, width) of the node's dtype."""
    name = str(node.attrs["name"])
    if name not in inputs:
        raise InputTypeError(f"the batch has no column {name!r}")
    if isinstance(inputs[name], TextColumn) and node.type.dtype in TEXTUAL:
        return inputs[name]
    array = np.asarray(inputs[name])
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or array.shape[1] != node.type.width:
        raise InputTypeError(f"column {name!r} has shape {array.shape}, not (n, {node.type.width})")
    if node.type.dtype in TEXTUAL:
        if array.dtype.kind not in "OUT":
            raise InputTypeError(f"column {name!r} is {array.dtype}, not strings; cast it")
        return array.astype(object)
    if array.dtype.kind not in "biuf":
        raise InputTypeError(f"column {name!r} is {array.dtype}, not numbers; cast it")
    return array.astype(numpy_dtype(node.type.dtype), copy=False)
