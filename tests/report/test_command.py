"""`sqlml report`: a page on the command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import sqlml
from sqlml.tools.cli import main
from tests.e2e import child
from tests.support.evaluated_models import FITTED, ROWS


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("report") / "shop.duckdb"
    with sqlml.connect(made) as con:
        con.register("frame", ROWS)
        con.execute("CREATE TABLE shop AS FROM frame")
        con.create_model("prices", FITTED["prices"], verify=False)
    return made


def test_the_page_is_written_to_a_file_or_to_standard_output(
    path: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    written = tmp_path / "report.html"
    asked = ["report", str(path), "prices", "--data", "FROM shop LIMIT 5"]
    assert main([*asked, "-o", str(written)]) == 0
    assert "on 5 rows." in written.read_text(encoding="utf-8")
    out, err = capfdbinary.readouterr()
    assert out == b"" and err.startswith(f"wrote {written} (".encode())
    assert main(asked) == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"<!DOCTYPE html>") and err == b""


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["nobody", "--data", "shop"], 1, "unknown model 'nobody'"),
        (["prices", "--data", "SELECT a FROM shop"], 1, "needs columns 'b', 'c'"),
        (["prices", "--data", "shop", "--label", "prize"], 1, "did you mean 'price'?"),
        (["prices", "--data", "SELECT 1; SELECT 2"], 1, "not 2 statements"),
        (["prices", "--data", "shop", "-o", "no/where.html"], 2, "no/where.html: No such file"),
        (["prices", "--data", "shop", "-o", "/"], 2, "cannot write /: Is a directory"),
    ],
)
def test_an_error_is_told_without_a_page(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    says: str,
) -> None:
    assert main(["report", str(path), *arguments]) == status
    out, err = capsys.readouterr()
    assert out == "" and says in err and "Traceback" not in err


def test_a_database_that_is_not_there_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "absent.duckdb"), "m", "--data", "t"]) == 1
    assert "absent.duckdb" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_the_extra_the_error_names_it(path: Path, tmp_path: Path) -> None:
    code = f"""
import sys
import sqlml
sys.modules["altair"] = None  # as if it were not installed
con = sqlml.connect({str(path)!r}, read_only=True)
try:
    con.report("prices", "shop")
except sqlml.errors.MissingDependencyError as error:
    print(error)
"""
    done = child.run(code, tmp_path)
    assert "a report needs altair" in done.stdout, done.stderr
    assert "pip install 'sqlml[report]'" in done.stdout


def test_the_page_of_the_docs_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert sorted(language for language, _ in blocks) == ["python", "sh"]
    monkeypatch.chdir(tmp_path)
    for language, block in sorted(blocks):
        if language == "python":
            exec(compile(block, "report.md", "exec"), {})
            assert Path("churn.html").stat().st_size > 20_000
        else:
            name, *arguments = shlex.split(block)
            assert name == "sqlml" and main(arguments) == 0
    assert "By region" in Path("churn.html").read_text(encoding="utf-8")
