"""`verify`: what a legal Program is, checked after import, after the passes and after loading."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir import ops
from sqlml.ir.program import Program
from sqlml.types import LABEL_TYPES, NESTED, Labels, is_unicode

OUTPUTS = ("label", "proba", "score", "samples", "transform")
"""Names that a model's outputs may have; intermediate Programs may use others."""


def verify(program: Program) -> Program:
    """Return `program` unchanged, or raise ProgramError naming the node that is wrong."""
    for i, node in enumerate(program.nodes):
        if any(not 0 <= j < i for j in node.inputs):
            raise ProgramError(f"node {i} ({node.op}) reads a node that does not come before it")
        try:
            result = ops.infer(node.op, [program.nodes[j].type for j in node.inputs], node.attrs)
        except ProgramError as error:
            raise ProgramError(f"node {i} ({node.op}): {error}") from None
        if result != node.type:
            raise ProgramError(f"node {i} ({node.op}) is {result!r}, not {node.type!r}")
    for name, i in program.inputs.items():
        if not 0 <= i < len(program.nodes) or program.nodes[i].op != "input":
            raise ProgramError(f"input {name!r} is not an input node")
        if program.nodes[i].attrs["name"] != name:
            raise ProgramError(f"input {name!r} has a different name in its node")
    named = set(program.inputs.values())
    for i, node in enumerate(program.nodes):
        if node.op == "input" and i not in named:
            raise ProgramError(f"node {i} is an input without a name")
    if not program.outputs:
        raise ProgramError("the Program has no output")
    for name, i in program.outputs.items():
        if not 0 <= i < len(program.nodes):
            raise ProgramError(f"output {name!r} points nowhere")
        if not program.nodes[i].type.rowwise or len(program.nodes[i].type.shape) != 2:
            raise ProgramError(f"output {name!r} is {program.nodes[i].type!r}, not (n, k)")
        if program.nodes[i].type.dtype in NESTED:
            raise ProgramError(f"output {name!r} is {program.nodes[i].type!r}, not its counts")
        if program.nodes[i].type.sparse:
            raise ProgramError(f"output {name!r} is {program.nodes[i].type!r}: densify it")
    if program.labels:
        for labels in program.labels:
            _verify_labels(labels)
        if len(program.labels) > 1 and any(labels.sql_type for labels in program.labels):
            raise ProgramError("labels of several targets have no SQL type of their own")
        _verify_classifier(program)
    return program


def text_that_is_not_unicode(program: Program) -> str | None:
    """Return a name or category of a Program that no text in a database can be; None without one.

    Objects of Python may have such texts: halves of surrogate pairs.
    """
    values = (value for node in program.nodes for value in node.attrs.values())
    return next((text for value in values if (text := _not_unicode(value)) is not None), None)


def _not_unicode(value: Any) -> str | None:
    """Return the first text of an attribute that is not valid Unicode; None without one."""
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist() if value.dtype.kind in "OU" else ()
    if isinstance(value, str):
        return None if is_unicode(value) else value
    if not isinstance(value, tuple | list):
        return None
    texts = [text for text in value if isinstance(text, str)]
    if is_unicode("".join(texts)):
        return next((t for part in value if (t := _not_unicode(part)) is not None), None)
    return next(text for text in texts if not is_unicode(text))


def _verify_labels(labels: Labels) -> None:
    if not labels.values or len(set(labels.values)) != len(labels):
        raise ProgramError("a classifier needs distinct labels")
    if labels.sql_type and not (
        isinstance(labels.sql_type, str) and LABEL_TYPES[labels.kind].fullmatch(labels.sql_type)
    ):
        raise ProgramError(f"labels of kind {labels.kind} cannot be {labels.sql_type!r}")
    for label in labels.values:
        if isinstance(label, str) and not is_unicode(label):
            raise ProgramError(f"the label {label!r} is not valid Unicode")


def _verify_classifier(program: Program) -> None:
    targets, classes = len(program.labels), sum(map(len, program.labels))
    if "label" in program.outputs:
        kind = program.output_type("label")
        if kind.dtype != "int64" or kind.width != targets:
            raise ProgramError(
                f"output 'label' is {kind!r}, not the index of a label for {targets} targets"
            )
    if "proba" in program.outputs:
        width = program.output_type("proba").width
        one_each = targets > 1 and width == targets and all(len(s) == 2 for s in program.labels)
        if width != classes and not one_each:
            raise ProgramError(f"{width} probabilities for {classes} labels")
