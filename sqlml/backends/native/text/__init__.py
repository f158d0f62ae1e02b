"""Kernels that cut, hash, count and weight the tokens of texts without Python objects."""
