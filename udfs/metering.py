"""Functions that count rows, batches and time for one analyzed query.

An analyzed query calls twins of its functions, which no other query calls at the same time, so a
query that is not analyzed pays nothing. Later analyses reuse the twins, since an engine never
forgets a function.
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
from sqlml.udfs.engine_function import EngineFunction, with_signature


class Meter:
    """Counts of one query by function name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[str, tuple[int, int, int]] = {}
        self._running = 0
        self._since = 0
        self._inside = 0

    def enter(self) -> int:
        with self._lock:
            now = time.perf_counter_ns()
            if not self._running:
                self._since = now
            self._running += 1
        return now

    def leave(self, name: str, start: int, rows: int) -> None:
        with self._lock:
            now = time.perf_counter_ns()
            self._running -= 1
            if not self._running:
                self._inside += now - self._since
            batches, total_rows, spent = self._done.get(name, (0, 0, 0))
            self._done[name] = batches + 1, total_rows + rows, spent + now - start

    @property
    def inside(self) -> float:
        """Return the seconds during which at least one thread was in a function."""
        return self._inside * 1e-9

    def counts_of(self, name: str) -> FunctionMeasurement:
        with self._lock:
            batches, rows, spent = self._done.get(name, (0, 0, 0))
        return FunctionMeasurement(rows, batches, spent * 1e-9)


class Twin:
    """A function under another name, used by at most one analysis at a time.

    It keeps the scoring function only during an analysis, since the engine keeps the twin forever.
    """

    def __init__(self, function: EngineFunction, number: int) -> None:
        call = with_signature(len(function.argument_types), self.run)
        self.name = function.name
        self.function = replace(
            function, name=f"{function.name}_m{number}", function=call, metered=self
        )
        self._now: tuple[Meter, BatchFunction] | None = None
        self._started: dict[int, tuple[Meter, int]] = {}

    def take(self, meter: Meter, function: EngineFunction) -> None:
        assert isinstance(function.function, BatchFunction)
        self._now = meter, function.function

    def run(self, *columns: Any) -> Any:
        self.enter()
        try:
            return self.batch_function()(*columns)
        finally:
            self.leave(len(columns[0]))

    def batch_function(self) -> BatchFunction:
        if self._now is None:  # The query was prepared during an analysis and runs after it.
            return find_function(self.name)
        return self._now[1]

    def enter(self) -> None:
        # By thread number: to Python, an engine's thread is a new one each time.
        if self._now is not None:
            meter = self._now[0]
            self._started[threading.get_ident()] = meter, meter.enter()

    def leave(self, rows: int) -> None:
        meter, start = self._started.pop(threading.get_ident(), (None, 0))
        if meter is not None:
            meter.leave(self.name, start, rows)

    def counts(self) -> FunctionMeasurement:
        assert self._now is not None
        meter, function = self._now
        again = 0 if function.last is None else function.last.found_rows
        return replace(meter.counts_of(self.name), again=again)

    def release(self) -> None:
        self._now = None
        native_functions.forget((self.function.name,))


_twins: dict[str, list[Twin]] = {}
_lock = threading.Lock()


def _take_twin(name: str, make: Callable[[], EngineFunction], meter: Meter) -> Twin:
    function = make()  # Outside of the lock, since this may compile.
    with _lock:
        twins = _twins.setdefault(name, [])
        twin = next((t for t in twins if t._now is None), None)
        if twin is None:
            twin = Twin(function, len(twins) + 1)
            twins.append(twin)
        twin.take(meter, function)
        return twin


@contextmanager
def meter_functions(
    functions: Mapping[str, Callable[[], EngineFunction]],
) -> Iterator[
    tuple[Meter, Mapping[str, EngineFunction], Callable[[], Mapping[str, FunctionMeasurement]]]
]:
    """Lend twins of functions, which are given by factories, to one query.

    Yields the meter, the twins to register by the names of the originals, and a function that
    returns the counts by the same names.
    """
    meter, twins = Meter(), dict[str, Twin]()
    try:
        for name, make in functions.items():
            twins[name] = _take_twin(name, make, meter)
        yield (
            meter,
            {name: twin.function for name, twin in twins.items()},
            lambda: {name: twin.counts() for name, twin in twins.items()},
        )
    finally:
        for twin in twins.values():
            twin.release()
