"""The native backend: Programs at model level on the CPU, with numba kernels and numpy."""

from sqlml.backends.native.backend import NativeBackend, NativeCompiled

__all__ = ["NativeBackend", "NativeCompiled"]
