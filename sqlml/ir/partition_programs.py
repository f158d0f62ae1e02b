"""The Programs of an operator `by_partition`, which are read one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.ir import store
from sqlml.ir.ops import NEVER_STORED, OUTPUTS, find_invalid_unicode
from sqlml.ir.program import Attrs, Program
from sqlml.types import Array


def pack_programs(programs: Sequence[Program]) -> dict[str, Array]:
    """Serialize Programs to the attributes `programs` and `ends` of the operator `by_partition`."""
    contents = [store.dumps(program) for program in programs]
    return {
        "programs": np.frombuffer(b"".join(contents), np.uint8),
        "ends": np.cumsum([len(content) for content in contents], dtype=np.int64),
    }


def find_partition_columns(program: Program) -> tuple[str, ...]:
    """Return the inputs that decide the partition of a row, or () if the model has none."""
    node = next((node for node in program.nodes if node.op == "by_partition"), None)
    needed = () if node is None else program.find_needed_nodes([node.inputs[0]])
    return tuple(str(program.nodes[i].attrs["name"]) for i in needed if is_input(program, i))


def count_partitions(program: Program) -> int:
    return max((len(n.attrs["ends"]) for n in program.nodes if n.op == "by_partition"), default=0)


def is_input(program: Program, i: int) -> bool:
    return program.nodes[i].op == "input"


def load_program(attrs: Attrs, index: int) -> Program:
    """Read the Program of a partition, and check that it returns the output of the operator.

    Raise ArtifactError if the Program is damaged or does not fit the operator.
    """
    program = _read_program(attrs, index)
    _check_program(program, attrs, index)
    return program


def check_partitions(program: Program) -> None:
    """Check the Programs of all partitions; raise ArtifactError if one is damaged or does not fit.

    The operators of several outputs share the Programs, so each is read once.
    """
    nodes = [node for node in program.nodes if node.op == "by_partition"]
    while nodes:
        attrs = nodes[0].attrs
        shared = [n for n in nodes if np.array_equal(n.attrs["programs"], attrs["programs"])]
        for index in range(len(attrs["ends"])):
            partition = _read_program(attrs, index)
            for node in shared:
                if not np.array_equal(node.attrs["ends"], attrs["ends"]):
                    raise ArtifactError(
                        "the partitions of two outputs differ; train the model again"
                    )
                _check_program(partition, node.attrs, index)
        nodes = [node for node in nodes if node not in shared]


def _read_program(attrs: Attrs, index: int) -> Program:
    ends = attrs["ends"]
    start = int(ends[index - 1]) if index else 0
    return store.loads(attrs["programs"][start : int(ends[index])].tobytes())


def _check_program(program: Program, attrs: Attrs, index: int) -> None:
    output = attrs["output"]
    refused = {"by_partition", *store.FOREIGN_MODELS}
    if output in OUTPUTS:
        refused |= NEVER_STORED
    fault = None
    if any(node.op in refused for node in program.nodes):
        fault = "has operators that sqlml never stores in a partition"
    elif find_invalid_unicode(program) is not None:
        fault = "has strings that are not valid Unicode"
    elif not program.inputs.keys() <= set(attrs["names"]):
        fault = "reads columns that the model does not have"
    elif output not in program.outputs:
        fault = f"lacks the output {output!r}"
    else:
        result_type = program.output_type(output)
        if (result_type.dtype, result_type.shape[1:]) != (attrs["dtype"], (attrs["width"],)):
            fault = f"returns {result_type!r}"
    if fault is not None:
        raise ArtifactError(f"the stored model of partition {index} {fault}; train the model again")
