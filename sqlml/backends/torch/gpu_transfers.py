"""`Overlap`: score a batch on a GPU in blocks, with transfers that overlap computation.

Rows are sent on one stream, operators run on a second stream, and results return on a third, so
data crosses the bus in both directions at a time. Each thread of the engine has its own streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sqlml.backends.row_blocks import allocate_results, collect_columns
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.program import Node, Program
from sqlml.types import TEXTUAL, Array

_MEMORY_MESSAGES = ("out of memory", "ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if torch's allocator, CUDA or cuBLAS ran out of memory."""
    return any(
        isinstance(e, torch.OutOfMemoryError) or any(text in str(e) for text in _MEMORY_MESSAGES)
        for e in _list_torch_errors(error)
    )


def is_device_lost(error: BaseException) -> bool:
    """Return True if the device failed, so that later calls on the device may also fail."""
    accelerator: type[Exception] = getattr(torch, "AcceleratorError", torch.OutOfMemoryError)
    return any(
        isinstance(e, accelerator) or "CUDA" in str(e) or "NVIDIA driver" in str(e)
        for e in _list_torch_errors(error)
    )


def make_lost_device_error(error: BaseException, device: torch.device) -> BackendError:
    first_line = str(error).strip().partition("\n")[0]
    return BackendError(
        f"device {str(device)!r} failed while scoring ({first_line}); no result of this batch was "
        "returned. Restart the process, or use device='cpu'"
    )


def _list_torch_errors(error: BaseException) -> list[RuntimeError]:
    return [e for e in (error, error.__cause__) if isinstance(e, RuntimeError)]


Loaded = TypeVar("Loaded")
Store = Callable[[], None]
"""A function that waits for the results of a block and writes them to the batch's results."""


def run_in_blocks(
    rows: int,
    block_rows: int,
    min_rows: int,
    load: Callable[[int, int], Loaded],
    start: Callable[[Loaded, int, int], Store],
    release: Callable[[], None] = torch.cuda.empty_cache,
) -> None:
    """Score `rows` rows in blocks of `block_rows`.

    `load(a, b)` starts sending rows a to b - 1 to the device. `start(loaded, a, b)` starts
    computing these rows. Both return at once, so that three steps overlap: computing one block,
    sending the next block, and returning the results of the previous block. If memory runs out,
    `release` is called and the block size is halved. Raise BackendError if `min_rows` do not fit.
    """
    begin = 0
    next_block: Loaded | None = None
    store_previous: Store | None = None
    current: Loaded | None
    store: Store | None
    while begin < rows:
        end = min(begin + block_rows, rows)
        try:
            current = load(begin, end) if next_block is None else next_block
            next_block = load(end, min(end + block_rows, rows)) if end < rows else None
            store = start(current, begin, end)
            if store_previous is not None:
                store_previous()
            store_previous = store
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if block_rows <= min_rows:
                raise BackendError(
                    f"the device has not enough memory for {min_rows} rows of this model; free "
                    "memory on it (other processes show in nvidia-smi), choose strategy='tt', or "
                    "use device='cpu'"
                ) from error
            current = next_block = store = None  # Free their memory for smaller blocks.
            block_rows = max(min_rows, block_rows // 2)
        else:
            begin = end
            continue
        if store_previous is not None:
            store_previous()
            store_previous = None
        release()
    if store_previous is not None:
        store_previous()


SHARE = 4
"""A block uses at most 1 / SHARE of the free memory; a second block and other threads need some."""

FEWEST_ROWS, SMALL_ROWS, MOST_ROWS = 16, 1 << 16, 1 << 18
"""Minimum, small and maximum number of rows of a block. 65,536 rows keep a GPU busy; with blocks of
more than 2^18 rows, transfers hardly overlap."""

PINNED_BYTES = 64 << 20
"""Maximum number of bytes of a block's inputs in pinned memory of the host."""

Values = dict[int, Any]
Compute = Callable[[Values], Mapping[str, Any]]
"""A function that maps inputs by node to outputs by name, all on the device except strings."""


class Overlap:
    """Scores batches on `device`; a row of `program` takes `row_bytes` bytes of device memory."""

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
        """Score a batch; `needed` maps input names to nodes."""
        arrays, rows = collect_columns(inputs, needed)
        results = allocate_results(self._program, outputs, rows)
        nodes = {i: self._program.nodes[i] for i in needed.values()}
        try:
            if rows:
                block_rows = self._choose_block_rows(rows, needed)
                batch = _Batch(self._device, nodes, arrays, results, compute)
                run_in_blocks(rows, block_rows, FEWEST_ROWS, batch.load, batch.start)
            else:
                for node in nodes.values():
                    reference.convert_input(node, arrays)
        except BackendError:
            raise
        except Exception as error:
            if not is_device_lost(error):
                raise
            raise make_lost_device_error(error, self._device) from error
        return results

    def _choose_block_rows(self, rows: int, needed: Mapping[str, int]) -> int:
        input_types = [self._program.nodes[i].type for i in needed.values()]
        sent = sum(8 * t.width for t in input_types if t.dtype not in TEXTUAL)
        target_rows = min(max(-(-rows // 8), SMALL_ROWS), MOST_ROWS, PINNED_BYTES // max(1, sent))
        memory, _ = torch.cuda.mem_get_info(self._device)
        if memory // SHARE // self._row_bytes < min(rows, target_rows):
            # Add the memory that torch has reserved but does not use. This query takes 0.3 ms.
            memory += torch.cuda.memory_reserved(self._device)
            memory -= torch.cuda.memory_allocated(self._device)
        return int(np.clip(min(target_rows, memory // SHARE // self._row_bytes), FEWEST_ROWS, None))


class _Batch:
    """The work of one batch, on three streams: upload to the device, computation, download."""

    def __init__(
        self,
        device: torch.device,
        nodes: Mapping[int, Node],
        arrays: Mapping[str, Array],
        results: Mapping[str, Array],
        compute: Compute,
    ) -> None:
        stream: Callable[..., Any] = torch.cuda.Stream  # torch.cuda.Stream is not typed.
        self._upload, self._work, self._download = (stream(device) for _ in range(3))
        self._device, self._nodes, self._arrays = device, nodes, arrays
        self._results, self._compute = results, compute

    def load(self, begin: int, end: int) -> tuple[Values, Any]:
        """Start sending rows; return the values by input node, and the event of their arrival."""
        block = {name: column[begin:end] for name, column in self._arrays.items()}
        values: Values = {}
        with torch.cuda.stream(self._upload):
            for i, node in self._nodes.items():
                array = reference.convert_input(node, block)
                values[i] = array if node.type.dtype in TEXTUAL else self._send(array)
            return values, self._upload.record_event()

    def start(self, loaded: tuple[Values, Any], begin: int, end: int) -> Store:
        """Start computing rows and fetching results; return a function that stores the results."""
        values, sent_event = loaded
        with torch.cuda.stream(self._work), torch.inference_mode(), np.errstate(all="ignore"):
            self._work.wait_event(sent_event)
            for value in values.values():
                if isinstance(value, Tensor):
                    value.record_stream(self._work)
            outputs = {
                name: value.contiguous() if isinstance(value, Tensor) else value
                for name, value in self._compute(values).items()
            }
            computed_event = self._work.record_event()
        with torch.cuda.stream(self._download):
            self._download.wait_event(computed_event)
            pinned = {name: _start_fetch(value, self._download) for name, value in outputs.items()}
            fetched_event = self._download.record_event()

        def store() -> None:
            fetched_event.synchronize()
            for name, value in pinned.items():
                host_array = value.numpy() if isinstance(value, Tensor) else value
                self._results[name][begin:end] = host_array

        return store

    def _send(self, array: Array) -> Tensor:
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        pinned = torch.empty(array.shape, dtype=dtype, pin_memory=True)
        if array.flags.writeable and array.flags.aligned and min(array.strides) >= 0:
            pinned.copy_(torch.from_numpy(array))  # torch copies with several threads.
        else:
            np.copyto(pinned.numpy(), array)
        return pinned.to(self._device, non_blocking=True)


def _start_fetch(value: Any, stream: Any) -> Any:
    """Start copying a tensor to pinned memory and return the copy; return an array unchanged."""
    if not isinstance(value, Tensor):
        return value
    value.record_stream(stream)
    pinned = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    return pinned.copy_(value, non_blocking=True)
