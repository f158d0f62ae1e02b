"""Rows, names and classes as they are kept while a model is trained."""
