"""Intervals and sets in exported macros, in an extension, and on connections without sqlml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import sqlml
from sqlml.session.session import Session
from tests.e2e.test_conformal import calibrate, fetch, fill
from tests.support.exported import UNSIGNED

pytestmark = pytest.mark.version

CALIBRATIONS = {
    "interval": ("m", "label = 'y'"),
    "interval by region": ("m", "label = 'y', by = 'region', weight = 'weight'"),
    "lac": ("k", "label = 'k'"),
    "aps": ("k", "label = 'k', method = 'aps'"),
    "classes": ("k", "label = 'k', by = 'k'"),
}


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Session]:
    with sqlml.connect(str(tmp_path / "models.duckdb")) as connection:
        fill(connection)
        connection.execute(
            "UPDATE fresh SET region = CASE WHEN rowid = 3 THEN 'mars' END WHERE rowid < 5"
        )
        yield connection


def list_calls(name: str) -> tuple[str, str, str]:
    """Return a model, the name of its function, and the columns of a call by position."""
    model, options = CALIBRATIONS[name]
    columns = "a, b, region" if "by = 'region'" in options else "a, b"
    return model, "interval" if model == "m" else "set", columns


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_exported_functions_give_the_results_of_the_session(
    con: Session, tmp_path: Path, name: str
) -> None:
    model, function, columns = list_calls(name)
    calibrate(con, CALIBRATIONS[name][1], model)
    expected = [
        fetch(
            con,
            f"SELECT predict_{function}('{model}', *, coverage := {coverage}) FROM fresh "
            "ORDER BY rowid",
        )
        for coverage in (0.5, 0.9)
    ]
    rows = con.sql("FROM fresh").df()
    macros, extension = tmp_path / "macros.sql", tmp_path / "models.duckdb_extension"
    con.execute(f"EXPORT MODEL {model} TO '{macros}'")
    con.execute(f"EXPORT MODEL {model} TO '{extension}'")
    for form in ("macros", "extension"):
        with duckdb.connect(config=UNSIGNED) as plain:
            plain.register("rows", rows)
            plain.execute("CREATE TABLE fresh AS FROM rows")
            plain.execute(macros.read_text() if form == "macros" else f"LOAD '{extension}'")
            got = [
                plain.execute(
                    f"SELECT {model}_{function}({columns}, {argument}) FROM fresh ORDER BY rowid"
                ).fetchall()
                for argument in ("coverage := 0.5" if form == "macros" else "0.5", "0.9")
            ]
            assert got == expected
            if form == "macros":
                call = f"SELECT {model}_{function}({columns}) FROM fresh ORDER BY rowid"
                assert plain.execute(call).fetchall() == expected[1]
                with pytest.raises(duckdb.Error, match="coverage must be greater than 0"):
                    plain.execute(f"SELECT {model}_{function}({columns}, 1.5) FROM fresh")
                continue
            with pytest.raises(duckdb.Error, match="cannot be scored by|coverage must be"):
                plain.execute(f"SELECT {model}_{function}({columns}, 1.5) FROM fresh")
            ((macro,),) = plain.execute(
                f"SELECT value FROM {model}_info() WHERE name = 'macro {model}_{function}_row'"
            ).fetchall()
            plain.execute(macro)
            call = f"{model}_{function}_row(fresh, coverage := 0.5)"
            query = f"SELECT {call} FROM fresh ORDER BY rowid"
            assert plain.execute(query).fetchall() == expected[0]


def test_too_many_rows_for_a_macro(con: Session, tmp_path: Path) -> None:
    """The macros of the model are exported without the calibration, and the file says so."""
    con.execute(
        "CREATE TABLE noisy AS SELECT a, b, a + b + hash(range, a) / 1e19 AS y "
        "FROM calibration, range(30)"
    )
    con.execute("ALTER MODEL m CALIBRATE USING (FROM noisy) OPTIONS (label = 'y')")
    file = tmp_path / "m.sql"
    con.execute(f"EXPORT MODEL m TO '{file}'")
    assert "-- The calibration is left out: it was calibrated on more" in file.read_text()
    with duckdb.connect() as plain:
        plain.execute(file.read_text())
        assert plain.execute("SELECT m(1, 1)").fetchall() == [(pytest.approx(2.0),)]


@pytest.mark.skipif(duckdb.__version__ < "2", reason="files of DuckDB 1.5 hold no macros")
@pytest.mark.parametrize("name", CALIBRATIONS)
def test_plain_connections_call_macros(con: Session, name: str) -> None:
    model, function, _ = list_calls(name)
    calibrate(con, CALIBRATIONS[name][1], model)
    plain = con.connection.cursor()
    for argument in ("", ", coverage := 0.5"):
        query = f"SELECT predict_{function}('{model}', {{}}{argument}) FROM fresh ORDER BY rowid"
        expected = fetch(con, query.format("*"))
        assert plain.execute(query.format("fresh")).fetchall() == expected
    con.execute(f"ALTER MODEL {model} DROP CALIBRATION")
    with pytest.raises(duckdb.Error):
        plain.execute(query.format("fresh"))
    assert plain.execute(f"SELECT predict('{model}', fresh) FROM fresh").fetchall()
