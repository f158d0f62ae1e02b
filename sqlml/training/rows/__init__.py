"""Rows: the columns and rows of a training query, read, checked and shaped for estimators.

A query and a `Request` go in. `training_columns.py` decides which columns the model learns from,
`read_rows.py` reads and splits the rows into `TrainingRows`, `check_rows.py` reports what may be
unintended, `feature_pipeline.py` builds the transformer of the features, and `estimator_input.py`
returns frames, matrices and encoded blocks.

Read first: `training_columns.py`, then `read_rows.py`.

To support a type of column, give it a role or parts in `training_columns.py`. To treat features
differently, extend `FeatureGroups` and `make_transformer` in `feature_pipeline.py`.
"""
