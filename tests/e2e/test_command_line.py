"""The command line: -c, a file, standard input, and the prompt."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sqlml.backends import costs
from sqlml.backends.native.jit import compile_ahead, runtime_library
from sqlml.backends.native.jit.compile_ahead import read_known_kernels
from sqlml.catalog.catalog_connection import IS_DUCKDB_2
from sqlml.tools.cli import main
from sqlml.udfs.duckdb.native import extension
from tests.e2e.shop import COUNT, fill, yes


def test_the_command_line(
    frame: pd.DataFrame,
    churn: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "shop.duckdb"
    fill(path, frame, churn)
    script = tmp_path / "query.sql"
    script.write_text(f"{COUNT};\nSHOW MODELS; -- end\n")
    expected = str(yes(churn, frame))

    def run(*arguments: str, status: int = 0) -> str:
        assert main(arguments) == status
        out, err = capsys.readouterr()
        return out if status == 0 else err

    alone = subprocess.run(
        [sys.executable, "-m", "sqlml", str(path), "-c", COUNT], capture_output=True, text=True
    )
    assert alone.returncode == 0 and expected in alone.stdout
    from_file = run(str(path), "-f", str(script), "--read-only")
    assert expected in from_file and "churn" in from_file
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{COUNT};".encode())))
    assert expected in run(str(path))
    wrong = run(str(path), "-c", "SELECT predict('nope', *) FROM customers", status=1)
    assert "UnknownModelError" in wrong and "Traceback" not in wrong
    run(str(tmp_path / "no" / "x.duckdb"), "-c", "SELECT 1", status=1)
    run(str(path), "-f", str(tmp_path / "absent.sql"), status=2)
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "usage: sqlml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("absent.sql", "No such file or directory"),
        ("folder", "directory"),
        ("latin1.sql", "it is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, says: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin1.sql").write_bytes(b"SELECT 'caf\xe9'")
    assert main([str(tmp_path / "new.duckdb"), "-f", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(f"sqlml: cannot read {tmp_path / name}: ") and says in err
    assert not (tmp_path / "new.duckdb").exists()


def test_standard_input_that_is_not_utf8(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"SELECT 'caf\xe9'")))
    assert main([]) == 2
    assert "sqlml: cannot read standard input: it is not UTF-8" in capsys.readouterr().err


def test_warm_compiles_what_is_missing_and_says_where_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tuple(k for k in read_known_kernels() if k.name in ("_shift", "put_plan"))
    monkeypatch.setattr(compile_ahead, "read_known_kernels", lambda: few)
    monkeypatch.setattr(runtime_library, "find_kernel", lambda function, signature: None)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("SQLML_NATIVE_FUNCTIONS", "0")
    assert main(["warm"]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "compiling 2 kernels" and second.startswith("compiled 2 kernels in ")
    assert len(list((tmp_path / "kept").rglob("*.kernel"))) == 2
    assert main(["warm"]) == 0
    assert capsys.readouterr().out == (
        "all common kernels are compiled\n"
        "native functions are not installed: SQLML_NATIVE_FUNCTIONS is 0\n"
    )
    (tmp_path / "others").mkdir()
    (tmp_path / "others").chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "others"))
    assert main(["warm"]) == 1
    assert "sqlml: cannot keep kernels: " in capsys.readouterr().err


@pytest.mark.version
def test_warm_fails_where_native_functions_cannot_be_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_ahead, "read_known_kernels", tuple)
    for home in (tmp_path, unwritable(tmp_path)):
        monkeypatch.setenv("HOME", str(home))
        assert main(["native"]) == 0
        before = capsys.readouterr().out
        is_available = (
            IS_DUCKDB_2 and (extension.BUILT / extension.EXTENSION).is_file() and home == tmp_path
        )
        assert main(["warm"]) == (0 if is_available else 1)
        out, err = capsys.readouterr()
        assert main(["native"]) == 0
        after = capsys.readouterr().out
        if is_available:
            assert before.startswith("native functions are installed when they are first used, at ")
            assert after.startswith(f"native functions are installed at {tmp_path}") and not err
            assert out.endswith(after.partition("other clients")[0])
        else:
            assert before == after
            assert before.startswith("native functions are unavailable: ")
            assert err.startswith("sqlml: native functions are unavailable: ")
            assert "Set SQLML_NATIVE_FUNCTIONS=0 to warm without native functions." in err


def unwritable(folder: Path) -> Path:
    """Return a home below a file, which not even the administrator can make."""
    (folder / "file").touch()
    return folder / "file" / "home"


@pytest.mark.nightly
def test_calibrate_prints_what_it_measured_and_where_it_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "costs.json"
    kept.write_text("{}")
    monkeypatch.setenv("SQLML_COSTS", str(kept))
    assert main(["calibrate"]) == 0
    out = capsys.readouterr().out
    assert "native.arithmetic" in out and "(shipped: " in out
    assert out.endswith(f"saved in {kept}\n")
    assert kept.read_text().startswith("{")
    monkeypatch.setenv("SQLML_COSTS", str(kept / "below a file"))
    costs.current_costs.cache_clear()
    assert main(["calibrate"]) == 1
    assert "sqlml: cannot save the costs" in capsys.readouterr().err
    costs.current_costs.cache_clear()
