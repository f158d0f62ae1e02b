"""Importers of sklearn.preprocessing.

`encoders.py` encodes categories; `numeric_transforms.py` scales and expands numeric columns.
"""
