"""`OnnxRuntimeBackend`: run a lowered Program as ONNX graphs, with numpy steps between them.

A graph is built once for a Program, a device and a set of outputs. On CUDA, the constants of the
graph are on the device. The steps before and after a graph run on the host, so explicit bindings of
inputs and outputs would not save copies. onnxruntime has no CUDA kernel for TreeEnsemble and would
run it on the CPU, so trees on CUDA need strategy gemm, tt or ptt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from sqlml.backends.base import explain_unsupported, require_support, touches_sparse_rows
from sqlml.backends.category_lookup import make_encoder
from sqlml.backends.devices import parse_cuda_number
from sqlml.backends.native.stepwise import bind_node
from sqlml.backends.onnxruntime.functions import EMIT, FUNCTIONS
from sqlml.backends.onnxruntime.graph import Graph, Stage, split_into_stages
from sqlml.backends.row_blocks import Batch, allocate_results, measure_row_bytes, run_blocks
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.operators import opaque
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


def find_providers(device: str) -> list[Any]:
    """Return onnxruntime's providers for `device`, which is "cpu", "cuda", "cuda:1" or "auto"."""
    if device == "cpu":
        return ["CPUExecutionProvider"]
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if device == "auto":
        return find_providers("cuda" if has_cuda else "cpu")
    number = parse_cuda_number(device)
    if not has_cuda:
        raise BackendError(
            f"device {device!r} is not available: this onnxruntime is built for the CPU only; use "
            "device='cpu' or 'auto', or run pip install 'sqlml[gpu]' on a machine with an NVIDIA "
            "driver"
        )
    # The default, TF32, rounds the factors of products to 10 bits, with an error near 1e-3.
    options = {"device_id": number or 0, "use_tf32": 0}
    return [("CUDAExecutionProvider", options), "CPUExecutionProvider"]


def open_session_on(model: bytes, device: str) -> Any:
    """Open a session on `device`; raise BackendError if onnxruntime lacks its CUDA libraries."""
    providers = find_providers(device)
    session = opaque.open_session(model, providers)
    if len(providers) > 1 and "CUDAExecutionProvider" not in session.get_providers():
        raise BackendError(
            f"onnxruntime cannot use device {device!r}: its CUDA libraries are missing; run pip "
            "install 'sqlml[gpu]', or use device='cpu'"
        )
    return session


BLOCK_BYTES: Mapping[str, int] = {"cpu": 1 << 20, "cuda": 1 << 30}
"""Maximum memory for the intermediate values of a block; on the CPU, these stay in the cache."""

FEWEST_ROWS, MOST_ROWS = 16, 1 << 20

Values = dict[int, Array]
Run = Callable[[Values], None]
"""A function that runs a stage: it reads values by node index, and adds the stage's results."""


class _OutOfMemory(Exception):
    """A block does not fit into the memory of the device."""


class OnnxRuntimeCompiled:
    """A Program that onnxruntime runs: thread-safe, and pickled as the Program and the device."""

    def __init__(self, program: Program, device: str) -> None:
        self.program = program
        self.device = device
        find_providers(device)
        limit = BLOCK_BYTES["cuda" if device.startswith("cuda") else "cpu"]
        self._block_rows = int(np.clip(limit // measure_row_bytes(program), FEWEST_ROWS, MOST_ROWS))
        self._plans: dict[tuple[str, ...], tuple[dict[str, int], tuple[Run, ...]]] = {}
        self._plan(tuple(program.outputs))

    def run(self, inputs: Batch, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        names = tuple(self.program.outputs) if outputs is None else tuple(outputs)
        needed, plan = self._plan(names)

        def score_block(arrays: Batch) -> dict[str, Array]:
            nodes = {i: self.program.nodes[i] for i in needed.values()}
            values = {i: reference.convert_input(node, arrays) for i, node in nodes.items()}
            if any(not len(value) for value in values.values()):
                # Some kernels of onnxruntime divide by the number of rows.
                return allocate_results(self.program, names, 0)
            with np.errstate(all="ignore"):
                for stage in plan:
                    stage(values)
            return {name: values[self.program.outputs[name]] for name in names}

        block_rows = self._block_rows
        while True:
            try:
                return run_blocks(self.program, inputs, needed, names, block_rows, score_block)
            except _OutOfMemory as error:
                if block_rows <= FEWEST_ROWS:
                    raise BackendError(f"{error}; free memory on it, or use device='cpu'") from None
                block_rows = max(FEWEST_ROWS, block_rows // 2)

    def _plan(self, names: tuple[str, ...]) -> tuple[dict[str, int], tuple[Run, ...]]:
        """Return input nodes by name, and functions that run the stages of outputs `names`."""
        plan = self._plans.get(names)
        if plan is None:  # Two threads may build equal plans.
            program, device = self.program, self.device
            needed_nodes = program.find_needed_nodes(program.outputs[name] for name in names)
            needed = {name: i for name, i in program.inputs.items() if i in needed_nodes}
            stages = split_into_stages(program, names, lambda i: _runs_on_host(program, i))
            make_stage = {True: _make_host_stage, False: _make_graph_stage}
            runs = tuple(make_stage[stage.host](program, stage, device) for stage in stages)
            plan = self._plans[names] = needed, runs
        return plan

    def __reduce__(self) -> tuple[Any, ...]:
        return (OnnxRuntimeCompiled, (self.program, self.device))


def _runs_on_host(program: Program, index: int) -> bool:
    node = program.nodes[index]
    types = [node.type, *(program.nodes[input_index].type for input_index in node.inputs)]
    if node.op in ("accumulate", "tree_ensemble") and node.type.dtype == "float16":
        return True  # onnxruntime would add float16 in float32 and round only once.
    return node.op not in FUNCTIONS or any(t.sparse or t.dtype == "string" for t in types)


def _make_graph_stage(program: Program, stage: Stage, device: str) -> Run:
    graph, names = Graph(), {i: f"n{i}" for i in (*stage.reads, *stage.writes)}
    graph_values = {i: names[i] for i in stage.reads}
    for i in stage.nodes:
        node = program.nodes[i]
        for j in node.inputs:
            if program.nodes[j].op == "constant" and j not in graph_values:
                graph_values[j] = graph.constant(program.nodes[j].attrs["value"])
        types = [program.nodes[j].type for j in node.inputs]
        graph_values[i] = EMIT[node.op](graph, node, [graph_values[j] for j in node.inputs], types)
    for i in stage.writes:
        graph.rename(graph_values[i], names[i])
    inputs = {names[i]: program.nodes[i].type for i in stage.reads}
    outputs = {names[i]: program.nodes[i].type for i in stage.writes}
    session = open_session_on(graph.model(inputs, outputs), device)

    def run(values: Values) -> None:
        feed = {names[i]: np.require(values[i], requirements=("C", "A")) for i in stage.reads}
        try:
            results = session.run(list(outputs), feed)
        except Exception as error:  # onnxruntime's exceptions have no other common base.
            raise _convert_error(error, device) from error
        values.update(zip(stage.writes, results, strict=True))

    return run


def _convert_error(error: Exception, device: str) -> Exception:
    message = f"onnxruntime could not run the graph: {error}"
    if device != "cpu" and any(text in message for text in ("Failed to allocate", "out of memory")):
        return _OutOfMemory(f"device {device!r} has not enough memory ({message})")
    if device != "cpu" and ("CUDA" in message or "CUBLAS" in message):
        return BackendError(f"device {device!r} failed while scoring; use device='cpu' ({message})")
    return BackendError(message)


def _make_host_stage(program: Program, stage: Stage, device: str) -> Run:
    nodes = program.nodes
    steps = [(i, nodes[i].inputs, _make_host_step(program, i, device)) for i in stage.nodes]
    read_nodes = {j for _, reads, _ in steps for j in reads}
    constants = {j: nodes[j].attrs["value"] for j in read_nodes if nodes[j].op == "constant"}

    def run(values: Values) -> None:
        for i, reads, function in steps:
            values[i] = function([constants[j] if j in constants else values[j] for j in reads])

    return run


def _make_host_step(program: Program, i: int, device: str) -> Callable[[Sequence[Array]], Array]:
    node = program.nodes[i]
    if touches_sparse_rows(program, i):
        run = bind_node(program, i).function
        return lambda args: run(*args)
    if node.op == "encode":
        encode = make_encoder(node.attrs["categories"], node.attrs["missing"])
        return lambda args: encode(args[0])
    if node.op == "onnx_graph":
        return _make_onnx_graph_function(node.attrs, device)
    function, attrs = reference.FUNCTIONS[node.op], node.attrs
    return lambda args: function(args, attrs)


def _make_onnx_graph_function(
    attrs: Mapping[str, Any], device: str
) -> Callable[[Sequence[Array]], Array]:
    session = open_session_on(attrs["model"].tobytes(), device)

    def run(args: Sequence[Array]) -> Array:
        feed = opaque.make_graph_feed(args, attrs)
        try:
            (result,) = session.run([attrs["output"]], feed)
        except Exception as error:
            raise _convert_error(error, device) from error
        return opaque.check_graph_result(result, args[0].shape[0], attrs)

    return run


class OnnxRuntimeBackend:
    """The backend that runs Programs as ONNX graphs; trees are TreeEnsemble nodes, or lowered."""

    def supports(self, program: Program) -> str | None:
        excluded = {op for op, owner in opaque.OWNING_BACKENDS.items() if owner != "onnxruntime"}
        for node in program.nodes:
            if node.op == "tree_ensemble" and Ensemble.of(node.attrs).has_categories:
                return "trees that test for categories need strategy gemm, tt or ptt"
        return explain_unsupported(program, (set(reference.FUNCTIONS) | {"input"}) - excluded)

    def compile(
        self, program: Program, *, device: str = "cpu", strategy: str = "traverse"
    ) -> OnnxRuntimeCompiled:
        require_support("onnxruntime", self.supports(program))
        return OnnxRuntimeCompiled(program, device)
