"""Every family of benchmarks runs at a tiny size, and writes what the report and plots read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks import end_to_end, exported, operators, pipelines, scaling, trees
from benchmarks.outside import converted, forests, imbridge, real, retree
from benchmarks.plots import draw
from benchmarks.report import TABLES

QUICK = ["--rounds", "1", "--least", "0"]


def run(main: Callable[[list[str]], int], folder: Path, arguments: Sequence[str]) -> Any:
    """The result file of a family that ran with no wrong number."""
    path = folder / "result.json"
    assert main([*arguments, *QUICK, "--write", str(path)]) == 0
    result = json.loads(path.read_text())
    assert set(result) == {"family", "machine", "parameters", "rows"}
    assert result["machine"]["versions"]["scikit-learn"]
    assert result["parameters"]["rounds"] == 1
    assert "write" not in result["parameters"]
    return result


def rendered(result: Any, folder: Path) -> str:
    """Every table that a family fills, with its plots drawn."""
    results = {result["family"]: result}
    drawn = {path.name for path in draw(results, folder)}
    text = "\n\n".join(table(results) for table in TABLES.values())
    pictures = {line.split("plots/")[1][:-1] for line in text.splitlines() if line[:2] == "!["}
    assert pictures
    assert pictures <= drawn, "the report shows a picture that is not drawn"
    return text


@pytest.mark.nightly
def test_converted(tmp_path: Path) -> None:
    models = ["mixed, logistic regression", "linear regression"]
    chosen = [f"--model={model}" for model in models]
    result = run(converted.main, tmp_path, ["--rows", "500", "--train", "300", *chosen])
    contenders = ["sqlml", "sqlml file", "onnxruntime"]
    assert [row["contender"] for row in result["rows"]] == contenders * 2
    assert all(row["ns"] > 0 and row["exact"] for row in result["rows"][:3])
    table = TABLES["converted"]({"outside.converted": result})
    assert table.count("\n") == 3 and models[0] in table


SUITES = {
    "outside.imbridge": (imbridge, ["Flights", "Hospital", "TPCx-AI 3", "TPCx-AI 4", "TPCx-AI 7"]),
    "outside.retree": (retree, ["hospital", "taxi"]),
    "outside.real": (real, ["digits", "tumours"]),
}


@pytest.mark.nightly
@pytest.mark.parametrize("family", SUITES)
def test_queries_of_others(family: str, tmp_path: Path) -> None:
    suite, queries = SUITES[family]
    chosen = [f"--query={query}" for query in queries]
    result = run(suite.main, tmp_path, ["--scale", "0.005", "--train", "500", *chosen])
    cases = {(r["case"]["table"], r["case"]["model"]) for r in result["rows"]}
    assert cases == {(query, model) for query in queries for model in suite.QUERIES[query].models}
    for row in result["rows"]:
        assert ("ns" in row) != ("reason" in row)
        if row["contender"] in ("sqlml", "sqlml extension"):
            assert row["exact"], row
    table = TABLES["outside"]({family: result})
    assert table.count("\n") == 1 + len(cases)


@pytest.mark.nightly
def test_forests(tmp_path: Path) -> None:
    small = ["--rows", "300", "--train", "200", "--trees", "3", "--cache", str(tmp_path / "cache")]
    tables = ["--table", "bosch", "--table", "year", "--model", "xgboost", "--model", "lightgbm"]
    result = run(forests.main, tmp_path, [*small, *tables])
    for row in result["rows"]:
        assert ("ns" in row) != ("reason" in row)
        if row["contender"].startswith("sqlml") or row["contender"] in ("library", "data frame"):
            assert row["exact"], row
    assert TABLES["forests"]({"outside.forests": result}).count("\n") == 1 + 4


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["xgboost", "unlimited forest"])
def test_trees(model: str, tmp_path: Path) -> None:
    small = ["--rows", "60", "--train", "200", "--trees", "3", "--batch", "20", "--batches", "2"]
    tables = ["--table", "higgs", "--table", "covtype"]
    chosen = ["--model", model, *tables, "--threads", "2", "--cache", str(tmp_path / "cache")]
    left_out = [f"--without={name}" for name in ("tl2cgen", "hummingbird", "sklearnex")]
    result = run(trees.main, tmp_path, [*small, *chosen, *left_out])
    cases = {(r["case"]["table"], r["case"]["mode"], r["case"]["rows"]) for r in result["rows"]}
    ways = [("whole table", 60), ("batch", 20), ("one row", 1)]
    assert cases == {(table, *way) for table in ("higgs", "covtype") for way in ways}
    for row in result["rows"]:
        assert ("ns" in row) != ("reason" in row)
        assert row["threads"] == (1 if row["case"]["mode"] == "one row" else 2)
        if row["contender"] in ("library", "sqlml"):
            assert row["exact"]
            assert row["largest"] <= 1e-6
            assert row["ratio"] > 0
        if row["contender"] == "ydf" and not find_spec("ydf"):
            assert row["reason"] == "ydf is not installed"
    text = rendered(result, tmp_path)
    assert f"| {model} | higgs | 60 |" in text


def test_a_fitted_ensemble_is_kept(tmp_path: Path) -> None:
    arguments = ["--rows", "20", "--train", "100", "--trees", "2", "--model", "random forest"]
    arguments += ["--table", "year", "--contender", "library", "--cache", str(tmp_path / "cache")]
    run(trees.main, tmp_path, arguments)
    (path,) = (tmp_path / "cache").iterdir()
    before = path.stat().st_mtime_ns
    run(trees.main, tmp_path, arguments)
    assert [path] == list((tmp_path / "cache").iterdir())
    assert path.stat().st_mtime_ns == before


@pytest.mark.nightly
def test_operators(tmp_path: Path) -> None:
    chosen = ["--contender", "onnxruntime", "--rows", "300", "--train", "150"]
    result = run(operators.main, tmp_path, [*chosen, "--dtype", "float32"])
    seen = {(r["case"]["operator"], r["case"]["mode"]) for r in result["rows"]}
    assert len(seen) == 13 * 2
    for row in result["rows"]:
        assert row["contender"] in ("library", "sqlml", "onnxruntime")
        if row["contender"] == "sqlml":
            assert row["exact"], row
    text = rendered(result, tmp_path)
    assert all(text.count(f"| {name} |") == 2 for name in operators.OPERATORS)


def test_operators_on_float64(tmp_path: Path) -> None:
    chosen = ["--operator", "StandardScaler", "--operator", "SVC", "--contender", "library"]
    result = run(operators.main, tmp_path, [*chosen, "--rows", "100", "--train", "60"])
    assert {row["case"]["dtype"] for row in result["rows"]} == set(operators.DTYPES)
    assert all(row["exact"] for row in result["rows"] if row["contender"] == "sqlml")
    assert "operators on float64" in rendered(result, tmp_path)


def test_scaling(tmp_path: Path) -> None:
    small = ["--rows", "50", "--train", "100", "--base-trees", "3", "--base-depth", "3"]
    axes = ["--batches", "1", "40", "--trees", "2", "4", "--depths", "2", "--features", "12"]
    chosen = ["--model", "lightgbm", "--contender", "library", "--cache", str(tmp_path / "cache")]
    result = run(scaling.main, tmp_path, [*small, *axes, *chosen])
    points: dict[str, set[int]] = {}
    for row in result["rows"]:
        points.setdefault(row["case"]["axis"], set()).add(row["case"]["at"])
    cores = result["machine"]["cores"]
    assert points.pop("threads") == set(range(1, cores + 1))
    assert points == {"rows": {1, 40}, "trees": {2, 4}, "depth": {2}, "features": {12}}
    assert "| trees | 4 | lightgbm |" in rendered(result, tmp_path)


@pytest.mark.nightly
def test_pipelines(tmp_path: Path) -> None:
    result = run(pipelines.main, tmp_path, ["--count", "6", "--most-rows", "60", "--seed", "3"])
    assert len(result["rows"]) == 12
    for row in result["rows"]:
        assert row["threads"] == 1
        assert row["ns"] > 0
        if row["contender"] == "sqlml":
            assert row["exact"], row
    assert len({row["case"]["steps"] for row in result["rows"]}) > 3
    assert "of 6 pipelines" in rendered(result, tmp_path)


@pytest.mark.nightly
def test_end_to_end(tmp_path: Path) -> None:
    small = ["--rows", "200", "--train", "100", "--trees", "3", "--depth", "3"]
    memory = ["--memory-rows", "2000", "--memory-times", "2", "--cache", str(tmp_path / "cache")]
    models = ("logistic regression", "xgboost", "pipeline", "texts")
    chosen = [word for model in models for word in ("--model", model)]
    result = run(end_to_end.main, tmp_path, [*small, *memory, *chosen])
    timed = [(r["case"]["model"], r["contender"]) for r in result["rows"] if "ns" in r]
    ways = ["sqlml", "kernel", "scan", "frame", "arrow"]
    linear = [("logistic regression", way) for way in [*ways, "expression"]]
    others = [(model, way) for model in models[1:] for way in ways]
    assert timed == [*linear, *others]
    peaks = [row for row in result["rows"] if "peak" in row]
    assert [row["case"]["rows"] for row in peaks] == [2000, 4000]
    assert all(2**24 < row["start"] <= row["peak"] for row in peaks)
    text = rendered(result, tmp_path)
    goal = "linear model: SQL query time / time of the expression written by hand | <= 1.5 |"
    assert f"| {goal}" in text
    assert "| 4,000 |" in text


def check_exported(result: Any, models: Sequence[str]) -> str:
    """Check the rows of `models`; return the tables that the report shows."""
    threads = sorted({1, result["machine"]["cores"]})
    timed = [row for row in result["rows"] if "size" not in row]
    cases = {(r["case"]["model"], r["case"]["query"], r["case"]["threads"]) for r in timed}
    assert cases == {(m, q, n) for m in models for q in ("label", "probability") for n in threads}
    assert len(timed) == 5 * len(cases)
    for row in timed:
        assert row["ns"] > 0 and row["ratio"] > 0 and not row.get("reason")
        if row["contender"] != "onnxruntime":
            assert row["exact"], row
    files = [row for row in result["rows"] if "size" in row]
    assert [row["case"]["model"] for row in files] == list(models)
    assert all(row["size"] > 2**20 and row["load"] > 0 for row in files)
    results = {"exported": result}
    return TABLES["exported"](results) + TABLES["extension-files"](results)


EXPORTED = ["--rows", "6000", "--sql-rows", "4096", "--train", "300", "--trees", "3"]


def test_exported(tmp_path: Path) -> None:
    model = "logistic regression"
    result = run(exported.main, tmp_path, [*EXPORTED, "--model", model])
    text = check_exported(result, [model])
    assert text.count(f"| {model} | label |") == len({1, result["machine"]["cores"]})


@pytest.mark.nightly
def test_exported_models(tmp_path: Path) -> None:
    result = run(exported.main, tmp_path, [*EXPORTED, "--cache", str(tmp_path / "cache")])
    text = check_exported(result, exported.MODELS)
    assert "| xgboost, 3 trees | label | 1 |" in text and "| xgboost, 15 trees | " in text
