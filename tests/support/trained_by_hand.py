"""What a trained model must equal: the same library, fitted by hand to the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from sqlml import Session
from sqlml.training.estimators.encoded_target import EncodedTargetClassifier
from sqlml.types import Array

ROUNDS = 10
"""Rounds without a gain, as `early_stopping_rounds` is unless it is given."""


def rows_of(con: Session, query: str, label: str | None, seed: int = 7) -> tuple[Any, Array, Array]:
    """Return the features of a query, its label, and which rows a split of 0.2 holds out."""
    relation = con.sql(query)
    columns = {
        name: f'"{name}"::VARCHAR' if str(kind).startswith("ENUM") else f'"{name}"'
        for name, kind in zip(relation.columns, relation.types, strict=True)
    }
    of_label = columns.pop(label or "", "0")
    row = f"hash({', '.join(columns.values())}, {seed})"
    order = f"PARTITION BY {row} ORDER BY hash({of_label}), row_of_query"
    number = f"row_number() OVER ({order}) - 1"
    place = f"(({row} >> 33)::BIGINT + ({number}) * 1327217885) % 2 ** 31"
    query = f"SELECT *, row_number() OVER () AS row_of_query FROM ({query})"
    frame = con.execute(
        f"SELECT * EXCLUDE (row_of_query), {place} < floor(0.2 * 2 ** 31) AS held FROM ({query}) "
        "ORDER BY row_of_query"
    ).df()
    held = frame.pop("held").to_numpy(bool)
    y = np.zeros(len(frame)) if label is None else frame.pop(label).to_numpy()
    for name in frame.columns:
        if frame[name].dtype == bool:
            frame[name] = frame[name].astype(np.uint8)
    return frame, y, held


def fitted(model: Any, frame: Any, y: Array, held: Array) -> tuple[Any, Any]:
    """The transformer and the estimator of a trained model, fitted anew by their library's API.

    Returns:
        The fitted transformer, and the fitted estimator, whose classes are numbers.
    """
    if isinstance(model, EncodedTargetClassifier):
        model, y = model.classifier, np.unique(y, return_inverse=True)[1]
    features, estimator = (clone(step) for _, step in model.steps)
    X, rest = features.fit_transform(frame[~held], y[~held]), features.transform(frame[held])
    library = type(estimator).__module__.partition(".")[0]
    name = type(estimator).__name__
    if library == "xgboost" and "RF" not in name:
        estimator.set_params(early_stopping_rounds=ROUNDS)
        estimator.fit(X, y[~held], eval_set=[(rest, y[held])], verbose=False)
    elif library == "lightgbm":
        from lightgbm import early_stopping

        stop = [early_stopping(ROUNDS, verbose=False)]
        estimator.fit(X, y[~held], eval_X=(rest,), eval_y=(y[held],), callbacks=stop)
    elif library == "catboost":
        from catboost import Pool

        names = [n for n, column in enumerate(X.columns) if column.startswith("category__")]
        estimator.fit(
            Pool(X, y[~held], cat_features=names),
            eval_set=Pool(rest, y[held], cat_features=names),
            early_stopping_rounds=ROUNDS,
            use_best_model=True,
        )
    elif name.startswith("DNN"):  # test_dnn.py has a loop of torch beside it
        from sqlml.training.estimators.dnn import Epochs

        epochs = Epochs(patience=ROUNDS)
        estimator.fit(X, y[~held], held_out=(rest, y[held], None), epochs=epochs)
    elif name.startswith("Hist"):
        estimator.fit(X, y[~held], X_val=rest, y_val=y[held])
    else:
        estimator.fit(X, y[~held])
    return features, estimator


def fitted_ranker(model: Any, frame: Any, y: Array, group: Array, held: Array) -> tuple[Any, Any]:
    """The transformer and the estimator of a trained ranker, fitted anew by their library's API.

    Args:
        group: (n,) the number of each row's group; rows of one group are neighbours.
    """
    features, estimator = (clone(step) for _, step in model.steps)
    X, rest = features.fit_transform(frame[~held], y[~held]), features.transform(frame[held])
    own, other = group[~held], group[held]
    library = type(estimator).__module__.partition(".")[0]
    if library == "xgboost":
        eval_set = [(rest, y[held])]
        estimator.set_params(early_stopping_rounds=ROUNDS)
        estimator.fit(X, y[~held], qid=own, eval_set=eval_set, eval_qid=[other], verbose=False)
    elif library == "lightgbm":
        from lightgbm import early_stopping

        sizes, others = (np.unique(g, return_counts=True)[1] for g in (own, other))
        stop = [early_stopping(ROUNDS, verbose=False)]
        estimator.fit(
            *(X, y[~held]),
            group=sizes,
            eval_X=(rest,),
            eval_y=(y[held],),
            eval_group=[others],
            callbacks=stop,
        )
    else:
        from catboost import Pool

        estimator.fit(
            Pool(X, y[~held], group_id=own),
            eval_set=Pool(rest, y[held], group_id=other),
            early_stopping_rounds=ROUNDS,
            use_best_model=True,
        )
    return features, estimator
