"""Benchmarks with models and queries that others made, or whose form others chose."""
