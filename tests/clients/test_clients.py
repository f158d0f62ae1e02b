"""Models in the clients of DuckDB, which know no sqlml: `make nightly-clients`.

The models are exported as an extension, or those of a database whose macros and views call them.

DuckDB's shells for Linux on ARM64 and for Windows run under emulators. Files for macOS run in
shells for Linux, which load them with `macos_loader.c`.
"""

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
from sqlml.backends.native.jit.processor_levels import LIBRARY
from sqlml.backends.native.runtime.build_runtime import (
    detect_duckdb_platform,
    find_compiler_command,
    make_metadata,
)
from sqlml.udfs.duckdb.native.platform_runtimes import find_runtime
from tests.e2e import family_zoo
from tests.e2e.test_exported_extension import MODELS, make_table
from tests.support.exported import Exported, export
from tests.support.runtime_clients import VIEWS, add_views, create_shop

CLIENTS = Path(os.environ.get("CLIENTS", ".clients")).resolve()

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not CLIENTS.is_dir(), reason="`make nightly-clients` installs the clients"),
]

OLDER = {"storage_compatibility_version": "v1.4.0"}
"""The setting for a database that clients before DuckDB 2.0 can read."""

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


@pytest.fixture(scope="module", params=["extension", "database"])
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exported]:
    if request.param == "database":
        yield export_database(tmp_path_factory.mktemp("database") / "shop.duckdb")
        return
    with sqlml.connect() as con:
        make_table(con, family_zoo.rows(True))
        for name, entry in MODELS.items():
            con.create_model(name, family_zoo.model(entry), verify=False)
        yield export(con, list(MODELS), "t", tmp_path_factory.mktemp("exported"))


def export_database(path: Path) -> Exported:
    """Create a database with models and views, and a script that compares the results in a client.

    The table `expected` has the results of the session as texts.
    """
    create_shop(path, OLDER)
    queries = {f"v_{name}": f"SELECT CAST(v AS VARCHAR) FROM v_{name} AS v" for name in VIEWS}
    queries |= {
        "label": "SELECT CAST(predict('churn', t) AS VARCHAR) FROM t",
        "proba": "SELECT CAST(predict_proba('churn', t) AS VARCHAR) FROM t",
    }
    results = " UNION ALL ".join(
        f"SELECT '{name}' AS name, value FROM ({query}) AS q(value)"
        for name, query in queries.items()
    )
    with sqlml.connect(path, config=OLDER) as con:
        add_views(con)
        con.connection.execute(f"CREATE TABLE expected AS {results}")
    script = (
        f"LOAD '{LIBRARY}'; ATTACH '{path}' AS shop (READ_ONLY); USE shop; "
        f"WITH got AS ({results}), "
        "other AS ((FROM got EXCEPT ALL FROM expected) UNION ALL "
        "(FROM expected EXCEPT ALL FROM got)) "
        "SELECT name, count(*) FILTER (is_other), count(*) FROM "
        "(SELECT name, false AS is_other FROM expected UNION ALL SELECT name, true FROM other) "
        "GROUP BY name ORDER BY name"
    )
    return Exported(LIBRARY, script, tuple(sorted(queries)))


def write_script(exported: Exported, folder: Path, platform: str | None = None) -> Path:
    """Write the script of `exported`, for the file of another platform if one is given."""
    script = folder / "check.sql"
    text = exported.script
    if platform is not None and exported.extension == LIBRARY:
        runtime = find_runtime(platform)
        assert runtime is not None
        text = text.replace(str(LIBRARY), str(runtime))
    elif platform is not None:
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
    if exported.extension == LIBRARY and folder.name < "duckdb-1.4":
        pytest.skip("older versions do not know the types of macros' parameters")
    platform = f"{detect_duckdb_platform()}_gcc4" if is_old else None
    script = write_script(exported, tmp_path, platform)
    printed = run(sys.executable, "-S", "-c", PYTHON, script, PYTHONPATH=str(folder))
    assert json.loads(printed) == [[name, 0] for name in exported.functions]


@pytest.mark.parametrize("folder", list_folders("shell-*"), ids=lambda folder: folder.name)
def test_shell(folder: Path, exported: Exported, tmp_path: Path) -> None:
    check_in_shell(exported, write_script(exported, tmp_path), find_shell(folder))


def find_shell(folder: Path) -> Path:
    """Return DuckDB's shell in a folder of one of its packages."""
    candidates = (folder / "duckdb_cli" / "duckdb", folder / "bin" / "duckdb")
    shell = next(path for path in candidates if path.is_file())
    shell.chmod(0o755)
    return shell


needs_amd = pytest.mark.skipif(
    detect_duckdb_platform() != "linux_amd64", reason="needs a processor of x86-64"
)

ARM_LIBRARIES = Path("/usr/aarch64-linux-gnu")
HAS_ARM = shutil.which("qemu-aarch64-static") is not None and ARM_LIBRARIES.is_dir()

needs_arm = pytest.mark.skipif(
    not HAS_ARM, reason="needs qemu-user-static and libstdc++6-arm64-cross"
)


def find_arm_shell() -> tuple[str | Path, ...]:
    """Return the command that starts DuckDB's shell for Linux on ARM64."""
    shell = CLIENTS / "arm64" / "duckdb_cli" / "duckdb"
    shell.chmod(0o755)
    return ("qemu-aarch64-static", "-L", ARM_LIBRARIES, shell)


def check_in_shell(exported: Exported, script: Path, *shell: str | Path, **options: str) -> None:
    printed = run(*shell, "-unsigned", "-csv", "-noheader", "-f", script, **options)
    rows = [(name, int(differing)) for name, differing, _ in csv.reader(printed.splitlines())]
    assert rows == [(name, 0) for name in exported.functions]


@needs_arm
def test_shell_on_arm64(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(CLIENTS / "data"))
    script = write_script(exported, tmp_path, "linux_arm64")
    check_in_shell(exported, script, *find_arm_shell())


@pytest.mark.skipif(shutil.which("wine") is None, reason="needs Wine for 64 bits")
def test_shell_on_windows(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(CLIENTS / "data"))
    script = write_script(exported, tmp_path, "windows_amd64")
    shell = CLIENTS / "windows" / "duckdb_cli" / "duckdb.exe"
    # A home of its own, and none of the messages about windows on a screen.
    wine = {"WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"}
    check_in_shell(exported, script, "wine", shell, **wine)


def build_macos_loader(target: str, folder: Path) -> Path:
    """Build `macos_loader.c` as an extension for a platform of Linux."""
    command = find_compiler_command(target, portable=True)
    if command is None:
        pytest.skip("needs ziglang")
    path = folder / "macos_loader.duckdb_extension"
    options = ("-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-sanitize=all", "-ldl")
    source = Path(__file__).with_name("macos_loader.c")
    subprocess.run([*command, *options, "-o", path, source], check=True)
    path.write_bytes(path.read_bytes() + make_metadata(target) + bytes(256))
    return path


@pytest.mark.parametrize(
    "processor", [pytest.param("amd64", marks=needs_amd), pytest.param("arm64", marks=needs_arm)]
)
def test_macos_code_in_a_shell_on_linux(
    processor: str, exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(CLIENTS / "data"))
    script = write_script(exported, tmp_path, f"osx_{processor}")
    extension = tmp_path / exported.extension.name
    (tmp_path / "loader").mkdir()
    loader = build_macos_loader(f"linux_{processor}", tmp_path / "loader")
    if exported.extension == LIBRARY:
        extension = tmp_path / "sqlml.duckdb_extension"
        runtime = find_runtime(f"osx_{processor}")
        assert runtime is not None
        extension.write_bytes(runtime.read_bytes())
        script.write_text(script.read_text("utf-8").replace(str(runtime), str(extension)), "utf-8")
    script.write_text(script.read_text("utf-8").replace(str(extension), str(loader)), "utf-8")
    shell = find_arm_shell() if processor == "arm64" else (find_shell(CLIENTS / "shell-1.5.6"),)
    check_in_shell(exported, script, *shell, MACOS_EXTENSION=str(extension))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_node(exported: Exported, tmp_path: Path) -> None:
    script = write_script(exported, tmp_path)
    program = shutil.copy(Path(__file__).with_name("check.js"), CLIENTS / "node" / "check.js")
    printed = run("node", program, script)
    assert json.loads(printed) == [[name, 0] for name in exported.functions]
