"""`TorchBackend`: run a lowered Program with torch, with the constants on the device.

Operators are called one by one. torch.compile does not pay off on the CPU (torch 2.13, one thread):
compiling takes 2 to 22 s, after which most models ran 0.4 to 1.7 times as fast, with different last
digits. On a GPU, strategy `fused` has the effect of a compiled graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sqlml.backends.base import explain_unsupported, require_support, touches_sparse_rows
from sqlml.backends.category_lookup import make_encoder
from sqlml.backends.devices import parse_cuda_number
from sqlml.backends.native.stepwise import bind_node
from sqlml.backends.row_blocks import Batch, Schedules, Step, measure_row_bytes, run_blocks
from sqlml.backends.torch import gpu_transfers
from sqlml.backends.torch.functions import FUNCTIONS
from sqlml.backends.torch.fused_trees import bind_trees as bind_fused
from sqlml.backends.torch.fused_trees import explain_unavailable
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.types import TEXTUAL, Array


def find_device(name: str) -> torch.device:
    """Return the torch device for "cpu", "cuda", "cuda:1" or "auto", which prefers a GPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    number = parse_cuda_number(name)
    if not torch.cuda.is_available():
        cpu_only = "this torch is built for the CPU only"
        reason = "torch sees no GPU" if torch.version.cuda else cpu_only
        raise BackendError(
            f"device {name!r} is not available: {reason}; use device='cpu' or 'auto', or run pip "
            "install 'sqlml[gpu]' on a machine with an NVIDIA driver"
        )
    if number is not None and number >= torch.cuda.device_count():
        raise BackendError(
            f"device {name!r} is not available: torch sees {torch.cuda.device_count()} GPU(s), "
            "numbered from 0"
        )
    return torch.device(name)


HOST_OPERATORS = frozenset(
    ("couple", "encode", "encode_hashed", "fill", "hash_categories", "knn_impute")
    + ("look_up_combinations", "mod", "nearest")
)
"""Operators that run in numpy on any device. For example, torch cannot reproduce numpy's choice
among equally near rows, and torch's `remainder` returns NaN if the quotient overflows."""

BLOCK_BYTES = 4 << 20
"""Maximum memory for the intermediate values of a block on the CPU. They then stay in the cache:
forests of 100 trees and 10,000 rows ran 1.1 to 1.7 times as fast as with 8 MB."""

FEWEST_ROWS, MOST_ROWS = 16, 1 << 20


class TorchCompiled:
    """A Program that torch runs: thread-safe, and pickled as the Program and the device name."""

    def __init__(self, program: Program, device: str) -> None:
        self.program = program
        self.device = device
        self._device = find_device(device)
        row_bytes = measure_row_bytes(program)
        self._block_rows = int(np.clip(BLOCK_BYTES // row_bytes, FEWEST_ROWS, MOST_ROWS))
        self._overlap: gpu_transfers.Overlap | None = None
        if self._device.type == "cuda":
            # A fused kernel has up to two columns of ranks for each input column.
            types = [program.nodes[n.inputs[0]].type for n in program if n.op == "tree_ensemble"]
            row_bytes += sum(8 * t.width for t in types)
            self._overlap = gpu_transfers.Overlap(program, self._device, row_bytes)
        self._constants: dict[int, Any] = {}
        self._steps: dict[int, Step] = {}
        try:
            self._bind_all()
        except RuntimeError as error:
            if gpu_transfers.is_out_of_memory(error):
                raise BackendError(
                    f"the model does not fit the memory of device {device!r}; free memory on it "
                    "(other processes show in nvidia-smi), or use device='cpu'"
                ) from error
            if self._overlap is not None and gpu_transfers.is_device_lost(error):
                raise gpu_transfers.make_lost_device_error(error, self._device) from error
            raise
        self._schedule_of = Schedules(program, self._steps, self._constants).find

    def _bind_all(self) -> None:
        program = self.program
        with torch.inference_mode():
            for i, node in enumerate(program.nodes):
                if node.op == "input":
                    continue
                function = self._bind(program, i)
                if node.type.rowwise:
                    self._steps[i] = Step(i, node.inputs, function)
                else:
                    self._constants[i] = function(*[self._constants[j] for j in node.inputs])
        if self._overlap is not None:
            torch.cuda.synchronize(self._device)  # Other streams read the constants.

    def run(self, inputs: Batch, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        names = tuple(self.program.outputs) if outputs is None else tuple(outputs)
        schedule = self._schedule_of(names)

        def compute(values: dict[int, Any]) -> dict[str, Any]:
            values.update(self._constants)
            schedule.run(values)
            return {name: values[self.program.outputs[name]] for name in names}

        if self._overlap is not None:
            return self._overlap.run(inputs, schedule.inputs, names, compute)

        def score(arrays: Batch) -> dict[str, Array]:
            values: dict[int, Any] = {}
            for i in schedule.inputs.values():
                node = self.program.nodes[i]
                array = reference.convert_input(node, arrays)
                values[i] = array if node.type.dtype in TEXTUAL else self._put(array)
            with torch.inference_mode(), np.errstate(all="ignore"):
                return {name: _to_host(value) for name, value in compute(values).items()}

        return run_blocks(self.program, inputs, schedule.inputs, names, self._block_rows, score)

    def run_tensors(self, inputs: Mapping[str, Tensor], output: str) -> Tensor:
        """Score tensors on the device, in torch's current stream; return the tensor `output`."""
        schedule = self._schedule_of((output,))
        values = {i: inputs[name] for name, i in schedule.inputs.items()} | self._constants
        with torch.inference_mode(), np.errstate(all="ignore"):
            schedule.run(values)
        result: Tensor = values[self.program.outputs[output]]
        return result

    def _bind(self, program: Program, i: int) -> Callable[..., Any]:
        node = program.nodes[i]
        if touches_sparse_rows(program, i):
            run = bind_node(program, i).function
            put = (lambda rows: rows) if node.type.sparse else self._put
            return lambda *args: put(run(*[_to_host(a) for a in args]))
        is_text = "string" in (node.type.dtype, *(program.nodes[j].type.dtype for j in node.inputs))
        if node.op == "tree_ensemble":
            return bind_fused(node, self._put)
        # Expanded distances must be rounded as in numpy.
        if not is_text and node.op not in HOST_OPERATORS and not node.attrs.get("expanded", False):
            return FUNCTIONS[node.op](node, self._put)
        if node.op == "encode":
            encode = make_encoder(node.attrs["categories"], node.attrs["missing"])
            return lambda x: self._put(encode(_to_host(x)))
        function = reference.FUNCTIONS[node.op]
        put = (lambda array: array) if node.type.dtype == "string" else self._put
        return lambda *args: put(function([_to_host(a) for a in args], node.attrs))

    def _put(self, array: Array) -> Tensor:
        # torch rejects negative strides, and warns about read-only arrays.
        can_share = array.flags.writeable and array.flags.aligned and min(array.strides) >= 0
        return torch.from_numpy(array if can_share else array.copy()).to(self._device)

    def __reduce__(self) -> tuple[Any, ...]:
        return (TorchCompiled, (self.program, self.device))


def _to_host(value: Tensor | Array) -> Array:
    return value.cpu().numpy() if isinstance(value, Tensor) else value


class TorchBackend:
    """The backend that runs Programs with torch; trees are lowered, or fused on a GPU."""

    def supports(self, program: Program) -> str | None:
        nodes = enumerate(program.nodes)
        sparse_ops = {node.op for i, node in nodes if touches_sparse_rows(program, i)}
        operators = {*FUNCTIONS, *HOST_OPERATORS, "input", *(sparse_ops & set(reference.FUNCTIONS))}
        reason = explain_unsupported(program, operators | {"tree_ensemble"})
        if reason is None and any(node.op == "tree_ensemble" for node in program):
            missing_feature = explain_unavailable()
            if missing_feature is not None:
                reason = f"no function for operator tree_ensemble: {missing_feature}"
        return reason

    def compile(
        self, program: Program, *, device: str = "cpu", strategy: str = "traverse"
    ) -> TorchCompiled:
        hint = "; it runs programs that were lowered (strategy gemm, tt or ptt)"
        require_support("torch", self.supports(program), hint)
        if device == "auto" and find_device(device).type != "cpu":
            with suppress(BackendError):  # The GPU may be full or broken.
                return TorchCompiled(program, "cuda")
            device = "cpu"
        return TorchCompiled(program, device)
