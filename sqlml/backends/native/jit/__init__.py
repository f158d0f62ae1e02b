"""Kernels compiled once per signature, and their machine code kept on disk."""
