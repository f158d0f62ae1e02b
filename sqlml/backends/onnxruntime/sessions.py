"""`open_session`: an ONNX model made ready by onnxruntime, on the device that the user means."""

from __future__ import annotations

from typing import Any

import onnxruntime

from sqlml.errors import BackendError


def providers(device: str) -> list[Any]:
    """onnxruntime's execution providers for "cpu", "cuda", "cuda:1" .. or "auto".

    Raises:
        BackendError: there is no such device; the message names the fix.
    """
    if device == "cpu":
        return ["CPUExecutionProvider"]
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if device == "auto":
        return providers("cuda" if has_cuda else "cpu")
    kind, _, number = device.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise BackendError(f"no device {device!r}; there are cpu, cuda, cuda:0 .. and auto")
    if not has_cuda:
        raise BackendError(
            f"device {device!r} is not there: this onnxruntime is built for the CPU alone; use "
            "device='cpu' or 'auto', or install pip install 'sqlml[gpu]' on a machine with an "
            "NVIDIA driver"
        )
    return [("CUDAExecutionProvider", {"device_id": int(number or 0)}), "CPUExecutionProvider"]


def open_session(model: bytes, device: str) -> Any:
    """An InferenceSession of one thread: the callers bring threads of their own.

    Raises:
        BackendError: onnxruntime refuses the model, or the device is not there.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; it need not print them too
    chosen = providers(device)
    try:
        session = onnxruntime.InferenceSession(model, options, providers=chosen)
    except Exception as error:  # its exceptions have no common base but Exception
        raise BackendError(f"onnxruntime refuses the graph: {error}") from None
    if len(chosen) > 1 and "CUDAExecutionProvider" not in session.get_providers():
        raise BackendError(
            f"onnxruntime cannot use device {device!r}: its CUDA libraries are absent; install "
            "pip install 'sqlml[gpu]', or use device='cpu'"
        )
    return session
