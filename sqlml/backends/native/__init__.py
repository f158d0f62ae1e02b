"""The native backend runs Programs on the CPU, with compiled kernels and numpy.

`vm/` translates whole outputs into bytecode of a register machine. `trees/`, `rows/` and `text/`
have kernels of operators. `jit/` compiles kernels with numba and keeps their machine code on disk.
`argument_checks/` decides if a kernel is safe with the constants of an exported model. Read
`backend.py`, `stepwise.py` and `jit/specialise.py` first. To add a kernel, write it beside similar
kernels, and bind the operator in `operators.py`. `jit/known_kernels.txt` lists kernels that are
compiled ahead.
"""
