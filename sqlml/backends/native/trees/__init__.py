"""Kernels for tree ensembles, and the choice among them."""

from sqlml.backends.native.trees.forest import Forest

__all__ = ["Forest"]
