"""`stages`: cut a Program into ONNX graphs and steps on the host, in turns.

Strings, checks that raise, and operators without an ONNX equivalent run in numpy; everything
between them is one graph. Node i stands in stage s when all that it reads stands in stages up to
s; even stages are graphs, odd ones run on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlml.ir.program import Program


@dataclass(frozen=True, slots=True)
class Stage:
    """Nodes that run together, in order: on the host, or as one graph.

    `reads` are nodes of earlier stages (inputs too) that it reads, `gives` those of its own that
    later stages or outputs read.
    """

    host: bool
    nodes: tuple[int, ...]
    reads: tuple[int, ...]
    gives: tuple[int, ...]


def stages(
    program: Program, outputs: Sequence[str], on_host: Callable[[int], bool]
) -> tuple[Stage, ...]:
    """The stages that `outputs` need, in order. Inputs and constants stand in none of them."""
    wanted = {program.outputs[name] for name in outputs}
    number: dict[int, int] = {}
    for i in program.live(wanted):
        node = program.nodes[i]
        if node.op in ("input", "constant"):
            continue
        earliest = max((number.get(j, 0) for j in node.inputs), default=0)
        number[i] = earliest + ((earliest % 2 == 1) != on_host(i))
    made: list[Stage] = []
    for s in sorted(set(number.values())):
        nodes = tuple(i for i in sorted(number) if number[i] == s)
        own = set(nodes)
        read = {j for i in nodes for j in program.nodes[i].inputs} - own
        reads = {j for j in read if program.nodes[j].op != "constant"}
        later = {j for i in number if number[i] > s for j in program.nodes[i].inputs}
        gives = own & (later | wanted)
        made.append(Stage(s % 2 == 1, nodes, tuple(sorted(reads)), tuple(sorted(gives))))
    return tuple(made)
