"""Kernels between rows and points, and the estimators that are linear in them."""
