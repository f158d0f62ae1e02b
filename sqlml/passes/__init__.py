"""Passes: Program -> Program, one file each."""
