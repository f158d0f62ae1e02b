"""Cascades and top-K filters beside the same queries answered exactly (Willump, figures 6 and 8).

Each workload of `cascade_workloads.py` is learned on rows that nobody trained on, and queried over
rows that nobody learned on: labels by `predict(.., approximate := true)` with a loss in accuracy of
0.001 at most, and the best 20 rows with a precision of 0.95. Look-ups on another server are
functions of Python that fetch a batch of rows from PostgreSQL, over a link that takes 1 ms longer a
round trip (`slow_link.py`): there is no extension of DuckDB for PostgreSQL on PyPI.

With `--seeds` cascades are learned on other rows, too, and it is counted how often the accuracy on
fresh rows is as promised; the precision is that of 200 queries.

    python -m benchmarks.cascades [--workload NAME]... [--seeds N] [--write FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import sqlml
from benchmarks.cascade_workloads import WORKLOADS, Workload
from benchmarks.results import parser, save, status
from benchmarks.rounds import best_calls
from benchmarks.slow_link import server

PRECISION = 0.95
TABLES, TABLE_ROWS = 200, 1_000
"""Queries for the best rows that are sampled, and the rows of each."""


@dataclass(frozen=True, slots=True)
class Learned:
    """One workload with one kind of small model.

    exact_ns, ns: of a row, exact and approximate; ratio: how many times as fast, bar: how many it
    has to be; expected: what the statement promised. seconds: to learn it. loss: what the accuracy
    falls by on fresh rows; precise: the share of fresh tables of which the best rows are precise
    enough. exact: whether that is as promised.
    """

    case: dict[str, Any]
    contender: str
    exact: bool
    ratio: float | None = None
    bar: float | None = None
    exact_ns: float | None = None
    ns: float | None = None
    expected: str | None = None
    seconds: float | None = None
    loss: float | None = None
    precise: float | None = None
    reason: str | None = None


def workload_of(con: Any, one: Workload, options: argparse.Namespace, stack: ExitStack) -> None:
    """Its relations, its functions, and its fitted model, in a session."""
    random = np.random.default_rng(options.seed)
    for name, frame in one.relations(random).items():
        _table(con, name, frame, key=name == "songs")
    remote = one.remote(random)
    if remote:
        where = stack.enter_context(server(remote))
        for name, frame in remote.items():
            _remote(con, where, name, frame, stack)
    _rows(con, one, "train", options.train, options.seed)
    frame = con.execute(one.query("train")).df()
    model = one.model().fit(frame[list(one.features)], frame[one.label])
    con.create_model("m", model, inputs=list(one.features))


def _rows(con: Any, one: Workload, table: str, rows: int, seed: int) -> None:
    _table(con, table, one.rows_of(rows, np.random.default_rng([seed, len(table)])))


def _table(con: Any, name: str, frame: pd.DataFrame, key: bool = False) -> None:
    con.register("frame", frame)
    con.execute(f"CREATE OR REPLACE TABLE {name} AS FROM frame")
    if key:
        con.execute(f"ALTER TABLE {name} ADD PRIMARY KEY ({frame.columns[0]})")
    con.unregister("frame")


def _remote(con: Any, where: str, table: str, frame: pd.DataFrame, stack: ExitStack) -> None:
    """A function, called like a row of the table, that fetches rows by their keys."""
    import psycopg

    link = stack.enter_context(psycopg.connect(where, autocommit=True))
    columns = list(frame.columns[1:])
    kinds = {c: pa.int64() if frame[c].dtype.kind == "i" else pa.float64() for c in columns}
    listed = ", ".join(f"t.{c}" for c in columns)
    query = (
        f"SELECT {listed} FROM unnest(%s::bigint[]) WITH ORDINALITY AS k(key, place) "
        f"LEFT JOIN {table} t ON t.key = k.key ORDER BY k.place"
    )
    lock = threading.Lock()

    def fetch(keys: Any) -> Any:
        with lock:
            rows = link.execute(query, [keys.to_pylist()], binary=True).fetchall()
        made = zip(*rows, strict=True) if rows else [[] for _ in columns]
        arrays = [pa.array(values, kinds[c]) for values, c in zip(made, columns, strict=True)]
        return pa.StructArray.from_arrays(arrays, columns)

    sql = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}
    fields = ", ".join(f"{c} {sql[kinds[c]]}" for c in columns)
    name = table.removesuffix("s")
    con.create_function(name, fetch, ["BIGINT"], f"STRUCT({fields})", type="arrow")


def measure(name: str, options: argparse.Namespace) -> Iterator[Learned]:
    """A workload's cascade, if it classifies, and its top-K filter."""
    one = WORKLOADS[name]
    with ExitStack() as stack:
        con = stack.enter_context(sqlml.connect())
        con.execute(f"SET threads = {options.threads}")
        workload_of(con, one, options, stack)
        for seed in range(options.seeds if one.classifies else 1):
            case = {"workload": name, "seed": seed, "rows": options.rows}
            _rows(con, one, "learn", options.learn or one.learn, 100 + seed)
            queries = TABLES * TABLE_ROWS if seed == 0 else 0
            _rows(con, one, "fresh", max(options.rows, queries), 200 + seed)
            timed = options.rounds if seed == 0 else 0
            if one.classifies:
                yield _cascade(con, one, case, timed, options)
            if queries:
                yield _top_k(con, one, case, timed, options)


def _learned(con: Any, one: Workload, kind: str, options: str) -> tuple[dict[str, str], float]:
    start = time.perf_counter()
    told = con.execute(
        f"ALTER MODEL m ADD {kind} USING ({one.query('learn')}) OPTIONS ({options})"
    ).fetchall()
    return dict(told), time.perf_counter() - start


def _cascade(
    con: Any, one: Workload, case: dict[str, Any], rounds: int, options: argparse.Namespace
) -> Learned:
    allowed = f"label = {one.label}, accuracy_loss = {options.loss}"
    told, seconds = _learned(con, one, "CASCADE", allowed)
    contender, case = "sqlml cascade", {**case, "kind": "cascade"}
    if told["stored"] != "yes":
        return Learned(case, contender, True, bar=one.cascade, reason=told["reason"])
    fresh = f"(FROM fresh WHERE id < {options.rows})"

    def query(select: str, how: str) -> str:
        call = f"predict('m', *, approximate := {how})"
        return f"SELECT {select.format(call)} FROM ({one.query(fresh)}) q"

    ask = f"{{}} AS p, {one.label} AS label"
    exact, fast = (con.execute(query(ask, how)).df() for how in ("false", "true"))
    loss = float((exact.p == exact.label).mean() - (fast.p == fast.label).mean())
    times = _times(con, [query("sum({})", how) for how in ("false", "true")], rounds, options)
    return Learned(
        case,
        contender,
        loss <= options.loss,
        bar=one.cascade,
        expected=told["expected"],
        seconds=round(seconds, 1),
        loss=round(loss, 6),
        **times,
    )


def _top_k(
    con: Any, one: Workload, case: dict[str, Any], rounds: int, options: argparse.Namespace
) -> Learned:
    k = options.k
    told, seconds = _learned(con, one, "TOP_K FILTER", f"k = {k}, precision = {PRECISION}")
    contender, case = "sqlml top_k", {**case, "kind": "top_k"}
    if told["stored"] != "yes":
        return Learned(case, contender, True, bar=one.top_k, reason=told["reason"])
    call = "predict_proba('m', *, class := 1" if one.classifies else "predict('m', *"

    def query(table: str, how: str) -> str:
        order = f"{call}, approximate := {how})"
        return f"SELECT id FROM ({one.query(table)}) q ORDER BY {order} DESC LIMIT {k}"

    scored = con.execute(f"SELECT id, {call}) AS p FROM ({one.query('fresh')}) q ORDER BY id").df()
    precise = 0
    for number in range(TABLES):
        first = number * TABLE_ROWS
        part = f"(FROM fresh WHERE id >= {first} AND id < {first + TABLE_ROWS})"
        found = con.execute(query(part, "true")).df().id
        own = scored.p.to_numpy()[first : first + TABLE_ROWS]
        least = np.partition(own, -k)[-k]  # rows that tie with the k-th are as good
        precise += int((own[found.to_numpy() - first] >= least).mean() >= PRECISION)
    fresh = f"(FROM fresh WHERE id < {options.rows})"
    times = _times(con, [query(fresh, how) for how in ("false", "true")], rounds, options)
    return Learned(
        case,
        contender,
        precise >= 0.95 * TABLES,
        bar=one.top_k,
        expected=told["expected"],
        seconds=round(seconds, 1),
        precise=precise / TABLES,
        **times,
    )


def _times(
    con: Any, queries: list[str], rounds: int, options: argparse.Namespace
) -> dict[str, Any]:
    if not rounds:
        return {}

    def asked(query: str) -> Callable[[], Any]:
        return lambda: con.execute(query).fetchall()

    calls = [asked(query) for query in queries]
    exact, fast = best_calls(calls, rounds, least=0, patience=options.patience)
    ns = [t.seconds / options.rows * 1e9 for t in (exact, fast)]
    return {
        "exact_ns": round(ns[0], 1),
        "ns": round(ns[1], 1),
        "ratio": round(ns[0] / ns[1], 2),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each small model, and write a JSON file when asked to."""
    made = parser("cascades", __doc__)
    made.add_argument("--workload", action="append", choices=WORKLOADS, help="default: all")
    made.add_argument("--train", type=int, default=20_000, help="rows to fit on")
    made.add_argument(
        "--learn", type=int, help="rows for the small models (default: the workload's)"
    )
    made.add_argument("--rows", type=int, default=100_000, help="of the timed queries")
    made.add_argument("--seeds", type=int, default=1, help="of rows that are learned on, queried")
    made.add_argument("--loss", type=float, default=0.001, help="what the accuracy may fall by")
    made.add_argument("-k", type=int, default=20, help="the best rows of a query")
    options = made.parse_args(arguments)
    kept = _others(options)
    for name in options.workload or WORKLOADS:
        for learned in measure(name, options):
            kept.append(learned)
            save("cascades", options, kept)
            print(line(learned), flush=True)
    return status(kept)


def _others(options: argparse.Namespace) -> list[Learned]:
    """What the file that is to be written has of workloads that are not measured now."""
    if not options.write or not options.write.exists():
        return []
    chosen = options.workload or list(WORKLOADS)
    rows = json.loads(options.write.read_text())["rows"]
    return [Learned(**row) for row in rows if row["case"]["workload"] not in chosen]


def line(one: Learned) -> str:
    """A small model for the terminal."""
    case = one.case
    head = f"{case['workload']:<10}{case['kind']:<9}seed {case['seed']:<3}"
    if one.reason is not None:
        return f"{head} none: {one.reason}"
    speed = "" if one.ratio is None else f"{one.ratio:6.2f}x (bar {one.bar}), {one.ns:,.0f} ns  "
    kept = f"loses {one.loss:.5f}" if one.loss is not None else f"precise {one.precise:.3f}"
    return f"{head} {speed}{kept}, {one.expected}, learned in {one.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
