"""Fitting: estimators fitted by their libraries, with early stopping, checkpoints and searches.

`FitArguments` go in: the request, the parameters, and the fitted and held-out rows. A fitted
estimator comes out, and its rounds are in the log.

Read first: `fit.py` and `fit_boosters.py`, one function per library; `checkpoint.py`, how a
training resumes after a kill; `tuning.py`, the search for parameters by optuna.

To add a library, write its function and add it to `FITTERS` in `fit.py`.
"""
