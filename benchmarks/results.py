"""The form of a result file, and the command line that writes one.

A file is one JSON object: `family`, `machine`, `parameters` (the whole command line), and `rows`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.compare import Difference
from benchmarks.machine import machine

RESULTS = Path(__file__).parent / "results"

SHOWN = 5
"""How many failures the terminal lists; the file has them all."""

Case = Mapping[str, Any]
"""What was measured: model, table, mode, rows ..: all contenders of one case are comparable."""


@dataclass(frozen=True, slots=True)
class Row:
    """One contender in one case.

    ns: nanoseconds a row, or None with a `reason`. ratio: how many times as long as sqlml it took;
    above 1 sqlml is faster. rounds: how often it was timed. prepare: seconds from the fitted model
    to the first ten rows (of TL2cgen: gcc's). largest, relative, differing, labels: see
    `compare.Difference`, against the source library. note: what to know of it.
    """

    case: Case
    contender: str
    threads: int
    ns: float | None = None
    ratio: float | None = None
    rounds: int = 0
    prepare: float | None = None
    largest: float | None = None
    relative: float | None = None
    differing: float | None = None
    labels: float | None = None
    exact: bool | None = None
    reason: str | None = None
    note: str = ""


def row_of(
    case: Case,
    contender: str,
    *,
    threads: int,
    ns: float | None = None,
    rounds: int = 0,
    prepare: float | None = None,
    difference: Difference | None = None,
    reason: str | None = None,
    note: str = "",
) -> Row:
    """A row, its numbers cut to what is meant by them."""
    row = Row(case, contender, threads, _digits(ns), None, rounds, _digits(prepare), note=note)
    if difference is not None:
        d = difference
        parts = (_digits(d.largest), _digits(d.relative), _digits(d.rows), _digits(d.labels))
        row = replace(
            row,
            largest=parts[0],
            relative=parts[1],
            differing=parts[2],
            labels=parts[3],
            exact=d.exact,
        )
    return replace(row, reason=reason)


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """The rows of a case, each with its time over sqlml's."""
    ours = next((row.ns for row in rows if row.contender == "sqlml"), None)
    if ours is None:
        return list(rows)
    return [replace(r, ratio=None if r.ns is None else _digits(r.ns / ours)) for r in rows]


def parser(family: str, doc: str | None) -> argparse.ArgumentParser:
    """The options that all families have."""
    made = argparse.ArgumentParser(prog=f"benchmarks.{family}", description=doc)
    made.add_argument("--rounds", type=int, default=5, help="of all contenders in turns")
    made.add_argument("--least", type=float, default=0.02, help="seconds in a round, at least")
    made.add_argument(
        "--patience", type=float, default=20.0, help="seconds after which one call is enough"
    )
    made.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each contender")
    made.add_argument("--seed", type=int, default=0, help="of training rows; of others one more")
    made.add_argument("--write", type=Path, metavar="FILE", help="keep the results as JSON")
    return made


def save(family: str, options: argparse.Namespace, rows: Iterable[Any]) -> None:
    """Write the file where one is asked for: after every case, since a whole run takes hours.

    Rows are `Row`s, or other dataclasses with `case`, `contender`, `exact` and `reason`.
    """
    if not options.write:
        return
    # where fitted models lie is no part of the result
    plain = {k: v for k, v in vars(options).items() if k not in ("write", "cache")}
    result = {
        "family": family,
        "machine": machine(),
        "parameters": {**plain, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "")},
        "rows": [{k: v for k, v in asdict(row).items() if v is not None} for row in rows],
    }
    options.write.parent.mkdir(parents=True, exist_ok=True)
    options.write.write_text(json.dumps(result, indent=1) + "\n")


def status(rows: Iterable[Any]) -> int:
    """The exit status of a run: 1 where sqlml is not exact or fails, and say where."""
    wrong = [row for row in rows if row.contender.startswith("sqlml") and not row.exact]
    for row in wrong[:SHOWN]:
        why = row.reason or f"differs by {row.relative:g} relative, {row.labels} of labels"
        print(f"not exact: {row.contender} on {row.case}: {why}")
    if len(wrong) > SHOWN:
        print(f"and {len(wrong) - SHOWN} more")
    return 1 if wrong else 0


def read(family: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """The result file of a family, or None where there is none."""
    path = folder / f"{family}.json"
    return json.loads(path.read_text()) if path.exists() else None


def line(row: Row) -> str:
    """A row for the terminal."""
    if row.ns is None:
        return f"  {row.contender:<18}{'-':>12}          {row.reason}"
    text = f"  {row.contender:<18}{row.ns:>12,.0f} ns"
    text += f"{row.ratio:>8.2f}x" if row.ratio is not None else f"{'':>9}"
    text += f"  differs by {row.largest:.1e}" if row.largest else ""
    text += f", {row.labels:.2%} of labels" if row.labels else ""
    return text + (f" ({row.note})" if row.note else "")


def _digits(value: float | None) -> float | None:
    """Four digits: more would be noise."""
    return None if value is None else float(f"{value:.4g}")
