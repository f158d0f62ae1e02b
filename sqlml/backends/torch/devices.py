"""`device_of`: the torch device that a user's `device=` means."""

from __future__ import annotations

import torch

from sqlml.errors import BackendError


def device_of(name: str) -> torch.device:
    """The device called "cpu", "cuda", "cuda:1" .. or "auto" (a GPU when there is one).

    Raises:
        BackendError: no such device; the message names the fix.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise BackendError(f"unknown device {name!r}; devices: auto, cpu, cuda, cuda:0 ..")
    if not torch.cuda.is_available():
        why = "torch sees no GPU" if torch.version.cuda else "this torch is built for the CPU only"
        raise BackendError(
            f"device {name!r} is not available: {why}; use device='cpu' or 'auto', or run pip "
            "install 'sqlml[gpu]' on a machine with an NVIDIA driver"
        )
    if number and int(number) >= torch.cuda.device_count():
        raise BackendError(
            f"device {name!r} is not available: torch sees {torch.cuda.device_count()} GPU(s), "
            "numbered from 0"
        )
    return torch.device(name)
