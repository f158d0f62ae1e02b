"""Programs made of parts of a model: the columns that its last estimator reads, the model with some
of them shuffled, and the model with another last estimator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.backends.base import Compiled, load
from sqlml.backends.no_wait import waiting
from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.registry import imported_onto
from sqlml.ir.builder import Builder, Value, copy
from sqlml.ir.csr import Csr
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.passes.selection import push_selection
from sqlml.scorer.scorer import Scorer
from sqlml.types import Array

# `last_estimator`: where the estimator at the end of a model begins, and the blocks that it
# reads.
#
# A feature, in Willump's sense, is a column of the matrix that the last estimator reads: the
# columns of a vectorizer, the prediction of a stack's member, a scaled number. Columns that one
# step makes together are a block.


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


FEATURES = "transform"
"""The output of `features`."""

CONFIDENCE = "score"
"""The output of a small model that says how sure it is."""

SHUFFLED = "{} (shuffled)"
"""How `shuffled` calls the second copy of an input."""


def features(program: Program, last: LastEstimator, places: Sequence[int]) -> Program:
    """The columns at `places` of the last estimator's matrix; maybe sparse rows (`ir/csr.py`)."""
    b = Builder(program.nodes)
    return push_selection(b.build({FEATURES: _chosen(b, _matrix(b, last), places)}))


def shuffled(program: Program, last: LastEstimator, places: Sequence[int]) -> Program:
    """The model, in which the columns at `places` are computed from other rows.

    Its inputs come twice: under their own names, and as `SHUFFLED` for those columns.
    """
    b = Builder(program.nodes)
    again: dict[int, Value] = {}
    for i in program.live(last.values):
        node = program.nodes[i]
        if node.op == "input":
            again[i] = b.input_of(node, SHUFFLED.format(node.attrs["name"]))
        elif node.type.rowwise:
            held = [again.get(j, b.value(j)) for j in node.inputs]
            again[i] = copy(b, node, held)
    own, other = _matrix(b, last), b.beside([again[i] for i in last.values])
    kept = sorted(set(range(own.type.width)) - set(places))
    mixed = b.beside(
        [_chosen(b, own, kept), _chosen(b, other, sorted(places))] if kept else [other]
    )
    order = np.argsort([*kept, *sorted(places)])
    return _ending(b, program, last, _chosen(b, mixed, order))


def with_estimator(
    program: Program, last: LastEstimator, places: Sequence[int], estimator: Any, sparse: bool
) -> tuple[Builder, Outputs]:
    """What a fitted `estimator` makes of the columns at `places`, as nodes after the model's own.

    Args:
        sparse: it was fitted on sparse rows.

    Raises:
        UnsupportedModelError: it is of a class that sqlml does not import, or predicts nothing.
    """
    b = Builder(program.nodes)
    matrix = _chosen(b, _matrix(b, last), places)
    made = imported_onto(estimator, replace(Frame.of(b, matrix), sparse=sparse))
    if not isinstance(made, Outputs):
        raise UnsupportedModelError(f"a {type(estimator).__name__} predicts nothing")
    return b, made


def _matrix(b: Builder, last: LastEstimator) -> Value:
    return b.beside([b.value(i) for i in last.values])


def _chosen(b: Builder, x: Value, places: Sequence[int] | Array) -> Value:
    indices = np.asarray(places, np.int64)
    whole = np.array_equal(indices, np.arange(x.type.width))
    return x if whole else b.op("select", x, indices=indices)


def _ending(b: Builder, program: Program, last: LastEstimator, matrix: Value) -> Program:
    """The model from its last estimator on, over another matrix."""
    values: dict[int, Value] = {}
    first = 0
    for i in last.values:
        width = program.nodes[i].type.width
        values[i] = _chosen(b, matrix, np.arange(first, first + width))
        first += width
    wanted = [n for n in ("label", "proba", "score") if n in program.outputs]
    for i in program.live([program.outputs[n] for n in wanted]):
        node = program.nodes[i]
        if i not in values and node.type.rowwise and any(j in values for j in node.inputs):
            values[i] = copy(b, node, [values.get(j, b.value(j)) for j in node.inputs])
    ends = {n: values.get(program.outputs[n], b.value(program.outputs[n])) for n in wanted}
    return b.build(ends, program.labels)


# `row_ns`: how long a Program takes for a row.


ROWS = 8_192
"""Most rows on which times are measured."""

ROUNDS = 3
"""Each measurement is the best of so many."""


def answers(program: Program, output: str, rows: Mapping[str, Array]) -> Array:
    """An output (n, k) for some rows, by input; of labels their places among the model's."""
    return _scorer(program)._values(output, _held(program, rows), {})


def row_ns(program: Program, output: str, rows: Mapping[str, Array]) -> float:
    """Nanoseconds a row on one thread, for one output."""
    held = {name: values[:ROWS] for name, values in _held(program, rows).items()}
    n = len(next(iter(held.values())))
    scorer = _scorer(program)
    return best_of(lambda: scorer._values(output, held, {"threads": 1})) / n


def best_of(work: Callable[[], Any]) -> float:
    """The nanoseconds of the fastest of a few runs, after one that may compile."""
    taken = []
    with waiting():
        work()
        for _ in range(ROUNDS):
            start = time.perf_counter_ns()
            work()
            taken.append(time.perf_counter_ns() - start)
    return float(min(taken))


def _scorer(program: Program) -> Scorer:
    unnamed = replace(program, labels=())
    return Scorer(unnamed, unnamed.features, {})


def _held(program: Program, rows: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(rows[name]) for name in program.inputs}


# `feature_matrix`: what a model's last estimator reads, for some rows.


Rows = Mapping[str, Array]
"""Input of a Program -> its values, (n,)."""

_AT_ONCE = 256
"""Rows that are computed at a time: sparse ones come from the backend in one block."""


def feature_matrix(program: Program, last: LastEstimator, places: Sequence[int], rows: Rows) -> Any:
    """The columns at `places` of the last estimator's matrix: an array (n, k), or a sparse matrix
    of scipy."""
    parts = list(_parts(_compiled(program, last, places), rows))
    if not isinstance(parts[0], Csr):
        return np.concatenate(parts)
    from scipy import sparse  # scikit-learn and the boosters bring it

    whole = sparse.vstack(
        [sparse.csr_matrix((p.data, p.indices, p.indptr), shape=p.shape) for p in parts],
        format="csr",
    )
    whole.eliminate_zeros()
    return whole


def feature_ns(program: Program, last: LastEstimator, places: Sequence[int], rows: Rows) -> float:
    """Nanoseconds a row of what computes the columns at `places`."""
    compiled = _compiled(program, last, places)
    few = {name: values[:ROWS] for name, values in rows.items()}
    n = len(next(iter(few.values())))
    return best_of(lambda: sum(1 for _ in _parts(compiled, few))) / n


def _compiled(program: Program, last: LastEstimator, places: Sequence[int]) -> Compiled:
    return load("native").compile(features(program, last, places))


def _parts(compiled: Compiled, rows: Rows) -> Iterator[Any]:
    """The features of some rows, part by part."""
    held = {name: rows[name] for name in compiled.program.inputs}
    n = len(next(iter(held.values())))
    for start in range(0, n, _AT_ONCE):
        part = {name: values[start : start + _AT_ONCE] for name, values in held.items()}
        yield compiled.run(part, (FEATURES,))[FEATURES]
