"""The prompt of `sqlml`, in a real terminal: what is typed, and what its screen shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sklearn.linear_model import LogisticRegression

import sqlml
from tests.e2e.macro_checks import IS_2
from tests.e2e.terminal import Terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

UP, TAB, CONTROL_C, CONTROL_D = "\x1b[A", "\t", "\x03", "\x04"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(str(path)) as con:
        con.execute(
            "CREATE TABLE customers AS SELECT i AS number, i % 7 AS visits, i % 3 AS age, "
            '\'x\' || i AS "full name", i AS "order" FROM range(500) r(i)'
        )
        model = LogisticRegression().fit([[0.0, 1], [1, 2], [2, 0]], ["no", "yes", "no"])
        con.create_model("churn", model, inputs=["visits", "age"])
        con.add_version("churn", model, inputs=["visits", "age"])
        con.execute("ALTER MODEL churn SET ALIAS tried = 2")
    return path


@pytest.fixture
def terminal(shop: Path, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(
        str(shop), SQLML_HISTORY=str(tmp_path / "kept" / "history"), SQLML_PAGER="no pager"
    )
    made.sees("sqlml>")
    yield made
    made.process.close(force=True)


def test_a_session(terminal: Terminal, shop: Path, tmp_path: Path) -> None:
    terminal.types("SELECT predict('churn', *) AS p,\r")
    terminal.types("count(*) FROM customers GROUP BY p;\r")
    terminal.sees("   ..> count(*)", "│ yes", "count_star()")
    terminal.types("SELECT predict('nope', *) FROM customers;\r")
    assert "Traceback" not in terminal.sees("unknown model 'nope'")
    terminal.types("SET threads = 2;\rBEGIN;\rDELETE FROM customers WHERE number = 1;\rROLLBACK;\r")
    terminal.sees("ROLLBACK;\nsqlml>", *(["1 row"] if IS_2 else []))
    terminal.clears()
    terminal.types(".timer on\r.mode csv\rSELECT max(number) FROM customers;\r")
    terminal.sees("499", "max(number)", " s\n")
    terminal.types("DROP MODEL churn;\r")
    terminal.sees("dropped model churn")
    terminal.types("exit\r")
    assert terminal.ends() == 0
    again = Terminal(str(shop), SQLML_HISTORY=str(tmp_path / "kept" / "history"))
    again.sees("sqlml>")
    again.types(UP + UP + UP + UP)  # exit, DROP, SELECT, .mode
    again.sees("sqlml> .mode csv")
    again.types(UP * 7)
    again.sees(
        "sqlml> SELECT predict('churn', *) AS p,\n   ..> count(*) FROM customers GROUP BY p;"
    )
    again.types(CONTROL_C + CONTROL_D)
    assert again.ends() == 0
    assert os.stat(tmp_path / "kept").st_mode & 0o077 == 0


COMPLETIONS = (
    ("SELECT predict('ch", "churn@tried", "SELECT predict('churn"),
    ("SELECT predict('churn/", "churn/2", "SELECT predict('churn/1"),
    ("SELECT vis", "column", "SELECT visits"),
    ("SELECT 1 FROM customers c WHERE c.a", "column", "SELECT 1 FROM customers c WHERE c.age"),
    ("FROM cust", "table", "FROM customers"),
    ("DROP MODEL c", "model", "DROP MODEL churn"),
    (".hea", "column names", ".headers"),
    ("SELECT full", "column", 'SELECT "full name"'),
    ('SELECT 1 FROM customers c WHERE c."full n', "column", '"full name"'),
    ("SELECT orde", "column", 'SELECT "order"'),
    ("CREATE MODEL m OPTIONS (mod", "option", "CREATE MODEL m OPTIONS (model_type ="),
    ("CREATE MODEL m OPTIONS (label = 'ful", "column", "(label = 'full name"),
    ("CREATE MODEL m OPTIONS (model_type = 'logi", "model_type", "(model_type = 'logistic_reg"),
    ("CREATE MODEL m OPTIONS (early_stop = f", "value", "(early_stop = false"),
    ("SET sqlml_rou", "setting of models", "SET sqlml_route"),
    ("SET sqlml_route = 'ar", "value", "SET sqlml_route = 'arrow"),
    ("SET thread", "setting", "SET threads"),
    ("SELECT predict_p", "model function", "SELECT predict_proba("),
    ("selec", "keyword", "select"),
)
"""What is typed, a word of the menu that it opens, and the line after Tab."""


def test_completion(terminal: Terminal) -> None:
    for typed, menu, completed in COMPLETIONS:
        terminal.types(typed)
        terminal.sees(f"sqlml> {typed}", menu)
        terminal.types(TAB)
        terminal.sees(completed)
        terminal.types(CONTROL_C)
        terminal.clears()


def test_a_query_is_interrupted_and_the_shell_stays(terminal: Terminal) -> None:
    terminal.types(
        "SELECT sum(predict_proba('churn', visits := a.range, age := b.range, class := 'yes')) "
        "FROM range(100_000) a, range(1_000_000) b;\r"
    )
    terminal.sees("0% |")  # a bar, after a while
    terminal.types(CONTROL_C)
    screen = terminal.sees("Interrupted\nsqlml>")
    assert "Traceback" not in screen and "KeyboardInterrupt" not in screen
    terminal.types("SELECT 6 * 7 AS answer;\r")
    terminal.sees("answer", "42")


def test_wide_and_long_results(terminal: Terminal, shop: Path, tmp_path: Path) -> None:
    terminal.types("FROM customers;\r")
    terminal.sees("500 rows")
    terminal.clears()
    terminal.types(
        "EXPLAIN SELECT avg(predict_proba('churn', c.*, class := 'yes')) FROM customers c "
        "JOIN range(10) r ON r.range = c.number WHERE c.age > 0;\r"
    )
    if IS_2:  # its boxes are wider than the screen
        assert "╭" not in terminal.sees("Hash Join", "├── ", "└── ", "sqlml>")
    else:
        terminal.sees("HASH_JOIN", "sqlml>")
    terminal.types(CONTROL_D)
    terminal.ends()
    pages = tmp_path / "pages"
    paged = Terminal(str(shop), SQLML_PAGER=f"tee {pages}", SQLML_HISTORY=str(tmp_path / "h"))
    paged.sees("sqlml>")
    paged.types("FROM customers;\r.models\r.exit 4\r")
    assert paged.ends() == 4
    shown = pages.read_text()  # of the last one
    assert all(name in shown for name in ("aliases", "comment", "created_at", "labels"))


def test_without_the_libraries_it_is_a_plain_prompt(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt_toolkit.py").write_text(
        "raise ModuleNotFoundError('none', name='prompt_toolkit')"
    )
    terminal = Terminal(str(shop), PYTHONPATH=f"{tmp_path}{os.pathsep}{os.getcwd()}")
    terminal.sees("pip install 'sqlml[cli]'", "sqlml>")
    terminal.types("SELECT count(*)\rFROM customers;\r")
    terminal.sees("   ..> FROM customers;", "500")
    terminal.types("SELECT 1" + CONTROL_C)
    terminal.types(".tables\r")
    terminal.sees("│ customers │")
    terminal.types(CONTROL_D)
    assert terminal.ends() == 0
