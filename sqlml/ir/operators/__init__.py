"""The operators by family: their rows in `ops.TABLE` and the numpy functions that define them.

The functions are slow and plain on purpose: they define the meaning that every backend reproduces.
`op.py` defines `Op` and the checks that type rules use; `elementwise.py` is the simplest family. To
add a family, write a module with a tuple `OPERATORS`, and name it in `ops.FAMILIES`.
"""
