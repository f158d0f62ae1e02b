"""`sampled_blocks`: the contributions of any Program, estimated against background rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.ir import store
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program
from sqlml.ir.rewrite import copy
from sqlml.passes.order import only, run
from sqlml.types import NESTED, Array

_PAIRS, _EACH = 64, 2
"""Pairs of orders that are tried for each row, and at least for each background row."""

LINKS = frozenset({"sigmoid", "exp", "exp2", "expm1", "softmax", "tanh", "ndtr"})
"""Functions of a score that rise with it, and that explanations leave out."""


def explained_output(program: Program) -> str | None:
    """The output that explanations are of: the score, where there is one, else probabilities or a
    value; None for a model that gives none of these."""
    name = next((n for n in ("score", "samples", "proba", "label") if n in program.outputs), None)
    return None if name == "label" and program.labels else name


def sampled_blocks(
    program: Program, b: Builder, background: Mapping[str, Array], pairs: int | None = None
) -> Value | None:
    """(n, width * (2 inputs + 1)): for each column of what is explained the contributions of the
    inputs, the mean over the background rows, and the contributions' standard errors.

    Args:
        b: holds the nodes of `program`, its inputs among them.
        pairs: of orders for each background row; None: a number for a first look.

    Raises:
        UnsupportedModelError: an input is a list or a map.
    """
    name = explained_output(program)
    if name is None:
        return None
    kinds = [program.input_type(i).dtype for i in program.inputs]
    if any(kind in NESTED for kind in kinds):
        raise UnsupportedModelError("explain cannot replace lists and maps, which this model reads")
    inputs = [b.input_of(program.nodes[i]) for i in program.inputs.values()]
    width, players = program.output_type(name).width, len(inputs)
    rows = len(next(iter(background.values())))
    numbers, texts = np.zeros((rows, players)), np.full((rows, players), "", object)
    missing = np.zeros((rows, players), bool)
    for k, (own, kind) in enumerate(zip(program.inputs, kinds, strict=True)):
        values = np.asarray(background[own]).reshape(rows)
        if kind == "string":
            missing[:, k] = [value is None for value in values]
            texts[:, k] = ["" if value is None else str(value) for value in values]
        else:
            numbers[:, k] = values.astype(np.float64)
    return b.op(
        "sampled_contributions",
        *inputs,
        program=np.frombuffer(store.dumps(_alone(program, name)), np.uint8),
        numbers=numbers,
        texts=texts.ravel(),
        missing=missing,
        width=width,
        orders=max(_EACH, -(-_PAIRS // rows)) if pairs is None else pairs,
        seed=0,
    )


def _alone(program: Program, name: str) -> Program:
    """One output of a Program as `y`, of inputs `x0`, `x1`, .., after the passes."""
    part = run(only(program, [name]))
    b, values = Builder(), list[Value]()
    places = {own: f"x{k}" for k, own in enumerate(program.inputs)}
    for node in part.nodes:
        if node.op == "input":
            own = places[str(node.attrs["name"])]
            values.append(b.input_of(node, own))
        else:
            values.append(copy(b, node, [values[i] for i in node.inputs]))
    return b.build({"y": values[part.outputs[name]]})
