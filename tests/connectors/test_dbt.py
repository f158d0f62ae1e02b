"""A project of dbt whose models are trained, imported and called: `dbt build`, twice.

dbt asks for versions that other tools do not get along with: `make test-dbt` has an environment of
its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sqlml
from sqlml.tools.cli import main

PROJECT = Path(__file__).parent / "dbt_project"


def test_the_macros_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dbt", str(tmp_path)]) == 1
    assert "no dbt_project.yml in" in capsys.readouterr().err
    (tmp_path / "dbt_project.yml").touch()
    for _ in range(2):
        assert main(["dbt", str(tmp_path)]) == 0
    written = tmp_path / "macros" / "sqlml.sql"
    assert "materialization ml_model" in written.read_text()
    written.write_text("-- mine")
    assert main(["dbt", str(tmp_path)]) == 1
    assert "rename it" in capsys.readouterr().err
    assert written.read_text() == "-- mine"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    pytest.importorskip("dbt.adapters.duckdb")
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder)
    assert main(["dbt", str(folder)]) == 0
    rows = pd.DataFrame({"visits": [0.0, 1, 2, 3], "age": [20.0, 30, 40, 50]})
    with sqlml.connect() as con:
        con.create_model("bought", LogisticRegression().fit(rows, [0, 0, 1, 1]))
        con.export_model("bought", folder / "bought.sqlml")
    return folder


def build(project: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "dbt.cli.main", "build", "--profiles-dir", ".", *arguments]
    environment = {
        **os.environ,
        "MODEL_FILE": str(project / "bought.sqlml"),
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    }
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    told = json.loads((project / "target" / "run_results.json").read_text())
    results = {r["unique_id"].split(".")[2]: r["message"] for r in told["results"]}
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, results


def test_build(project: Path) -> None:
    status, results = build(project)
    assert status == 0, results
    names = "SELECT name FROM sqlml.models ORDER BY name"
    with sqlml.connect(project / "shop.duckdb") as con:
        assert con.execute(names).fetchall() == [("bought",), ("churn",), ("imported",)]
        checks = (
            "SELECT count(*) FROM scored_table s JOIN customers c USING (id) "
            "WHERE s.churn = predict('churn', c.visits, c.age)",
            "SELECT count(*) FROM scored_view s JOIN customers c USING (id) "
            "WHERE p = predict_proba('bought', c.visits, c.age, class := 1)",
            "SELECT count(*) FROM scored_incremental",
            "SELECT count(*) + 150 FROM scored_python JOIN scored_table USING (id, churn)",
            "SELECT count(*) FROM attached_python",
        )
        for check in checks:
            assert con.execute(check).fetchall() == [(200,)], check
        (metrics,) = con.execute("SELECT name FROM churn").fetchall()
        assert metrics == ("churn",)
        before = dict(con.model("imported").properties)["created_at"]
    with (project / "seeds" / "customers.csv").open("a") as seed:
        seed.write("200,1,40,yes\n")
    status, results = build(project)
    assert status == 0, results
    with sqlml.connect(project / "shop.duckdb") as con:
        assert con.execute("SELECT count(*) FROM scored_incremental").fetchall() == [(201,)]
        assert dict(con.model("imported").properties)["created_at"] == before
        assert con.model("churn").version == 2


def test_errors_are_told(project: Path) -> None:
    (project / "models" / "wrong.sql").write_text("SELECT predict('chrn', *) FROM customers")
    status, results = build(project, "--select", "customers", "wrong")
    assert status == 1
    assert "unknown model 'chrn'" in results["wrong"]
