"""Kernels of operators that are neither trees nor texts."""
