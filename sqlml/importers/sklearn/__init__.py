"""Importers of scikit-learn's estimators, in files named after scikit-learn's own packages.

An importer is a function from a fitted object and a `Frame` (the columns that feed it) to a `Frame`
(a transformer) or `Outputs` (a predictor). It reads the object's attributes and never imports
scikit-learn, and it keeps the library's order of operations, so that the digits are equal.

Read first: `estimator_table.py`, which maps each class to its importer or to the reason why it has
none; `linear_model.py`, a simple family; `estimator_checks.py`, which rejects unfitted models and
unknown parameters. `classify.py` has the last steps of classifiers. Estimators that contain others
are in `meta/`, and `meta/members.py` reads the inner ones.

To add an estimator, write its importer in the file of its family, add a row to
`estimator_table.py`, list its parameters in `parameters.txt`, and add cases to
`tests/contract/estimators/`.
"""
