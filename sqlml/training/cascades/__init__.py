"""Cascades and top-K filters: small models learned beside a model (Willump, section 4).

A model's Program, the recipe of its last estimator and the rows of a query go in. A `Cascade` or a
`TopKFilter` comes out, or a `NoGain` with the reason. A small model reads a few cheap features. It
predicts the easy rows, or selects the rows that may be among the best K. The full model computes
all other rows.

Read first: `learn.py`, the search for the fastest small model; `threshold.py`, the statistics
that bound the loss.

To support another kind of classifier, add its regression to `_REGRESSIONS` (`recipe.py`), and a
formula to `CLOSED_FORMS` (`small_model.py`) if numpy can fit it without its library.
"""
