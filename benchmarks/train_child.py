"""A process that trains one model in one way, and prints how long that took, and its memory.

python -m benchmarks.train_child CASE CONTENDER DATABASE
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

LIMITS: dict[str, Any] = {"threads": 2, "memory_limit": "512MB"}
"""Of the engine: with more memory it would keep the pages that it has read, for all contenders."""

SHOWN = 1000
"""Rows whose predictions are compared."""

ROUNDS = 30
"""Trees of each model."""


@dataclass(frozen=True, slots=True)
class Training:
    """options: of the statement. hand: from the open database to a function that predicts. frame:
    an estimator for a pandas frame. within: relative difference of predictions."""

    table: str
    options: str
    hand: Callable[[Any], Callable[[Any], Any]] | None
    frame: Callable[[Any], Any] | None
    within: float = 1e-5

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who trains, sqlml first."""
        if self.hand is None:
            return ("sublinear", "all")
        return ("sqlml", "hand", "frame")


def _table(con: Any, codes: bool) -> tuple[Any, Any]:
    """All rows as columns of Arrow, and the label; names as their places in order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = con.sql("FROM t").to_arrow_table()
    y = table.column("y").to_numpy().astype(np.int64)
    table = table.drop(["y"])
    if codes:
        columns = []
        for column in table.columns:
            names = pc.unique(column)
            ranks = np.argsort(np.argsort(names.to_numpy(zero_copy_only=False)))
            columns.append(pa.array(ranks[pc.index_in(column, names).to_numpy()], pa.float32()))
        table = pa.table(columns, names=table.column_names)
    return table, y


def _matrix(table: Any) -> Any:
    """Columns as one float32 matrix."""
    X = np.empty(table.shape, np.float32)
    for k, column in enumerate(table.columns):
        X[:, k] = column.to_numpy()
    return X


def _xgboost(codes: bool) -> Callable[[Any], Callable[[Any], Any]]:
    def train(con: Any) -> Callable[[Any], Any]:
        import xgboost

        table, y = _table(con, codes)
        first = _matrix(table.slice(0, SHOWN))
        types = ["c" if codes else "q"] * table.num_columns
        matrix = xgboost.QuantileDMatrix(table, y, feature_types=types, enable_categorical=True)
        del table
        matrix.feature_names = None
        options = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 2}
        made = xgboost.train(options, matrix, ROUNDS)
        return lambda rows: made.inplace_predict(first)

    return train


def _lightgbm(codes: bool) -> Callable[[Any], Callable[[Any], Any]]:
    def train(con: Any) -> Callable[[Any], Any]:
        import lightgbm

        table, y = _table(con, codes)
        X = _matrix(table)
        del table
        first = X[:SHOWN].copy()
        options = {
            **{"objective": "binary", "verbosity": -1, "num_threads": 2},
            **{"deterministic": True, "force_row_wise": True},
        }
        categories: Any = list(range(X.shape[1])) if codes else "auto"
        data = lightgbm.Dataset(X, y, params=options, categorical_feature=categories)
        made = lightgbm.train(options, data, ROUNDS)
        return lambda rows: made.predict(first)

    return train


def _words(con: Any) -> Callable[[Any], Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    found = con.sql("FROM t").fetchnumpy()
    words = TfidfVectorizer(max_features=20_000)
    X = words.fit_transform(found["x"])
    made = LogisticRegression(max_iter=1000).fit(X, found["y"])
    return lambda rows: made.predict_proba(words.transform(rows["x"]))[:, 1]


def _frame_xgboost(frame: Any) -> Any:
    from xgboost import XGBClassifier

    if not (frame.dtypes == np.float32).all():
        from sklearn.preprocessing import OrdinalEncoder

        return _encoded(
            OrdinalEncoder(dtype=np.float32),
            XGBClassifier(
                n_estimators=ROUNDS, n_jobs=2, tree_method="hist", enable_categorical=True,
                feature_types=["c"] * frame.shape[1],
            ),
        )  # fmt: skip
    return XGBClassifier(n_estimators=ROUNDS, n_jobs=2, tree_method="hist")


def _frame_lightgbm(frame: Any) -> Any:
    from lightgbm import LGBMClassifier

    own: dict[str, Any] = {"n_jobs": 2, "verbosity": -1}
    own |= {"deterministic": True, "force_row_wise": True}
    if not (frame.dtypes == np.float32).all():
        from sklearn.preprocessing import OrdinalEncoder

        columns = list(range(frame.shape[1]))
        return _encoded(
            OrdinalEncoder(dtype=np.float32),
            LGBMClassifier(n_estimators=ROUNDS, categorical_column=columns, **own),
        )
    return LGBMClassifier(n_estimators=ROUNDS, **own)


def _encoded(encoder: Any, model: Any) -> Any:
    from sklearn.pipeline import make_pipeline

    return make_pipeline(encoder, model)


def _frame_words(frame: Any) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    words = ColumnTransformer([("words", TfidfVectorizer(max_features=20_000), "x")])
    return _encoded(words, LogisticRegression(max_iter=1000))


_ALL = "label = 'y', split = 'none'"
_TREES = f"model_type = 'boosted_tree_classifier', {_ALL}, n_estimators = {ROUNDS}, n_jobs = 2"
_NETWORK = (
    f"model_type = 'dnn_classifier', {_ALL}, hidden_units = {[256] * 64}, batch_size = 4096, "
    "max_epochs = 2"
)

CASES: Mapping[str, Training] = {
    "numbers, xgboost": Training(
        "numbers", f"{_TREES}, library = 'xgboost'", _xgboost(False), _frame_xgboost
    ),
    "numbers, lightgbm": Training(
        "numbers", f"{_TREES}, library = 'lightgbm'", _lightgbm(False), _frame_lightgbm
    ),
    "strings, xgboost": Training(
        "strings", f"{_TREES}, library = 'xgboost'", _xgboost(True), _frame_xgboost
    ),
    "strings, lightgbm": Training(
        "strings", f"{_TREES}, library = 'lightgbm'", _lightgbm(True), _frame_lightgbm
    ),
    "texts": Training("texts", f"model_type = 'logistic_reg', {_ALL}", _words, _frame_words),
    "network of 64 layers": Training("network", _NETWORK, None, None),
}


def main() -> None:
    """Train, and print one JSON object."""
    name, contender, database = sys.argv[1:4]
    case = CASES[name]
    start = time.perf_counter()
    if contender in ("sqlml", "sublinear", "all"):
        import sqlml

        memory = ", memory = 'sublinear'" if contender == "sublinear" else ""
        with sqlml.connect(database, config=LIMITS) as session:
            session.execute(
                f"CREATE OR REPLACE MODEL m OPTIONS ({case.options}{memory}) AS SELECT * FROM t"
            )
            seconds, peak = time.perf_counter() - start, _peak()
            scored = f"SELECT predict_proba('m', *)['true'] AS p FROM (FROM t LIMIT {SHOWN})"
            predictions = session.execute(scored).fetchnumpy()["p"]
    elif contender == "hand":
        assert case.hand is not None
        with duckdb.connect(database, config=LIMITS) as con:
            predict = case.hand(con)
            seconds, peak = time.perf_counter() - start, _peak()
            predictions = predict(con.sql(f"FROM t LIMIT {SHOWN}").fetchnumpy())
    else:
        assert case.frame is not None
        with duckdb.connect(database, config=LIMITS) as con:
            frame = con.sql("FROM t").df()
            y = frame.pop("y")
            made = case.frame(frame).fit(frame, y)
            first = frame.head(SHOWN)
            import sqlml

            with sqlml.attach(con) as session:
                session.create_model("framed", made, or_replace=True)
            seconds, peak = time.perf_counter() - start, _peak()
            predictions = made.predict_proba(first)[:, 1]
    told = [float(p) for p in predictions]
    print(json.dumps({"seconds": seconds, "peak": peak, "predictions": told}))


def _peak() -> float:
    """The most memory that the process has had, in MB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
