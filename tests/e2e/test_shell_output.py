"""What `sqlml` writes: each mode of output, redirected or not, and all rows of them."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import sqlml
from sqlml.tools.cli import main
from sqlml.tools.shell.dot_commands import COMMANDS
from sqlml.tools.shell.output_modes import MODES
from sqlml.tools.shell.shell import split_pieces

PAGE = Path(__file__).parents[2] / "docs" / "shell.md"

VALUES = (
    'SELECT 0.1::FLOAT AS f, 12.30::DECIMAL(5, 2) AS "dé c", '
    "170141183460469231731687303715884105727::HUGEINT AS h, "
    "NULL AS n, '' AS e, 'a,\"b\"|c' AS t, [1, NULL] AS l, DATE '2024-02-29' AS d, "
    "true AS b, 'x\ny' AS two"
)


def written(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([":memory:", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_csv_is_read_back_as_it_was(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = written(capsys, "-csv", "-c", VALUES)
    names, row = csv.reader(io.StringIO(out))
    assert names == ["f", "dé c", "h", "n", "e", "t", "l", "d", "b", "two"]
    assert row[:3] == ["0.1", "12.30", "170141183460469231731687303715884105727"]
    assert row[5:] == ['a,"b"|c', "[1, NULL]", "2024-02-29", "true", "x\ny"]
    assert ',,"",' in out  # NULL, and an empty text
    path = tmp_path / "out.csv"
    path.write_text(out)
    with duckdb.connect() as con:
        read = con.execute("SELECT n, e, h, two FROM read_csv(?, all_varchar = true)", [str(path)])
        assert read.fetchall()[0][2:] == (row[2], "x\ny")


def test_json_has_the_engines_digits(capsys: pytest.CaptureFixture[str]) -> None:
    out = written(capsys, "-json", "-c", VALUES)
    assert '"f":0.1,"dé c":12.30,"h":170141183460469231731687303715884105727,"n":null' in out
    (row,) = json.loads(out)
    assert row["l"] == [1, None] and row["b"] is True and row["two"] == "x\ny" and row["e"] == ""
    odd = (
        "SELECT 'NaN'::DOUBLE AS a, '-inf'::FLOAT AS b, ['NaN'::DOUBLE, 1] AS c, 'NaN' AS d, 1 AS a"
    )
    (line,) = written(capsys, "--jsonlines", "-c", odd).splitlines()
    assert line.endswith('"a":1}')  # names may come twice
    json.loads(line, parse_constant=lambda word: pytest.fail(word))
    assert written(capsys, "-json", "-c", "SELECT 1 AS a WHERE false") == "[]\n"
    two = written(capsys, "-json", "-c", "FROM (VALUES (1), (2)) t(a)")
    assert two == '[{"a":1},\n{"a":2}]\n'


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        (
            "-box",
            "┌────┬──────┐\n│  a │ b    │\n├────┼──────┤\n"
            "│  1 │ NULL │\n│ 10 │ é|日 │\n└────┴──────┘\n",
        ),
        ("-markdown", "|   a | b     |\n| --: | ----- |\n|   1 |       |\n|  10 | é\\|日 |\n"),
        ("-line", "a = 1\nb = \n\na = 10\nb = é|日\n"),
        ("-list", "a|b\n1|\n10|é|日\n"),
        ("-tabs", "a\tb\n1\t\n10\té|日\n"),
    ],
)
def test_texts_of_the_other_modes(capsys: pytest.CaptureFixture[str], mode: str, text: str) -> None:
    out = written(capsys, mode, "-c", "FROM (VALUES (1, NULL), (10, 'é|日')) t(a, b)")
    assert out == text
    if mode in ("-list", "-tabs"):
        bare = written(capsys, mode, "-noheader", "-c", "SELECT 1 AS a")
        assert bare == "1\n"


def test_all_rows_go_where_they_are_sent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = written(capsys, "-c", "FROM range(12345)")
    assert len(out.splitlines()) == 12345 + 4 and "12344" in out
    to, once = tmp_path / "o.csv", tmp_path / "once.json"
    assert written(capsys, "-csv", "-o", str(to), "-c", "FROM range(3)") == ""
    assert to.read_text() == "range\n0\n1\n2\n"
    script = (
        f".mode csv\n.headers off\n.once '{once}'\nSELECT 1;\nSELECT 2;\n.output {to}\n"
        "SELECT 3;\n.output\n.nullvalue none\nSELECT NULL, 4"
    )
    assert written(capsys, "-c", script) == "2\nnone,4\n"
    assert once.read_text() == "1\n" and to.read_text() == "3\n"
    assert main(["-o", str(tmp_path), "-c", "SELECT 1"]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_statements_without_a_result_write_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = (
        "SET threads = 2; BEGIN; CREATE TABLE t AS SELECT 1 AS a; INSERT INTO t VALUES (2); "
        "COMMIT; ATTACH ':memory:' AS other; DETACH other"
    )
    assert written(capsys, "-c", quiet) == ""
    assert written(capsys, "-csv", "-c", 'SELECT 7 AS "Count"') == "Count\n7\n"
    assert written(capsys, "-csv", "-c", 'SELECT true AS "Success"') == "Success\ntrue\n"
    returning = (
        "CREATE TABLE t (a INT); INSERT INTO t VALUES (2) RETURNING a; SELECT count(*) AS n FROM t"
    )
    assert written(capsys, "-csv", "-c", returning) == "a\n2\nn\n1\n"


def test_dot_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(str(path)) as con:
        con.execute("CREATE TABLE customers (a DOUBLE, b VARCHAR); CREATE VIEW v AS FROM customers")
        model = LinearRegression().fit(np.array([[0.0], [1.0]]), [0, 1])
        con.create_model("churn", model, inputs=["a"])

    def run(text: str, status: int = 0) -> str:
        assert main([str(path), "-csv", "-c", text]) == status
        out, err = capsys.readouterr()
        return out if status == 0 else err

    assert run(".tables").splitlines() == [
        "name,kind,rows,database,schema",
        "customers,table,0,shop,main",
        "v,view,,shop,main",
    ]
    assert run("\\dt cust%").splitlines()[1:] == ["customers,table,0,shop,main"]
    assert run(".models").splitlines()[1].startswith("churn,1,")
    assert run(".schema cust%") == "CREATE TABLE customers(a DOUBLE, b VARCHAR);\n"
    assert "a,DOUBLE,YES" in run("\\d customers")
    assert "name,churn" in run(".describe churn")
    assert str(path) in run(".databases")
    script = tmp_path / "more.sql"
    script.write_text("SELECT 5 AS five;\n.mode json\nSELECT 6 AS six")
    assert run(f".read '{script}'") == 'five\n5\n[{"six":6}]\n'
    assert run(".open\nSELECT count(*) AS n FROM duckdb_tables()") == "n\n0\n"
    assert run("SELECT 1 AS a;\n.exit 3\nSELECT 2", 3) == ""
    assert "did you mean .timer?" in run(".tiner", 1)
    assert "usage: .mode [MODE]" in run(".mode a b", 1)
    assert "unknown mode xml; modes: box, csv" in run(".mode xml", 1)
    assert "usage: .headers on|off" in run(".headers maybe", 1)
    assert "cannot read absent.sql: No such file" in run(".read absent.sql", 1)
    assert "no closing quotation" in run(".read 'x", 1)
    (tmp_path / "bad.sql").write_text("SELECT 1;\nSELECT nope;\nSELECT 2;")
    assert "nope" in run(f".read {tmp_path / 'bad.sql'}\nSELECT 3", 1)


def test_the_page_about_the_shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    Path("score.sql").write_text("CREATE TABLE scores AS SELECT 1 AS id, 0.5 AS p;")
    block = text.split("```sh\n")[1].split("```")[0]
    prompt, *lines = [line.partition("#")[0] for line in block.splitlines()]
    assert prompt.split() == ["sqlml", "shop.duckdb"]
    for line in lines:
        _, *arguments = shlex.split(line.partition(" > ")[0])
        assert main(arguments) == 0
    assert capsys.readouterr().out.endswith("id,p\n1,0.5\n")
    assert Path("scores.json").read_text() == '[{"id":1,"p":0.5}]\n'
    modes = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert modes == list(MODES)
    assert set(re.findall(r"`\.(\w+)", text)) == set(COMMANDS)


def test_a_text_is_cut_where_a_reader_would() -> None:
    text = "SELECT ';\n.not a command';\n.mode csv\n\nSELECT 1 -- ;\n.5;\nquit\n/* ; */ SELECT 2"
    assert list(split_pieces(text)) == [
        ("SELECT ';\n.not a command'", 1),
        (".mode csv", 3),
        ("SELECT 1 -- ;\n.5", 5),
        ("quit", 7),
        ("SELECT 2", 8),
    ]


def test_an_error_names_file_and_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.sql", tmp_path / "outer.sql"
    inner.write_text("SELECT 1; -- fine\n\n/* so */ SELECT nothing\nFROM range(3);\n")
    outer.write_text(f"SELECT 2;\n.read {inner}\n")
    assert main(["-f", str(outer)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("BinderException") and "nothing" in told[0]
    assert told[-2:] == [f"in {inner}, line 3", f"in {outer}, line 2"]
    outer.write_text("\n.mode nonsense\n")
    assert main(["-f", str(outer)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"in {outer}, line 2"


def test_options_as_the_shell_of_duckdb_takes_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "shop.duckdb")
    assert main([path, "CREATE TABLE t AS SELECT 42 AS a"]) == 0
    assert main(["-readonly", "-csv", "-noheader", path, "-s", "FROM t"]) == 0
    assert capsys.readouterr().out == "42\n"
    assert main([path, "-readonly", "DROP TABLE t"]) == 1


def test_a_misspelt_command_makes_no_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["repot", "shop.duckdb"], ["demoo"], ["Calibrate"], ["wram", "-csv"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert f"no command or file '{arguments[0]}'; did you mean sqlml" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    for name in ("./repot", "warms.duckdb", "shop"):
        assert main([name, "SELECT 1"]) == 0
    assert main(["repot", "SELECT 1"]) == 0  # there is such a file now
    assert {path.name for path in tmp_path.iterdir()} == {"repot", "warms.duckdb", "shop"}


def test_boolean_classes_are_written_as_in_sql(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "shop.duckdb")
    with sqlml.connect(path) as con:
        model = LogisticRegression().fit(np.array([[0.0], [1.0]]), [False, True])
        con.create_model("m", model, inputs=["a"])
        con.execute("CREATE TABLE t AS SELECT 1.0 AS a, 1 AS n")
    assert main([path, "-csv", "-c", "SHOW MODELS; DESCRIBE MODEL m; .mode line"]) == 0
    out = capsys.readouterr().out
    assert '"[false, true]"' in out and 'classes,"false, true"' in out and "False" not in out
    assert main([path, "-c", "EXPLAIN SELECT predict_proba('m', *, class := true) FROM t"]) == 0
    assert "class true" in capsys.readouterr().out
    for call in ("predict_proba('m', *, class := 'x')", "predict_proba('m', 1.0)['x']"):
        main([path, "-c", f"SELECT {call} FROM t"])
        assert "False" not in capsys.readouterr().err
    main([path, "-c", "FROM ml_evaluate(MODEL m, TABLE t, label := 'n')"])
    assert "BOOLEAN (false, true)" in capsys.readouterr().err


def test_an_error_in_a_later_row_is_told_as_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "shop.duckdb")
    with sqlml.connect(path) as con:
        model: Any = LinearRegression().fit(np.array([[0.0], [1.0]]), [0, 1])
        con.create_model("m", model, inputs=["a"])
        con.execute("CREATE TABLE t AS SELECT nullif(i, 400_000) AS a FROM range(400_001) r(i)")
    assert main([path, "-csv", "-c", "SELECT predict('m', *) AS p FROM t"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("MissingValueError: column 'a' has NULL") and "Traceback" not in err
    assert main([path, "-csv", "-c", "SELECT count(predict('m', *)) AS n FROM t WHERE a < 9"]) == 0
    assert capsys.readouterr().out == "n\n9\n"
