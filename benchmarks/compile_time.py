"""`make bench-compile`: from a fitted object to a kernel, how long and how large.

Hummingbird's paper, table 10, has 0.6 to 26 s for its own way with 500 trees of depth 8. Here, for
500 trees of depth 8 of each library and for models at the limits (10,000 trees, 2,000 features,
1,000 classes, depth 60): seconds of import, passes and compilation; bytes of the stored model
beside the source's own file; and copies: the largest memory that import and passes take at once
(tracemalloc), over what the model takes anyway. That is the larger of the Program's arrays and of
the model as its source holds it: the node arrays of scikit-learn's trees or the coefficients of
its linear models in memory, and for the others their own file (XGBoost's UBJ or JSON, LightGBM's
text, CatBoost's JSON), from which the import starts. Reading a file counts the file itself.

    python -m benchmarks.compile_time [--write FILE]
"""

from __future__ import annotations

import argparse
import gc
import json
import pickle
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from benchmarks.machine import machine
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import Imported, import_model
from sqlml.ir import store
from sqlml.planner.program.choose import choose_way
from sqlml.planner.program.prepare_program import compile_core, prepare_output


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds and bytes. `held` is the model in its source's memory or file, see above; `copies`
    is `peak` over the larger of `held` and `program`."""

    model: str
    imported: float
    passes: float
    compiled: float
    stored: int
    source: int
    held: int
    program: int
    peak: int

    @property
    def copies(self) -> float:
        """The peak of memory over what the model takes anyway."""
        return self.peak / max(self.held, self.program)


def rows(count: int, features: int, classes: int = 2) -> tuple[Any, Any]:
    """Random rows whose class depends on a few features together."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, features)).astype(np.float32)
    signal = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + rng.normal(scale=0.3, size=count)
    order = np.argsort(np.argsort(signal))
    return x, (order * classes // count).astype(np.int64)


def staircase(depth: int) -> Any:
    """A tree that is one chain of `depth` tests."""
    x = np.arange(depth + 1, dtype=np.float32)[:, None]
    weights = 4.0 ** -np.arange(depth + 1)
    return DecisionTreeClassifier(random_state=0).fit(x, np.arange(depth + 1) % 2, weights)


MODELS: Mapping[str, Callable[[], Any]] = {
    "random forest, 500 x 8": lambda: RandomForestClassifier(
        500, max_depth=8, n_jobs=-1, random_state=0
    ).fit(*rows(20_000, 28)),
    "XGBoost, 500 x 8": lambda: XGBClassifier(n_estimators=500, max_depth=8).fit(*rows(20_000, 28)),
    "LightGBM, 500 x 8": lambda: LGBMClassifier(
        n_estimators=500, num_leaves=255, max_depth=8, verbose=-1
    ).fit(*rows(20_000, 28)),
    "CatBoost, 500 x 8": lambda: CatBoostClassifier(
        iterations=500, depth=8, verbose=False, allow_writing_files=False
    ).fit(*rows(20_000, 28)),
    "10,000 trees": lambda: ExtraTreesClassifier(
        10_000, max_depth=6, n_jobs=-1, random_state=0
    ).fit(*rows(2_000, 10)),
    "2,000 features": lambda: RandomForestClassifier(
        100, max_depth=8, n_jobs=-1, random_state=0
    ).fit(*rows(2_000, 2_000)),
    "1,000 classes": lambda: LogisticRegression(max_iter=3).fit(*rows(4_000, 20, 1_000)),
    "1,000 classes of trees": lambda: RandomForestClassifier(5, random_state=0).fit(
        *rows(4_000, 20, 1_000)
    ),
    "depth 60": lambda: staircase(60),
}


SUFFIXES: Mapping[type, tuple[str, ...]] = {
    XGBClassifier: ("ubj", "json"),
    LGBMClassifier: ("txt",),
    CatBoostClassifier: ("json",),
}
"""The files that a library writes itself; the first is what its objects are measured by."""


def measures(name: str, model: Any) -> Iterator[Row]:
    """Take one model from the fitted object to a kernel, and from each file of its library."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"model.{suffix}") for suffix in SUFFIXES.get(type(model), ())]
        for path in paths:
            save(model, path)
        sizes = [path.stat().st_size for path in paths]
        source = sizes[0] if sizes else len(pickle.dumps(model))
        held = sizes[0] if sizes else in_memory(model)
        yield measure(name, lambda: import_model(model), source, held)
        for path, size in zip(paths, sizes, strict=True):
            yield measure(f"  from {path.name}", partial(from_file, path), size, size)


def save(model: Any, path: Path) -> None:
    """Write a booster's own file."""
    if isinstance(model, LGBMClassifier):
        model.booster_.save_model(path)
    elif isinstance(model, CatBoostClassifier):
        model.save_model(str(path), format="json")
    else:
        model.save_model(path)


def from_file(path: Path) -> Imported:
    """Read and import a model file."""
    content = path.read_bytes()
    return import_model(read_artifact(content, format="AUTO", path=path.name, allow_pickle=False))


def in_memory(model: Any) -> int:
    """Bytes of the arrays that scikit-learn keeps of trees, or of a linear model."""
    trees = getattr(model, "estimators_", [model])
    if hasattr(model, "coef_"):
        return int(model.coef_.nbytes + model.intercept_.nbytes)
    return sum(
        int(tree.tree_.__getstate__()[part].nbytes)
        for tree in trees
        for part in ("nodes", "values")
    )


def measure(name: str, make: Callable[[], Imported], source: int, held: int) -> Row:
    """Time `make`, the passes and compilation, and trace the memory of the first two."""
    make()  # what numba compiles is kept on disk, so it is not measured
    start = time.perf_counter()
    imported = make()
    done = time.perf_counter()
    prepared = prepare_output(imported.program, "label")
    passed = time.perf_counter()
    core = prepared.split.core
    compiled = compile_core(core, choose_way(core, {}))
    ready = time.perf_counter()
    compiled.run({"x": np.zeros((1, core.input_type("x").width))})
    return Row(
        name,
        done - start,
        passed - done,
        ready - passed,
        len(store.dumps(imported.program)),
        source,
        held,
        imported.program.nbytes,
        peak(make),
    )


def peak(make: Callable[[], Imported]) -> int:
    """Most bytes that import and passes hold at once, as Python's own allocators count them."""
    gc.collect()
    tracemalloc.start()
    prepare_output(make().program, "label")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def main(arguments: list[str] | None = None) -> None:
    """Measure, print one line per model, and write a JSON file when asked to."""
    parser = argparse.ArgumentParser(prog="benchmarks.compile_time")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the results as JSON")
    chosen = parser.parse_args(arguments)
    print(
        f"{'ms':<26}{'import':>9}{'passes':>9}{'compile':>9}{'stored':>13}{'source':>13}{'copies':>8}"
    )
    made = []
    for name, make in MODELS.items():
        for row in measures(name, make()):
            made.append({**asdict(row), "copies": row.copies})
            times = "".join(f"{s * 1e3:>9,.0f}" for s in (row.imported, row.passes, row.compiled))
            sizes = f"{row.stored:>13,}{row.source:>13,}{row.copies:>7.1f}x"
            print(f"{row.model:<26}{times}{sizes}", flush=True)
    if chosen.write:
        result = {"machine": machine(), "models": made}
        chosen.write.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
