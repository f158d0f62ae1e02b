"""Install the shim once per machine, as an extension that DuckDB trusts.

DuckDB 2.0 trusts an extension from a repository whose public key it has. So a separate in-memory
database declares a temporary folder with the one signed file as the repository `sqlml_<digest>`,
with its public key, and installs the file, which copies it into DuckDB's home folder. Users'
connections load it from there under their default settings, none of which changes. Each build of
sqlml has a repository of its own, so several builds can be installed on a machine.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from sqlml.catalog.catalog_connection import IS_DUCKDB_2
from sqlml.dialects import DUCKDB
from sqlml.udfs.duckdb.native.build_shim import EXTENSION, PUBLIC_KEY, this_platform

NAME = "sqlml"  # The extension, and the prefix of its repositories.
OFF = "SQLML_NATIVE_FUNCTIONS"  # This environment variable turns native functions off if it is 0.
BUILT = Path(__file__).parent / "built"


class Unavailable(Exception):
    """Raised where native functions are not available; the text is part of a sentence."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The installed file, and the repository that DuckDB loads it from."""

    path: Path
    repository: str


def ensure_installed(connection: duckdb.DuckDBPyConnection, built: Path = BUILT) -> Installed:
    """Return the installed file, after installing it if it is missing or damaged.

    `built` is the folder of the signed file and its public key. Raises Unavailable if that fails.
    """
    target, shim = find_install_path(connection, built), built / EXTENSION
    try:
        if not target.path.is_file() or target.path.read_bytes() != shim.read_bytes():
            with duckdb.connect(config=_folders(connection)) as installer:
                _install(installer, shim, target.repository)
    except (duckdb.Error, OSError) as error:
        raise Unavailable(f"DuckDB could not install them: {_first_line(error)}") from None
    return target


def find_install_path(connection: duckdb.DuckDBPyConnection, built: Path = BUILT) -> Installed:
    """Return where `ensure_installed` puts the file, or raise Unavailable."""
    if os.environ.get(OFF) == "0":
        raise Unavailable(f"{OFF} is 0")
    if not IS_DUCKDB_2:
        raise Unavailable(f"they need DuckDB 2.0, and this is {duckdb.__version__}")
    shim = built / EXTENSION
    if this_platform() is None or not shim.is_file():
        raise Unavailable("this installation of sqlml was built without them")
    try:
        repository = f"{NAME}_{hashlib.sha256(shim.read_bytes()).hexdigest()[:16]}"
        folder = _repositories(connection, _folders(connection))
    except (duckdb.Error, OSError, RuntimeError) as error:
        raise Unavailable(f"DuckDB does not say where they go: {_first_line(error)}") from None
    return Installed(folder / repository / EXTENSION, repository)


def check_folder(place: Installed) -> None:
    """Raise Unavailable if the file could not be written, without installing it."""
    folder = next(parent for parent in place.path.parents if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise Unavailable(f"they cannot be installed in {folder}: {reason}") from None


def uninstall() -> list[Path]:
    """Remove the installed files of all builds of sqlml; return their repositories' folders."""
    with duckdb.connect() as connection:
        base = _repositories(connection, {})
        folders = [path for path in sorted(base.glob(f"{NAME}_*")) if _OURS.fullmatch(path.name)]
        for folder in folders:
            with suppress(duckdb.Error):
                connection.execute(f"DROP EXTENSION REPOSITORY {folder.name}")
            shutil.rmtree(folder, ignore_errors=True)
    return folders


_OURS = re.compile(rf"{NAME}_[0-9a-f]{{16}}")


def _install(connection: duckdb.DuckDBPyConnection, shim: Path, name: str) -> None:
    key = (shim.parent / PUBLIC_KEY).read_text().strip()
    with tempfile.TemporaryDirectory() as prefix:
        repository = Path(prefix) / _version(connection) / (this_platform() or "")
        repository.mkdir(parents=True)
        (repository / f"{EXTENSION}.gz").write_bytes(gzip.compress(shim.read_bytes()))
        connection.execute("SET allow_extension_repositories = 'allowed'")
        connection.execute(
            f"CREATE OR REPLACE EXTENSION REPOSITORY {name} "
            f"WITH PREFIX {DUCKDB.quote_string(prefix)} PUBLIC KEY {DUCKDB.quote_string(key)}"
        )
        connection.execute(f"FORCE INSTALL {NAME} FROM {name}")


def _folders(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Return a database's settings of extension folders by name."""
    names = ("home_directory", "extension_directory", "extension_repository_directory")
    ask = "SELECT system.main.current_setting(?)"
    values = {name: connection.execute(ask, [name]).fetchall()[0][0] for name in names}
    return {name: str(value) for name, value in values.items() if value}


def _repositories(connection: duckdb.DuckDBPyConnection, folders: Mapping[str, Any]) -> Path:
    home = Path(folders["home_directory"]) if "home_directory" in folders else Path.home()
    base = Path(folders.get("extension_directory") or home / ".duckdb" / "extensions")
    return base / _version(connection) / (this_platform() or "") / "repositories"


def _version(connection: duckdb.DuckDBPyConnection) -> str:
    ask = "SELECT library_version FROM system.main.pragma_version()"
    ((version,),) = connection.execute(ask).fetchall()
    return str(version)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
