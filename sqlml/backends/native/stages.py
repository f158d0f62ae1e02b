"""`Stages`: compute an output by calls of the VM (register machine), tree and text kernels.

The VM prepares the columns that an ensemble reads: it imputes, scales, and makes one-hot columns.
The tree kernel computes margins, and the VM computes the output from the margins. Votes and stacks
have several such stages. A stage reads the rows or the result of one earlier stage. If a stage
needs several values, they are first copied side by side. Some stages read string columns: linear
layers over sparse rows, hashes of strings, and sparse values of strings that become dense.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.kernel_calls import Call, RowKernel, Rows
from sqlml.backends.native.operators import KERNEL_FLOATS, ColumnSource
from sqlml.backends.native.partitions import PartitionScorer
from sqlml.backends.native.rows.column_kernels import call_convert, call_take
from sqlml.backends.native.rows.distance_kernels import make_nearest_kernel, make_pairwise_kernel
from sqlml.backends.native.rows.number_codes import make_code_kernel
from sqlml.backends.native.rows.piecewise_kernels import make_search_kernel
from sqlml.backends.native.rows.sparse import call_add, call_add_products, call_fill
from sqlml.backends.native.stepwise import StepRunner
from sqlml.backends.native.text.city_hash import call_hash_texts
from sqlml.backends.native.text.linear_of_texts import TextSums
from sqlml.backends.native.trees.linear_leaves import make_leaf_model_kernel
from sqlml.backends.native.trees.native_forest import Forest
from sqlml.backends.native.vm.assemble import MAX_WIDTH
from sqlml.backends.native.vm.whole_output import VmFiller
from sqlml.backends.row_blocks import Step
from sqlml.ir.program import Node, Program, freeze
from sqlml.types import ROWS, TEXTUAL, Array, DType, TensorType, numpy_dtype


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A block of `row_count` rows, for which calls are made.

    `buffers` yields the numbers of free buffers. `texts` maps string inputs to the addresses where
    the strings begin and where they end.
    """

    buffers: Iterator[int]
    row_count: int
    texts: Mapping[int, tuple[Rows, Rows]]


_MakeCalls = Callable[[Sequence[Rows], Rows, _Block], Iterable[Call]]
"""Returns the calls of a stage, given the stage's inputs, the result, and the block."""


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """Computes the value (n, width) of `node` from the columns `reads` of earlier values.

    If `is_joined`, the stage gets these columns side by side, as a single float64 value. Otherwise,
    it gets a value for each of `reads`, whose columns must be consecutive. `takes_any_stride` tells
    whether the result may be columns of wider rows.
    """

    node: int
    reads: tuple[ColumnSource, ...]
    width: int
    dtype: np.dtype[Any]
    make_calls: _MakeCalls
    forest: Forest | None = None
    is_joined: bool = False
    takes_any_stride: bool = False

    @property
    def joined_width(self) -> int:
        return sum(source.columns.size for source in self.reads)

    def list_joined_columns(self) -> Iterator[tuple[ColumnSource, slice]]:
        """Yield each source, and where its columns are among the joined columns."""
        start = 0
        for source in self.reads:
            yield source, slice(start, start + source.columns.size)
            start += source.columns.size


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """The stages of an output; `rows` and `texts` are the nodes of the matrix and string inputs."""

    rows: int
    texts: tuple[int, ...]
    stages: tuple[_Stage, ...]

    @classmethod
    def of(cls, steps: StepRunner, output: str) -> Stages | None:
        """Return the stages of `output`, or None if no stages compute it or the VM alone does."""
        program, output_node = steps.program, steps.program.outputs[output]
        dtypes = {i: program.nodes[i].type.dtype for i in program.inputs.values()}
        rows, *other_inputs = [i for i, dtype in dtypes.items() if dtype not in TEXTUAL] or [-1]
        texts = tuple(i for i, dtype in dtypes.items() if dtype == "string")
        if other_inputs or rows < 0 or len(texts) + 1 < len(dtypes):
            return None
        computed, stages = {rows}, list[_Stage]()

        def add_stage(stage: _Stage | None) -> bool:
            if stage is None:
                return False
            stages.append(stage)
            computed.add(stage.node)
            return True

        def compute(node: int) -> bool:
            return node in computed or add_stage(_make_vm_stage(program, node, computed))

        for step in steps.schedule_of((output,)).steps:
            stage = _make_stage(program, step, computed)
            if stage is not None:
                can_compute = all(compute(source.node) for source in stage.reads)
                if not (can_compute and add_stage(stage)):
                    return None
        return cls(rows, texts, tuple(stages)) if stages and compute(output_node) else None

    def find_large_batch(self) -> float:
        """Return the row count from which `make_calls` returns the calls for large batches."""
        return min(
            (s.forest.lockstep_limit for s in self.stages if s.forest is not None), default=0
        )

    def make_calls(
        self,
        x: Rows,
        out: Rows,
        buffers: Iterator[int],
        row_count: int,
        texts: Sequence[tuple[Rows, Rows]] = (),
    ) -> tuple[Call, ...]:
        """Return the calls that fill `out` from contiguous rows `x`, for a block of rows.

        For each string column, `texts` holds the addresses where strings begin and where they end.
        """
        block = _Block(buffers, row_count, dict(zip(self.texts, texts, strict=True)))
        values, calls, result = {self.rows: x}, list[Call](), x
        joined_rows = {
            stage.node: Rows(next(buffers), np.dtype(np.float64), stage.joined_width)
            for stage in self.stages
            if stage.is_joined
        }
        places = self._find_places()
        for stage in self.stages:
            if stage is self.stages[-1] and stage.dtype == out.dtype:
                result = out
            elif stage.node in places:
                reader, columns = places[stage.node]
                result = joined_rows[reader].select(columns)
            else:
                result = Rows(next(buffers), stage.dtype, stage.width)
            if stage.is_joined:
                inputs = [joined_rows[stage.node]]
                for source, columns in stage.list_joined_columns():
                    if source.node not in places:
                        target = inputs[0].select(columns)
                        calls.append(call_take(values[source.node], source.columns, target))
            else:
                inputs = [_select(values[source.node], source.columns) for source in stage.reads]
            calls += stage.make_calls(inputs, result, block)
            values[stage.node] = result
        if result is not out:
            calls.append(call_convert(result.flatten(), out.flatten()))
        return tuple(calls)

    def _find_places(self) -> Mapping[int, tuple[int, slice]]:
        """Map stages that may write to the joined columns of their only reader to this place.

        A place is the node of the reader, and the columns.
        """
        places: dict[int, tuple[int, slice]] = {}
        readers = Counter(source.node for stage in self.stages for source in stage.reads)
        widths = {stage.node: stage.width for stage in self.stages if stage.takes_any_stride}
        for stage in self.stages:
            for source, columns in stage.list_joined_columns() if stage.is_joined else ():
                is_whole = np.array_equal(source.columns, np.arange(widths.get(source.node, 0)))
                if is_whole and readers[source.node] == 1:
                    places[source.node] = (stage.node, columns)
        return places


def _select(rows: Rows, columns: Array) -> Rows:
    """Return consecutive columns of `rows`."""
    if columns.size == rows.width:
        return rows
    return rows.select(slice(int(columns[0]), int(columns[-1]) + 1))


_KERNEL_OPERATORS = frozenset(
    "bspline hash_categories interpolate look_up_combinations ndtr ndtri sum tree_contributions "
    "weighted_median".split()
)
"""Operators that the VM lacks. Their kernels compute each row from one row of the input."""


def _read_all(program: Program, nodes: Iterable[int]) -> tuple[ColumnSource, ...]:
    widths = ((i, math.prod(program.nodes[i].type.shape[1:])) for i in nodes)
    return tuple(ColumnSource(i, np.arange(width)) for i, width in widths)


def _make_stage(program: Program, step: Step, computed: Collection[int]) -> _Stage | None:
    """Return the stage of a step that the VM cannot run, or None if no kernel can run the step.

    `computed` are the nodes that earlier stages compute.
    """
    i, forest = step.node, step.function
    if isinstance(forest, Forest):
        make_calls = _make_tree_calls(forest)
        reads = _read_all(program, step.inputs)
        return _Stage(i, reads, forest.outputs, forest.dtype, make_calls, forest)
    node = program.nodes[i]
    if isinstance(step.function, PartitionScorer):
        if any(program.nodes[j].type.dtype in TEXTUAL for j in node.inputs):
            return None
        make_partition_calls = _make_partition_calls(step.function)
        reads = tuple(_find_columns(program, j, computed) for j in step.inputs)
        dtype = np.dtype(node.type.dtype if node.type.dtype in KERNEL_FLOATS else np.float64)
        width = step.function.width
        return _Stage(i, reads, width, dtype, make_partition_calls, is_joined=True)
    if not node.inputs:
        return None
    source_node = node.inputs[0]
    source = program.nodes[source_node]
    if node.op == "hash_categories" and source.type.dtype == "string":
        if source.op != "input":
            return None
        return _Stage(i, (), 1, np.dtype(np.float64), _make_hash_calls(source_node))
    if node.op == "densify":
        text_sums = TextSums.of(program, source_node)
        start = np.full(node.type.width, node.attrs["fill"], numpy_dtype(node.type.dtype))
        return None if text_sums is None else _make_sparse_stage(program, i, (text_sums,), start)
    if node.op == "linear" and source.type.sparse:
        return _make_sparse_linear_stage(program, i)
    if node.op == "linear_leaves" and node.type.dtype == "float64":
        kernel = make_leaf_model_kernel(node.attrs)
        make_calls = _make_kernel_calls(kernel)
        reads = _read_all(program, node.inputs)
        return _Stage(i, reads, kernel.width, kernel.dtype, make_calls, is_joined=True)
    if node.op == "encode" and source.type.dtype in (*KERNEL_FLOATS, "int64"):
        reads = (_find_columns(program, step.inputs[0], computed),)
        make_calls = _make_encode_calls(node)
        return _Stage(i, reads, 1, np.dtype(np.float64), make_calls, takes_any_stride=True)
    row_kernel = _make_row_kernel(step, node, source.type.dtype)
    if row_kernel is None or row_kernel.dtype.name not in KERNEL_FLOATS:
        return None
    return _Stage(
        i,
        (_find_columns(program, step.inputs[0], computed),),
        row_kernel.width,
        row_kernel.dtype,
        _make_kernel_calls(row_kernel),
        takes_any_stride=row_kernel.takes_any_stride,
    )


def _find_columns(program: Program, i: int, computed: Collection[int]) -> ColumnSource:
    """Return the consecutive columns of a computed node that node i selects, or node i itself."""
    node, (itself,) = program.nodes[i], _read_all(program, [i])
    if node.op != "select" or i in computed or node.inputs[0] not in computed:
        return itself
    indices: Array = node.attrs["indices"]
    is_consecutive = indices.size > 0 and (np.diff(indices) == 1).all()
    return ColumnSource(node.inputs[0], indices) if is_consecutive else itself


def _make_row_kernel(step: Step, node: Node, dtype: DType) -> RowKernel | None:
    """Return the kernel of an operator that the VM lacks, for rows of `dtype`, or None."""
    attrs = node.attrs
    if dtype not in KERNEL_FLOATS:
        return None
    match node.op:
        case "nearest":
            return make_nearest_kernel(attrs)
        case "pairwise" if attrs["metric"] not in ("dot", "sqeuclidean"):
            return make_pairwise_kernel(attrs)
        case "search_sorted":
            edges = (attrs["edges"], attrs["offsets"], attrs["side"])
            return make_search_kernel(*edges, np.dtype(np.float64))
    is_wide = node.op == "linear" and dtype == "float32" and attrs["weights"].shape[0] > MAX_WIDTH
    has_kernel = node.op in _KERNEL_OPERATORS or is_wide
    kernel = step.function if has_kernel else None
    return kernel if isinstance(kernel, RowKernel) else None


def _make_tree_calls(forest: Forest) -> _MakeCalls:
    return lambda values, out, block: forest.make_calls(
        values[0], out, block.buffers, block.row_count
    )


def _make_partition_calls(scorer: PartitionScorer) -> _MakeCalls:
    return lambda values, out, block: [scorer.make_call(values[0], out)]


def _make_encode_calls(node: Node) -> _MakeCalls:
    # Integers are float64 or int64 rows, depending on the kernel that computes them.
    categories, missing = node.attrs["categories"], node.attrs["missing"]
    return lambda values, out, block: [
        make_code_kernel(categories, missing, values[0].dtype).make_call(values[0], out)
    ]


def _make_hash_calls(text_node: int) -> _MakeCalls:
    return lambda _, out, block: [call_hash_texts(*block.texts[text_node], out)]


def _make_kernel_calls(kernel: RowKernel) -> _MakeCalls:
    def make_calls(values: Sequence[Rows], out: Rows, block: _Block) -> Iterator[Call]:
        if kernel.is_zeroed:
            yield call_fill(np.zeros(out.width, out.dtype), out)
        yield kernel.make_call(values[0], out)

    return make_calls


_Summand = TextSums | tuple[int, Array]
"""A summand of a sparse layer: sums over strings, or a dense node with weights (k, m)."""


def _make_sparse_linear_stage(program: Program, node_index: int) -> _Stage | None:
    node = program.nodes[node_index]
    weights, bias = node.attrs["weights"], node.attrs["bias"]
    source = program.nodes[node.inputs[0]]
    summands: list[_Summand] = []
    start = 0
    for j in source.inputs if source.op == "concat" else node.inputs[:1]:
        input_type = program.nodes[j].type
        input_weights = weights[start : start + input_type.width]
        start += input_type.width
        summand: _Summand | None = (j, np.ascontiguousarray(input_weights))
        if input_type.sparse:
            summand = TextSums.of(program, j, input_weights)
        if summand is None or input_type.dtype != node.type.dtype:
            return None
        summands.append(summand)
    return _make_sparse_stage(program, node_index, summands, np.zeros_like(bias), bias)


def _make_sparse_stage(
    program: Program,
    node: int,
    summands: Sequence[_Summand],
    start: Array,
    bias: Array | None = None,
) -> _Stage:
    """Return a stage that adds the summands in order to `start` (m,), and then `bias` (m,)."""
    dense_nodes = (summand[0] for summand in summands if isinstance(summand, tuple))
    reads = _read_all(program, dense_nodes)

    def make_calls(values: Sequence[Rows], out: Rows, block: _Block) -> Iterator[Call]:
        dense_rows = iter(values)
        yield call_fill(start, out)
        for summand in summands:
            if isinstance(summand, TextSums):
                yield from summand.make_calls(*block.texts[summand.node], out)
            else:
                yield call_add_products(next(dense_rows), summand[1], out)
        if bias is not None:
            yield call_add(bias, out)

    return _Stage(node, reads, start.size, start.dtype, make_calls)


def _make_vm_stage(program: Program, node: int, computed: Collection[int]) -> _Stage | None:
    """Return a stage where the VM computes `node` from `computed` nodes, or None if impossible."""
    needed, reads, nodes_to_compute = {node}, set[int](), list[int]()
    for i in range(node, -1, -1):
        if i not in needed:
            continue
        if i in computed:
            reads.add(i)
        elif program.nodes[i].op == "input":
            return None
        else:
            nodes_to_compute.append(i)
            needed.update(program.nodes[i].inputs)
    if not reads:
        return None
    nodes_to_compute.reverse()
    sources = [_find_used_columns(program, i, nodes_to_compute) for i in sorted(reads)]
    if len(sources) == 1:  # The VM reads the value as it is.
        sources = list(_read_all(program, reads))
    nodes, positions = _make_inputs(program, sources)
    columns_of_source = {source.node: source.columns for source in sources}
    for i in nodes_to_compute:
        old, attrs = program.nodes[i], program.nodes[i].attrs
        if old.op == "select" and old.inputs[0] in columns_of_source:
            columns = columns_of_source[old.inputs[0]]
            attrs = freeze({"indices": np.searchsorted(columns, attrs["indices"])})
        positions[i] = len(nodes)
        nodes.append(Node(old.op, tuple(positions[j] for j in old.inputs), attrs, old.type))
    segment = Program(tuple(nodes), {_INPUT_NAME: 0}, {_INPUT_NAME: positions[node]})
    kernel = VmFiller.of(segment, _INPUT_NAME)
    if kernel is None:
        return None
    return _Stage(
        node,
        tuple(sources),
        kernel.width,
        kernel.dtype,
        lambda values, out, block: kernel.make_calls(values[0], out, block.buffers),
        is_joined=len(sources) > 1,
    )


def _find_used_columns(program: Program, i: int, readers: Sequence[int]) -> ColumnSource:
    """Return the columns of node i that `readers` need: all, unless they only select columns."""
    (everything,) = _read_all(program, [i])
    reading_nodes = [program.nodes[j] for j in readers if i in program.nodes[j].inputs]
    if not reading_nodes or any(reader.op != "select" for reader in reading_nodes):
        return everything
    indices = np.unique(np.concatenate([reader.attrs["indices"] for reader in reading_nodes]))
    return ColumnSource(i, indices.astype(np.int64))


_INPUT_NAME = "rows"


def _make_inputs(
    program: Program, sources: Sequence[ColumnSource]
) -> tuple[list[Node], dict[int, int]]:
    """Return nodes for the columns of `sources`, and map the nodes of the sources to them."""

    def make_input(input_type: TensorType) -> Node:
        attrs = {"name": _INPUT_NAME, "dtype": input_type.dtype, "width": input_type.width}
        return Node("input", (), freeze(attrs), input_type)

    types = [program.nodes[source.node].type for source in sources]
    if len(types) == 1 and len(types[0].shape) == 2 and types[0].dtype in KERNEL_FLOATS:
        return [make_input(types[0])], {sources[0].node: 0}
    # A float32 is exact as a float64, and so are the integers that a search returns.
    width = sum(source.columns.size for source in sources)
    nodes, start = [make_input(TensorType("float64", (ROWS, width)))], 0
    positions: dict[int, int] = {}
    for source, source_type in zip(sources, types, strict=True):
        stop = start + source.columns.size
        indices = freeze({"indices": np.arange(start, stop)})
        start = stop
        flat_type = TensorType(source_type.dtype, (ROWS, source.columns.size))
        nodes.append(Node("select", (0,), indices, flat_type))
        if len(source_type.shape) > 2:
            shape = freeze({"shape": source_type.shape[1:]})
            nodes.append(Node("reshape", (len(nodes) - 1,), shape, source_type))
        positions[source.node] = len(nodes) - 1
    return nodes, positions
