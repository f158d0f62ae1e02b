"""Strategy `fused` of the torch backend: a whole tree_ensemble as Triton kernels on a GPU.

`forest.py` lays a tree ensemble out as arrays (`Columns`, `Layout`) and launches the kernels;
`triton_kernels.py` has the two kernels: values to ranks, and ranks to sums of leaf values.
"""
