"""Rounds of what a process may do all day; run as a script by test_flat_memory.py.

Arguments: what to do, how often before memory counts, and how often then; how many Programs and
megabytes there are more in the end is printed. Without the garbage collector, since that comes
late: what holds itself would stay for hundreds of rounds.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

import sqlml
from sqlml.ir.program import Program

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(500, 6)), columns=list("abcdef"))
ASK = "SELECT count(*) FROM {}t WHERE predict('{}m', *) = 1"


def forest(seed: int = 0) -> RandomForestClassifier:
    """One of its own for each seed, of about 60 kB."""
    noise = np.random.default_rng(seed).normal(size=500)
    return RandomForestClassifier(8, random_state=seed).fit(FRAME, FRAME.a + noise > 0)


MODEL = forest()


def filled(path: str = ":memory:") -> sqlml.Session:
    con = sqlml.connect(path)
    con.register("f", FRAME)
    con.execute("CREATE TABLE t AS FROM f")
    con.create_model("m", MODEL, verify=False)
    return con


def opened() -> Callable[[int], object]:
    filled("one.duckdb").close()

    def one(i: int) -> None:
        with sqlml.connect("one.duckdb") as con:
            con.execute(ASK.format("", "")).fetchall()

    return one


def attached() -> Callable[[int], object]:
    filled("one.duckdb").close()
    con = sqlml.connect()

    def one(i: int) -> None:
        con.execute("ATTACH 'one.duckdb' AS d")
        con.execute(ASK.format("d.", "d.")).fetchall()
        con.execute("DETACH d")

    return one


def created(new: bool) -> Callable[[int], object]:
    con = filled()

    def one(i: int) -> None:
        con.execute("DROP MODEL m")
        con.create_model("m", forest(i) if new else MODEL, verify=False)
        con.execute(ASK.format("", "")).fetchall()

    return one


def replaced() -> Callable[[int], object]:
    con = filled()

    def one(i: int) -> None:
        con.create_model("m", MODEL, verify=False, or_replace=True)
        con.execute(ASK.format("", "")).fetchall()

    return one


def analysed() -> Callable[[int], object]:
    con = filled()

    def one(i: int) -> None:
        con.execute("DROP MODEL m")
        con.create_model("m", forest(i), verify=False)
        con.explain(ASK.format("", ""), analyze=True)

    return one


def refused() -> Callable[[int], object]:
    strict = filled()
    strict.execute("INSERT INTO t VALUES (NULL, 1, 1, 1, 1, 1)")
    from sklearn.linear_model import LogisticRegression

    strict.create_model("m", LogisticRegression().fit(FRAME, FRAME.a > 0), or_replace=True)

    def one(i: int) -> None:
        try:
            strict.sql(f"SELECT max(predict_proba('m', *, class := true)) + {i} FROM t").fetchall()
        except sqlml.errors.MissingValueError:
            return
        raise AssertionError("a row was not refused")

    return one


def asked() -> Callable[[int], object]:
    con = filled()
    return lambda i: con.execute(ASK.format("", "") + f" AND a > {i}").fetchall()


def compiled(new: bool) -> Callable[[int], object]:
    return lambda i: sqlml.compile(forest(i) if new else MODEL).predict_proba(FRAME)


KINDS: dict[str, Callable[[], Callable[[int], object]]] = {
    "a file is opened": opened,
    "a file is attached": attached,
    "a model is created again": lambda: created(False),
    "a model is replaced by itself": replaced,
    "queries differ": asked,
    "a row is refused": refused,
    "a scorer is compiled": lambda: compiled(False),
    "another scorer is compiled": lambda: compiled(True),
    "another model is analysed": analysed,
}
"""Nothing of these stays."""

DROPPED: dict[str, Callable[[], Callable[[int], object]]] = {
    "another model is created": lambda: created(True),
}
"""Of these a little stays, for queries that still run."""


def megabytes() -> float:
    """Memory in use: what was freed between other blocks goes back to the system first."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def programs() -> int:
    return sum(isinstance(o, Program) for o in gc.get_objects())


def main() -> None:
    kind, before, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    work = {**KINDS, **DROPPED}[kind]()
    for i in range(before + rounds if "another" in kind else 0):
        forest(i)  # what scikit-learn takes to fit does not count
    for i in range(before):
        work(i)
    gc.collect()
    gc.disable()
    had, size = programs(), megabytes()
    for i in range(before, before + rounds):
        work(i)
    more = programs() - had
    gc.collect()
    print(more, f"{megabytes() - size:.1f}")


if __name__ == "__main__":
    main()
