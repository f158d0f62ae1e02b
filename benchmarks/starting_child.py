"""A process that makes its first predictions, and prints how long each part of that takes.

python -m benchmarks.starting_child scorer MODEL.pickle ROWS.pickle
python -m benchmarks.starting_child query MODEL.duckdb QUERY

`model` is to load the model with its library, and `open` what comes before there is data: for a
scorer `sqlml.compile`, for a query `sqlml.connect`. `first` and `second` are predictions. `ready`
is when, after more of them, no kernel was missing any more; `compiled` says whether one was after
the second prediction, and `loaded` whether numba was loaded.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

START = time.perf_counter()

import duckdb  # noqa: E402, F401
import numpy as np  # noqa: E402

import sqlml  # noqa: E402
from sqlml.backends.native.jit.background_compiler import count_pending  # noqa: E402

IMPORTED = time.perf_counter()


PAUSE = 0.05
"""Seconds between predictions while kernels are compiled."""


def main() -> None:
    """Predict, and print one JSON object."""
    way, place, what = sys.argv[1:4]
    times = [time.perf_counter()]
    predict: Callable[[], Any]
    if way == "scorer":
        import pickle

        model = pickle.loads(Path(place).read_bytes())
        rows = pickle.loads(Path(what).read_bytes())
        times.append(time.perf_counter())
        scorer = sqlml.compile(model)

        def predict() -> Any:
            found: Any = scorer.predict_proba(rows)
            return found[:, 1]
    else:
        times.append(time.perf_counter())
        session = sqlml.connect(place, read_only=True)

        def predict() -> Any:
            return session.execute(what).fetchnumpy()["p"]

    times.append(time.perf_counter())
    found = predict()
    times.append(time.perf_counter())
    predict()
    times.append(time.perf_counter())
    asked, compiled = True, count_pending() > 0
    while asked:
        time.sleep(PAUSE)
        asked = count_pending() > 0
        predict()
        asked = asked or count_pending() > 0
    times.append(time.perf_counter())
    names = ("model", "open", "first", "second", "ready")
    parts = dict(zip(names, np.diff(times).tolist(), strict=True))
    said = {"imported": IMPORTED - START, **parts}
    numbers = [float(p) for p in found]
    loaded = "numba" in sys.modules
    print(json.dumps({**said, "compiled": compiled, "loaded": loaded, "numbers": numbers}))


if __name__ == "__main__":
    main()
