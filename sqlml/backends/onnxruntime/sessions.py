"""`session_on`: an ONNX model made ready by onnxruntime, on the device that the user means."""

from __future__ import annotations

from typing import Any

import onnxruntime

from sqlml.errors import BackendError
from sqlml.ir.operators.opaque import open_session


def providers(device: str) -> list[Any]:
    """onnxruntime's execution providers for "cpu", "cuda", "cuda:1" .. or "auto".

    Raises:
        BackendError: no such device; the message names the fix.
    """
    if device == "cpu":
        return ["CPUExecutionProvider"]
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if device == "auto":
        return providers("cuda" if has_cuda else "cpu")
    kind, _, number = device.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise BackendError(f"unknown device {device!r}; devices: auto, cpu, cuda, cuda:0 ..")
    if not has_cuda:
        raise BackendError(
            f"device {device!r} is not available: this onnxruntime is built for the CPU only; use "
            "device='cpu' or 'auto', or run pip install 'sqlml[gpu]' on a machine with an NVIDIA "
            "driver"
        )
    # By default its products round float32 to TF32's 10 bits, an error near 1e-3.
    options = {"device_id": int(number or 0), "use_tf32": 0}
    return [("CUDAExecutionProvider", options), "CPUExecutionProvider"]


def session_on(model: bytes, device: str) -> Any:
    """An InferenceSession of one thread on `device`.

    Raises:
        BackendError: onnxruntime refuses the model, or the device is not there.
    """
    chosen = providers(device)
    session = open_session(model, chosen)
    if len(chosen) > 1 and "CUDAExecutionProvider" not in session.get_providers():
        raise BackendError(
            f"onnxruntime cannot use device {device!r}: its CUDA libraries are missing; run pip "
            "install 'sqlml[gpu]', or use device='cpu'"
        )
    return session
