"""`Overlap`: a batch on a GPU in blocks, with transfers and computation overlapping.

Three streams: rows are copied to pinned memory of the host and sent on one, operators run on the
second, results come back on the third, so the bus works in both directions while the device
computes. Each call has streams of its own; the engine's threads call at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sqlml.backends.row_blocks import columns_of, results_for
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.types import TEXTUAL, Array

# What a GPU says when it fails: out of memory, or gone.


_MEMORY = ("out of memory", "ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a smaller block may do: torch's allocator, CUDA or cuBLAS has no memory left."""
    return any(
        isinstance(e, torch.OutOfMemoryError) or any(m in str(e) for m in _MEMORY)
        for e in _of_torch(error)
    )


def is_lost(error: BaseException) -> bool:
    """Whether the device failed, not the model: each later call on it may fail as well."""
    accelerator: type[Exception] = getattr(torch, "AcceleratorError", torch.OutOfMemoryError)
    return any(
        isinstance(e, accelerator) or "CUDA" in str(e) or "NVIDIA driver" in str(e)
        for e in _of_torch(error)
    )


def lost(error: BaseException, device: torch.device) -> BackendError:
    """The error for a device that failed in the middle of a batch, which then has no result."""
    first = str(error).strip().partition("\n")[0]
    return BackendError(
        f"device {str(device)!r} failed while scoring ({first}); no result of this batch was "
        "returned. Restart the process, or use device='cpu'"
    )


def _of_torch(error: BaseException) -> list[RuntimeError]:
    """The errors of torch: this one, or the one that an operator made this of."""
    return [e for e in (error, error.__cause__) if isinstance(e, RuntimeError)]


# `in_turn`: blocks of rows one after the other, two under way, smaller ones when memory is short.
#
# While block i is computed, block i + 1 is on its way to the device and the results of block i -
# 1 are on their way back; `load` and `start` must therefore return before their work is done.


Loaded = TypeVar("Loaded")
Store = Callable[[], None]
"""Waits for the results of a block and puts them in their place."""


def in_turn(
    rows: int,
    size: int,
    fewest: int,
    load: Callable[[int, int], Loaded],
    start: Callable[[Loaded, int, int], Store],
    release: Callable[[], None],
) -> None:
    """Score rows 0 .. `rows` in blocks of `size`, or less where that is too much.

    `load(a, b)` sends rows a .. b to the device, `start(loaded, a, b)` computes them. Either may
    raise torch's OutOfMemoryError: then the block is halved and restarted, after `release`.

    Raises:
        BackendError: not even `fewest` rows fit.
    """
    begin = 0
    ahead: Loaded | None = None
    behind: Store | None = None
    now: Loaded | None
    made: Store | None
    while begin < rows:
        end = min(begin + size, rows)
        try:
            now = load(begin, end) if ahead is None else ahead
            ahead = load(end, min(end + size, rows)) if end < rows else None
            made = start(now, begin, end)
            if behind is not None:
                behind()
            behind = made
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if size <= fewest:
                raise BackendError(_too_small(fewest)) from error
            now = ahead = made = None  # their memory is what the smaller block needs
            size = max(fewest, size // 2)
        else:
            begin = end
            continue
        if behind is not None:
            behind()
            behind = None
        release()
    if behind is not None:
        behind()


def _too_small(fewest: int) -> str:
    return (
        f"the device has not enough memory for {fewest} rows of this model; free memory on it "
        "(other processes show in nvidia-smi), choose strategy='tt', or use device='cpu'"
    )


SHARE = 4
"""A block may take a quarter of the free memory: two are under way, and other threads come."""

FEWEST_ROWS, SMALL_ROWS, MOST_ROWS = 16, 1 << 16, 1 << 18
"""Blocks of 65,536 rows keep a GPU busy; those beyond 2^18 would leave little to overlap."""

PINNED_BYTES = 64 << 20
"""Most bytes of a block's inputs, which the host keeps in memory that is never swapped."""

Values = dict[int, Any]
Compute = Callable[[Values], Mapping[str, Any]]
"""Inputs by node, on the device (texts on the host) -> outputs by name."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    values: Values
    sent: Any


class Overlap:
    """How batches of one Program run on one GPU."""

    def __init__(self, program: Program, device: torch.device, row_bytes: int) -> None:
        self._program = program
        self._device = device
        self._row_bytes = row_bytes

    def run(
        self,
        inputs: Mapping[str, Array],
        needed: Mapping[str, int],
        outputs: Sequence[str],
        compute: Compute,
    ) -> dict[str, Array]:
        """Score a batch; `needed` maps the names of inputs to their nodes.

        Raises:
            InputTypeError: as `columns_of` does.
            BackendError: the device failed, or does not have enough memory for the smallest block.
        """
        arrays, rows = columns_of(inputs, needed)
        results = results_for(self._program, outputs, rows)
        try:
            stream: Callable[..., Any] = torch.cuda.Stream  # which torch leaves untyped
            to, work, back = (stream(self._device) for _ in range(3))

            def load(begin: int, end: int) -> _Loaded:
                part = {name: a[begin:end] for name, a in arrays.items()}
                values: Values = {}
                with torch.cuda.stream(to):
                    for i in needed.values():
                        node = self._program.nodes[i]
                        array = reference.conform(node, part)
                        textual = node.type.dtype in TEXTUAL
                        values[i] = array if textual else self._send(array)
                    return _Loaded(values, to.record_event())

            def start(loaded: _Loaded, begin: int, end: int) -> Callable[[], None]:
                with torch.cuda.stream(work), torch.inference_mode(), np.errstate(all="ignore"):
                    work.wait_event(loaded.sent)
                    for value in loaded.values.values():
                        if isinstance(value, Tensor):
                            value.record_stream(work)
                    made = {
                        name: value.contiguous() if isinstance(value, Tensor) else value
                        for name, value in compute(loaded.values).items()
                    }
                    done = work.record_event()
                with torch.cuda.stream(back):
                    back.wait_event(done)
                    held = {name: _fetch(value, back) for name, value in made.items()}
                    fetched = back.record_event()

                def store() -> None:
                    fetched.synchronize()
                    for name, value in held.items():
                        given = value.numpy() if isinstance(value, Tensor) else value
                        results[name][begin:end] = given

                return store

            if rows:
                in_turn(rows, self._block(rows, needed), FEWEST_ROWS, load, start, self._release)
            else:
                for i in needed.values():
                    reference.conform(self._program.nodes[i], arrays)
        except BackendError:
            raise
        except Exception as error:
            if not is_lost(error):
                raise
            raise lost(error, self._device) from error
        return results

    def _block(self, rows: int, needed: Mapping[str, int]) -> int:
        """Rows of a block: a batch makes some eight, if they keep the device busy and fit."""
        nodes = [self._program.nodes[i].type for i in needed.values()]
        sent = sum(8 * t.width for t in nodes if t.dtype not in TEXTUAL)
        wanted = min(max(-(-rows // 8), SMALL_ROWS), MOST_ROWS, PINNED_BYTES // max(1, sent))
        room, _ = torch.cuda.mem_get_info(self._device)
        if room // SHARE // self._row_bytes < min(rows, wanted):
            # What torch holds and does not use; it takes 0.3 ms to tell, so it is asked last.
            room += torch.cuda.memory_reserved(self._device)
            room -= torch.cuda.memory_allocated(self._device)
        return int(np.clip(min(wanted, room // SHARE // self._row_bytes), FEWEST_ROWS, None))

    def _send(self, array: Array) -> Tensor:
        """A copy on the device, under way on the current stream."""
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        pinned = torch.empty(array.shape, dtype=dtype, pin_memory=True)
        if array.flags.writeable and array.flags.aligned and min(array.strides) >= 0:
            pinned.copy_(torch.from_numpy(array))  # by several threads
        else:
            np.copyto(pinned.numpy(), array)
        return pinned.to(self._device, non_blocking=True)

    def _release(self) -> None:
        torch.cuda.empty_cache()


def _fetch(value: Any, stream: Any) -> Any:
    """A copy in pinned memory, under way on `stream`; an array of the host is as it is."""
    if not isinstance(value, Tensor):
        return value
    value.record_stream(stream)
    pinned = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    return pinned.copy_(value, non_blocking=True)
