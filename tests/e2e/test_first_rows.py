"""The first rows on a machine that has no kernels yet: nobody waits for the compiler."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from sklearn.linear_model import LogisticRegression

import sqlml
from sqlml.backends.no_wait import WAIT
from tests.e2e.child import printed
from tests.e2e.conftest import customers

QUERY = "SELECT predict_proba('m', *, class := true) AS p FROM t ORDER BY ALL"

CHILD = f"""
import json, sys, time
import sqlml
from sqlml.backends.native.jit import runtime_library
from sqlml.backends.native.jit.specialise import list_kernels_in_use

runtime_library.find_kernel = lambda function, signature: None  # none was compiled ahead
path = sys.argv[1]
query = {QUERY!r}

def known():
    return sorted(function.__name__ for function, _ in list_kernels_in_use())

with sqlml.connect(path) as con:
    told = {{"before": con.execute(query).fetchnumpy()["p"].tolist()}}
    told["kernels before"] = known()
    told["route before"] = str(con.plan(query).calls[0].route)
    con.execute("CREATE VIEW v AS " + query)
    told["kernels of a view"] = known()
    start = time.monotonic()
    while con.plan(query).calls[0].route.python_reason and time.monotonic() < start + 60:
        con.execute(query).fetchall()
        time.sleep(0.05)
    told["route after"] = str(con.plan(query).calls[0].route)
    told["after"] = con.execute(query).fetchnumpy()["p"].tolist()
    told["by view"] = con.execute("FROM v").fetchnumpy()["p"].tolist()
    told["kernels after"] = known()
print(json.dumps(told))
"""


@pytest.mark.nightly
@pytest.mark.skipif(duckdb.__version__ < "2", reason="1.5 has no native functions")
def test_they_come_before_the_kernels(tmp_path: Path) -> None:
    frame = customers().dropna()[["tenure", "charges"]]
    model = LogisticRegression().fit(frame.to_numpy(), frame.tenure > 30)
    path = tmp_path / "m.duckdb"
    with sqlml.connect(str(path)) as con:
        con.register("frame", frame)
        con.execute("CREATE TABLE t AS FROM frame")
        con.unregister("frame")
        con.create_model("m", model, inputs=list(frame.columns))
    text = printed(
        CHILD,
        tmp_path,
        str(path),
        **{WAIT: "0", "NUMBA_CACHE_DIR": str(tmp_path / "kernels")},
    )
    told = json.loads(text)
    want = model.predict_proba(frame.to_numpy())[:, 1]
    for way in ("before", "after", "by view"):
        assert told[way] == pytest.approx(sorted(want), rel=1e-12), way
    assert told["kernels before"] == []
    assert "kernels are being compiled" in told["route before"]
    assert "score" in told["kernels of a view"], "a view keeps its functions, and waits"
    assert told["route after"] == "native, without Python"
    assert "_run" in told["kernels after"]
