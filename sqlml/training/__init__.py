"""Training: CREATE MODEL ... AS SELECT, and estimators from Python, on the rows of a query.

A query and a `Request` go in. A `TrainedModel` comes out: the fitted pipeline with its metrics, the
statistics of its features, notices for the user, and the held-out rows. Statements
(`sqlml/statements/train_model.py`) store the trained model as a version of a model, and Spark's
trainers (`sqlml/spark/`) reuse the same parts.

Read first: `train_model_type.py`, the sequence of a training; `options/request.py`, the options of
a statement; `model_types.py`, the table of model types and the libraries that train them.

* `options/`: OPTIONS (...), checked before any work. `rows/`: the columns and rows of the query.
* `transform/`: TRANSFORM (...). `fitting/`: the libraries, checkpoints and searches.
* `estimators/`: the estimators of sqlml. `cascades/`: small models in front of a model.
* `row_store.py`: rows in memory or in a file. `progress.py`: the bar and the log of rounds.

To add a model type or a library, add a row to `MODEL_TYPES`, the parameters of the library to
`ALLOWED` (`options/estimator_parameters.py`), and its fit to `FITTERS` (`fitting/fit.py`).
"""
