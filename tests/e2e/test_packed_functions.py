"""Native functions of packed rows, which macros on plain connections call with a model's name."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import sqlml
from sqlml.udfs.batch_function import claim_error
from sqlml.udfs.duckdb.native import native_functions
from tests.e2e.native_models import NEEDS_NATIVE, filled

pytestmark = NEEDS_NATIVE


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with filled("forest", "boosted", "scaler") as con:
        yield con


def macro_functions(con: sqlml.Session) -> dict[str, str]:
    """The packed functions that the macros call, and a name that they are given."""
    ((texts,),) = con.connection.execute(
        "SELECT string_agg(macro_definition) FROM duckdb_functions() "
        "WHERE contains(macro_definition, 'sqlml_open_a_session_first_any_double3_')"
    ).fetchall()
    found = re.findall(r"(sqlml_open_a_session_first_any_double3_\w+)\('(sqlml_\w+)'", texts)
    return {packed: name for packed, name in found if "native" in name}


def test_macros_score_on_every_thread_without_python(con: sqlml.Session) -> None:
    plain = con.connection.cursor()
    calls = ("predict('forest', t)", "predict_proba('forest', t, 'low')", "transform('scaler', t)")
    before = native_functions.count_batches()
    for call in calls:
        own = call.replace(", t", ", *").replace("'low'", "class := 'low'")
        for source in ("t", "(FROM t LIMIT 3) AS t", "(FROM t LIMIT 0) AS t"):
            found = plain.execute(f"SELECT id, {call} FROM {source} ORDER BY id").fetchall()
            want = con.execute(f"SELECT id, {own} FROM {source} ORDER BY id").fetchall()
            assert found == want
    assert native_functions.count_batches() > before
    holes = "SELECT id, predict('forest_null', t) FROM holes AS t ORDER BY id"
    assert plain.execute(holes).fetchall() == con.execute(holes.replace(", t", ", *")).fetchall()

    def many() -> None:
        with con.connection.cursor() as own:
            query = "SELECT predict('boosted', t) FROM t ORDER BY id"
            answers.append(own.execute(query).fetchall())

    answers: list[Any] = []
    threads = [threading.Thread(target=many) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want = con.execute("SELECT predict('boosted', *) FROM t ORDER BY id").fetchall()
    assert answers == [want] * 16


NAME_ERRORS = {
    "NULL": "must be the same for all rows",
    "error('x')": "must be the same for all rows",
    "note": "must be the same for all rows",
    "(SELECT '{name}')": "must be the same for all rows",
    "'x'": "is not the name of a model's function",
    "'{name}x'": "runs on the cpu, not on 'cpux'",
    "'{name}_t'": "is not the name of a model's function",
    "'sqlml_000000000000000000000000_label_f64_native_traverse_cpu'": "is not stored",
    "replace('{name}', 'f64', 'f32')": "do not match its call",
    "replace('{name}', 'label', 'transform')": "'transform'",
}


@pytest.mark.parametrize("name", NAME_ERRORS)
def test_a_packed_function_takes_the_name_of_a_model_of_its_types(
    con: sqlml.Session, name: str
) -> None:
    packed = "sqlml_open_a_session_first_any_double3_integer"
    own = macro_functions(con)[packed]
    plain = con.connection.cursor()
    query = f"SELECT {packed}({name.replace('{name}', own)}, [a, b, c]::DOUBLE[3]) FROM t"
    with pytest.raises(duckdb.Error) as error:
        plain.execute(query).fetchall()
    told = claim_error(str(error.value))
    assert NAME_ERRORS[name] in str(told or error.value)


def test_packed_rows_in_odd_places(con: sqlml.Session) -> None:
    packed = "sqlml_open_a_session_first_any_double3_integer"
    call = f"{packed}('{macro_functions(con)[packed]}', "
    plain = con.connection.cursor()
    ((listed,),) = plain.execute(
        f"SELECT list_transform([-9.0, 9.0], lambda v: {call}[v, 0, 0]::DOUBLE[3]))"
    ).fetchall()
    one = [plain.execute(f"SELECT {call}[{v}, 0, 0]::DOUBLE[3])").fetchall()[0][0] for v in (-9, 9)]
    assert listed == one
    for array in ("NULL", "CASE WHEN id <> 4000 THEN [a, b, c]::DOUBLE[3] END"):
        with pytest.raises(duckdb.InvalidInputException, match="packed numbers is NULL"):
            plain.execute(f"SELECT {call}{array}) FROM t").fetchall()
    plain.execute(f"PREPARE asked AS SELECT {call}[a, b, $1]::DOUBLE[3]) FROM t ORDER BY id")
    own = f"SELECT {call}[a, b, 2]::DOUBLE[3]) FROM t ORDER BY id"
    assert plain.execute("EXECUTE asked(2)").fetchall() == plain.execute(own).fetchall()
