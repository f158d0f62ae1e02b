"""The transformers of nearly every pipeline: scalers, encoders of categories, SimpleImputer."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from tests.contract.estimators.case import Case, counts, gaps, numbers

BITS = frozenset({"transform"})


def words(rows: int, seed: int) -> pd.DataFrame:
    """Two columns of strings, one with gaps, and one of numbers; the last word of each is rare."""
    rng = np.random.default_rng(seed)
    plans = np.array(["basic", "plus", "", "Zürich", "rare"], object)[
        rng.choice(5, rows, p=[0.4, 0.3, 0.15, 0.13, 0.02])
    ]
    cities = np.array(["Bern", "bern", " Bern", None], object)[rng.integers(0, 4, rows)]
    made = {"plan": plans, "city": cities, "size": rng.integers(0, 4, rows).astype(float)}
    made["plan"][: min(rows, 5)] = ["basic", "plus", "", "Zürich", "rare"][: min(rows, 5)]
    return pd.DataFrame(made)


def later(rows: int, seed: int) -> pd.DataFrame:
    """`words`, with categories that training (seed 0) never had."""
    made = words(rows, seed)
    if seed:
        made.loc[made.index % 5 == 0, "plan"] = "unseen"
        made.loc[made.index % 7 == 0, "size"] = 99.0
    return made


CASES: tuple[Case, ...] = (
    *(
        Case(f"StandardScaler {name}".strip(), lambda kw=kw: StandardScaler(**kw), data=gaps)
        for name, kw in (
            ("", {}),
            ("mean", {"with_std": False}),
            ("deviation", {"with_mean": False}),
        )
    ),
    Case("MinMaxScaler", lambda: MinMaxScaler(), data=gaps),
    Case("MinMaxScaler range", lambda: MinMaxScaler((-3, 2.5)), data=gaps),
    Case("MinMaxScaler clip", lambda: MinMaxScaler(clip=True), data=gaps),
    Case("MaxAbsScaler", lambda: MaxAbsScaler(), data=gaps),
    Case("MaxAbsScaler clip", lambda: MaxAbsScaler(clip=True), data=gaps),
    *(
        Case(f"RobustScaler {name}".strip(), lambda kw=kw: RobustScaler(**kw), data=gaps)
        for name, kw in (
            ("", {}),
            ("of 10 to 80", {"quantile_range": (10, 80)}),
            ("unit variance", {"unit_variance": True}),
            ("centre", {"with_scaling": False}),
            ("spread", {"with_centering": False}),
        )
    ),
    *(
        Case(f"SimpleImputer {name}", lambda kw=kw: SimpleImputer(**kw), data=data, bits=BITS)
        for name, kw, data in (
            ("mean", {}, gaps),
            ("median and marks", {"strategy": "median", "add_indicator": True}, gaps),
            ("constant", {"strategy": "constant", "fill_value": -1.5}, gaps),
            ("of zero", {"missing_values": 0, "strategy": "most_frequent"}, counts),
        )
    ),
    *(
        Case(f"OneHotEncoder {name}".strip(), lambda kw=kw: OneHotEncoder(**kw), data=data)
        for name, kw, data in (
            ("", {}, words),
            ("dense float32", {"sparse_output": False, "dtype": np.float32}, words),
            ("drop first", {"drop": "first"}, words),
            ("drop if binary", {"drop": "if_binary"}, words),
            ("ignore", {"handle_unknown": "ignore"}, later),
            ("infrequent", {"min_frequency": 0.1, "handle_unknown": "infrequent_if_exist"}, later),
            ("at most two", {"max_categories": 2, "handle_unknown": "infrequent_if_exist"}, later),
            ("drop and ignore", {"drop": "first", "handle_unknown": "ignore"}, later),
        )
    ),
    *(
        Case(f"OrdinalEncoder {name}".strip(), lambda kw=kw: OrdinalEncoder(**kw), data=data)
        for name, kw, data in (
            ("", {}, words),
            ("missing", {"encoded_missing_value": -7}, words),
            ("unknown", {"handle_unknown": "use_encoded_value", "unknown_value": -1}, later),
            (
                "unknown NaN",
                {"handle_unknown": "use_encoded_value", "unknown_value": np.nan},
                later,
            ),
            (
                "infrequent",
                {
                    "min_frequency": 0.1,
                    "handle_unknown": "use_encoded_value",
                    "unknown_value": np.nan,
                },
                later,
            ),
        )
    ),
    Case("OrdinalEncoder of numbers", lambda: OrdinalEncoder(), data=counts, rows=2000),
    Case("StandardScaler no gaps", lambda: StandardScaler(), data=numbers),
)
