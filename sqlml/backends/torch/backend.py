"""`TorchBackend`: run a lowered Program with torch, its constants resident on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sqlml.backends.base import sparse, unsupported
from sqlml.backends.blocks import row_bytes, run_blocks
from sqlml.backends.encoding import encoder
from sqlml.backends.native.backend import bind
from sqlml.backends.schedule import Schedule, Step, schedule
from sqlml.backends.torch.devices import device_of
from sqlml.backends.torch.functions import FUNCTIONS
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.types import TEXTUAL, Array

HOST = frozenset({"fill", "encode", "encode_hashed"})
"""Operators that run in numpy wherever the tensors are; so do all that touch strings."""

BLOCK_BYTES: Mapping[str, int] = {"cpu": 8 << 20, "cuda": 1 << 30}
"""Memory that the intermediate values of one block may take, by kind of device."""

FEWEST_ROWS, MOST_ROWS = 16, 1 << 20


class TorchCompiled:
    """A Program that torch runs. Thread-safe; it pickles as its Program and its device's name."""

    def __init__(self, program: Program, device: str) -> None:
        self.program = program
        self.device = device
        self._device = device_of(device)
        limit = BLOCK_BYTES[self._device.type]
        self._rows = int(np.clip(limit // row_bytes(program), FEWEST_ROWS, MOST_ROWS))
        self._constants: dict[int, Any] = {}
        self._steps: dict[int, Step] = {}
        with torch.inference_mode():
            for i, node in enumerate(program.nodes):
                if node.op == "input":
                    continue
                function = self._bind(program, i)
                if node.type.rowwise:
                    self._steps[i] = Step(i, node.inputs, function)
                else:
                    self._constants[i] = function(*[self._constants[j] for j in node.inputs])
        self._schedules = {
            names: schedule(program, self._steps, names, self._constants)
            for names in [tuple(program.outputs), *((name,) for name in program.outputs)]
        }

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """See `Compiled.run`."""
        names = tuple(self.program.outputs) if outputs is None else tuple(outputs)
        plan = self._schedules.get(names)
        if plan is None:
            plan = schedule(self.program, self._steps, names, self._constants)

        def block(arrays: Mapping[str, Array]) -> dict[str, Array]:
            return self._run_block(arrays, plan, names)

        return run_blocks(self.program, inputs, plan.inputs, names, self._rows, block)

    def _run_block(
        self, arrays: Mapping[str, Array], plan: Schedule, outputs: Sequence[str]
    ) -> dict[str, Array]:
        values = dict(self._constants)
        for i in plan.inputs.values():
            node = self.program.nodes[i]
            array = reference.conform(node, arrays)
            values[i] = array if node.type.dtype in TEXTUAL else self._put(array)
        with torch.inference_mode(), np.errstate(all="ignore"):
            plan.run(values)
            return {name: _to_host(values[self.program.outputs[name]]) for name in outputs}

    def _bind(self, program: Program, i: int) -> Callable[..., Any]:
        node = program.nodes[i]
        if sparse(program, i):
            run = bind(program, i).function
            if node.type.sparse:
                return lambda *args: run(*[_to_host(a) for a in args])
            return lambda *args: self._put(run(*[_to_host(a) for a in args]))
        strings = "string" in (node.type.dtype, *(program.nodes[j].type.dtype for j in node.inputs))
        if not strings and node.op not in HOST:
            return FUNCTIONS[node.op](node, self._put)
        attrs = node.attrs
        if node.op == "encode":
            encode = encoder(attrs["categories"], attrs["missing"])
            return lambda x: self._put(encode(_to_host(x)))
        function = reference.FUNCTIONS[node.op]
        if node.type.dtype == "string":
            return lambda *args: function([_to_host(a) for a in args], attrs)
        return lambda *args: self._put(function([_to_host(a) for a in args], attrs))

    def _put(self, array: Array) -> Tensor:
        # torch takes no negative strides, and warns of arrays that may not be written to.
        fits = array.flags.writeable and array.flags.aligned and min(array.strides) >= 0
        if not fits:
            array = array.copy()
        return torch.from_numpy(array).to(self._device)

    def __reduce__(self) -> tuple[Any, ...]:
        return (TorchCompiled, (self.program, self.device))


def _to_host(value: Tensor | Array) -> Array:
    return value.cpu().numpy() if isinstance(value, Tensor) else value


class TorchBackend:
    """Runs tensor operators; trees by the strategies of Hummingbird."""

    name = "torch"
    strategies: tuple[str, ...] = ("gemm", "tt", "ptt")

    def supports(self, program: Program) -> str | None:
        """See `Backend.supports`."""
        host = {n.op for i, n in enumerate(program.nodes) if sparse(program, i)}
        known = set(FUNCTIONS) | HOST | (host & set(reference.FUNCTIONS)) | {"input"}
        return unsupported(program, known)

    def compile(self, program: Program, *, device: str = "cpu") -> TorchCompiled:
        """See `Backend.compile`."""
        reason = self.supports(program)
        if reason is not None:
            raise BackendError(
                f"the torch backend cannot run this model: {reason}; "
                "it runs programs that were lowered (strategy gemm, tt or ptt)"
            )
        return TorchCompiled(program, device)
