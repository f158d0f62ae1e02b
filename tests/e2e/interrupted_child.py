"""Queries that a Ctrl-C meets; run as a script by test_interruption.py, with a kernel cache of its
own.

Arguments: which, separated by semicolons (all by default), the seconds after which a SIGINT comes,
and how often. For each a line of JSON: its name, what came of it, after how many CPU seconds since
the SIGINT, and whether the session answers right afterwards.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression

import sqlml

ROWS = 8_000_000
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(300, 3)), columns=list("abc"))
MODEL = RandomForestClassifier(500, random_state=0).fit(FRAME, FRAME.a * FRAME.b > FRAME.c)
SCORES = "SELECT predict('m', *) AS p FROM t"
COUNT = f"SELECT count(*) FROM ({SCORES}) WHERE p"

WAYS: MappingProxyType[str, Callable[[sqlml.Session], Any]] = MappingProxyType(
    {
        "execute": lambda con: con.execute(COUNT).fetchall(),
        "execute, rows by a list": lambda con: con.execute(SCORES).fetchall(),
        "execute, rows one by one": lambda con: list(iter(con.execute(SCORES).fetchone, None)),
        "execute, a frame": lambda con: con.execute(SCORES).df(),
        "execute, arrays": lambda con: con.execute(SCORES).fetchnumpy(),
        "execute, Arrow": lambda con: con.execute(SCORES).arrow(),
        "a relation": lambda con: con.sql(COUNT).fetchall(),
        "a relation's frame": lambda con: con.sql(SCORES).df(),
        "a relation, printed": lambda con: str(con.sql(f"SELECT max(p) FROM ({SCORES})")),
        "a view": lambda con: con.execute("SELECT count(*) FROM v WHERE p").fetchall(),
        "CREATE TABLE AS": lambda con: con.execute(f"CREATE OR REPLACE TABLE u AS {SCORES}"),
        "EXPLAIN ANALYZE": lambda con: con.explain(COUNT, analyze=True),
        "a statement after an unread result": lambda con: (
            con.execute(SCORES),
            con.execute("SELECT predict('line', *) FROM few"),
        ),
        "several statements": lambda con: con.execute(f"SELECT 1; {COUNT}; SELECT 2").fetchall(),
    }
)
"""What takes seconds, or would."""

TENSORS = "torch"
"""The same by the torch backend."""


def filled() -> sqlml.Session:
    con = sqlml.connect()
    con.create_model("m", MODEL, verify=False)
    con.create_model("line", LinearRegression().fit(FRAME, FRAME.a), verify=False)
    con.execute("CREATE TABLE few AS SELECT 1.5::DOUBLE AS a, 0.5::DOUBLE AS b, 0.0::DOUBLE AS c")
    con.execute(f"CREATE TABLE t AS SELECT few.* REPLACE (a + range / {ROWS} AS a) "
                f"FROM few, range({ROWS})")  # fmt: skip
    con.execute(f"CREATE VIEW v AS {SCORES}")
    return con


def answers(con: sqlml.Session) -> bool:
    """Whether the session scores as ever."""
    ask = "SELECT predict('m', *), predict('line', *) FROM few"
    ((label, value),) = con.execute(ask).fetchall()
    row = FRAME[:1].assign(a=1.5, b=0.5, c=0.0)
    return bool(label == MODEL.predict(row)[0]) and abs(value - 1.5) < 1e-9


def interrupted(work: Callable[[], Any], seconds: float) -> tuple[str, float]:
    """What comes of `work` when a SIGINT comes after so many seconds, and after what CPU time."""
    start = time.process_time()

    def interrupt() -> None:
        nonlocal start
        start = time.process_time()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(seconds, interrupt)
    try:
        timer.start()
        work()
        came = "an answer"
        timer.join()
        time.sleep(0.1)
    except KeyboardInterrupt:
        came = "KeyboardInterrupt"
    except Exception as error:
        came = f"{type(error).__name__}: {error}"
        timer.join()
    took = time.process_time() - start
    return came, took


def main() -> None:
    names = sys.argv[1].split(";") if sys.argv[1] else list(WAYS)
    seconds, rounds = float(sys.argv[2]), int(sys.argv[3])
    con = filled()
    if TENSORS in names:
        con.create_model("tensors", MODEL, verify=False, backend="torch")
    if len(names) > 1:
        answers(con)  # the kernel is compiled
    scored = COUNT.replace("'m'", "'tensors'")
    every = {**WAYS, TENSORS: lambda con: con.execute(scored).fetchall()}
    dice = random.Random(rounds)
    for _ in range(rounds):
        for name in names:
            after = seconds if rounds == 1 else seconds * dice.random()
            came, took = interrupted(lambda name=name: every[name](con), after)
            print(json.dumps([name, came, took, answers(con)]), flush=True)


if __name__ == "__main__":
    main()
