"""Pipes, devices, sockets and directories in place of a model file: refused before they are opened.

Opening a pipe would wait for its other end, and reading a device might never end.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml import errors
from tests.e2e import child


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def link_to_pipe(folder: Path) -> Path:
    (folder / "link").symlink_to(pipe(folder))
    return folder / "link"


def bound_socket(folder: Path) -> Path:
    before = os.getcwd()
    os.chdir(folder)  # a socket's path has at most a hundred letters
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")
    finally:
        os.chdir(before)
    return folder / "socket"


def directory(folder: Path) -> Path:
    (folder / "directory").mkdir()
    return folder / "directory"


KINDS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "pipe": (pipe, "is a pipe"),
    "link to a pipe": (link_to_pipe, "is a pipe"),
    "socket": (bound_socket, "is a socket"),
    "device": (lambda folder: Path("/dev/zero"), "is a device"),
    "directory": (directory, "is a directory"),
}
WAYS = {
    "CREATE": "CREATE MODEL m FROM '{}'",
    "CREATE from a URI": "CREATE MODEL m FROM 'file://{}'",
    "CREATE of a named format": "CREATE MODEL m FROM '{}' FORMAT XGBOOST",
    "ALTER": "ALTER MODEL kept ADD VERSION FROM '{}'",
    "VERIFY": "VERIFY MODEL kept USING (SELECT 1 AS a) AGAINST '{}'",
    "EXPORT": "EXPORT MODEL kept TO '{}' FORMAT SQLML",
    "EXPORT to a URI": "EXPORT MODEL kept TO 'file://{}' FORMAT SQLML",
}


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as made:
        made.create_model(
            "kept", LinearRegression().fit([[0.0], [1.0]], [0, 1]), inputs=["a"], verify=False
        )
        yield made


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused(
    con: sqlml.Session, kind: str, way: str, tmp_path: Path
) -> None:
    make, says = KINDS[kind]
    path = make(tmp_path)
    mode = os.stat(path).st_mode
    with pytest.raises(errors.ArtifactError, match=says):
        con.execute(WAYS[way].format(path))
    assert os.stat(path).st_mode == mode and not stat.S_ISREG(mode)
    assert [row[0] for row in con.execute("SHOW MODELS").fetchall()] == ["kept"]


def test_the_shell_refuses_them_too(tmp_path: Path) -> None:
    statement = f"CREATE MODEL m FROM '{pipe(tmp_path)}'"
    done = child.run(
        "from sqlml.tools.cli import main\nmain(['-c', sys.argv[1]])", tmp_path, statement
    )
    assert "is a pipe" in done.stderr


def test_links_to_regular_files_and_patterns_are_files(con: sqlml.Session, tmp_path: Path) -> None:
    con.execute(f"EXPORT MODEL kept TO '{tmp_path / 'm.sqlml'}'")
    (tmp_path / "link.sqlml").symlink_to(tmp_path / "m.sqlml")
    for name, path in {
        "linked": tmp_path / "link.sqlml",
        "matched": tmp_path / "m.sql*",
        "uri": f"file://{tmp_path / 'm.sqlml'}",
    }.items():
        con.execute(f"CREATE MODEL {name} FROM '{path}'")
        con.execute(f"DROP MODEL {name}")
    pipe(tmp_path)
    con.execute(f"EXPORT MODEL kept TO '{tmp_path / 'p[i]pe'}' FORMAT SQLML")
    assert (tmp_path / "p[i]pe").read_bytes() == (tmp_path / "m.sqlml").read_bytes()


def test_places_elsewhere_are_not_looked_for_here(con: sqlml.Session) -> None:
    fsspec = pytest.importorskip("fsspec")
    con.connection.register_filesystem(fsspec.filesystem("memory"))
    con.execute("EXPORT MODEL kept TO 'memory://models/m.sqlml'")
    con.execute("CREATE MODEL elsewhere FROM 'memory://models/m.sqlml'")
    with pytest.raises(errors.ArtifactError, match="file 'memory://models/n.sqlml' does not exist"):
        con.execute("CREATE MODEL other FROM 'memory://models/n.sqlml'")
    con.execute("DROP MODEL elsewhere")


def test_only_what_the_engine_may_see_is_told(tmp_path: Path) -> None:
    path = pipe(tmp_path)
    with sqlml.connect() as closed:
        closed.create_model("kept", LinearRegression().fit([[0.0], [1.0]], [0, 1]), inputs=["a"])
        closed.execute("SET enable_external_access = false")
        for way in WAYS.values():
            with pytest.raises(Exception, match="Permission Error") as refused:
                closed.execute(way.format(path))
            assert "is a pipe" not in str(refused.value)
