"""`on_gpu`: what a test that needs a GPU carries; it is skipped, with the reason, without one."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
import torch

_REASON = (
    "torch sees no GPU" if torch.version.cuda else "this torch is built for the CPU only, no GPU"
)

on_gpu: list[Any] = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason=_REASON),
]

onnxruntime_on_gpu = pytest.mark.skipif(
    "CUDAExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="this onnxruntime is built for the CPU only (onnxruntime-gpu has CUDA)",
)
