"""Find the last estimator of a model, and build programs from parts of the model.

A feature, in Willump's sense, is a column of the matrix that the last estimator reads: a column of
a vectorizer, the prediction of a stack's member, a scaled number. Columns that one step computes
together are a block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.backends.base import CompiledProgram, load_backend
from sqlml.backends.no_wait import wait_for_kernels
from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.registry import import_onto
from sqlml.ir.builder import Builder, Value, copy_retyped
from sqlml.ir.csr import Csr
from sqlml.ir.ops import OPS
from sqlml.ir.program import Program
from sqlml.passes.selection import push_selection
from sqlml.scorer.scorer import Scorer
from sqlml.types import Array

_KEEPS_COLUMNS = frozenset(
    "abs add cast clip densify div exp impute interpolate log map_stored maximum minimum mul neg "
    "require_finite require_finite_stored scale_stored search_sorted sign sparsify sqrt square sub "
    "tanh".split()
)
"""Operators whose column i depends only on column i of their single input, and on constants."""

MIXING = frozenset({"complex", "opaque"})
"""Groups of operators that combine many columns or are expensive (`ir.ops`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Columns of the last estimator's matrix that one step computes.

    columns: the indices of the columns in the matrix. nodes: all nodes that compute the columns.
    inputs: the features of the model that the columns depend on.
    """

    columns: tuple[int, ...]
    nodes: frozenset[int]
    inputs: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class LastEstimator:
    """The matrix that a model's last estimator reads.

    values: the nodes whose columns, side by side, are the matrix. blocks: the matrix in blocks.
    """

    program: Program
    values: tuple[int, ...]
    blocks: tuple[Block, ...]


def find_last_estimator(program: Program) -> LastEstimator:
    """Find the last estimator whose input columns are computed by several steps.

    If there is no such estimator, return the whole model, with the model's inputs as the matrix.

    >>> from sqlml.ir.builder import Builder
    >>> b = Builder()
    >>> x = b.concat([b.input("a", "float64"), b.input("b", "float64")])
    >>> program = b.build({"score": b.linear(x, [[1.0], [2.0]])})
    >>> [sorted(block.inputs) for block in find_last_estimator(program).blocks]
    [['a'], ['b']]
    """
    outputs = [i for name, i in program.outputs.items() if name in ("label", "proba", "score")]
    has_estimator = False
    for node_index, nodes_above in _find_bottlenecks(program, outputs):
        groups = {OPS[program.nodes[i].op].group for i in nodes_above}
        has_estimator = has_estimator or not groups.isdisjoint(MIXING)
        column_nodes = _find_column_nodes(program, node_index) if has_estimator else []
        if len(set(column_nodes)) > 1:
            return LastEstimator(program, (node_index,), _group_blocks(program, column_nodes))
    inputs = tuple(program.inputs.values())
    column_nodes = [i for i in inputs for _ in range(program.nodes[i].type.width)]
    return LastEstimator(program, inputs, _group_blocks(program, column_nodes))


def _find_bottlenecks(program: Program, outputs: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the nodes on every path to the outputs, from the last to the first.

    Each node is yielded with the nodes between this node and the previously yielded node.
    """
    frontier = set(outputs)
    nodes_above: list[int] = []
    while frontier:
        node_index = max(frontier)
        if len(frontier) == 1 and len(program.nodes[node_index].type.shape) == 2:
            yield node_index, nodes_above
            nodes_above = []
        frontier.remove(node_index)
        nodes_above.append(node_index)
        frontier |= {i for i in program.nodes[node_index].inputs if program.nodes[i].type.rowwise}


def _find_column_nodes(program: Program, node_index: int) -> list[int]:
    node = program.nodes[node_index]
    inputs = [i for i in node.inputs if program.nodes[i].type.rowwise]
    if node.op == "concat":
        return [column_node for i in node.inputs for column_node in _find_column_nodes(program, i)]
    if node.op == "select":
        column_nodes = _find_column_nodes(program, inputs[0])
        return [column_nodes[int(i)] for i in node.attrs["indices"]]
    keeps_columns = node.op in _KEEPS_COLUMNS and len(inputs) == 1
    if keeps_columns and program.nodes[inputs[0]].type.width == node.type.width:
        return _find_column_nodes(program, inputs[0])
    return [node_index] * node.type.width


def _group_blocks(program: Program, column_nodes: Sequence[int]) -> tuple[Block, ...]:
    columns_by_node: dict[int, list[int]] = {}
    for column_index, node_index in enumerate(column_nodes):
        columns_by_node.setdefault(node_index, []).append(column_index)
    input_names = {i: name for name, i in program.inputs.items()}
    blocks = []
    for node_index, columns in columns_by_node.items():
        needed_nodes = program.find_needed_nodes([node_index])
        inputs = frozenset(input_names[i] for i in needed_nodes if i in input_names)
        blocks.append(Block(tuple(columns), frozenset(needed_nodes), inputs))
    return tuple(blocks)


FEATURES = "transform"

CONFIDENCE = "score"

SHUFFLED = "{} (shuffled)"


def build_feature_program(last_estimator: LastEstimator, column_indices: Sequence[int]) -> Program:
    """Build a program that computes the columns `column_indices` of the last estimator's matrix.

    The output `FEATURES` is sparse (`ir/csr.py`) if the model computes these columns sparsely.
    """
    builder = Builder(last_estimator.program.nodes)
    matrix = _select_columns(builder, _build_matrix(builder, last_estimator), column_indices)
    return push_selection(builder.build({FEATURES: matrix}))


def build_shuffled_model(last_estimator: LastEstimator, column_indices: Sequence[int]) -> Program:
    """Build the model with the columns `column_indices` computed from a second set of inputs.

    These inputs have `SHUFFLED` names. Shuffled values of them show how much the columns matter.
    """
    builder = Builder(last_estimator.program.nodes)
    copies: dict[int, Value] = {}
    for i in last_estimator.program.find_needed_nodes(last_estimator.values):
        node = last_estimator.program.nodes[i]
        if node.op == "input":
            copies[i] = builder.input_of(node, SHUFFLED.format(node.attrs["name"]))
        elif node.type.rowwise:
            inputs = [copies.get(j, builder.value(j)) for j in node.inputs]
            copies[i] = copy_retyped(builder, node, inputs)
    matrix = _build_matrix(builder, last_estimator)
    shuffled_matrix = builder.concat([copies[i] for i in last_estimator.values])
    shuffled_indices = sorted(column_indices)
    unchanged_indices = sorted(set(range(matrix.type.width)) - set(column_indices))
    mixed_matrix = shuffled_matrix
    if unchanged_indices:
        unchanged_columns = _select_columns(builder, matrix, unchanged_indices)
        shuffled_columns = _select_columns(builder, shuffled_matrix, shuffled_indices)
        mixed_matrix = builder.concat([unchanged_columns, shuffled_columns])
    order = np.argsort([*unchanged_indices, *shuffled_indices])
    return _rebuild_outputs(builder, last_estimator, _select_columns(builder, mixed_matrix, order))


def append_estimator(
    last_estimator: LastEstimator, column_indices: Sequence[int], estimator: Any, sparse: bool
) -> tuple[Builder, Outputs]:
    """Replace a model's last estimator with one that was fitted to the columns `column_indices`.

    Return the builder and the outputs of the new model. `sparse` says whether `estimator` was
    fitted to a sparse matrix.
    """
    builder = Builder(last_estimator.program.nodes)
    matrix = _select_columns(builder, _build_matrix(builder, last_estimator), column_indices)
    outputs = import_onto(estimator, replace(Frame.from_value(builder, matrix), sparse=sparse))
    if not isinstance(outputs, Outputs):
        raise UnsupportedModelError(f"a {type(estimator).__name__} predicts nothing")
    return builder, outputs


def _build_matrix(builder: Builder, last_estimator: LastEstimator) -> Value:
    return builder.concat([builder.value(i) for i in last_estimator.values])


def _select_columns(builder: Builder, x: Value, column_indices: Sequence[int] | Array) -> Value:
    indices = np.asarray(column_indices, np.int64)
    is_complete = np.array_equal(indices, np.arange(x.type.width))
    return x if is_complete else builder.op("select", x, indices=indices)


def _rebuild_outputs(builder: Builder, last_estimator: LastEstimator, matrix: Value) -> Program:
    program = last_estimator.program
    values: dict[int, Value] = {}
    column_start = 0
    for i in last_estimator.values:
        width = program.nodes[i].type.width
        values[i] = _select_columns(builder, matrix, np.arange(column_start, column_start + width))
        column_start += width
    output_names = [n for n in ("label", "proba", "score") if n in program.outputs]
    for i in program.find_needed_nodes([program.outputs[n] for n in output_names]):
        node = program.nodes[i]
        if i not in values and node.type.rowwise and any(j in values for j in node.inputs):
            inputs = [values.get(j, builder.value(j)) for j in node.inputs]
            values[i] = copy_retyped(builder, node, inputs)
    output_nodes = {name: program.outputs[name] for name in output_names}
    outputs = {name: values.get(i, builder.value(i)) for name, i in output_nodes.items()}
    return builder.build(outputs, program.labels)


ROUNDS = 3

_TIMED_ROWS = 8_192

Rows = Mapping[str, Array]
"""Maps the inputs of a Program to their values (n,)."""


def compute_output(program: Program, output: str, rows: Rows) -> Array:
    """Compute an output (n, k) of a Program for n rows; labels are returned as class indices."""
    return _make_scorer(program)._score(output, _select_inputs(program, rows), {})


def measure_row_ns(program: Program, output: str, rows: Rows) -> float:
    """Measure the nanoseconds per row of one output on one thread."""
    inputs = {name: values[:_TIMED_ROWS] for name, values in _select_inputs(program, rows).items()}
    row_count = len(next(iter(inputs.values())))
    scorer = _make_scorer(program)
    return time_fastest_run(lambda: scorer._score(output, inputs, {"threads": 1})) / row_count


def time_fastest_run(function: Callable[[], Any]) -> float:
    """Return the time in ns of the fastest of several runs, after a warm-up run."""
    durations = []
    with wait_for_kernels():
        function()
        for _ in range(ROUNDS):
            start = time.perf_counter_ns()
            function()
            durations.append(time.perf_counter_ns() - start)
    return float(min(durations))


def _make_scorer(program: Program) -> Scorer:
    unlabelled_program = replace(program, labels=())
    return Scorer(unlabelled_program, unlabelled_program.features, {})


def _select_inputs(program: Program, rows: Rows) -> dict[str, Array]:
    return {name: np.asarray(rows[name]) for name in program.inputs}


def compute_features(
    last_estimator: LastEstimator, column_indices: Sequence[int], rows: Rows
) -> Any:
    """Compute the columns `column_indices` of the last estimator's matrix for `rows`.

    The result is an array (n, k), or a sparse scipy matrix if the model computes sparse columns.
    """
    blocks = list(_run_in_blocks(_compile_features(last_estimator, column_indices), rows))
    if not isinstance(blocks[0], Csr):
        return np.concatenate(blocks)
    from scipy import sparse  # scikit-learn and the boosters depend on it.

    csr_blocks = [sparse.csr_matrix((p.data, p.indices, p.indptr), shape=p.shape) for p in blocks]
    matrix = sparse.vstack(csr_blocks, format="csr")
    matrix.eliminate_zeros()
    return matrix


def measure_feature_ns(
    last_estimator: LastEstimator, column_indices: Sequence[int], rows: Rows
) -> float:
    compiled = _compile_features(last_estimator, column_indices)
    sample = {name: values[:_TIMED_ROWS] for name, values in rows.items()}
    row_count = len(next(iter(sample.values())))
    return time_fastest_run(lambda: sum(1 for _ in _run_in_blocks(compiled, sample))) / row_count


def _compile_features(
    last_estimator: LastEstimator, column_indices: Sequence[int]
) -> CompiledProgram:
    return load_backend("native").compile(build_feature_program(last_estimator, column_indices))


def _run_in_blocks(compiled: CompiledProgram, rows: Rows, block_size: int = 256) -> Iterator[Any]:
    inputs = {name: rows[name] for name in compiled.program.inputs}
    row_count = len(next(iter(inputs.values())))
    for start in range(0, row_count, block_size):
        block = {name: values[start : start + block_size] for name, values in inputs.items()}
        yield compiled.run(block, (FEATURES,))[FEATURES]
