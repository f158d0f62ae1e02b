"""Install the runtime in DuckDB, and open the connection of the C API that it provides.

DuckDB 2.0 trusts an extension from a repository whose public key it knows. So a separate in-memory
database declares a temporary folder with the signed file as the repository `sqlml_<digest>`.
Installing the file copies it into DuckDB's home folder. Users' connections load the extension from
there and keep their default settings. Each build of sqlml has a separate repository, so several
builds can be installed on a machine.

Only an extension can access the database that loads it. So the runtime (`runtime.c`) opens a
connection when it is loaded, which happens once per database. The connection keeps the database
open until the last session closes the connection.
"""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import itertools
import os
import re
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from sqlml.backends.native.jit.processor_levels import LIBRARY
from sqlml.backends.native.jit.runtime_library import (
    fits_package,
    list_kernel_keys,
    share_duckdb_api,
)
from sqlml.backends.native.runtime.build_runtime import (
    CONNECTION,
    EXTENSION,
    PUBLIC_KEY,
    detect_duckdb_platform,
)
from sqlml.catalog.catalog_connection import IS_DUCKDB_2
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.udfs.duckdb.native import c_api
from sqlml.udfs.duckdb.native.native_functions import register_marker

NAME = "sqlml"  # The name of the extension, and the prefix of repository names.
OFF = "SQLML_NATIVE_FUNCTIONS"  # Native functions are off if this environment variable is 0.
BUILT = LIBRARY.parent / CONNECTION


class Unavailable(Exception):
    """Native functions are not available. The message calls the functions "they"."""


@dataclass(frozen=True, slots=True)
class InstalledExtension:
    """The path of the installed extension, and the repository from which DuckDB loads it."""

    path: Path
    repository: str


def ensure_installed(
    connection: duckdb.DuckDBPyConnection, built: Path = BUILT
) -> InstalledExtension:
    """Return the installed extension; install it first if the file is missing or damaged.

    `built` is the folder with the signed file and its public key. Raises Unavailable if the
    installation fails.
    """
    extension, library_path = find_install_path(connection, built), built / EXTENSION
    try:
        if not extension.path.is_file() or extension.path.read_bytes() != library_path.read_bytes():
            with duckdb.connect(config=_read_folder_settings(connection)) as installer:
                _install_runtime(installer, library_path, extension.repository)
    except (duckdb.Error, OSError) as error:
        raise Unavailable(f"DuckDB could not install them: {_extract_first_line(error)}") from None
    return extension


def find_install_path(
    connection: duckdb.DuckDBPyConnection, built: Path = BUILT
) -> InstalledExtension:
    """Return the path and repository that `ensure_installed` uses, or raise Unavailable."""
    if os.environ.get(OFF) == "0":
        raise Unavailable(f"{OFF} is 0")
    if not IS_DUCKDB_2:
        raise Unavailable(f"they need DuckDB 2.0, and this is {duckdb.__version__}")
    library_path = built / EXTENSION
    if detect_duckdb_platform() is None or not library_path.is_file():
        raise Unavailable("this installation of sqlml was built without them")
    if built == BUILT and not fits_package():
        raise Unavailable("they were built from other sources; run `make runtime`")
    try:
        repository = f"{NAME}_{hashlib.sha256(library_path.read_bytes()).hexdigest()[:16]}"
        folder = _find_repositories_folder(connection, _read_folder_settings(connection))
    except (duckdb.Error, OSError, RuntimeError) as error:
        problem = "DuckDB does not say where to install them"
        raise Unavailable(f"{problem}: {_extract_first_line(error)}") from None
    return InstalledExtension(folder / repository / EXTENSION, repository)


CLIENTS = f"{NAME}_clients"
"""The repository from which DuckDB's other clients load the runtime with its machine code."""


def find_client_path() -> InstalledExtension:
    """Return the path of the runtime for other clients of this DuckDB, or raise Unavailable."""
    if not IS_DUCKDB_2:
        raise Unavailable(f"a repository of extensions needs DuckDB 2.0, not {duckdb.__version__}")
    if not LIBRARY.is_file() or not list_kernel_keys(LIBRARY.read_bytes()):
        raise Unavailable("this installation of sqlml has no machine code; install its wheel")
    with duckdb.connect() as connection:
        folder = _find_repositories_folder(connection, _read_folder_settings(connection))
    return InstalledExtension(folder / CLIENTS / EXTENSION, CLIENTS)


def install_for_clients() -> InstalledExtension:
    """Install the runtime for other clients of this DuckDB; raise Unavailable if this fails."""
    extension = find_client_path()
    try:
        with duckdb.connect() as installer:
            _install_runtime(installer, LIBRARY, CLIENTS)
    except (duckdb.Error, OSError) as error:
        raise Unavailable(f"DuckDB could not install it: {_extract_first_line(error)}") from None
    return extension


def check_folder(extension: InstalledExtension) -> None:
    """Raise Unavailable unless a file can be written where `extension` would be installed."""
    folder = next(parent for parent in extension.path.parents if parent.exists())
    try:
        tempfile.TemporaryDirectory(dir=folder).cleanup()
    except OSError as error:
        reason = error.strerror or error
        raise Unavailable(f"they cannot be installed in {folder}: {reason}") from None


def uninstall() -> list[Path]:
    """Remove the installed files of all builds of sqlml; return the removed folders."""
    with duckdb.connect() as connection:
        paths = sorted(_find_repositories_folder(connection, {}).glob(f"{NAME}_*"))
        folders = [path for path in paths if _OWN_REPOSITORY.fullmatch(path.name)]
        for folder in folders:
            with suppress(duckdb.Error):
                connection.execute(f"DROP EXTENSION REPOSITORY {folder.name}")
            shutil.rmtree(folder, ignore_errors=True)
    return folders


_OWN_REPOSITORY = re.compile(rf"{NAME}_(?:[0-9a-f]{{16}}|clients)")


def _install_runtime(
    connection: duckdb.DuckDBPyConnection, library: Path, repository_name: str
) -> None:
    key = (library.parent / PUBLIC_KEY).read_text().strip()
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / _read_version(connection) / (detect_duckdb_platform() or "")
        repository.mkdir(parents=True)
        (repository / f"{EXTENSION}.gz").write_bytes(gzip.compress(library.read_bytes()))
        connection.execute("SET allow_extension_repositories = 'allowed'")
        connection.execute(
            f"CREATE OR REPLACE EXTENSION REPOSITORY {repository_name} "
            f"WITH PREFIX {DUCKDB.quote_string(folder)} PUBLIC KEY {DUCKDB.quote_string(key)}"
        )
        connection.execute(f"FORCE INSTALL {NAME} FROM {repository_name}")


def _read_folder_settings(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    names = ("home_directory", "extension_directory", "extension_repository_directory")
    query = "SELECT system.main.current_setting(?)"
    values = {name: connection.execute(query, [name]).fetchall()[0][0] for name in names}
    return {name: str(value) for name, value in values.items() if value}


def _find_repositories_folder(
    connection: duckdb.DuckDBPyConnection, folders: Mapping[str, Any]
) -> Path:
    home = Path(folders["home_directory"]) if "home_directory" in folders else Path.home()
    base = Path(folders.get("extension_directory") or home / ".duckdb" / "extensions")
    return base / _read_version(connection) / (detect_duckdb_platform() or "") / "repositories"


def _read_version(connection: duckdb.DuckDBPyConnection) -> str:
    query = "SELECT library_version FROM system.main.pragma_version()"
    ((version,),) = connection.execute(query).fetchall()
    return str(version)


def _extract_first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


MARKER = "sqlml_native_"
"""Prefix of the marker functions; the number of a database's connection follows."""

_LOCK = threading.Lock()
_open_connections: dict[int, NativeConnection] = {}
_closed_uses: deque[NativeConnection] = deque()
_connection_numbers = itertools.count(1)

# A forked child must not wait for a thread that it does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


class NativeConnection:
    """A connection of the C API to one database, shared by all sessions on it."""

    def __init__(self, number: int, pointer: int) -> None:
        self.number = number
        self.users = 0
        self._pointer = ctypes.c_void_p(pointer)
        self._process = os.getpid()

    @property
    def pointer(self) -> int:
        """Return the duckdb_connection of the C API; raise Unavailable in a forked process."""
        if os.getpid() != self._process or self._pointer.value is None:
            raise Unavailable("the database was opened by another process")
        return self._pointer.value

    def close(self) -> None:
        """End one use of the connection; close it after the last use.

        The garbage collector may call this method while this thread holds the lock. The connection
        is then closed when the lock is free.
        """
        _closed_uses.append(self)
        _release_closed_uses()

    def _release_use(self) -> None:
        self.users -= 1
        if self.users == 0 and os.getpid() == self._process:
            del _open_connections[self.number]
            c_api.load_c_api().duckdb_disconnect(ctypes.byref(self._pointer))


def _release_closed_uses() -> None:
    while _closed_uses and _LOCK.acquire(blocking=False):
        try:
            while _closed_uses:
                _closed_uses.popleft()._release_use()
        finally:
            _LOCK.release()


def open_native_connection(
    connection: duckdb.DuckDBPyConnection, built: Path = BUILT
) -> NativeConnection:
    """Open a C API connection, to be closed by the caller; raise Unavailable if this fails."""
    try:
        c_api.load_c_api()
    except (ImportError, OSError, AttributeError) as error:
        raise Unavailable(f"DuckDB's package does not have its C API: {error}") from None
    installed = ensure_installed(connection, built)
    try:
        with _LOCK:
            native_connection = _load_runtime(connection, installed)
            native_connection.users += 1
            return native_connection
    finally:
        _release_closed_uses()


def _load_runtime(
    connection: duckdb.DuckDBPyConnection, installed: InstalledExtension
) -> NativeConnection:
    """Load the runtime into a database; return the connection that it opens, now or earlier."""
    library = ctypes.CDLL(str(installed.path))  # Loaded once per process for all databases.
    opened_connection = ctypes.c_void_p.in_dll(library, "sqlml_connection")
    opened_connection.value = None
    try:
        connection.execute(f"LOAD {NAME} FROM {installed.repository}")
    except duckdb.Error as error:
        raise Unavailable(
            f"DuckDB could not load the sqlml extension: {_extract_first_line(error)}"
        ) from None
    if opened_connection.value is None:  # A runtime was loaded before, perhaps that for clients.
        return _find_marked_connection(connection)
    get_bind_data = c_api.find_function_address("duckdb_scalar_function_get_bind_data")
    share_duckdb_api(library, get_bind_data)
    native_connection = NativeConnection(next(_connection_numbers), opened_connection.value)
    _open_connections[native_connection.number] = native_connection
    register_marker(native_connection.pointer, f"{MARKER}{native_connection.number}")
    return native_connection


def _find_marked_connection(connection: duckdb.DuckDBPyConnection) -> NativeConnection:
    for native_connection in reversed(_open_connections.values()):
        marker = builtin(f"{MARKER}{native_connection.number}")
        with suppress(duckdb.Error):
            connection.execute(f"EXPLAIN SELECT {marker}()").fetchall()
            return native_connection
    raise Unavailable(
        "the sessions on this database were closed, or it has loaded the runtime for clients; open "
        "the database again"
    )
