"""Native functions in a process with a home of its own: `python native_child.py FOLDER`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

import sqlml
from sqlml.backends.native.runtime.build_runtime import build_runtime, detect_duckdb_platform
from sqlml.errors import MissingValueError
from sqlml.planner.program.function_spec import FunctionSpec, ResultPart
from sqlml.udfs.batch_function import BatchFunction, claim_error
from sqlml.udfs.duckdb.native import native_functions
from sqlml.udfs.duckdb.native.extension import open_native_connection
from sqlml.udfs.duckdb.native.plan_bytecode import explain_obstacle
from sqlml.udfs.engine_function import EngineFunction
from sqlml.udfs.make_function import make_engine_function

ROWS, K = 10_000, 6
NAMES = [f"f{i}" for i in range(K)]
MODELS: dict[str, Any] = {
    "forest": RandomForestClassifier(40, max_depth=6, random_state=0),
    "xgboost": XGBClassifier(n_estimators=30, n_jobs=1),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "scaler": StandardScaler(),
    "targets": MultiOutputClassifier(LogisticRegression()),
}


def functions_of(model: Any) -> list[tuple[str, BatchFunction, tuple[str, ...], str]]:
    """A model's outputs as functions: a name, what scores, the types."""
    program = sqlml.compile(model).program
    made = []
    for layout, kind in (("f32", "FLOAT"), ("f64", "DOUBLE")):
        for output in program.outputs:
            parts = (ResultPart(output),)  # type: ignore[arg-type]
            spec = FunctionSpec(
                program.hash, parts, layout, "native", "traverse", "cpu", by_column=True
            )  # type: ignore[arg-type]
            function = make_engine_function(spec, program)
            assert isinstance(function.function, BatchFunction)
            types = (kind,) * function.function.width
            made.append((spec.name, function.function, types, function.result_type))
    return made


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, K))
    y = np.digitize(x[:, 0] + x[:, 1] * x[:, 2], [-0.5, 0.5])
    con = duckdb.connect(folder / "t.duckdb")
    before = con.execute("SELECT name, value FROM duckdb_settings() ORDER BY 1").fetchall()
    target = detect_duckdb_platform()
    assert target is not None and build_runtime(folder / "built", target)
    native = open_native_connection(con, folder / "built")
    after = con.execute("SELECT name, value FROM duckdb_settings() ORDER BY 1").fetchall()
    assert before == after
    for number in ("x", "7", "99999999999999999999"):  # a file's macros name no connection
        con.execute(f"CREATE MACRO sqlml_native_{number}() AS 1")
    assert open_native_connection(con.cursor(), folder / "built") is native
    with duckdb.connect(folder / "t.duckdb") as second:  # the settings are still its own
        assert second.execute("SELECT 1").fetchall() == [(1,)]

    held: dict[str, BatchFunction] = {}
    asked: list[str] = []

    def find(name: str) -> BatchFunction:
        asked.append(name)
        return held[name]

    con.register("frame", pd.DataFrame(x, columns=NAMES))
    con.execute("CREATE TABLE t AS SELECT row_number() OVER () AS id, * FROM frame")
    wanted: dict[str, Any] = {}
    for model in MODELS.values():
        targets = np.column_stack([y, y > 0]) if isinstance(model, MultiOutputClassifier) else y
        model.fit(x[:500], targets[:500])
        for name, function, types, result in functions_of(model):
            assert explain_obstacle(function) is None, name
            held[name] = function
            made = EngineFunction(name, function, types, result, by_column=True)
            assert native_functions.register(native.pointer, made, find)
            assert native_functions.register(native.pointer, made, find)  # once more
            columns = ", ".join(f"{n}::{types[0]}" for n in NAMES)
            matrix = x.astype(function.dtype)
            want = function.score_matrix(matrix, {}).to_pylist()
            for rows in (0, 1, 5, ROWS):
                query = f"SELECT {name}({columns}) FROM t WHERE id <= {rows} ORDER BY id"
                assert [v for (v,) in con.execute(query).fetchall()] == want[:rows], (name, rows)
            wanted[f"SELECT {name}({columns}) FROM t ORDER BY id"] = want
    assert sorted(asked) == sorted(held)

    def score(query: str) -> None:
        with con.cursor() as own:
            for _ in range(3):
                scored = [v for (v,) in own.execute(query).fetchall()]
                wrong.extend([query] * (scored != wanted[query]))

    wrong: list[str] = []
    threads = [threading.Thread(target=score, args=(q,)) for q in list(wanted)[:8]]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):  # plans go while they are followed
        for name in held:
            native_functions.drop_plans((name,))
    for thread in threads:
        thread.join()
    assert not wrong

    names = [name for name in held if "_label_f64" in name]
    con.execute(
        "CREATE TABLE holes AS SELECT * REPLACE (CASE WHEN id <> 7000 THEN f1 END AS f1) FROM t"
    )
    columns = ", ".join(NAMES)
    refused = 0
    for name in names:
        try:
            con.execute(f"SELECT {name}({columns}) FROM holes").fetchall()
        except duckdb.InvalidInputException as error:
            own = claim_error(str(error))
            assert isinstance(own, MissingValueError), own
            refused += 1
            tried = con.execute(f"SELECT count(*), count(TRY({name}({columns}))) FROM holes")
            assert tried.fetchall() == [(ROWS, ROWS - 1)]
    assert refused == 2  # both logistic regressions
    native.close()
    native.close()
    con.close()
    with duckdb.connect(folder / "t.duckdb", config={"access_mode": "READ_ONLY"}):
        pass  # nothing holds the file
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
