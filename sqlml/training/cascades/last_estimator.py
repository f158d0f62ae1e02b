"""The last estimator of a model, and programs made from parts of the model.

A feature, in Willump's sense, is a column of the matrix that the last estimator reads: a column of
a vectorizer, the prediction of a stack's member, a scaled number. Columns that one step computes
together are a block. The programs are the columns alone (`features`), the model with some columns
from other rows (`shuffled`), and the columns with another estimator (`with_estimator`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.backends.base import Compiled, load_backend
from sqlml.backends.no_wait import wait_for_kernels
from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.registry import import_onto
from sqlml.ir.builder import Builder, Value, copy_retyped
from sqlml.ir.csr import Csr
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.passes.selection import push_selection
from sqlml.scorer.scorer import Scorer
from sqlml.types import Array

_KEEPS_COLUMNS = frozenset(
    "abs add cast clip densify div exp impute interpolate log map_stored maximum minimum mul neg "
    "require_finite require_finite_stored scale_stored search_sorted sign sparsify sqrt square sub "
    "tanh".split()
)
"""Operators whose column i only depends on column i of their one input, and on constants."""

MIXING = frozenset({"complex", "opaque"})
"""Groups of operators that combine many columns or are expensive (`ir.ops`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Columns of the last estimator's matrix that one step computes.

    places: their indices in the matrix. nodes: all that computes them. inputs: the features of the
    model that they depend on.
    """

    places: tuple[int, ...]
    nodes: frozenset[int]
    inputs: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class LastEstimator:
    """The matrix that a model's last estimator reads.

    values: the nodes of its columns, side by side. blocks: its columns.
    """

    values: tuple[int, ...]
    blocks: tuple[Block, ...]


def last_estimator(program: Program) -> LastEstimator:
    """Find the last estimator of a model whose columns are computed by several steps.

    If there is none, the model as a whole is the last estimator, and its inputs are the matrix.

    >>> from sqlml.ir.builder import Builder
    >>> b = Builder()
    >>> x = b.concat([b.input("a", "float64"), b.input("b", "float64")])
    >>> program = b.build({"score": b.linear(x, [[1.0], [2.0]])})
    >>> [sorted(block.inputs) for block in last_estimator(program).blocks]
    [['a'], ['b']]
    """
    outputs = [i for name, i in program.outputs.items() if name in ("label", "proba", "score")]
    has_estimator = False
    for value, above in _find_bottlenecks(program, outputs):
        has_estimator = has_estimator or any(
            OPS[program.nodes[i].op].group in MIXING for i in above
        )
        if not has_estimator:
            continue
        makers = _find_makers(program, value)
        if len(set(makers)) > 1:
            return LastEstimator((value,), _group_blocks(program, makers))
    inputs = tuple(program.inputs.values())
    widths = [program.nodes[i].type.width for i in inputs]
    makers = [i for i, width in zip(inputs, widths, strict=True) for _ in range(width)]
    return LastEstimator(inputs, _group_blocks(program, makers))


def _find_bottlenecks(
    program: Program, outputs: Sequence[int]
) -> Iterable[tuple[int, Sequence[int]]]:
    """Yield the nodes that lie on every path from the inputs to the outputs, the last one first.

    Each comes with the nodes between it and the previous one.
    """
    frontier, above = set(outputs), list[int]()
    while frontier:
        last = max(frontier)
        if len(frontier) == 1 and len(program.nodes[last].type.shape) == 2:
            yield last, above
            above = []
        frontier.remove(last)
        above.append(last)
        frontier |= {i for i in program.nodes[last].inputs if _is_rowwise(program.nodes[i])}


def _is_rowwise(node: Node) -> bool:
    return node.type.rowwise


def _find_makers(program: Program, value: int) -> list[int]:
    """Return the node that computes each column of a value, before steps that keep columns."""
    node = program.nodes[value]
    inputs = [i for i in node.inputs if _is_rowwise(program.nodes[i])]
    if node.op == "concat":
        return [maker for i in node.inputs for maker in _find_makers(program, i)]
    if node.op == "select":
        makers = _find_makers(program, inputs[0])
        return [makers[int(i)] for i in node.attrs["indices"]]
    keeps_columns = node.op in _KEEPS_COLUMNS and len(inputs) == 1
    if keeps_columns and program.nodes[inputs[0]].type.width == node.type.width:
        return _find_makers(program, inputs[0])
    return [value] * node.type.width


def _group_blocks(program: Program, makers: Sequence[int]) -> tuple[Block, ...]:
    """Group the columns of a matrix by the nodes that compute them."""
    places: dict[int, list[int]] = {}
    for place, maker in enumerate(makers):
        places.setdefault(maker, []).append(place)
    names: Mapping[int, str] = {i: name for name, i in program.inputs.items()}
    blocks = []
    for maker, columns in places.items():
        nodes = program.find_needed([maker])
        inputs = frozenset(names[i] for i in nodes if i in names)
        blocks.append(Block(tuple(columns), frozenset(nodes), inputs))
    return tuple(blocks)


FEATURES = "transform"
"""Output name of `features`."""

CONFIDENCE = "score"
"""Output name of a small model's confidence."""

SHUFFLED = "{} (shuffled)"
"""Name pattern of the second copy of an input in `shuffled`."""


def features(program: Program, last: LastEstimator, places: Sequence[int]) -> Program:
    """Return a program for some columns of the last estimator's matrix, maybe as sparse rows
    (`ir/csr.py`)."""
    b = Builder(program.nodes)
    return push_selection(b.build({FEATURES: _select_columns(b, _build_matrix(b, last), places)}))


def shuffled(program: Program, last: LastEstimator, places: Sequence[int]) -> Program:
    """Return the model with some columns computed from other rows.

    It has each input twice: under its name, and as `SHUFFLED` for the columns at `places`.
    """
    b = Builder(program.nodes)
    copies: dict[int, Value] = {}
    for i in program.find_needed(last.values):
        node = program.nodes[i]
        if node.op == "input":
            copies[i] = b.input_of(node, SHUFFLED.format(node.attrs["name"]))
        elif node.type.rowwise:
            arguments = [copies.get(j, b.value(j)) for j in node.inputs]
            copies[i] = copy_retyped(b, node, arguments)
    matrix, shuffled_matrix = _build_matrix(b, last), b.concat([copies[i] for i in last.values])
    unchanged = sorted(set(range(matrix.type.width)) - set(places))
    mixed = b.concat(
        [_select_columns(b, matrix, unchanged), _select_columns(b, shuffled_matrix, sorted(places))]
        if unchanged
        else [shuffled_matrix]
    )
    order = np.argsort([*unchanged, *sorted(places)])
    return _rebuild_end(b, program, last, _select_columns(b, mixed, order))


def with_estimator(
    program: Program, last: LastEstimator, places: Sequence[int], estimator: Any, sparse: bool
) -> tuple[Builder, Outputs]:
    """Append a fitted estimator of some columns to the model's nodes.

    Args:
        sparse: whether it was fitted on sparse rows.

    Raises:
        UnsupportedModelError: sqlml does not import its class, or it predicts nothing.
    """
    b = Builder(program.nodes)
    matrix = _select_columns(b, _build_matrix(b, last), places)
    outputs = import_onto(estimator, replace(Frame.from_value(b, matrix), sparse=sparse))
    if not isinstance(outputs, Outputs):
        raise UnsupportedModelError(f"a {type(estimator).__name__} predicts nothing")
    return b, outputs


def _build_matrix(b: Builder, last: LastEstimator) -> Value:
    return b.concat([b.value(i) for i in last.values])


def _select_columns(b: Builder, x: Value, places: Sequence[int] | Array) -> Value:
    indices = np.asarray(places, np.int64)
    whole = np.array_equal(indices, np.arange(x.type.width))
    return x if whole else b.op("select", x, indices=indices)


def _rebuild_end(b: Builder, program: Program, last: LastEstimator, matrix: Value) -> Program:
    """Return the model with another matrix for its last estimator."""
    values: dict[int, Value] = {}
    first = 0
    for i in last.values:
        width = program.nodes[i].type.width
        values[i] = _select_columns(b, matrix, np.arange(first, first + width))
        first += width
    output_names = [n for n in ("label", "proba", "score") if n in program.outputs]
    for i in program.find_needed([program.outputs[n] for n in output_names]):
        node = program.nodes[i]
        if i not in values and node.type.rowwise and any(j in values for j in node.inputs):
            values[i] = copy_retyped(b, node, [values.get(j, b.value(j)) for j in node.inputs])
    outputs = {n: values.get(program.outputs[n], b.value(program.outputs[n])) for n in output_names}
    return b.build(outputs, program.labels)


ROWS = 8_192
"""Upper bound on the rows of a time measurement."""

ROUNDS = 3
"""Runs of a time measurement, of which the fastest counts."""


def answers(program: Program, output: str, rows: Mapping[str, Array]) -> Array:
    """Return an output (n, k) for some rows; labels are indices of the model's classes."""
    return _scorer(program)._score(output, _model_inputs(program, rows), {})


def row_ns(program: Program, output: str, rows: Mapping[str, Array]) -> float:
    """Measure the nanoseconds per row of one output on one thread."""
    inputs = {name: values[:ROWS] for name, values in _model_inputs(program, rows).items()}
    n = len(next(iter(inputs.values())))
    scorer = _scorer(program)
    return best_of(lambda: scorer._score(output, inputs, {"threads": 1})) / n


def best_of(work: Callable[[], Any]) -> float:
    """Return the nanoseconds of the fastest of several runs, after one that may compile."""
    durations = []
    with wait_for_kernels():
        work()
        for _ in range(ROUNDS):
            start = time.perf_counter_ns()
            work()
            durations.append(time.perf_counter_ns() - start)
    return float(min(durations))


def _scorer(program: Program) -> Scorer:
    unnamed = replace(program, labels=())
    return Scorer(unnamed, unnamed.features, {})


def _model_inputs(program: Program, rows: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(rows[name]) for name in program.inputs}


Rows = Mapping[str, Array]
"""Input of a Program -> its values, (n,)."""

_BLOCK_ROWS = 256
"""Rows that are computed at a time."""


def feature_matrix(program: Program, last: LastEstimator, places: Sequence[int], rows: Rows) -> Any:
    """Return some columns of the last estimator's matrix: an array (n, k), or a sparse scipy
    matrix."""
    blocks = list(_run_in_blocks(_compile_features(program, last, places), rows))
    if not isinstance(blocks[0], Csr):
        return np.concatenate(blocks)
    from scipy import sparse  # scikit-learn and the boosters depend on it.

    matrix = sparse.vstack(
        [sparse.csr_matrix((p.data, p.indices, p.indptr), shape=p.shape) for p in blocks],
        format="csr",
    )
    matrix.eliminate_zeros()
    return matrix


def feature_ns(program: Program, last: LastEstimator, places: Sequence[int], rows: Rows) -> float:
    """Measure the nanoseconds per row to compute some columns."""
    compiled = _compile_features(program, last, places)
    sample = {name: values[:ROWS] for name, values in rows.items()}
    n = len(next(iter(sample.values())))
    return best_of(lambda: sum(1 for _ in _run_in_blocks(compiled, sample))) / n


def _compile_features(program: Program, last: LastEstimator, places: Sequence[int]) -> Compiled:
    return load_backend("native").compile(features(program, last, places))


def _run_in_blocks(compiled: Compiled, rows: Rows) -> Iterator[Any]:
    """Yield the features of some rows, block by block."""
    inputs = {name: rows[name] for name in compiled.program.inputs}
    n = len(next(iter(inputs.values())))
    for start in range(0, n, _BLOCK_ROWS):
        block = {name: values[start : start + _BLOCK_ROWS] for name, values in inputs.items()}
        yield compiled.run(block, (FEATURES,))[FEATURES]
