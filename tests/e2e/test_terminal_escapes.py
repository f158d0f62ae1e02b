"""Control characters of data, names and errors never reach a terminal; pipes and files get them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml.terminal import escape_controls
from sqlml.tools.shell.output_modes import MODES
from tests.e2e.terminal import Terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

ROOT = Path(__file__).resolve().parents[2]

HOSTILE = "a\x1b]0;taken\x07\x9b2J\x85\x7f"
"""A text that sets the title, and clears the screen by a control character of C1."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stranger") / "shop.duckdb"
    with sqlml.connect(str(path)) as con:
        con.execute(f'CREATE TABLE "t{HOSTILE}" AS SELECT $1 AS "c{HOSTILE}", 1.0 AS n', [HOSTILE])
        con.execute(f"CREATE VIEW v AS SELECT '{HOSTILE}' AS x\r\nFROM \"t{HOSTILE}\"")
        model = LinearRegression().fit([[0.0], [1.0]], [0, 1])
        con.create_model(f"m{HOSTILE}", model, inputs=[f"i{HOSTILE}"], comment=HOSTILE)
    return path


def sent(*arguments: str, **environment: str) -> str:
    """Return all that a terminal is sent by `sqlml`."""
    terminal = Terminal(*arguments, **{"SQLML_PAGER": "no pager", **environment})
    terminal.ends()
    return terminal.sent.decode().replace("\r\n", "\n")


QUESTIONS = (
    f'FROM "t{HOSTILE}"',
    ".schema",
    ".tables",
    ".models",
    f'.describe "t{HOSTILE}"',
    f'DESCRIBE MODEL "m{HOSTILE}"',
    f'SHOW CREATE MODEL "m{HOSTILE}"',
    f"EXPLAIN SELECT predict('m{HOSTILE}', n) FROM \"t{HOSTILE}\"",
    f"SELECT predict('m{HOSTILE}', *) FROM \"t{HOSTILE}\"",
    f"SELECT error('{HOSTILE}')",
    f'FROM "nowhere{HOSTILE}"',
    f'SELECT "n{HOSTILE}" FROM "t{HOSTILE}"',
    f".read 'none{HOSTILE}'",
    f".unknown{HOSTILE}",
)
"""What a user asks of a stranger's database: results, notices, plans and errors."""


def test_a_terminal_gets_no_control_character(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, no_editor = tmp_path / "own.duckdb", tmp_path / "prompt_toolkit.py"
    own.write_bytes(shop.read_bytes())
    no_editor.write_text("raise ModuleNotFoundError('none', name='prompt_toolkit')")
    environment = {"TERM": "dumb", "SQLML_PAGER": "no pager"}
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    # A line that is too long for a terminal that cannot move its cursor begins with a \r.
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(own.name, "-list", PYTHONPATH=path, **environment)
    terminal.sees("sqlml>")
    for number, question in enumerate(QUESTIONS):
        script = Path(f"{number}.sql")
        script.write_text(question, encoding="utf-8", newline="")
        sent_before = len(terminal.sent)
        terminal.types(f".read {script}\r.timer on\r.timer\r")  # it says when it is done
        terminal.gets(b"timer is off", sent_before)
        text = terminal.sent[sent_before:].decode().replace("\r\n", "\n")
        assert "u009b2J" in text, (question, text)
        assert escape_controls(text) == text, (question, ascii(text))
    terminal.types("exit\r")
    assert terminal.ends() == 0


def test_each_mode_escapes(shop: Path) -> None:
    everything = "\n".join(f'.mode {mode}\nFROM "t{HOSTILE}";' for mode in MODES)
    text = sent(str(shop), "-c", everything)
    assert escape_controls(text) == text
    assert r"a\u001b]0;taken\u0007\u009b2J\u0085\u007f" in text
    paged = sent(str(shop), "-c", f'FROM "t{HOSTILE}", range(300)', SQLML_PAGER="cat")
    assert paged.count(r"\u009b2J") > 300 and escape_controls(paged) == paged
    report = sent("report", str(shop), f"m{HOSTILE}", "--data", "v", "-o", f"no/{HOSTILE}")
    assert "cannot write" in report and escape_controls(report) == report


def test_a_pipe_gets_each_character(shop: Path, tmp_path: Path) -> None:
    def piped(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sqlml", str(shop), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )

    modes = [mode for mode in MODES if not mode.startswith("json")]
    everything = "".join(f".mode {mode}\nSELECT '{HOSTILE}' AS x;\n" for mode in modes)
    run = piped("-c", f"{everything}.schema\nSELECT error('{HOSTILE}')")
    assert run.stdout.count(HOSTILE) >= len(modes) + 3 and HOSTILE in run.stderr
    path = tmp_path / "rows.txt"
    assert sent(str(shop), "-list", "-o", str(path), "-c", f"SELECT '{HOSTILE}'") == ""
    assert HOSTILE in path.read_bytes().decode()


def test_the_prompt_completes_hostile_names(shop: Path, tmp_path: Path) -> None:
    terminal = Terminal(str(shop), SQLML_HISTORY=str(tmp_path / "h"), SQLML_PAGER="no pager")
    terminal.sees("sqlml>")
    for typed in ("SELECT predict('m", "FROM t", "SELECT c", "DROP MODEL m"):
        terminal.types(typed)
        terminal.sees(f"sqlml> {typed}", "taken^G<9b>2J")
        terminal.types("\t")
        terminal.sees("^[")
        terminal.types("\x03")
        terminal.clears()
    terminal.types("FROM v;\r.mode line\rFROM v;\r.schema\rexit\r")
    assert terminal.ends() == 0
    assert terminal.title == "" and "\x9b".encode() not in terminal.sent
    assert b"\x1b]0;" not in terminal.sent


def test_what_people_see_in_python_is_escaped() -> None:
    with sqlml.connect() as con:
        con.create_model("m", LinearRegression().fit([[0.0], [1.0]], [0, 1]), inputs=["a"])
        query = f"SELECT '{HOSTILE}' AS x, predict('m', a := 0) >= 0 AS \"{HOSTILE}\""
        for text in (repr(con.sql(query)), str(con.sql(query)), repr(con.explain(query))):
            assert "u009b2J" in text and escape_controls(text) == text
        assert con.sql(query).fetchall() == [(HOSTILE, True)]
