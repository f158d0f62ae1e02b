"""A real cluster of Spark on this machine: a master and an executor, two of them by night."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sqlml

ROWS = 3000
NUMBERS = ["age", "income"]
FEATURES = [*NUMBERS, "plan"]


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java: Spark's tests need a Java runtime, 17 or later")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    brief = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # thorough compilation pays after minutes
    by_night = request.config.getoption("markexpr") == "nightly"
    executors = "2,1,1024" if by_night else "1,2,1024"  # number, cores and MiB of each
    made = (
        SparkSession.builder.master(f"local-cluster[{executors}]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", brief)
        .config("spark.executor.extraJavaOptions", brief)
        .config("spark.task.maxFailures", "4" if by_night else "1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": np.arange(ROWS),
            "age": rng.normal(40, 10, ROWS),
            "income": rng.lognormal(3, 1, ROWS),
            "plan": rng.choice(["basic", "pro", 'it\'s `x` \\ "y"'], ROWS),
            "unused": rng.normal(size=ROWS),
        }
    )


@pytest.fixture(scope="session")
def churn(frame: pd.DataFrame) -> Any:
    """A forest of 30 trees over numbers and strings, whose labels are strings."""
    label = np.where((frame.age > 45) ^ (frame.plan == "pro"), "yes", "it's no")
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["plan"]), ("passthrough", NUMBERS)
    )
    forest = RandomForestClassifier(30, max_depth=6, random_state=0)
    return make_pipeline(encode, forest).fit(frame[FEATURES], label)


@pytest.fixture(scope="session")
def value(frame: pd.DataFrame) -> Any:
    return LinearRegression().fit(frame[NUMBERS], 2 * frame.age - frame.income)


@pytest.fixture(scope="session")
def customers(spark: Any, frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A view of a Parquet table with all columns of the frame."""
    path = str(tmp_path_factory.mktemp("tables") / "customers")
    spark.createDataFrame(frame).repartition(4).write.parquet(path)
    spark.read.parquet(path).createOrReplaceTempView("customers")
    return "customers"


@pytest.fixture
def con(spark: Any, customers: str, churn: Any, value: Any, tmp_path: Path) -> Iterator[Any]:
    with sqlml.attach(spark, catalog=tmp_path / "models") as session:
        session.create_model("churn", churn, verify=False)
        session.create_model("value", value, verify=False)
        yield session
