"""A model in Spark SQL beside the source library in functions of Python, on a cluster of processes.

`SELECT sum(predict_proba('m', *, class := 1)) FROM t` over a Parquet table of FLOAT columns, in
turns with

* pandas: a pandas UDF of all columns, which calls the source library's predict_proba;
* arrow: an Arrow UDF that does so with a matrix of the columns;
* transfer: an Arrow UDF that returns its first column: what handing rows to Python costs;
* scan: a query that adds up every column: what reading them costs.

Then the table form, whose rows go nowhere (Spark's sink noop), in turns with mapInArrow over the
same rows, scored by the same function:

* sqlml: `SELECT * FROM ml_predict(MODEL m, TABLE t)`: label and probabilities beside each row;
* mapInArrow: every column goes to Python and back, with what the function returns beside it.

The model of the other functions travels by broadcast, too, and scores with one thread, as Spark has
a worker for each core. Cold is the first query of a fresh cluster over a few rows: workers start,
import and compile. Peak is the most memory of one Python worker.

    python -m benchmarks.spark [--rows N] [--executors N]... [--write FILE]
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import sqlml
from benchmarks.compare import canonical, compare
from benchmarks.models import CACHE, Subject, ensemble
from benchmarks.results import Row, parser, row_of, save, status, with_ratios
from benchmarks.rounds import best_calls
from benchmarks.tables import table
from sqlml.importers.registry import import_model
from sqlml.ir import store
from sqlml.udfs.spark import worker

TABLE = "higgs"
PARTS = 8
CHECKED = 50_000
"""Rows whose probabilities are compared one by one; of all rows the sums are."""


def subject_of(options: Namespace) -> Subject:
    """XGBoost, fitted on rows of the table's kind."""
    return ensemble(
        "xgboost",
        TABLE,
        trees=options.trees,
        depth=options.depth,
        rows=options.train,
        seed=options.seed,
        threads=options.threads,
        cache=options.cache,
    )


def write_table(folder: Path, rows: int, seed: int) -> list[str]:
    """The table as Parquet files; the names of its columns."""
    x, _ = table(TABLE, rows, seed + 1)
    names = [f"f{k}" for k in range(x.shape[1])]
    folder.mkdir()
    for part, block in enumerate(np.array_split(np.asarray(x, np.float32), PARTS)):
        columns = {n: np.ascontiguousarray(block[:, k]) for k, n in enumerate(names)}
        pyarrow.parquet.write_table(pa.table(columns), folder / f"{part}.parquet")
    return names


def cluster(executors: int) -> Any:
    """A SparkSession with so many executor processes of one core."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    made = (
        SparkSession.builder.master(f"local-cluster[{executors},1,2048]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made


def functions(spark: Any, model: Any, names: list[str]) -> dict[str, Callable[[str], str]]:
    """Contender -> from a table to the query that adds up its probabilities."""
    from pyspark.sql.functions import arrow_udf, pandas_udf  # type: ignore[attr-defined]

    model.set_params(n_jobs=1)
    held = spark.sparkContext.broadcast(model)

    def by_pandas(*columns: Any) -> Any:
        import pandas as pd

        x = pd.concat(columns, axis=1).to_numpy()
        return pd.Series(held.value.predict_proba(x)[:, 1].astype("float64"))

    def by_arrow(*columns: pa.Array) -> pa.Array:
        x = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
        return pa.array(held.value.predict_proba(x)[:, 1].astype("float64"))

    def nothing(*columns: pa.Array) -> pa.Array:
        return columns[0].cast(pa.float64())

    from pyspark.sql.functions import PandasUDFType  # type: ignore[attr-defined]

    spark.udf.register("by_pandas", pandas_udf(by_pandas, "double", PandasUDFType.SCALAR))
    spark.udf.register("by_arrow", arrow_udf(by_arrow, "double"))
    spark.udf.register("nothing", arrow_udf(nothing, "double"))
    listed = ", ".join(names)
    return {
        "sqlml": lambda t: f"SELECT sum(predict_proba('m', *, class := 1)) FROM {t}",
        "pandas": lambda t: f"SELECT sum(by_pandas({listed})) FROM {t}",
        "arrow": lambda t: f"SELECT sum(by_arrow({listed})) FROM {t}",
        "transfer": lambda t: f"SELECT sum(nothing({listed})) FROM {t}",
        "scan": lambda t: f"SELECT sum({' + '.join(names)}) FROM {t}",
    }


def table_form(
    spark: Any, con: Any, names: list[str], program: bytes, case: Any, options: Namespace
) -> list[Row]:
    """ml_predict over t, and mapInArrow, which calls the same function: all rows are kept."""
    query = "SELECT * FROM ml_predict(MODEL m, TABLE t)"
    (function,) = con.plan(query).functions
    held = spark.sparkContext.broadcast(program)
    expected_versions = worker.read_library_versions()

    def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            matrix = np.empty((batch.num_rows, len(names)), np.float32)
            for k, name in enumerate(names):
                matrix[:, k] = batch.column(name).to_numpy(zero_copy_only=False)
            ends = np.arange(0, matrix.size + 1, len(names), dtype=np.int32)
            rows = pa.ListArray.from_arrays(ends, matrix.ravel())
            values = worker.score(function, held, expected_versions, (rows, rows)).field("value")
            yield pa.record_batch([*batch.columns, values], [*batch.schema.names, "scores"])

    schema = f"{', '.join(f'{name} float' for name in names)}, scores array<double>"
    forms: dict[str, tuple[Callable[[], Any], str]] = {
        "sqlml": (lambda: con.sql(query), "predicted_label_probs[1]"),
        "mapInArrow": (lambda: spark.table("t").mapInArrow(scored, schema), "scores[2]"),
    }
    totals = [
        form().selectExpr(f"sum({probability})").first()[0] for form, probability in forms.values()
    ]
    ours, theirs = (canonical(np.array([total]), "predict_proba") for total in totals)
    found = compare(ours, theirs, "predict_proba", labels=False)
    timings = best_calls(
        [partial(_to_nowhere, form) for form, _ in forms.values()],
        options.rounds,
        patience=options.patience,
    )
    return with_ratios(
        [
            row_of(
                {**case, "query": "ml_predict"},
                name,
                threads=case["executors"],
                ns=timing.seconds / options.rows * 1e9,
                rounds=timing.rounds,
                difference=found if name == "sqlml" else None,
                note=f"{options.rows / timing.seconds:,.0f} rows/s",
            )
            for name, timing in zip(forms, timings, strict=True)
        ]
    )


def _to_nowhere(form: Callable[[], Any]) -> None:
    form().write.format("noop").mode("overwrite").save()


def workers() -> Iterator[Path]:
    """The Python workers that descend from this process, as folders of /proc."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(
                    (folder / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
    for process in parents:
        above = process
        while above in parents and above != os.getpid():
            above = parents[above]
        command = Path(f"/proc/{process}/cmdline")
        if above == os.getpid() and b"pyspark.daemon" in command.read_bytes():
            yield command.parent


def peak() -> float:
    """The most memory in MB that a Python worker has had."""
    found = [0.0]
    for folder in workers():
        for line in (folder / "status").read_text().splitlines():
            if line.startswith("VmHWM"):
                found.append(int(line.split()[1]) / 1024)
    return max(found)


def measure(options: Namespace, executors: int, folder: Path) -> list[Row]:
    """All contenders on a cluster of so many executors."""
    subject = subject_of(options)
    case = {
        "model": "xgboost",
        "trees": options.trees,
        "rows": options.rows,
        "executors": executors,
    }
    names = write_table(folder / "t", options.rows, options.seed)
    spark = cluster(executors)
    con = sqlml.attach(spark, catalog=folder / "models")
    con.create_model("m", subject.model, inputs=names, verify=False)
    ways = functions(spark, subject.model, names)
    spark.read.parquet(str(folder / "t")).createOrReplaceTempView("t")
    few = f"(SELECT * FROM t LIMIT {10 * executors})"

    def run(name: str, where: str = "t") -> float:
        ((total,),) = con.sql(ways[name](where)).collect()
        return float(total)

    cold = {}
    for name in ("sqlml", "arrow", "pandas"):
        start = time.perf_counter()
        run(name, few)
        cold[name] = time.perf_counter() - start
    totals = {name: run(name) for name in ("sqlml", "arrow", "pandas")}
    want = canonical(subject.model.predict_proba(_rows(folder, CHECKED)), "predict_proba")
    got = con.sql(
        "SELECT predict_proba('m', *, class := 1) AS p FROM "
        f"parquet.`{folder / 't' / '0.parquet'}` LIMIT {CHECKED}"
    ).toArrow()
    found = compare(
        canonical(got.column(0).to_numpy(), "predict_proba"), want, "predict_proba", labels=False
    )
    agrees = abs(totals["sqlml"] - totals["arrow"]) < 1e-6 * abs(totals["arrow"])
    timings = best_calls(
        [partial(run, name) for name in ways], options.rounds, patience=options.patience
    )
    program = import_model(subject.model, names).program
    sizes = {"sqlml": len(store.dumps(program)), "arrow": len(pickle.dumps(subject.model))}
    rows = []
    for name, timing in zip(ways, timings, strict=True):
        notes = [f"{options.rows / timing.seconds:,.0f} rows/s"]
        if name in cold:
            notes.append(f"cold {cold[name]:.2f} s")
        if name in sizes:
            notes.append(f"broadcast {sizes[name] / 1e6:.2f} MB")
        rows.append(
            row_of(
                case,
                name,
                threads=executors,
                ns=timing.seconds / options.rows * 1e9,
                rounds=timing.rounds,
                difference=found if name == "sqlml" else None,
                reason=None if agrees else f"another sum: {totals}",
                note=", ".join(notes),
            )
        )
    rows.append(row_of(case, "memory", threads=executors, note=f"peak {peak():.0f} MB a worker"))
    kept = table_form(spark, con, names, store.dumps(program), case, options)
    spark.stop()
    return [*with_ratios(rows), *kept]


def _rows(folder: Path, count: int) -> Any:
    held = pyarrow.parquet.read_table(folder / "t" / "0.parquet").slice(0, count)
    return np.column_stack([held.column(k).to_numpy() for k in range(held.num_columns)])


def main(arguments: list[str] | None = None) -> int:
    """Measure each size of cluster in a process of its own, since a process has one cluster."""
    made = parser("spark", __doc__)
    made.add_argument("--rows", type=int, default=5_000_000)
    made.add_argument("--trees", type=int, default=500)
    made.add_argument("--depth", type=int, default=6)
    made.add_argument("--train", type=int, default=100_000)
    made.add_argument("--executors", type=int, action="append")
    made.add_argument("--cache", type=Path, default=CACHE)
    made.add_argument("--child", type=int, help="measure a cluster of so many executors")
    options = made.parse_args(arguments)
    if options.child:
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(options, options.child, Path(folder))
        print(json.dumps([_plain(row) for row in rows]))
        return 0
    done: list[Row] = []
    for executors in options.executors or (2, 1):
        command = [sys.executable, "-m", "benchmarks.spark", *(arguments or sys.argv[1:])]
        child = subprocess.run(
            [*command, "--child", str(executors)], capture_output=True, text=True
        )
        if child.returncode:
            print(child.stderr[-3000:], file=sys.stderr)
            return 1
        done += [Row(**row) for row in json.loads(child.stdout.splitlines()[-1])]
        for row in (row for row in done if row.threads == executors):
            print(executors, row.contender, row.ns, row.ratio, row.note, flush=True)
        save("spark", options, done)
    return status(done)


def _plain(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__}


if __name__ == "__main__":
    sys.exit(main())
