"""The code blocks of README.md run, in their order, and say what is true."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import sqlml

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def blocks(*languages: str) -> list[tuple[str, str]]:
    return [(language, text) for language, text in BLOCKS if language in languages]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one, with the SQL files of a clone."""
    (tmp_path / "sql").symlink_to(ROOT / "sql")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_quick_start_runs_as_it_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = [text for _, text in blocks("sh") if text.startswith("sqlml ")]
    python = [text for _, text in blocks("python")]
    assert len(python) >= 5
    assert len(shell) >= 1
    scope: dict[str, object] = {}
    for _, text in [b for b in blocks("python", "sh") if not b[1].startswith("pip ")]:
        if text in shell:
            for line in text.splitlines():
                command = [sys.executable, "-m", *shlex.split(line)]
                path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
                done = subprocess.run(
                    command,
                    env={**os.environ, "PYTHONPATH": path},
                    capture_output=True,
                    text=True,
                )
                assert done.returncode == 0, done.stderr
                assert "north" in done.stdout
        else:
            exec(compile(text, "README.md", "exec"), scope)
    printed = capsys.readouterr().out
    assert "customers are likely to leave" in printed
    assert "churn_model" in printed

    with sqlml.connect("shop.duckdb") as con:
        for _, text in blocks("sql"):
            for statement in text.split(";\n"):
                if statement.strip():
                    assert con.execute(statement).fetchall(), statement
        for _, text in blocks("settings"):
            con.execute(text)
        # 1.5 makes files of an older format, which cannot hold the macros, as the README says.
        for _, text in blocks("plain") if duckdb.__version__ >= "2" else ():
            assert con.connection.cursor().execute(text).fetchall(), text
        # The files of models that the statements name are those that the Python above wrote.
        (text,) = [text for _, text in blocks("text") if text.startswith("CREATE MODEL")]
        before = con.execute("SELECT count(*) FROM sqlml.models").fetchall()
        statements = [s for s in text.split(";\n") if s.strip()]
        for statement in statements[:-1]:
            con.execute(statement)
        score = "SELECT predict_proba('churn_xgboost', *, class := 1) AS p FROM customers"
        assert con.execute(f"SELECT avg(p) FROM ({score})").fetchall()[0][0] < 0.5
        con.execute(statements[-1])
        assert con.execute("SELECT count(*) FROM sqlml.models").fetchall() == before


def test_counts_are_those_of_the_generated_page() -> None:
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    for title, form in (
        (r"## scikit-learn [\d.]+: (\d+) of (\d+) estimators", "{} of {} estimators"),
        (r"## ONNX: (\d+) operators", "| ONNX | {} operators"),
        (r"## torch: (\d+) operators", "exported programs of {} operators"),
    ):
        (counts,) = re.findall(title, page)
        counts = (counts,) if isinstance(counts, str) else counts
        assert form.format(*counts) in README


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"^make (\w+)", README, flags=re.MULTILINE))
    assert named == {"demo", "test", "lint", "bench"}
    assert [t for t in named if not re.search(rf"^{t}:", makefile, flags=re.MULTILINE)] == []


def test_links_of_the_pages_lead_somewhere() -> None:
    pages = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    for page in (*(ROOT / name for name in pages), *(ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), (page, target)
        for test in re.findall(r"`(tests/[\w/]+\.py)`", text):
            assert (ROOT / test).exists(), (page, test)
