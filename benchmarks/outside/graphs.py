"""Two models of TPCx-AI that no estimator of scikit-learn is, as ONNX graphs of look-ups.

Source: TPCx-AI's use cases 3 (forecasts of sales per store and department) and 7 (ratings from a
matrix factorisation). The numbers are generated: what is measured is how long they take to use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.outside.contenders import Model
from benchmarks.outside.tables import DEPARTMENTS, PRODUCTS, STORES, USERS, WEEKS

FACTORS = 50


@dataclass(frozen=True, slots=True)
class Seasons:
    """Additive Holt-Winters forecasts; a series has a level, a slope and a number for each week.

    Attributes:
        level: (stores x departments,).
        slope: (stores x departments,).
        season: (stores x departments, weeks of two years).
    """

    level: npt.NDArray[np.float64]
    slope: npt.NDArray[np.float64]
    season: npt.NDArray[np.float64]

    def predict(self, frame: pd.DataFrame) -> Any:
        series = frame["store"].to_numpy() * DEPARTMENTS + frame["department"].to_numpy()
        week = frame["week"].to_numpy()
        return self.level[series] + self.slope[series] * week + self.season[series, week]


@dataclass(frozen=True, slots=True)
class Factors:
    """Ratings: the product of a user's and a product's factors, (users or products, FACTORS)."""

    users: npt.NDArray[np.float64]
    products: npt.NDArray[np.float64]

    def predict(self, frame: pd.DataFrame) -> Any:
        users = self.users[frame["userid"].to_numpy()]
        return (users * self.products[frame["productid"].to_numpy()]).sum(axis=1)


def fit_seasons(query: Any, frame: pd.DataFrame, types: Mapping[str, str]) -> Model:
    rng, series = np.random.default_rng(0), STORES * DEPARTMENTS
    season = np.tile(rng.normal(0, 50, (series, WEEKS)), 2)
    model = Seasons(rng.gamma(2, 500, series), rng.normal(size=series), season)
    constants = {
        "level": model.level,
        "slope": model.slope,
        "season": model.season.ravel(),
        "departments": np.array([DEPARTMENTS]),
        "weeks": np.array([2 * WEEKS]),
    }
    onnx = _make_graph(
        """<ir_version: 9, opset_import: ["" : 18]>
        seasons (int64[N, 1] store, int64[N, 1] department, int64[N, 1] week)
        => (double[N, 1] forecast) {
            first = Mul(store, departments)
            series = Add(first, department)
            level_of_series = Gather(level, series)
            slope_of_series = Gather(slope, series)
            weeks_ahead = Cast<to = 11>(week)
            growth = Mul(slope_of_series, weeks_ahead)
            first_week = Mul(series, weeks)
            place = Add(first_week, week)
            season_of_week = Gather(season, place)
            trend = Add(level_of_series, growth)
            forecast = Add(trend, season_of_week)
        }""",
        constants,
    )
    return Model(model, types, "DOUBLE", onnx=onnx.SerializeToString(), source=onnx)


def fit_factors(query: Any, frame: pd.DataFrame, types: Mapping[str, str]) -> Model:
    rng = np.random.default_rng(0)
    model = Factors(rng.normal(size=(USERS, FACTORS)), rng.normal(size=(PRODUCTS, FACTORS)))
    constants = {"users": model.users, "products": model.products, "axes": np.array([2])}
    onnx = _make_graph(
        """<ir_version: 9, opset_import: ["" : 18]>
        factors (int64[N, 1] userid, int64[N, 1] productid) => (double[N, 1] rating) {
            user = Gather(users, userid)
            product = Gather(products, productid)
            both = Mul(user, product)
            rating = ReduceSum<keepdims = 0>(both, axes)
        }""",
        constants,
    )
    return Model(model, types, "DOUBLE", onnx=onnx.SerializeToString(), source=onnx)


def _make_graph(text: str, constants: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Parse a graph, whose `constants` are arrays."""
    import onnx.parser
    from onnx import numpy_helper

    model = onnx.parser.parse_model(text)
    for name, value in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
    return model
