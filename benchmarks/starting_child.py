"""A process that makes its first predictions, and prints how long each part of that takes.

python -m benchmarks.starting_child scorer MODEL.pickle ROWS.pickle
python -m benchmarks.starting_child query MODEL.duckdb QUERY

`model` is to load the model with its library, and `open` what comes before there is data: for a
scorer `sqlml.compile`, for a query `sqlml.connect`. `first` and `second` are predictions. `kernels`
are those that had to be compiled, `loaded` says whether numba was.
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

IMPORTED = time.perf_counter()


def watched() -> dict[str, float]:
    """Seconds of each kernel that is compiled from now on."""
    from sqlml.backends.native.jit import object_code

    compiled, seconds = object_code.compiled, dict[str, float]()

    def timed(function: Callable[..., Any], signature: Any) -> Any:
        begin = time.perf_counter()
        try:
            return compiled(function, signature)
        finally:
            name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
            seconds[f"{name} {len(seconds)}"] = time.perf_counter() - begin

    object_code.compiled = timed
    return seconds


def main() -> None:
    """Predict, and print one JSON object."""
    way, place, what = sys.argv[1:4]
    watch = len(sys.argv) > 4
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
    kernels = watched() if watch else {}
    if watch:
        times[-1] = time.perf_counter()
    found = predict()
    times.append(time.perf_counter())
    predict()
    times.append(time.perf_counter())
    parts = dict(zip(("model", "open", "first", "second"), np.diff(times).tolist(), strict=True))
    said = {"imported": IMPORTED - START, **parts, "kernels": kernels}
    numbers = [float(p) for p in found]
    print(json.dumps({**said, "loaded": "numba" in sys.modules, "numbers": numbers}))


if __name__ == "__main__":
    main()
