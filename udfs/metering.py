"""`metered`: the functions of one analysed query, which count what they do.

A query that is analysed calls twins of its functions, under names of their own that nobody else
calls meanwhile: so the numbers cover only this query, whatever other connections run, and a query
that is not analysed pays nothing. Twins are used again by later analyses, since an engine never
forgets a function.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlml.planner.plan.explain_plan import Measured
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.functions_by_name import found
from sqlml.udfs.duckdb.native import functions as native
from sqlml.udfs.engine_function import EngineFunction, taking


class Meter:
    """Counts of one query, by the names of its functions. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[str, tuple[int, int, int]] = {}
        self._running = 0
        self._since = 0
        self._inside = 0

    def enter(self) -> int:
        """A function begins; the time now in nanoseconds."""
        with self._lock:
            now = time.perf_counter_ns()
            if not self._running:
                self._since = now
            self._running += 1
        return now

    def leave(self, name: str, start: int, rows: int) -> None:
        """The function `name` ends, which began at `start` and was given so many rows."""
        with self._lock:
            now = time.perf_counter_ns()
            self._running -= 1
            if not self._running:
                self._inside += now - self._since
            batches, known, spent = self._done.get(name, (0, 0, 0))
            self._done[name] = batches + 1, known + rows, spent + now - start

    @property
    def inside(self) -> float:
        """Seconds while one thread at least was in a function."""
        return self._inside * 1e-9

    def of(self, name: str) -> Measured:
        """What the function `name` did."""
        with self._lock:
            batches, rows, spent = self._done.get(name, (0, 0, 0))
        return Measured(rows, batches, spent * 1e-9)


class _Twin:
    """A function under another name, in use by one analysis at most.

    It holds what scores while that lasts: the engine keeps the twin for ever.
    """

    def __init__(self, function: EngineFunction, number: int) -> None:
        call = taking(len(function.argument_types), self.run)
        self.name = function.name
        self.function = replace(
            function, name=f"{function.name}_m{number}", function=call, measured=self
        )
        self._now: tuple[Meter, BatchFunction] | None = None
        self._started: dict[int, tuple[Meter, int]] = {}

    @property
    def is_free(self) -> bool:
        """Whether no analysis has it."""
        return self._now is None

    def take(self, meter: Meter, function: EngineFunction) -> None:
        """Stand for the function in one analysis."""
        assert isinstance(function.function, BatchFunction)
        self._now = meter, function.function

    def run(self, *columns: Any) -> Any:
        """The function's values for a batch."""
        self.enter()
        try:
            return self.batch_function()(*columns)
        finally:
            self.leave(len(columns[0]))

    def batch_function(self) -> BatchFunction:
        """What scores now."""
        if self._now is None:  # a statement that was prepared while it was analysed
            return found(self.name)
        return self._now[1]

    def enter(self) -> None:
        """A batch begins on this thread."""
        if self._now is not None:  # by number: an engine's thread is a new one to Python each time
            meter = self._now[0]
            self._started[threading.get_ident()] = meter, meter.enter()

    def leave(self, rows: int) -> None:
        """A batch of so many rows ends on this thread."""
        meter, start = self._started.pop(threading.get_ident(), (None, 0))
        if meter is not None:
            meter.leave(self.name, start, rows)

    def measured(self) -> Measured:
        """What it did since it was taken."""
        assert self._now is not None
        meter, made = self._now
        again = 0 if made.last is None else made.last.found
        return replace(meter.of(self.name), again=again)

    def release(self) -> None:
        """Give it back, for another analysis."""
        self._now = None
        native.forget((self.function.name,))


_twins: dict[str, list[_Twin]] = {}
_lock = threading.Lock()


def _take(name: str, make: Callable[[], EngineFunction], meter: Meter) -> _Twin:
    function = make()  # it may compile
    with _lock:
        known = _twins.setdefault(name, [])
        twin = next((t for t in known if t.is_free), None)
        if twin is None:
            twin = _Twin(function, len(known) + 1)
            known.append(twin)
        twin.take(meter, function)
        return twin


@contextmanager
def metered(
    functions: Mapping[str, Callable[[], EngineFunction]],
) -> Iterator[tuple[Meter, Mapping[str, EngineFunction], Callable[[], Mapping[str, Measured]]]]:
    """Twins of the functions (makers by name), to be called by one query.

    Gives the meter of them all, the twins to register, and what they did, by the names of the
    functions that they stand for.
    """
    meter, taken = Meter(), dict[str, _Twin]()
    try:
        for name, make in functions.items():
            taken[name] = _take(name, make, meter)
        yield (
            meter,
            {name: twin.function for name, twin in taken.items()},
            lambda: {name: twin.measured() for name, twin in taken.items()},
        )
    finally:
        for twin in taken.values():
            twin.release()
