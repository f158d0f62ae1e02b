"""The torch backend: Programs of tensor operators on the CPU or a GPU."""

from sqlml.backends.torch.backend import TorchBackend, TorchCompiled

__all__ = ["TorchBackend", "TorchCompiled"]
