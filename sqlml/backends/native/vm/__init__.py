"""A register machine for whole outputs: `assemble.py` writes its bytecode from a Program."""
