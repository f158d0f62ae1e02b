"""Kernels for ensembles of trees; `native_forest.py` chooses the fastest for a batch."""
