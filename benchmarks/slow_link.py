"""A PostgreSQL server on this machine, and a proxy before it that makes the way to it longer.

Each direction takes half of the delay, as between two machines of one region. The proxy is a
process of its own:

    python -m benchmarks.slow_link PORT DELAY   prints the port that it listens to
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from benchmarks.database_servers import postgres

DELAY = 0.001
"""Seconds that a round trip takes longer by the proxy."""

CHUNK = 1 << 16


@contextmanager
def server(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """How to connect by the slow link to a new server with some tables, whose first column is
    their primary key.

    Raises:
        FileNotFoundError: PostgreSQL is not installed.
    """
    with tempfile.TemporaryDirectory() as folder, _running(Path(folder)) as port:
        _fill(f"host=127.0.0.1 port={port} user=postgres dbname=postgres", tables)
        with _proxy(port) as slow:
            yield f"host=127.0.0.1 port={slow} user=postgres dbname=postgres"


@contextmanager
def _running(folder: Path) -> Iterator[int]:
    """The port of a new server whose files lie in a folder; it ends with the block."""
    port = _free_port()
    with postgres(folder, port):
        yield port


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def _fill(where: str, tables: Mapping[str, pd.DataFrame]) -> None:
    import psycopg

    kinds = {"i": "BIGINT", "f": "DOUBLE PRECISION"}
    with psycopg.connect(where, autocommit=True) as con:
        for name, frame in tables.items():
            columns = [f"{c} {kinds[frame[c].dtype.kind]}" for c in frame]
            columns.append(f"PRIMARY KEY ({frame.columns[0]})")
            con.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            with con.cursor().copy(f"COPY {name} FROM STDIN") as copy:
                for row in frame.itertuples(index=False):
                    copy.write_row(row)
            con.execute(f"ANALYZE {name}")


@contextmanager
def _proxy(port: int) -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.slow_link", str(port), str(DELAY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def main(port: int, delay: float) -> None:
    """Listen, and hand on what comes from each side to the other, later."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            near, _ = listening.accept()
            far = socket.create_connection(("127.0.0.1", port))
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_hand_on, args=(one, other, delay / 2), daemon=True).start()


def _hand_on(one: socket.socket, other: socket.socket, delay: float) -> None:
    try:
        while chunk := one.recv(CHUNK):
            time.sleep(delay)
            other.sendall(chunk)
    except OSError:
        pass
    for ended in (one, other):
        ended.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
