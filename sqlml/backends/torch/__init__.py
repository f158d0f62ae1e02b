"""The torch backend: Programs of tensor operators on the CPU or a GPU.

Read first `backend.py`, which binds the nodes of a Program that `passes.lower` has lowered. To add
an operator, add a function to `functions.FUNCTIONS`; the contract tests compare it with the
reference interpreter. `fused_trees.py` runs a whole tree ensemble as one Triton kernel.
"""
