"""The bars of the project's plan, each as a function of the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Results = Mapping[str, Mapping[str, Any] | None]
"""Family -> its result file, None where it was not measured."""
Cells = Mapping[str, float]
"""What was measured -> its ratio."""


@dataclass(frozen=True, slots=True)
class Bar:
    """text: what is asked. needed: the ratio. at_most: whether less is better. cells: of the
    results of `family`, each ratio that must meet it."""

    text: str
    needed: float
    family: str
    cells: Callable[[Iterable[Mapping[str, Any]]], Cells]
    at_most: bool = False

    def met(self, ratio: float) -> bool:
        """Whether one ratio meets the bar."""
        return ratio <= self.needed if self.at_most else ratio >= self.needed


def by_case(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Case -> contender -> row, in the order of the file."""
    made: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        made.setdefault(name_of(row["case"]), {})[row["contender"]] = row
    return made


def name_of(case: Mapping[str, Any]) -> str:
    """A case in a few words."""
    parts = [
        str(v) for k, v in case.items() if k in ("model", "table", "operator", "dtype", "mode")
    ]
    return ", ".join(parts)


def geometric_mean(values: Iterable[float]) -> float:
    """The mean of ratios."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _trees(model: str | None, contender: str, *modes: str) -> Callable[..., Cells]:
    def cells(rows: Iterable[Mapping[str, Any]]) -> Cells:
        wanted = (
            row
            for row in rows
            if row["contender"] == contender
            and (model is None or row["case"]["model"] == model)
            and row["case"]["mode"] in modes
        )
        return {name_of(row["case"]): row["ratio"] for row in wanted if "ratio" in row}

    return cells


def _operators(dtype: str) -> Callable[..., Cells]:
    def cells(rows: Iterable[Mapping[str, Any]]) -> Cells:
        made = {}
        for name, contenders in by_case(rows).items():
            case = next(iter(contenders.values()))["case"]
            best = [
                contenders[c].get("ratio") for c in ("library", "onnxruntime") if c in contenders
            ]
            known = [ratio for ratio in best if ratio is not None]
            if case["mode"] == "batch" and case["dtype"] == dtype and known:
                made[name] = min(known)
        return made

    return cells


def _pipelines(rows: Iterable[Mapping[str, Any]]) -> Cells:
    ratios = [row.get("ratio", 0.0) for row in rows if row["contender"] == "library"]
    return {"share": sum(r > 1 for r in ratios) / len(ratios)} if ratios else {}


def _picks(rows: Iterable[Mapping[str, Any]]) -> Cells:
    """The share of cells whose pick took at most 1.2 times as long as the best way."""
    good = []
    for contenders in by_cell(rows):
        times = {c: row["ns"] for c, row in contenders.items() if "ns" in row}
        good.append(times["sqlml"] <= 1.2 * min(times.values()))
    return {"share": sum(good) / len(good)} if good else {}


def by_cell(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Mapping[str, Any]]]:
    """The contenders of each case, whatever it is made of."""
    made: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        made.setdefault(repr(row["case"]), {})[row["contender"]] = row
    return list(made.values())


def _sql(ratio: Callable[[Mapping[str, float]], float | None]) -> Callable[..., Cells]:
    """Of each model, a ratio of the times by contender."""

    def cells(rows: Iterable[Mapping[str, Any]]) -> Cells:
        made = {}
        for name, contenders in by_case(r for r in rows if "ns" in r).items():
            value = ratio({c: row["ns"] for c, row in contenders.items()})
            if value is not None:
                made[name] = value
        return made

    return cells


def _memory(rows: Iterable[Mapping[str, Any]]) -> Cells:
    peaks = [row["peak"] for row in rows if "peak" in row]
    return {"peak": max(peaks) / min(peaks)} if len(peaks) > 1 else {}


MANY = ("whole table", "batch")

BARS: tuple[Bar, ...] = (
    Bar(
        "XGBoost model, compared with `inplace_predict`",
        8.0,
        "trees",
        _trees("xgboost", "library", *MANY),
    ),
    Bar("XGBoost model, compared with oneDAL", 3.0, "trees", _trees("xgboost", "onedal", *MANY)),
    Bar(
        "LightGBM model, compared with LightGBM",
        16.0,
        "trees",
        _trees("lightgbm", "library", *MANY),
    ),
    Bar("LightGBM model, compared with oneDAL", 1.3, "trees", _trees("lightgbm", "onedal", *MANY)),
    Bar(
        "random forest, compared with scikit-learn",
        8.0,
        "trees",
        _trees("random forest", "library", *MANY),
    ),
    Bar(
        "forest without a depth limit, compared with scikit-learn",
        2.0,
        "trees",
        _trees("unlimited forest", "library", *MANY),
    ),
    Bar(
        "one row, all tree models, compared with onnxruntime",
        1.0,
        "trees",
        _trees(None, "onnxruntime", "one row"),
    ),
    Bar(
        "operators on float32, compared with the faster of scikit-learn and onnxruntime",
        1.0,
        "operators",
        _operators("float32"),
    ),
    Bar(
        "operators on float64, compared with the faster of scikit-learn and onnxruntime",
        1.0,
        "operators",
        _operators("float64"),
    ),
    Bar("share of pipelines that are faster than scikit-learn", 0.95, "pipelines", _pipelines),
    Bar(
        "share of cases in which the chosen kernel takes at most 1.2 times as long as the fastest",
        0.95,
        "choice",
        _picks,
    ),
    Bar(
        "SQL query time / (kernel time + scan time)",
        1.1,
        "end_to_end",
        _sql(lambda ns: ns["sqlml"] / (ns["kernel"] + ns["scan"])),
        at_most=True,
    ),
    Bar(
        "data frame time / SQL query time, except for the linear model",
        8.0,
        "end_to_end",
        _sql(lambda ns: None if "expression" in ns else ns["frame"] / ns["sqlml"]),
    ),
    Bar(
        "linear model: SQL query time / time of the expression written by hand",
        1.5,
        "end_to_end",
        _sql(lambda ns: ns["sqlml"] / ns["expression"] if "expression" in ns else None),
        at_most=True,
    ),
    Bar(
        "peak memory for 100,000,000 rows / peak memory for 1,000,000 rows",
        1.05,
        "end_to_end",
        _memory,
        at_most=True,
    ),
)
