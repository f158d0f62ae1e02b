"""A small machine that runs whole models other than trees: rows are lanes."""
