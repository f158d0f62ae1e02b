"""`TreeTail`: what follows from the margins of an ensemble of trees, in one call of the machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.backends.native.vm.whole_output import Fused
from sqlml.ir.program import Node, Program, freeze
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class TreeTail:
    """An output as a function of the margins, the value of node `trees`. Thread-safe."""

    trees: int
    machine: Fused

    def __call__(self, margins: Array) -> Array:
        """The output (n, width) of margins (n, k)."""
        out = np.empty((margins.shape[0], self.machine.width), self.machine.dtype)
        self.machine.fill(margins, out)
        return out

    @classmethod
    def of(cls, program: Program, output: str) -> TreeTail | None:
        """None if the output is not a function of one ensemble, or the machine cannot compute
        it."""
        live = program.live([program.outputs[output]])
        found = [i for i in live if program.nodes[i].op == "tree_ensemble"]
        if len(found) != 1 or found[0] == live[-1]:
            return None
        after = _after(program, found[0], live, output)
        machine = None if after is None else Fused.of(after, output, single=True)
        return None if machine is None else cls(found[0], machine)


def _after(program: Program, trees: int, live: list[int], output: str) -> Program | None:
    """The output as a Program of the margins; None if it needs anything else from the rows."""
    kind = program.nodes[trees].type
    margins = {"name": "margins", "dtype": kind.dtype, "width": kind.width}
    nodes = [Node("input", (), freeze(margins), kind)]
    place = {trees: 0}
    for i in live:
        node = program.nodes[i]
        if i <= trees and node.type.rowwise:
            continue
        if node.op == "require_finite" or any(j not in place for j in node.inputs):
            return None
        place[i] = len(nodes)
        nodes.append(Node(node.op, tuple(place[j] for j in node.inputs), node.attrs, node.type))
    return Program(tuple(nodes), {"margins": 0}, {output: place[live[-1]]})
