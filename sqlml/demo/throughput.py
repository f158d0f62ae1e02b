"""Rows per second of scoring in SQL, compared with fetching a frame, predicting and writing it
back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlml.demo.models import Fitted
from sqlml.demo.queries import query
from sqlml.session.session import Session

REPEATS = 3


@dataclass(frozen=True, slots=True)
class Throughput:
    """Best times in seconds of the same work in two ways."""

    name: str
    rows: int
    in_sql: float
    by_frame: float

    @property
    def ratio(self) -> float:
        """How many times as many rows a second SQL scores."""
        return self.by_frame / self.in_sql


def measure(con: Session, fitted: Fitted) -> Throughput:
    """Score all flights of the year both ways, in turns, each into a table of the database.

    The tables `timed_sql` and `timed_frame` hold the scores of the last round.
    """
    [(rows,)] = con.execute("SELECT count(*) FROM flights").fetchall()
    in_sql = by_frame = float("inf")
    for _ in range(REPEATS):
        in_sql = min(in_sql, _seconds(_score_in_sql, con, fitted))
        by_frame = min(by_frame, _seconds(_score_by_frame, con, fitted))
    return Throughput(fitted.name, rows, in_sql, by_frame)


def _seconds(work: Callable[[Session, Fitted], None], con: Session, fitted: Fitted) -> float:
    start = time.perf_counter()
    work(con, fitted)
    return time.perf_counter() - start


def _score_in_sql(con: Session, fitted: Fitted) -> None:
    con.execute(query(fitted.name.replace("delay_", "time_")))


def _score_by_frame(con: Session, fitted: Fitted) -> None:
    # Only the model's own columns are fetched, as a careful program does.
    columns = ", ".join(fitted.features)
    frame: Any = con.execute(
        f"""SELECT flight_id, {columns}
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
LEFT JOIN aircraft USING (tailnum)"""
    ).df()
    frame["score"] = fitted.predict_late(frame)
    con.register("scored_frame", frame[["flight_id", "score"]])
    con.execute("CREATE OR REPLACE TABLE timed_frame AS FROM scored_frame")
    con.unregister("scored_frame")
