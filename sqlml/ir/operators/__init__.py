"""The operators by family: their rows in `ops.TABLE` and the numpy functions that define them.

Each module has a tuple `OPERATORS` of `Op` rows. A row names the operator's attributes, the rule
that checks them and returns the result type, and the function that computes the result. `op.py`
has `Op` and the checks that rules are made of; `elementwise.py` is the simplest family.

The functions are slow and plain on purpose: they define the meaning that every backend reproduces.
To add a family, write a module like these and name it in `ops.TABLE`.
"""
