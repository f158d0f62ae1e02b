"""TRANSFORM (...): features computed from the columns of a training query.

The items of TRANSFORM go in. Row expressions come out, which are stored with the model and applied
to every scored row. Values over all rows, such as a mean, are computed once and written into the
expressions.

Read first: `transform_items.py`, which compiles the items; `preprocessors.py`, the preprocessing
functions with their signatures; `fitted_rows.py`, the aggregated rows and the check of time zones.

To add a function, add it to `PREPROCESSORS` and its signature to `SIGNATURES`.
"""
