"""What a GPU says when it fails: out of memory, or gone."""

from __future__ import annotations

import torch

from sqlml.errors import BackendError

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
