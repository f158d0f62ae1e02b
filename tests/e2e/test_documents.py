"""The documents say what is true: every block of code runs, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlml
from tests.support.documents import DOCS, PAGES, README, ROOT, blocks, run, text_of

TESTED_ELSEWHERE = {"spark.md": "tests/spark/test_docs.py"}

SAYS = {
    "cascades.md": ["'small model reads': 'stars'"],
    "connect.md": ["yes", "no"],
    "install.md": [],
    "score.md": ["customers are likely to leave"],
    "train.md": ["boosted_tree_classifier by xgboost", "made in SQL"],
    "understand.md": ["roc_auc"],
}
"""What a page prints when it runs."""


def with_code() -> list[Path]:
    """The pages, but for README.md, that have something to run."""
    pages = [page for page in PAGES if page != README and page.name not in TESTED_ELSEWHERE]
    return [page for page in pages if blocks(text_of(page), "python", "sql")]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What README.md leaves behind: a folder with its database, and its variables."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "sql").symlink_to(ROOT / "sql")
    scope: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(README, scope)
    return folder, scope


@pytest.fixture
def started(
    start: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """A folder of its own for each page that goes on from there, as the current one."""
    folder, scope = start
    shutil.copy(folder / "shop.duckdb", tmp_path)
    monkeypatch.chdir(tmp_path)
    return dict(scope)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("page", with_code(), ids=lambda page: page.name)
def test_the_code_of_a_page_runs(
    page: Path, started: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    if page.name == "connect.md":
        for module in ("ibis", "duckdb_engine"):
            pytest.importorskip(module)
    run(page, started)
    printed = capsys.readouterr().out
    for text in SAYS.get(page.name, ()):
        assert text in printed
    for name in ("con", "session"):
        if hasattr(started.get(name), "close"):
            started[name].close()


def test_the_command_of_the_start_runs(started: dict[str, Any]) -> None:
    (command,) = [b.text for b in blocks(text_of(README), "sh") if b.text.startswith("sqlml ")]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "north" in done.stdout


# 1.5 makes files of an older format, which cannot hold the macros, as the page says.
@pytest.mark.skipif(duckdb.__version__ < "2", reason="files of DuckDB 1.5 hold no macros")
def test_plain_connections_call_the_macros(started: dict[str, Any]) -> None:
    (block,) = blocks(text_of(DOCS / "connect.md"), "plain")
    with sqlml.connect("shop.duckdb") as con:
        assert con.connection.cursor().execute(block.text).fetchall()


def test_languages_of_blocks_say_whether_they_run() -> None:
    known = {"python", "sql", "sh", "text", "plain", "yaml", "sql+jinja", "python+dbt"}
    for page in PAGES:
        assert {block.language for block in blocks(text_of(page))} <= known, page


def test_counts_are_those_of_the_generated_page() -> None:
    page, told = text_of(DOCS / "operators.md"), text_of(DOCS / "register.md")
    for title, form in (
        (r"## scikit-learn [\d.]+: (\d+) of (\d+) estimators", "{} of {} estimators"),
        (r"## ONNX: (\d+) operators", "| ONNX | {} operators"),
        (r"## torch: (\d+) operators", "exported programs of {} operators"),
    ):
        (counts,) = re.findall(title, page)
        counts = (counts,) if isinstance(counts, str) else counts
        assert form.format(*counts) in told


def test_make_targets_of_the_readme_exist() -> None:
    makefile = text_of(ROOT / "Makefile")
    named = set(re.findall(r"^make (\w+)", text_of(README), flags=re.MULTILINE))
    assert named == {"demo", "test", "lint", "bench", "site"}
    assert [t for t in named if not re.search(rf"^{t}:", makefile, flags=re.MULTILINE)] == []


def test_the_readme_fits_on_two_screens() -> None:
    assert len(text_of(README).splitlines()) <= 150


def test_extras_of_the_documents_exist() -> None:
    known = set(re.findall(r"^(\w+) = \[", text_of(ROOT / "pyproject.toml"), re.MULTILINE))
    for page in PAGES:
        for extras in re.findall(r"pip install '[\w.]+\[([\w,]+)\]'", text_of(page)):
            assert set(extras.split(",")) <= known, page


def test_files_that_the_documents_name_exist() -> None:
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        text = text_of(page)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text):
            assert (page.parent / target).exists(), (page, target)
        for test in re.findall(r"`(tests/[\w/]+\.py)`", text):
            assert (ROOT / test).exists(), (page, test)
