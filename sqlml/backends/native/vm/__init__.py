"""A small machine that runs whole models which are no trees: rows are lanes."""
