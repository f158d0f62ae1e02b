"""Whole models as SQL of the engine: where that beats a function, in lambdas, and as macros."""
