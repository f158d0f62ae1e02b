"""`installed`: the shim as an extension that DuckDB trusts, installed once on a machine.

DuckDB 2.0 trusts an extension of a repository whose public key it was given. So in a database of
our own, in memory, the folder of the package is named as the repository "sqlml" with the key that
signed its one file, and the file is installed, which copies it below DuckDB's home folder. Users'
connections load it from there under their default settings; none of these is changed.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import duckdb

from sqlml.catalog.connection import IS_TWO
from sqlml.dialects import DUCKDB
from sqlml.udfs.duckdb.native.build_shim import EXTENSION, PUBLIC_KEY, this_platform

NAME = "sqlml"
"""Of the extension, and of the repository."""

OFF = "SQLML_NATIVE_FUNCTIONS"
"""The environment variable that keeps native functions off where it is 0."""

BUILT = Path(__file__).parent / "built"
"""Where the package has the signed file, and its public key."""


class Unavailable(Exception):
    """Native functions cannot be had; the text says why, as part of a sentence."""


def installed(built: Path = BUILT) -> Path:
    """The installed file, installed now if it is missing or another build's.

    Args:
        built: the folder of the signed file and its public key.

    Raises:
        Unavailable: it cannot be had here.
    """
    if os.environ.get(OFF) == "0":
        raise Unavailable(f"{OFF} is 0")
    if not IS_TWO:
        raise Unavailable(f"DuckDB {duckdb.__version__} has none; 2.0 has")
    target, shim = this_platform(), built / EXTENSION
    if target is None or not shim.is_file():
        raise Unavailable("this installation of sqlml was built without them")
    try:
        with duckdb.connect() as own:
            folder = _folder(own, target)
            path = folder / EXTENSION
            if not path.is_file() or path.read_bytes() != shim.read_bytes():
                _install(own, target, shim)
    except (duckdb.Error, OSError) as error:
        raise Unavailable(f"DuckDB could not install them: {_first_line(error)}") from None
    return path


def uninstall() -> bool:
    """Take the installed file and the repository away again; whether there was one."""
    found = False
    with duckdb.connect() as own:
        target = this_platform() or ""
        folder = _folder(own, target)
        with suppress(duckdb.Error):
            own.execute(f"DROP EXTENSION REPOSITORY {NAME}")
            found = True
    for path in (folder / EXTENSION, folder / f"{EXTENSION}.info"):
        if path.is_file():
            path.unlink()
            found = True
    return found


def _install(own: duckdb.DuckDBPyConnection, target: str, shim: Path) -> None:
    key = (shim.parent / PUBLIC_KEY).read_text().strip()
    with tempfile.TemporaryDirectory() as made:
        repository = Path(made) / _version(own) / target
        repository.mkdir(parents=True)
        (repository / f"{EXTENSION}.gz").write_bytes(gzip.compress(shim.read_bytes()))
        own.execute("SET allow_extension_repositories = 'allowed'")
        own.execute(
            f"CREATE OR REPLACE EXTENSION REPOSITORY {NAME} "
            f"WITH PREFIX {DUCKDB.quote_string(made)} PUBLIC KEY {DUCKDB.quote_string(key)}"
        )
        own.execute(f"FORCE INSTALL {NAME} FROM {NAME}")


def _folder(own: duckdb.DuckDBPyConnection, target: str) -> Path:
    ask = "SELECT system.main.current_setting('home_directory')"
    home = own.execute(ask).fetchone()
    base = Path(home[0]) if home and home[0] else Path.home()
    return base / ".duckdb" / "extensions" / _version(own) / target / "repositories" / NAME


def _version(own: duckdb.DuckDBPyConnection) -> str:
    found = own.execute("SELECT library_version FROM system.main.pragma_version()").fetchone()
    assert found is not None
    return str(found[0])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
