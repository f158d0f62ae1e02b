"""What happens on the nodes: workers that die, other versions, a Program that travels once."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.ensemble import RandomForestClassifier

import sqlml
from sqlml import errors
from sqlml.udfs.spark import worker as spark_worker
from sqlml.udfs.spark.engine import _make_scorer
from tests.spark.conftest import FEATURES, NUMBERS


def executors() -> list[int]:
    """Process ids of the executors that descend from this process."""
    commands: dict[int, bytes] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                commands[int(folder.name)] = (folder / "cmdline").read_bytes()
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat[1])

    def ours(process: int) -> bool:
        while process in parents:
            if process == os.getpid():
                return True
            process = parents[process]
        return False

    return [p for p, c in commands.items() if b"CoarseGrainedExecutorBackend" in c and ours(p)]


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc").exists(), reason="finds processes by /proc")
def test_an_executor_is_killed_in_mid_query(
    con: Any, spark: Any, frame: pd.DataFrame, churn: Any
) -> None:
    """Spark makes its rows again elsewhere, and the result is right."""
    spark.range(160).createOrReplaceTempView("many")
    query = (
        "SELECT c.id, count(*) AS n, min(p) AS least, max(p) AS most FROM (SELECT id, "
        "predict_proba('churn', *, class := 'yes') AS p FROM (SELECT /*+ REPARTITION(24) */ c.* "
        "FROM customers c CROSS JOIN many)) c GROUP BY c.id ORDER BY c.id"
    )
    rows: list[Any] = []
    worker = threading.Thread(target=lambda: rows.extend(con.sql(query).collect()))
    before = executors()
    worker.start()
    time.sleep(2.0)
    still = worker.is_alive()
    os.kill(before[0], signal.SIGKILL)
    worker.join(300)
    assert still and not worker.is_alive()
    want = churn.predict_proba(frame[FEATURES])[:, 1]
    assert [row.id for row in rows] == frame.id.tolist()
    assert {row.n for row in rows} == {160}
    np.testing.assert_allclose([row.least for row in rows], want, rtol=1e-12)
    np.testing.assert_allclose([row.most for row in rows], want, rtol=1e-12)


@pytest.mark.nightly
def test_a_program_travels_once_and_is_compiled_once_a_worker(
    con: Any, spark: Any, frame: pd.DataFrame
) -> None:
    """Two functions of a model share a broadcast; tasks of later queries find what is compiled."""
    from pyspark.sql.functions import udf

    sent: list[Any] = []
    context = spark.sparkContext
    broadcast = context.broadcast
    context.broadcast = lambda value: sent.append(value) or broadcast(value)
    try:
        model = RandomForestClassifier(30, max_depth=6, random_state=9)
        con.create_model("once", model.fit(frame[NUMBERS], frame.plan), verify=False)
        queries = [
            f"SELECT {call} FROM (SELECT /*+ REPARTITION(16) */ * FROM customers)"
            for call in ("predict('once', *)", "predict_proba('once', *)")
        ]
        for query in queries:
            con.sql(query).collect()
        assert len(sent) == 1
        name = con.plan(queries[0]).calls[0].spec.name

        def compiled(_: int) -> str | None:
            made = spark_worker._functions.get(name)
            return None if made is None else f"{os.getpid()} {id(made)}"

        look = spark.range(0, 64, 1, 16).select(udf(compiled, "string")("id"))
        before = {row[0] for row in look.collect()} - {None}
        for query in [*queries, *queries]:
            con.sql(query).collect()
        after = {row[0] for row in look.collect()} - {None}
    finally:
        del context.broadcast
    workers = [found.split()[0] for found in before | after]
    assert before & after and len(workers) == len(set(workers))
    assert len(sent) == 1


@pytest.mark.nightly  # two clusters start
def test_other_versions_on_a_node_are_told(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver says that it has another numpy; to the workers that is the same."""
    other_versions = {**spark_worker.read_library_versions(), "numpy": "1.0.0"}
    monkeypatch.setattr("sqlml.udfs.spark.engine.read_library_versions", lambda: other_versions)
    con.add_version("churn", _another(), number=9)
    with pytest.raises(Exception, match=r"differ from the driver's: numpy .*driver: 1\.0\.0"):
        con.sql("SELECT predict('churn/9', *) FROM customers").collect()


def test_a_node_without_sqlml_is_told() -> None:
    """The function is unpickled where no sqlml can be imported, and says so when it is called."""
    from pyspark.cloudpickle import dumps

    function = dumps(_make_scorer("sqlml_x", None, spark_worker.read_library_versions()))
    child = (
        "import pickle, sys; sys.modules['sqlml'] = None; import pyarrow as pa\n"
        f"pickle.loads({function!r})(pa.array([1.0]))"
    )
    made = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
    assert re.search(r"pip install 'sqlml\[spark\]==\d.* on all nodes", made.stderr), made.stderr


def test_a_model_that_is_missing_on_a_worker_is_told(tmp_path: Path) -> None:
    """Spark keeps a broadcast in a file of each node."""
    from pyspark.broadcast import Broadcast

    lost: Any = Broadcast(path=str(tmp_path / "gone"))
    name = "sqlml_" + "0" * 24 + "_proba_f64_native_traverse_cpu"
    rows = pa.array([[1.0, 2.0]])
    with pytest.raises(errors.BackendError, match="has not reached a Spark worker: .*gone"):
        spark_worker.score(name, lost, spark_worker.read_library_versions(), [rows, rows])


@pytest.mark.nightly
def test_a_table_larger_than_an_executors_memory(con: Any, spark: Any, tmp_path: Path) -> None:
    """Spark and its workers stream: 40 files of 100,000 rows in two executors of 1 GiB each."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(100_000, 36))
    names = [f"f{k}" for k in range(x.shape[1])]
    forest = RandomForestClassifier(20, max_depth=8, random_state=0, n_jobs=2)
    forest.fit(pd.DataFrame(x[:5000], columns=names), np.where(x[:5000, 0] > x[:5000, 1], "a", "b"))
    con.create_model("wide", forest, verify=False)
    block = pa.table({n: x[:, k] for k, n in enumerate(names)})
    folder = tmp_path / "large"
    folder.mkdir()
    pq.write_table(block, folder / "0.parquet", compression="none", use_dictionary=False)
    for part in range(1, 40):
        shutil.copy(folder / "0.parquet", folder / f"{part}.parquet")
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert spark.sparkContext.getConf().get("spark.executor.memory", "1g") == "1g"
    assert size > 1024 << 20
    found = con.sql(
        "SELECT predict('wide', *) AS label, count(*), sum(predict_proba('wide', *, class := 'a')) "
        f"FROM parquet.`{folder}` GROUP BY label ORDER BY label"
    ).collect()
    shutil.rmtree(folder)
    named = pd.DataFrame(x, columns=names)
    label, a = forest.predict(named), forest.predict_proba(named)[:, 0]
    assert [tuple(row)[:2] for row in found] == [(k, 40 * int((label == k).sum())) for k in "ab"]
    assert [row[2] for row in found] == pytest.approx([40 * a[label == k].sum() for k in "ab"])


def _another() -> Any:
    from sklearn.tree import DecisionTreeClassifier

    x = pd.DataFrame({"age": np.arange(90.0), "income": np.arange(90.0) % 7})
    return DecisionTreeClassifier(random_state=3).fit(x, np.arange(90) % 4)


def test_sessions_that_cannot_be() -> None:
    with pytest.raises(TypeError, match="a DuckDB connection or a SparkSession, not int"):
        sqlml.attach(3)  # type: ignore[call-overload]


_STOPPED = """
import sys
import sqlml
from pyspark.sql import SparkSession
from sqlml.errors import BackendError
from sklearn.linear_model import LinearRegression

def started():
    made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    made = made.config("spark.sql.warehouse.dir", sys.argv[1] + "/warehouse").getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made

line = LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0])
spark = started()
con = sqlml.attach(spark, catalog=sys.argv[1])
con.create_model("m", line, inputs=["a"])
spark.stop()
for asked in (
    lambda: con.sql("SELECT predict('m', a := 2)"),
    lambda: con.sql("SHOW MODELS"),
    lambda: con.explain("SELECT predict('m', a := 2)"),
    lambda: con.plan("SELECT predict('m', a := 2)"),
    lambda: con.create_model("n", line, inputs=["a"]),
    lambda: con.add_version("m", line, inputs=["a"]),
    lambda: con.export_model("m", sys.argv[1] + "/m.sqlml"),
    lambda: sqlml.attach(spark, catalog=sys.argv[1]),
):
    try:
        asked()
    except BackendError as error:
        assert "the SparkSession has been stopped; create another" in str(error)
    else:
        raise AssertionError(asked)
con = sqlml.attach(started(), catalog=sys.argv[1])
assert [row.name for row in con.sql("SHOW MODELS").collect()] == ["m"]
((five,),) = con.sql("SELECT predict('m', a := 2)").collect()
assert abs(five - 5) < 1e-9
"""


@pytest.mark.nightly
def test_a_session_that_has_been_stopped_is_told(spark: Any, tmp_path: Path) -> None:
    """In a process of its own, which may stop its Spark; another one scores with the models."""
    command = [sys.executable, "-c", _STOPPED, str(tmp_path)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr[-2000:]


@pytest.mark.nightly
def test_an_old_spark_is_told(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spark.__dict__, "version", "4.0.1")
    with pytest.raises(errors.BackendError, match=r"Spark 4\.0\.1, but sqlml needs 4\.1"):
        sqlml.attach(spark, catalog=tmp_path)
