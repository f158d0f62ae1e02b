"""Estimators of sqlml that follow scikit-learn's conventions.

`dnn.py` has deep neural networks on torch, which is imported with this module only.
`encoded_target.py` has a classifier that encodes its classes as integers. Both accept arrays or
frames, like the estimators of scikit-learn.

Stored models name these classes by their paths, so the classes must not move. A new estimator needs
an importer (`sqlml/importers/`), and a `Trainer` in `model_types.py` to be available in SQL.
"""
