"""PostgreSQL and MariaDB in a folder of their own, on a socket, for benchmarks and tests."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PORT = 5432
"""By which PostgreSQL names its socket."""

_WAIT = 180
"""Seconds until a server must answer."""


def binary(name: str) -> str:
    """The path of a server's program; Debian keeps PostgreSQL's out of the search path.

    Raises:
        FileNotFoundError: it is not installed.
    """
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in (*map(str, places), *os.environ.get("PATH", "").split(":"), "/usr/sbin"):
        found = Path(folder) / name
        if found.is_file():
            return str(found)
    raise FileNotFoundError(f"no {name}; on Debian: apt-get install postgresql mariadb-server")


@contextmanager
def postgres(folder: Path, port: int | None = None) -> Iterator[Path]:
    """A PostgreSQL server; gives the folder of its socket. `port`: it listens to this, too."""
    initdb, server = binary("initdb"), binary("postgres")
    data = folder / "data"
    _owned(folder, "postgres")
    made = [initdb, "-D", str(data), "-U", "postgres", "--auth=trust", "--no-sync"]
    made += ["--encoding=UTF8", "--locale=C"]
    subprocess.run([*_as("postgres"), *made], check=True, capture_output=True)
    address = "" if port is None else "127.0.0.1"
    options = ["-c", f"listen_addresses={address}", "-k", str(folder), "-c", "fsync=off"]
    options += ["-p", str(port or _PORT)]
    command = [*_as("postgres"), server, "-D", str(data), *options]
    with _running(command, folder, signal.SIGINT):  # at SIGTERM it waits for its clients
        _wait_for(folder / f".s.PGSQL.{port or _PORT}")
        yield folder


@contextmanager
def mariadb(folder: Path) -> Iterator[Path]:
    """A MariaDB server; gives its socket."""
    install, server = binary("mariadb-install-db"), binary("mariadbd")
    data, socket = folder / "data", folder / "server.sock"
    _owned(folder, "mysql")
    own = [f"--datadir={data}", "--no-defaults"]
    subprocess.run(
        [install, own[1], own[0], "--auth-root-authentication-method=normal", *_user("mysql")],
        check=True,
        capture_output=True,
    )
    options = [f"--socket={socket}", "--skip-networking", f"--pid-file={folder}/server.pid"]
    with _running([server, own[1], own[0], *options, *_user("mysql")], folder):
        _wait_for(socket)
        yield socket


@contextmanager
def _running(
    command: Sequence[str], folder: Path, ends: signal.Signals = signal.SIGTERM
) -> Iterator[None]:
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        yield
    finally:
        server.send_signal(ends)
        server.wait(_WAIT)


def _wait_for(socket: Path) -> None:
    until = time.monotonic() + _WAIT
    while not socket.exists():
        assert time.monotonic() < until, (socket.parent / "server.log").read_text()
        time.sleep(0.05)


def _is_root() -> bool:
    return os.getuid() == 0


def _owned(folder: Path, user: str) -> None:
    """Servers refuse to run as root, so the folder is their user's."""
    if _is_root():
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)
        for above in folder.parents:  # folders for a while are root's alone
            if above.stat().st_uid == 0 and str(above).startswith("/tmp/"):
                above.chmod(above.stat().st_mode | 0o055)


def _as(user: str) -> list[str]:
    return (
        [
            shutil.which("setpriv") or "setpriv",
            f"--reuid={user}",
            f"--regid={user}",
            "--clear-groups",
        ]
        if _is_root()
        else []
    )


def _user(user: str) -> list[str]:
    return [f"--user={user}"] if _is_root() else []
