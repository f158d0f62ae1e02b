"""Tests and times of scoring on an NVIDIA GPU, in one command.

First all tests that are marked `gpu` run. Then, for each model and batch, after a check that all
ways give the same numbers, the median time of

* backend torch on the GPU with each strategy: from a float32 matrix of the host to the results on
  the host ("host"), and with rows and results that lie on the device ("device"),
* backend torch on the CPU, and backend native,
* Hummingbird on the GPU, from the host to the host, and
* XGBoost's own predictor on the GPU, both ways.

    python -m benchmarks.gpu [--rows N]... [--model NAME]... [--rounds N] [--skip-tests]
                             [--write FILE]

What must be installed: sqlml[dev], torch built for CUDA (it brings triton), onnxruntime-gpu in
place of onnxruntime (its tests are skipped otherwise), xgboost in place of xgboost-cpu, and
hummingbird-ml; those that are not there are left out of the table. The models are fitted here, on
data made from seeds, so nothing is downloaded. Without a GPU it says so, and that is no failure.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.machine import machine
from benchmarks.operators import OPERATORS
from benchmarks.rounds import seconds
from sqlml.backends.devices import is_available
from sqlml.errors import SqlmlError
from sqlml.importers.registry import import_model
from sqlml.passes.split import PACKED
from sqlml.planner.program.choose import Choice
from sqlml.planner.program.prepare_program import compile_core, prepare_output

FEATURES = 28
TRAINING_ROWS = 20_000
ROWS = (1_000, 10_000, 100_000, 1_000_000)
STRATEGIES = ("gemm", "tt", "ptt", "fused")

SLOW_ROWS = 1_000
"""Most rows for torch on the CPU and for gemm: a forest takes 0.1 ms a row there."""

Matrix = npt.NDArray[np.float32]
Way = Callable[[], Any]


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(500, max_depth=8, n_jobs=-1, random_state=0)


def _deep_forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(100, n_jobs=-1, random_state=0)


def _xgboost() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=500, max_depth=8, random_state=0)


def _shallow_xgboost() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=100, max_depth=3, random_state=0)


def _lightgbm() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=500, num_leaves=255, max_depth=8, random_state=0, verbose=-1)


MODELS: Mapping[str, Callable[[], Any]] = {
    "forest": _forest,
    "deep_forest": _deep_forest,
    "xgboost": _xgboost,
    "xgboost_depth_3": _shallow_xgboost,
    "lightgbm": _lightgbm,
    **{
        name: OPERATORS[name]
        for name in (
            "LogisticRegression",
            "SVC",
            "MLPClassifier",
            "DecisionTreeClassifier",
            "Normalizer",
            "PolynomialFeatures",
            "StandardScaler",
        )
    },
}


@dataclass(frozen=True, slots=True)
class Timing:
    """Median nanoseconds a row of one way; None with the reason why there is no time."""

    model: str
    rows: int
    way: str
    ns: float | None
    reason: str = ""


def data(rows: int, seed: int) -> tuple[Matrix, npt.NDArray[np.int64]]:
    """Rows of `FEATURES` floats, of which a few decide the class together, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    signal = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + np.abs(x[:, 3]) - 0.8
    return x, (signal + rng.normal(scale=0.3, size=rows) > 0).astype(np.int64)


class Contest:
    """One fitted model, and the ways to score with it on `device`."""

    def __init__(self, name: str, model: Any, device: str) -> None:
        self.name = name
        self._model = model
        self._device = device
        imported = import_model(model)
        outputs = imported.program.outputs
        self.output = next(o for o in ("proba", "label", "transform") if o in outputs)
        self._parts = prepare_output(imported.program, self.output, None, "f32").split
        places = {feature.name: i for i, feature in enumerate(imported.features)}
        self._columns = [places[column.name] for column in self._parts.columns]
        self.trees = any(node.op == "tree_ensemble" for node in self._parts.core)

    def measure(self, rows: int, rounds: int) -> list[Timing]:
        """Check and time every way for a batch of so many rows.

        Raises:
            SystemExit: two ways do not agree.
        """
        x = data(rows, seed=1)[0]
        packed = np.ascontiguousarray(x[:, self._columns])
        native = compile_core(self._parts.core, Choice("native", "traverse", "cpu", "benchmark"))
        want = native.run({PACKED: packed})[self.output]
        made = [self._timing("native cpu", rows, rounds, lambda: native.run({PACKED: packed}))]
        for strategy in STRATEGIES if self.trees else ("tt",):
            for device in dict.fromkeys((self._device, "cpu")):
                made += self._torch(strategy, device, packed, want, rounds)
        made += self._hummingbird(x, rounds)
        made += self._xgboost(x, rounds)
        return made

    def _torch(
        self, strategy: str, device: str, packed: Matrix, want: npt.NDArray[Any], rounds: int
    ) -> list[Timing]:
        import torch

        rows, label = packed.shape[0], strategy if self.trees else "torch"
        host, resident = f"{label} {device} host", f"{label} {device} device"
        if rows > SLOW_ROWS and (device == "cpu" or strategy == "gemm"):
            return [Timing(self.name, rows, host, None, "left out for its time")]
        choice = Choice("torch", strategy, device, "benchmark")
        try:
            compiled: Any = compile_core(self._parts.core, choice)
            got = compiled.run({PACKED: packed})[self.output]
        except SqlmlError as error:
            return [Timing(self.name, rows, host, None, str(error))]
        if not np.allclose(got, want, rtol=1e-5, atol=1e-6):
            worst = np.abs(got - want).max(initial=0.0)
            sys.exit(f"{self.name}, {host}: differs from backend native by {worst:g}")
        timings = [self._timing(host, rows, rounds, lambda: compiled.run({PACKED: packed}))]
        if device == "cpu":
            return timings
        on_device = {PACKED: torch.from_numpy(packed).to(device)}

        def way() -> None:
            compiled.run_tensors(on_device, self.output)
            torch.cuda.synchronize()

        try:
            return [*timings, self._timing(resident, rows, rounds, way)]
        except torch.cuda.OutOfMemoryError:
            return [*timings, Timing(self.name, rows, resident, None, "out of memory")]

    def _hummingbird(self, x: Matrix, rounds: int) -> list[Timing]:
        way = f"hummingbird {self._device} host"
        try:
            from hummingbird.ml import convert

            other = convert(self._model, "torch", x[:1], device=self._device)
        except Exception as error:  # it is not installed, or it has no such operator
            return [Timing(self.name, x.shape[0], way, None, _short(error))]
        names = {"proba": "predict_proba", "label": "predict", "transform": "transform"}
        score = getattr(other, names[self.output])
        try:
            return [self._timing(way, x.shape[0], rounds, lambda: score(x))]
        except Exception as error:  # whatever torch meets in its graph
            return [Timing(self.name, x.shape[0], way, None, _short(error))]

    def _xgboost(self, x: Matrix, rounds: int) -> list[Timing]:
        if not self.name.startswith("xgboost"):
            return []
        import torch
        import xgboost

        rows, label = x.shape[0], f"XGBoost {self._device}"
        if self._device != "cpu" and not xgboost.build_info()["USE_CUDA"]:
            return [Timing(self.name, rows, f"{label} host", None, "built for the CPU alone")]
        booster = self._model.get_booster()
        booster.set_param({"device": self._device})
        made = [self._timing(f"{label} host", rows, rounds, lambda: booster.inplace_predict(x))]
        if self._device != "cpu":
            on_device = torch.from_numpy(x).to(self._device)  # it has __cuda_array_interface__

            def way() -> None:
                booster.inplace_predict(on_device)
                torch.cuda.synchronize()

            made.append(self._timing(f"{label} device", rows, rounds, way))
        return made

    def _timing(self, way: str, rows: int, rounds: int, run: Way) -> Timing:
        for _ in range(2):
            run()  # compiles what needs compiling, and fills torch's pools of memory
        median = statistics.median(seconds(run) for _ in range(rounds))
        return Timing(self.name, rows, way, median / rows * 1e9)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:100]


def table(timings: list[Timing]) -> str:
    """Nanoseconds a row: a line for each model and way, a column for each batch."""
    batches = sorted({t.rows for t in timings})
    times = {(t.model, t.way, t.rows): t for t in timings}
    lines = [f"{'ns a row':<24}{'':<26}" + "".join(f"{rows:>12,}" for rows in batches)]
    for model, way in dict.fromkeys((t.model, t.way) for t in timings):
        cells, reasons = "", set()
        for rows in batches:
            found = times.get((model, way, rows))
            known = found is not None and found.ns is not None
            cells += f"{found.ns:>12,.2f}" if found and known else f"{'-':>12}"
            reasons |= {found.reason} if found and not known else set()
        lines.append(f"{model:<24}{way:<26}{cells}  {'; '.join(sorted(reasons))[:90]}".rstrip())
    return "\n".join(lines)


def run_tests() -> None:
    """Run all tests that need a GPU, and leave with their status if any fails."""
    folder = Path(__file__).parent.parent / "tests"
    command = [sys.executable, "-m", "pytest", "--quiet", "-m", "gpu", str(folder)]
    status = subprocess.run(command, cwd=folder.parent, check=False).returncode
    if status:
        sys.exit(f"the tests on the GPU failed (pytest: {status}), so nothing is timed")


def main(arguments: list[str] | None = None) -> None:
    """Test, measure, print a table, and write a JSON file when asked to."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu")
    parser.add_argument("--rows", type=int, action="append", help=f"default: {ROWS}")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="default: all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--skip-tests", action="store_true", help="time alone")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the results as JSON")
    chosen = parser.parse_args(arguments)
    if not is_available("cuda"):
        print("no GPU: torch sees none (no driver, no device, or torch is built for the CPU alone)")
        print("nothing was tested or timed; this needs a machine with an NVIDIA GPU")
        return
    import torch

    if not chosen.skip_tests:
        run_tests()
    train, labels = data(TRAINING_ROWS, seed=0)
    timings: list[Timing] = []
    for name in chosen.model or MODELS:
        try:
            model = MODELS[name]()
        except ModuleNotFoundError as error:
            print(f"{name}: left out, {error}")
            continue
        contest = Contest(name, model.fit(train, labels), "cuda")
        for rows in chosen.rows or ROWS:
            timings += contest.measure(rows, chosen.rounds)
        print(table([t for t in timings if t.model == name]), flush=True)
        if chosen.write:  # after each model, so that a lost machine does not lose them all
            of: dict[str, Any] = {"threads": 1, "of": "median", "rounds": chosen.rounds, "seed": 1}
            of |= {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
            rows = [asdict(t) for t in timings]
            result = {"family": "gpu", "machine": machine(), "parameters": of, "rows": rows}
            chosen.write.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
