"""A Program made ready to run: prepared, named, and its results as SQL."""
