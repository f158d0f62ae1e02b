"""Measure the rows, the batches and the time of functions in one analyzed query.

An analyzed query calls twins, which are copies of functions that take measurements. No other query
calls the same twins at the same time, so a query that is not analyzed has no overhead. Later
analyses reuse the twins, since an engine never forgets a function.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlml.planner.plan.explain_plan import FunctionMeasurement
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.functions_by_name import find_function
from sqlml.udfs.duckdb.native import native_functions
from sqlml.udfs.engine_function import EngineFunction, add_signature


class Meter:
    """Measures the functions of one query. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, tuple[int, int, int]] = {}
        self._running_count = 0
        self._busy_since = 0
        self._busy_nanoseconds = 0

    def start_batch(self) -> int:
        with self._lock:
            start_time = time.perf_counter_ns()
            if not self._running_count:
                self._busy_since = start_time
            self._running_count += 1
        return start_time

    def end_batch(self, name: str, start_time: int, rows: int) -> None:
        with self._lock:
            now = time.perf_counter_ns()
            self._running_count -= 1
            if not self._running_count:
                self._busy_nanoseconds += now - self._busy_since
            batches, total_rows, nanoseconds = self._totals.get(name, (0, 0, 0))
            self._totals[name] = batches + 1, total_rows + rows, nanoseconds + now - start_time

    @property
    def busy_seconds(self) -> float:
        """The number of seconds during which at least one thread was running a function."""
        return self._busy_nanoseconds * 1e-9

    def get_measurement(self, name: str) -> FunctionMeasurement:
        with self._lock:
            batches, rows, nanoseconds = self._totals.get(name, (0, 0, 0))
        return FunctionMeasurement(rows, batches, nanoseconds * 1e-9)


class FunctionCopy:
    """A twin of a function, with another name, which measures one analyzed query at a time.

    The engine keeps a twin forever, so a twin holds the scoring function only during an analysis.
    """

    def __init__(self, function: EngineFunction, number: int) -> None:
        run_batch = add_signature(len(function.argument_types), self.run)
        self.name, twin_name = function.name, f"{function.name}_m{number}"
        self.function = replace(function, name=twin_name, function=run_batch, metered=self)
        self._analysis: tuple[Meter, BatchFunction] | None = None
        self._started: dict[int, tuple[Meter, int]] = {}

    def take(self, meter: Meter, function: EngineFunction) -> None:
        assert isinstance(function.function, BatchFunction)
        self._analysis = meter, function.function

    def run(self, *columns: Any) -> Any:
        self.start_batch()
        try:
            return self.find_batch_function()(*columns)
        finally:
            self.end_batch(len(columns[0]))

    def find_batch_function(self) -> BatchFunction:
        if self._analysis is None:  # The query was prepared during an analysis and runs after it.
            return find_function(self.name)
        return self._analysis[1]

    def start_batch(self) -> None:
        # The key is the thread ID, because each batch of an engine's thread is a new Python thread.
        if self._analysis is not None:
            meter = self._analysis[0]
            self._started[threading.get_ident()] = meter, meter.start_batch()

    def end_batch(self, rows: int) -> None:
        meter, start = self._started.pop(threading.get_ident(), (None, 0))
        if meter is not None:
            meter.end_batch(self.name, start, rows)

    def get_measurement(self) -> FunctionMeasurement:
        assert self._analysis is not None
        meter, function = self._analysis
        recalled_rows = 0 if function.last_rows is None else function.last_rows.found_rows
        return replace(meter.get_measurement(self.name), again=recalled_rows)

    def end_analysis(self) -> None:
        self._analysis = None
        native_functions.drop_plans((self.function.name,))


_twins: dict[str, list[FunctionCopy]] = {}
_lock = threading.Lock()


def _start_twin(
    name: str, make_function: Callable[[], EngineFunction], meter: Meter
) -> FunctionCopy:
    function = make_function()  # This may compile, so do not hold the lock.
    with _lock:
        twins = _twins.setdefault(name, [])
        twin = next((candidate for candidate in twins if candidate._analysis is None), None)
        if twin is None:
            twin = FunctionCopy(function, len(twins) + 1)
            twins.append(twin)
        twin.take(meter, function)
        return twin


Measure = Callable[[], Mapping[str, FunctionMeasurement]]
"""Returns the measurements of a query's functions, keyed by the original names."""


@contextmanager
def meter_functions(
    functions: Mapping[str, Callable[[], EngineFunction]],
) -> Iterator[tuple[Meter, Mapping[str, EngineFunction], Measure]]:
    """Lend twins of functions to one query; `functions` maps each name to a function factory.

    Yields the meter, the twins to register (keyed by original name), and a `Measure`.
    """
    meter, twins = Meter(), dict[str, FunctionCopy]()
    try:
        for name, make_function in functions.items():
            twins[name] = _start_twin(name, make_function, meter)
        yield (
            meter,
            {name: twin.function for name, twin in twins.items()},
            lambda: {name: twin.get_measurement() for name, twin in twins.items()},
        )
    finally:
        for twin in twins.values():
            twin.end_analysis()
