"""Evaluation, a model per row, and estimated contributions: the other cases of `explain.py`.

* `ml_evaluate` of many rows, beside scoring them and one sort, and beside fetching the frame for
  `sklearn.metrics`. The metrics must agree within 1e-12.
* `predict_proba(shop_model, *)` with a thousand models, in any order of the rows and sorted by
  model, beside one model of that size over the same rows, and a query for each model.
* Contributions by random orders of the columns, beside the exact ones: with so many orders they
  must agree within 0.01 of the row's largest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xgboost
from sklearn import metrics

import sqlml
from benchmarks.compare import Difference
from benchmarks.results import Row, row_of, with_ratios
from benchmarks.rounds import best_calls
from sqlml.backends.native.backend import NativeBackend
from sqlml.explaining.explained import OWN, estimate_blocks
from sqlml.importers.registry import import_model
from sqlml.ir.builder import Builder, Value, copy_retyped
from sqlml.ir.program import Program

COLUMNS = 10
NAMES = [f"f{k}" for k in range(COLUMNS)]
WIDE = 28
ESTIMATED, BACKGROUND, PERMUTATIONS = 20, 100, 600
"""Rows whose contributions are estimated, of so many columns, those that they are compared with,
and pairs of orders for each of these."""

METRICS: Mapping[str, Callable[[Any, Any, Any], float]] = {
    "roc_auc": lambda y, hat, p: metrics.roc_auc_score(y, p[:, 1]),
    "average_precision": lambda y, hat, p: metrics.average_precision_score(y, p[:, 1]),
    "log_loss": lambda y, hat, p: metrics.log_loss(y, p),
    "brier_score": lambda y, hat, p: metrics.brier_score_loss(y, p, scale_by_half=True),
    "accuracy": lambda y, hat, p: metrics.accuracy_score(y, hat),
    "precision": lambda y, hat, p: metrics.precision_score(y, hat),
    "recall": lambda y, hat, p: metrics.recall_score(y, hat),
    "f1_score": lambda y, hat, p: metrics.f1_score(y, hat),
}
"""Column of ml_evaluate -> the function of scikit-learn."""


def fitted(seed: int, rows: int, options: Any, columns: int = COLUMNS) -> Any:
    """A classifier of XGBoost of 100 trees whose classes are 0 and 1."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, columns)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + x[:, 2 + seed % 5] + draw.normal(size=rows) > 0
    model = xgboost.XGBClassifier(n_estimators=100, max_depth=4, n_jobs=options.threads)
    return model.fit(x, y.astype(int))


def table(con: Any, rows: int, models: int) -> None:
    """Table t of rows with numbers, a label and the name of one of the models, in any order."""
    drawn = "(hash(i, {}) % 8192 / 1024.0 - 4)::FLOAT AS {}"
    numbers = ", ".join(drawn.format(k, name) for k, name in enumerate(NAMES))
    con.execute(
        f"CREATE OR REPLACE TABLE t AS SELECT i::BIGINT AS id, {numbers}, "
        f"(f0 * f1 + f2 + hash(i, 77) % 1024 / 256.0 - 2 > 0)::INTEGER AS y, "
        f"'shop_' || lpad((hash(i, 99) % {models})::VARCHAR, 4, '0') AS shop "
        f"FROM range({rows}) r(i)"
    )


def evaluate(options: Any) -> list[Row]:
    """ml_evaluate of a table."""
    with sqlml.connect() as con:
        con.execute(f"SET threads = {options.threads}")
        table(con, options.evaluated, 1)
        con.create_model("m", fitted(0, 20_000, options), inputs=NAMES, verify=False)
        both = ", ".join(f"predict_proba('m', *, class := {k}) AS p{k}" for k in (0, 1))
        scored = f"SELECT predict('m', *) AS hat, {both}, y FROM t"

        def ours() -> dict[str, float]:
            names = ", ".join(METRICS)
            (row,) = con.execute(
                f"SELECT {names} FROM ml_evaluate(MODEL m, TABLE t, label := 'y')"
            ).fetchall()
            return dict(zip(METRICS, row, strict=True))

        def sorted_scores() -> Any:
            ranked = f"SELECT *, row_number() OVER (ORDER BY p1) AS place FROM ({scored})"
            return con.execute(
                f"SELECT max(place), sum(hat), sum(y), sum(p0) FROM ({ranked})"
            ).fetchall()

        def by_frame() -> dict[str, float]:
            made = con.execute(scored).fetchnumpy()
            given = made["y"], made["hat"], np.c_[made["p0"], made["p1"]]
            return {name: float(measure(*given)) for name, measure in METRICS.items()}

        got, want = ours(), by_frame()
        apart = max(abs(got[name] - want[name]) / abs(want[name]) for name in METRICS)
        ways = {
            "sqlml": ours,
            "scores and a sort": sorted_scores,
            "frame, sklearn.metrics": by_frame,
        }
        return _timed("ml_evaluate", "evaluation", options.evaluated, ways, apart, 1e-12, options)


def routing(options: Any) -> list[Row]:
    """A model for each row."""
    made: list[Row] = []
    models = options.models
    with sqlml.connect() as con:
        con.execute(f"SET threads = {options.threads}")
        table(con, options.routed, models)
        con.execute("CREATE TABLE sorted AS FROM t ORDER BY shop")
        fits = {f"shop_{k:04d}": fitted(k, 500, options) for k in range(models)}
        for name, model in fits.items():
            con.create_model(name, model, inputs=NAMES, verify=False)

        def query(model: str, rows: str) -> str:
            return f"SELECT sum(predict_proba({model}, *, class := 1)) FROM {rows}"

        def asked_of(text: str) -> Any:
            return con.execute(text).fetchall()

        # On a cursor, which keeps plans of its own: 1,000 queries would push out the other two.
        beside = con.cursor()

        def each(rows: str) -> Any:
            for name in fits:
                beside.execute(query(f"'{name}'", f"{rows} WHERE shop = '{name}'")).fetchall()

        for rows in ("t", "sorted"):
            few = f"(FROM {rows} WHERE id < 2000)"
            asked = f"SELECT shop, predict_proba(shop, *, class := 1) AS p, * FROM {few}"
            found = con.execute(asked).df()
            apart = 0.0
            for name, part in found.groupby("shop"):
                want = fits[str(name)].predict_proba(part[NAMES])[:, 1]
                apart = max(apart, float(np.abs(part.p / want - 1).max()))
            ways = {
                "sqlml": partial(asked_of, query("shop", rows)),
                "one model": partial(asked_of, query("'shop_0000'", rows)),
                "a query for each model": partial(each, rows),
            }
            order = "any order" if rows == "t" else "sorted by model"
            name = f"{models:,} models of 100 trees, {order}"
            made += _timed(name, "a model per row", options.routed, ways, apart, 1e-6, options)
    return made


def estimates(options: Any) -> list[Row]:
    """Contributions by random orders, of trees whose exact ones are known."""
    model = fitted(0, 20_000, options, WIDE)
    draw = np.random.default_rng(options.seed + 1)
    rows = draw.normal(size=(ESTIMATED, WIDE)).astype(np.float32)
    background = draw.normal(size=(BACKGROUND, WIDE)).astype(np.float32)
    scorer = sqlml.compile(model, threads=options.threads)
    names = [f"f{k}" for k in range(WIDE)]
    program = import_model(model, names).program
    columns = {name: rows[:, [k]] for k, name in enumerate(names)}
    given = {name: background[:, [k]] for k, name in enumerate(names)}
    compiled = NativeBackend().compile(_estimating(program, given))

    def exact() -> Any:
        return scorer.explain(rows, background=background).values

    def estimated() -> Any:
        return compiled.run(columns, [OWN])[OWN][:, :WIDE]

    want = exact()
    apart = np.abs(estimated() - want).max(axis=1) / np.abs(want).max(axis=1)
    ways = {"sqlml": estimated, "exact contributions": exact}
    name = f"100 trees, {BACKGROUND} background rows, permutations := {PERMUTATIONS}"
    return _timed(name, "estimates", ESTIMATED, ways, float(apart.max()), 0.01, options)


def _estimating(program: Program, background: Mapping[str, Any]) -> Program:
    """A Program that estimates contributions, though exact ones are known."""
    b = Builder()
    values: list[Value] = []
    for node in program.nodes:
        values.append(copy_retyped(b, node, [values[i] for i in node.inputs]))
    blocks = estimate_blocks(program, b, background, PERMUTATIONS)
    assert blocks is not None
    return b.build({OWN: blocks}, (), tuple(program.inputs))


def _timed(
    name: str,
    mode: str,
    rows: int,
    ways: Mapping[str, Callable[[], Any]],
    apart: float,
    bound: float,
    options: Any,
) -> list[Row]:
    """A case's rows: the contenders in turns."""
    times = best_calls(
        list(ways.values()), options.rounds, least=options.least, patience=options.patience
    )
    made = [
        row_of(
            {"model": name, "mode": mode, "rows": rows},
            way,
            threads=options.threads,
            ns=time.seconds / rows * 1e9,
            rounds=time.rounds,
            difference=Difference(apart, apart, 0.0, None) if way == "sqlml" else None,
        )
        for way, time in zip(ways, times, strict=True)
    ]
    made[0] = replace(made[0], exact=apart <= bound)
    return with_ratios(made)


OTHERS: Mapping[str, Callable[[Any], list[Row]]] = {
    "ml_evaluate": evaluate,
    "a model per row": routing,
    "estimates": estimates,
}
"""The cases by name."""
