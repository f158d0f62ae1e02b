"""Prepare the Program of a partition for kernels, once rows of the partition arrive."""

from __future__ import annotations

from sqlml.ir.partition_programs import load_program
from sqlml.ir.program import Attrs, Program
from sqlml.passes import prepare_for_kernels, run, select_outputs
from sqlml.passes.split import split


def prepare_partition(attrs: Attrs, index: int) -> tuple[Program, tuple[str, ...]] | None:
    """Return the core of a partition's Program, and the features in the columns of its matrix.

    `attrs` are those of the operator `by_partition`. Return None if the Program reads strings.
    """
    program = run(select_outputs(load_program(attrs, index), [attrs["output"]]))
    parts = split(program, "f64")
    if parts.encoders is not None or parts.texts:
        return None
    return prepare_for_kernels(parts.core), tuple(column.name for column in parts.columns)
