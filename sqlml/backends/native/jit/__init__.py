"""Compile a kernel once per signature, and keep its machine code on disk.

`specialise.py` is the entry: a Python function and a signature go in, a callable comes out.
"""
