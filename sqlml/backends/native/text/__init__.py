"""Kernels that read texts: tokens, n-grams and codes of categories."""
