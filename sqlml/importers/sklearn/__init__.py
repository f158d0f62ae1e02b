"""Importers of scikit-learn's estimators, in files named after scikit-learn's packages.

An importer is a function from a fitted object and a `Frame` to a `Frame` (a transformer) or
`Outputs` (a predictor). It reads the attributes of the object and never imports scikit-learn. It
keeps the library's order of operations, so that the digits are equal.

Read first: `estimator_table.py`, which maps each class to an importer or to a reason;
`linear_model.py`, a simple family; `estimator_checks.py`, which rejects unfitted models and unknown
parameters. Estimators that contain others are in `meta/`.

To add an estimator, write an importer in the file of the family, add a row to `estimator_table.py`
and the parameters to `parameters.txt`, and add cases to `tests/contract/estimators/`.
"""
