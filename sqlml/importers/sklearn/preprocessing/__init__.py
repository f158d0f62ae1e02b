"""Importers of sklearn.preprocessing.

`encoders.py` turns categories into numbers, and `numeric_transforms.py` scales and expands numeric
columns, and applies numpy's functions.
"""
