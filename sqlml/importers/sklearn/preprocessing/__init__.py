"""Importers of sklearn.preprocessing.

`encoders.py` turns categories into numbers, `numeric_transforms.py` scales and expands numeric
columns, and `function_transformer.py` applies numpy's functions.
"""
