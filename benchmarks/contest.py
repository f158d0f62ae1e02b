"""`contest`: all contenders on one fitted model: compared with the source library, then timed.

What a contender cannot do is a row with the reason. A result that differs is measured none the
less, and its difference stands beside the time.
"""

from __future__ import annotations

import contextlib
import io
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.compare import Difference, canonical, compare
from benchmarks.compiled import compile_seconds
from benchmarks.models import Subject
from benchmarks.peers import PEERS, Score, Setting
from benchmarks.results import Case, Row, row_of
from benchmarks.rounds import COMPILING, Timing, best_calls
from benchmarks.tables import Matrix

STAMP = r"^\[\d\d:\d\d:\d\d\] \S+ "
"""What Treelite writes before a message: the time, and a line of its source."""

ONE_ROW = 64
"""How many different rows are scored one at a time."""


@dataclass(frozen=True, slots=True)
class Effort:
    """rounds: of all contenders in turns. least: seconds that a round of one takes. patience:
    seconds after which a contender is called once only."""

    rounds: int = 5
    least: float = 0.02
    patience: float = 20.0


@dataclass(frozen=True, slots=True)
class Ready:
    """A contender that took the model. prepare: seconds from the fitted model to a first result
    of ten rows. first: seconds of the call of `checked` rows that was compared."""

    name: str
    score: Score
    prepare: float
    first: float
    checked: int
    difference: Difference


@dataclass(frozen=True, slots=True)
class Field:
    """The contenders of one model, those that are ready and why others are not."""

    subject: Subject
    setting: Setting
    ready: tuple[Ready, ...]
    reasons: Mapping[str, str]


def chosen(names: Sequence[str] | None, *, trees: bool = True) -> list[str]:
    """The contenders named, or all that suit; the library and sqlml always, and first."""
    picked = names or [n for n, p in PEERS.items() if not p.asked and (trees or not p.trees)]
    return ["library", "sqlml", *(n for n in picked if n not in ("library", "sqlml"))]


def field(subject: Subject, names: Sequence[str], setting: Setting, x: Matrix) -> Field:
    """Prepare the contenders `names`, and compare what they say of the rows `x`."""
    with _quiet(setting.threads):
        want = _reference(subject, x)
        ready, reasons = [], {}
        for name in names:
            try:
                start = time.perf_counter()
                score = PEERS[name].make(subject, setting)
                score(x[:10])
                prepare = time.perf_counter() - start
                start = time.perf_counter()
                raw = score(x)
                first = time.perf_counter() - start
                got = canonical(raw, subject.method)
                apart = compare(got, want, subject.method, labels=subject.labels)
            except Exception as error:  # whatever a library raises is why it has no number
                reasons[name] = reason(error)
                continue
            if name == "tl2cgen":
                prepare = compile_seconds(subject.key, setting.cache) or prepare
            ready.append(Ready(name, score, prepare, first, len(x), apart))
    return Field(subject, setting, tuple(ready), reasons)


def timed(
    contenders: Field, case: Case, rows: int, way: Callable[[Score], Callable[[], Any]], e: Effort
) -> list[Row]:
    """A row for each contender: the time of what `way` makes of its score function.

    One that took far longer than the patience to be compared has the time of that call.
    """
    slow = {
        r.name: Timing(r.first, 1)
        for r in contenders.ready
        if r.checked == rows and r.first > COMPILING * e.patience
    }
    quick = [r for r in contenders.ready if r.name not in slow]
    with _quiet(contenders.setting.threads):
        ways = [way(r.score) for r in quick]
        best = best_calls(ways, e.rounds, least=e.least, patience=e.patience)
    timings = slow | {r.name: timing for r, timing in zip(quick, best, strict=True)}
    made = [
        row_of(
            case,
            r.name,
            threads=contenders.setting.threads,
            ns=timings[r.name].seconds / rows * 1e9,
            rounds=timings[r.name].rounds,
            prepare=r.prepare,
            difference=r.difference,
            note=PEERS[r.name].note,
        )
        for r in contenders.ready
    ]
    threads = contenders.setting.threads
    return made + [
        row_of(case, name, threads=threads, reason=why) for name, why in contenders.reasons.items()
    ]


def whole(x: Matrix) -> Callable[[Score], Callable[[], Any]]:
    """All rows in one call."""
    return lambda score: partial(score, x)


def in_batches(x: Matrix, size: int) -> Callable[[Score], Callable[[], Any]]:
    """All rows, `size` of them in a call."""
    batches = [x[i : i + size] for i in range(0, len(x), size)]
    return lambda score: partial(_each, score, batches)


def one_by_one(x: Matrix) -> Callable[[Score], Callable[[], Any]]:
    """The rows of `x`, each in its own call."""
    return in_batches(x, 1)


def reason(error: BaseException) -> str:
    """Why a contender has no number, on one short line."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = re.sub(STAMP, "", lines[0]) if lines else type(error).__name__
    return text if len(text) <= 160 else f"{text[:157]}..."


def _each(score: Score, batches: Sequence[Matrix]) -> None:
    for batch in batches:
        score(batch)


def _reference(subject: Subject, x: Matrix) -> Any:
    """What the source library's own estimator says, in float64: never what is timed."""
    asked = subject.model
    wide = x.astype(np.float64) if subject.library == "scikit-learn" else x
    return canonical(getattr(asked, subject.method)(wide), subject.method)


@contextlib.contextmanager
def _quiet(threads: int) -> Iterator[None]:
    """No more threads than agreed in BLAS and OpenMP, and no chatter of converters."""
    with (
        threadpool_limits(limits=threads),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield
