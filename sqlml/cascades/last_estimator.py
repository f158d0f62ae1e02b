"""`last_estimator`: where the estimator at the end of a model begins, and the blocks that it reads.

A feature, in Willump's sense, is a column of the matrix that the last estimator reads: the columns
of a vectorizer, the prediction of a stack's member, a scaled number. Columns that one step makes
together are a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program

_KEEPS_COLUMNS = frozenset(
    "abs add cast clip densify div exp impute interpolate log map_stored maximum minimum mul neg "
    "require_finite require_finite_stored scale_stored search_sorted sign sparsify sqrt square sub "
    "tanh".split()
)
"""Operators whose column i depends on column i of the one value that they read, and constants."""

MIXING = frozenset({"complex", "opaque"})
"""Groups of operators that compute with many columns, or are expensive, or both (`ir.ops`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Columns of the last estimator's matrix that one step makes.

    places: where in the matrix they stand. nodes: all that computes them. inputs: the features of
    the model that they depend on.
    """

    places: tuple[int, ...]
    nodes: frozenset[int]
    inputs: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class LastEstimator:
    """The matrix that a model's last estimator reads.

    values: the nodes that make its columns, side by side. blocks: its columns.
    """

    values: tuple[int, ...]
    blocks: tuple[Block, ...]


def last_estimator(program: Program) -> LastEstimator:
    """The last estimator of a model that has one whose columns can be told apart.

    Otherwise the model as a whole, whose matrix are its inputs.

    >>> from sqlml.ir.builder import Builder
    >>> b = Builder()
    >>> x = b.beside([b.input("a", "float64"), b.input("b", "float64")])
    >>> program = b.build({"score": b.linear(x, [[1.0], [2.0]])})
    >>> [sorted(block.inputs) for block in last_estimator(program).blocks]
    [['a'], ['b']]
    """
    outputs = [i for name, i in program.outputs.items() if name in ("label", "proba", "score")]
    learned = False
    for value, above in _passed_by_all(program, outputs):
        learned = learned or any(OPS[program.nodes[i].op].group in MIXING for i in above)
        if not learned:
            continue
        makers = _makers(program, value)
        if len(set(makers)) > 1:
            return LastEstimator((value,), _blocks(program, makers))
    inputs = tuple(program.inputs.values())
    widths = [program.nodes[i].type.width for i in inputs]
    makers = [i for i, width in zip(inputs, widths, strict=True) for _ in range(width)]
    return LastEstimator(inputs, _blocks(program, makers))


def _passed_by_all(program: Program, outputs: Sequence[int]) -> Iterable[tuple[int, Sequence[int]]]:
    """The nodes through which every way from the inputs to `outputs` leads, the last one first, and
    with each the nodes between it and the one before."""
    waiting, above = set(outputs), list[int]()
    while waiting:
        last = max(waiting)
        if len(waiting) == 1 and len(program.nodes[last].type.shape) == 2:
            yield last, above
            above = []
        waiting.remove(last)
        above.append(last)
        waiting |= {i for i in program.nodes[last].inputs if _is_of_rows(program.nodes[i])}


def _is_of_rows(node: Node) -> bool:
    return node.type.rowwise


def _makers(program: Program, value: int) -> list[int]:
    """For each column of a value the node that makes it, below all steps that keep columns."""
    node = program.nodes[value]
    below = [i for i in node.inputs if _is_of_rows(program.nodes[i])]
    if node.op == "concat":
        return [maker for i in node.inputs for maker in _makers(program, i)]
    if node.op == "select":
        whole = _makers(program, below[0])
        return [whole[int(i)] for i in node.attrs["indices"]]
    keeps = node.op in _KEEPS_COLUMNS and len(below) == 1
    if keeps and program.nodes[below[0]].type.width == node.type.width:
        return _makers(program, below[0])
    return [value] * node.type.width


def _blocks(program: Program, makers: Sequence[int]) -> tuple[Block, ...]:
    """The columns of a matrix by the nodes that make them."""
    places: dict[int, list[int]] = {}
    for place, maker in enumerate(makers):
        places.setdefault(maker, []).append(place)
    names: Mapping[int, str] = {i: name for name, i in program.inputs.items()}
    made = []
    for maker, held in places.items():
        nodes = program.live([maker])
        inputs = frozenset(names[i] for i in nodes if i in names)
        made.append(Block(tuple(held), frozenset(nodes), inputs))
    return tuple(made)
