"""Native functions where memory runs out while DuckDB makes room for the lists of a result.

DuckDB throws its exception through the machine code of the row path, which frees nothing then.
"""

from __future__ import annotations

from pathlib import Path

from tests.e2e.child import printed
from tests.e2e.native_models import NEEDS_NATIVE

pytestmark = NEEDS_NATIVE

CHILD = """
import ctypes
import llvmlite.binding as llvm

# The row path allocates with these, which count the blocks that are not freed yet.
libc, blocks = ctypes.CDLL(None), set()
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]

def allocate(size):
    block = libc.malloc(size)
    blocks.add(block)
    return block

def release(block):
    blocks.remove(block)
    libc.free(block)

counted = (
    ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(allocate),
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(release),
)
for name, function in zip(("malloc", "free"), counted):
    llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)

import gc
import weakref
import numpy as np
import duckdb
import sqlml
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sqlml.udfs.duckdb.native import memory_layout, native_functions

rng = np.random.default_rng(0)
x = rng.normal(size=(300, 3))
con = sqlml.connect()
con.execute("CREATE TABLE t AS SELECT i / 4e3 AS x0, i % 7 AS x1, i AS x2 FROM range(4000) r(i)")
wide = RandomForestRegressor(30, max_depth=3, random_state=0).fit(x, rng.normal(size=(300, 300)))
con.create_model("numbers", wide, inputs=["x0", "x1", "x2"])
labels = rng.integers(0, 2, size=(300, 150))
forest = RandomForestClassifier(10, max_depth=2, random_state=0).fit(x, labels)
con.create_model("lists", forest, inputs=["x0", "x1", "x2"])
con.execute("SET sqlml_route = 'native'")
con.execute("SET threads = 1")
for query in (
    "SELECT count(*) FROM (SELECT predict('numbers', *) AS p FROM t) WHERE p::VARCHAR > ''",
    "SELECT count(*) FROM (SELECT predict_proba('lists', *) AS p FROM t) WHERE p::VARCHAR > ''",
):
    print(*{call["route"].split()[0] for call in con.plan(query).to_dict()["calls"]})
    answer = con.execute(query).fetchall()
    for _ in range(3):
        ((used,),) = con.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
        con.execute(f"SET memory_limit = '{int(used) + 3_000_000}B'")  # the lists need 5 MB
        try:
            con.execute(query).fetchall()
        except duckdb.OutOfMemoryException:
            print("out of memory")
        con.execute("RESET memory_limit")
        assert con.execute(query).fetchall() == answer
    states = [state for state in native_functions._states if state.plan is not None]
    assert states and not any(state.memory[memory_layout.USERS] for state in states)
    plans = [weakref.ref(state.plan.table.words) for state in states]
    native_functions.drop_plans(("",))
    gc.collect()
    assert not native_functions._dropped_plans and all(plan() is None for plan in plans)
    print(len(blocks), "blocks")
"""


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    one = ["native", *["out of memory"] * 3, "0 blocks"]
    assert printed(CHILD, tmp_path).splitlines() == one * 2
