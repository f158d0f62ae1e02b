"""The native backend runs Programs on the CPU, with compiled kernels and numpy.

A Program and arrays go in, arrays come out. `vm/` translates whole outputs into bytecode of a
register machine, `trees/`, `rows/` and `text/` have kernels of operators, and `jit/` compiles
kernels with numba and keeps their machine code on disk. Read `backend.py`, `stepwise.py` and
`jit/specialise.py` first. To add a kernel, write it beside its relatives and bind its operator in
`operators.py`; `jit/known_kernels.txt` lists kernels that are compiled ahead.
"""

from sqlml.backends.native.backend import NativeBackend, NativeCompiled

__all__ = ["NativeBackend", "NativeCompiled"]
