"""Exported models in the clients of DuckDB, which know no sqlml: `make nightly-clients`."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sqlml
from sqlml.backends.native.runtime.build_runtime import detect_duckdb_platform
from tests.e2e import family_zoo
from tests.e2e.test_exported_extension import MODELS, make_table
from tests.support.exported import Exported, export

CLIENTS = Path(os.environ.get("CLIENTS", ".clients")).resolve()

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not CLIENTS.is_dir(), reason="`make nightly-clients` installs the clients"),
]

PYTHON = """
import sys
import duckdb
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for sql in open(sys.argv[1], encoding="utf-8").read().split("; "):
    rows = con.execute(sql).fetchall()
assert not {"sqlml", "numba", "numpy"} & set(sys.modules)
import json
print(json.dumps([[name, differing] for name, differing, _ in rows]))
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    with sqlml.connect() as con:
        make_table(con, family_zoo.rows(True))
        for name, entry in MODELS.items():
            con.create_model(name, family_zoo.model(entry), verify=False)
        yield export(con, list(MODELS), "t", tmp_path_factory.mktemp("exported"))


def write_script(exported: Exported, folder: Path, platform: str | None = None) -> Path:
    """Write the script of `exported`, for the file of another platform if one is given."""
    script = folder / "check.sql"
    text = exported.script
    if platform is not None:
        path = folder / exported.extension.name
        with sqlml.connect() as con:
            for name, entry in MODELS.items():
                con.create_model(name, family_zoo.model(entry), verify=False)
            names = ", ".join(MODELS)
            con.execute(f"EXPORT MODELS ({names}) TO '{path}' (PLATFORM '{platform}')")
        text = text.replace(str(exported.extension), str(path))
    script.write_text(text, encoding="utf-8")
    return script


def run(*command: str | Path, **options: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        command, env={**environment, **options}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def list_folders(pattern: str) -> list[Path]:
    return sorted(CLIENTS.glob(pattern))


@pytest.mark.parametrize("folder", list_folders("duckdb-*"), ids=lambda folder: folder.name)
def test_python(folder: Path, exported: Exported, tmp_path: Path) -> None:
    is_old = folder.name.startswith("duckdb-1.2")
    platform = f"{detect_duckdb_platform()}_gcc4" if is_old else None
    script = write_script(exported, tmp_path, platform)
    printed = run(sys.executable, "-S", "-c", PYTHON, script, PYTHONPATH=str(folder))
    assert json.loads(printed) == [[name, 0] for name in exported.functions]


@pytest.mark.parametrize("folder", list_folders("shell-*"), ids=lambda folder: folder.name)
def test_shell(folder: Path, exported: Exported, tmp_path: Path) -> None:
    candidates = (folder / "duckdb_cli" / "duckdb", folder / "bin" / "duckdb")
    shell = next(path for path in candidates if path.is_file())
    shell.chmod(0o755)
    script = write_script(exported, tmp_path)
    printed = run(shell, "-unsigned", "-csv", "-noheader", "-f", script)
    rows = [(name, int(differing)) for name, differing, _ in csv.reader(printed.splitlines())]
    assert rows == [(name, 0) for name in exported.functions]


ARM_LIBRARIES = Path("/usr/aarch64-linux-gnu")
HAS_ARM = shutil.which("qemu-aarch64-static") is not None and ARM_LIBRARIES.is_dir()


@pytest.mark.skipif(not HAS_ARM, reason="needs qemu-user-static and libstdc++6-arm64-cross")
def test_shell_on_arm64(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(CLIENTS / "data"))
    script = write_script(exported, tmp_path, "linux_arm64")
    shell = CLIENTS / "arm64" / "duckdb_cli" / "duckdb"
    shell.chmod(0o755)
    emulator = ("qemu-aarch64-static", "-L", ARM_LIBRARIES)
    printed = run(*emulator, shell, "-unsigned", "-csv", "-noheader", "-f", script)
    rows = [(name, int(differing)) for name, differing, _ in csv.reader(printed.splitlines())]
    assert rows == [(name, 0) for name in exported.functions]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_node(exported: Exported, tmp_path: Path) -> None:
    script = write_script(exported, tmp_path)
    program = shutil.copy(Path(__file__).with_name("check.js"), CLIENTS / "node" / "check.js")
    printed = run("node", program, script)
    assert json.loads(printed) == [[name, 0] for name in exported.functions]
