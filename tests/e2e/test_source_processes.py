"""Libraries that read a stranger's file do it in a process of their own, which may die.

Forged files that end XGBoost, LightGBM, scikit-learn, onnxruntime or torch end a child.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
import xgboost
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

import sqlml
from sqlml import errors
from sqlml.child_process import Child, ChildEnded, ChildFailed
from sqlml.ir.damaged_file import report_damage
from sqlml.verifying.ask_library import PredictionRequest
from sqlml.verifying.library_process import FileSource
from tests.e2e import child as script

ROWS = "(SELECT 1.0 AS a, 2.0 AS b, 3.0 AS c)"


def talking(*given: bytes, **more: Any) -> Child:
    return Child("tests.e2e.talking:talk", *given, **more)


def test_a_conversation_of_several_questions() -> None:
    with talking(b"begin") as child:
        assert child.first == b"did begin"
        assert child.ask(b"on") == b"did on"
        assert child.ask(b"print") == b"did print"
        assert child.ask(bytes(1 << 22)) == b"did " + bytes(1 << 22)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (b"crash", "ends with SIGABRT"),
        pytest.param(b"hang", "takes more than 2 seconds", marks=pytest.mark.nightly),
    ],
)
def test_a_child_that_ends_is_told(what: bytes, says: str) -> None:
    with talking(b"begin") as child, pytest.raises(ChildEnded, match=says):
        child.ask(what, 2.0)
    with (
        pytest.raises(ChildEnded, match=says),
        talking(what, seconds=2.0 if what == b"hang" else 60),
    ):
        pass


def test_memory_is_bounded_and_errors_have_their_names() -> None:
    with talking(b"begin") as child, pytest.raises(ChildFailed) as full:
        child.ask(b"fill")
    assert "MemoryError" in full.value.name
    with talking(b"begin") as child, pytest.raises(ChildFailed, match="no such thing") as failed:
        child.ask(b"raise")
    assert failed.value.name == "ConfigError"


def test_a_child_works_in_a_folder_of_its_own_which_is_removed() -> None:
    with talking(b"begin") as child:
        folder, _, temporary = json.loads(child.ask(b"where"))
        assert folder == temporary != os.getcwd() and os.path.isdir(folder)
    assert not os.path.exists(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import json, os, signal\n"
        "from sqlml.child_process import Child\n"
        "child = Child('tests.e2e.talking:talk', b'where').__enter__()\n"
        "print(json.loads(child.first)[1], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    pid = int(script.run(code, tmp_path).stdout)
    for _ in range(100):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("it is still there")


def forged(tmp_path: Path) -> Path:
    """An XGBoost file that ends XGBoost's process."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(99, 3)), columns=["a", "b", "c"])
    model = xgboost.XGBRegressor(n_estimators=1, max_depth=3).fit(frame, frame.a * frame.b)
    document = json.loads(bytes(model.get_booster().save_raw("json")))
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["parents"][-1] = -1
    path = tmp_path / "forged.json"
    path.write_text(json.dumps(document))
    return path


def test_a_library_that_crashes_on_a_file_is_an_error(tmp_path: Path) -> None:
    path = forged(tmp_path)
    asked = PredictionRequest(("label", "score"), False, (), True)
    with pytest.raises(errors.ArtifactError, match=r"xgboost reads this file ends with SIGSEGV"):
        with FileSource("XGBOOST", str(path), path.read_bytes(), asked):
            pass


def test_such_a_file_is_no_model_and_none_to_compare_with(tmp_path: Path) -> None:
    path = forged(tmp_path)
    with sqlml.connect() as con:
        with pytest.raises(errors.ArtifactError, match="parents in a tree"):
            con.execute(f"CREATE MODEL m FROM '{path}'")
        con.create_model(
            "m", LinearRegression().fit([[0.0] * 3, [1.0] * 3], [0, 1]), inputs=["a", "b", "c"]
        )
        with pytest.raises(errors.ArtifactError, match="parents in a tree"):
            con.execute(f"VERIFY MODEL m USING {ROWS} AGAINST '{path}'")


@pytest.fixture
def neighbours() -> Iterator[Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    yield KNeighborsRegressor(3, algorithm="kd_tree", leaf_size=5).fit(x, x[:, 0])


def test_a_skops_file_is_compared_in_a_child_when_it_is_registered(
    neighbours: Any, tmp_path: Path
) -> None:
    """scikit-learn follows what a search tree says of its own nodes."""
    skops.io.dump(neighbours, tmp_path / "m.skops")
    columns = "INPUT (a DOUBLE, b DOUBLE, c DOUBLE)"
    with sqlml.connect() as con:
        con.execute(f"CREATE MODEL m {columns} FROM '{tmp_path / 'm.skops'}'")
        ((told,),) = con.execute("SELECT verification FROM sqlml.model_versions").fetchall()
        assert json.loads(told)["rows"] >= 128
        found = con.execute(f"VERIFY MODEL m USING {ROWS}").fetchall()
        assert found and all(row[-1] for row in found)


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["script", "command"])
def test_a_script_needs_no_main_guard(way: str, tmp_path: Path) -> None:
    """The child is no copy of the user's program: what stands there runs once."""
    model = LinearRegression().fit([[0.0], [1.0]], [0, 1])
    skops.io.dump(model, tmp_path / "m.skops")
    code = (
        "import sqlml\n"
        "print('once')\n"
        "with sqlml.connect() as con:\n"
        "    con.execute(\"CREATE MODEL m INPUT (a DOUBLE) FROM 'm.skops'\")\n"
        "    print(con.execute('VERIFY MODEL m USING (SELECT 1.0 AS a)').fetchall()[0][-1])\n"
    )
    if way == "command":
        code = (
            "import subprocess, sys\n"
            f"print(subprocess.run([sys.executable, '-c', {code!r}], capture_output=True, "
            "text=True, env={'PYTHONPATH': ':'.join(sys.path)}).stdout)\n"
        )
    done = script.run(code, tmp_path)
    assert done.stdout.split() == ["once", "True"], done.stderr


@pytest.mark.nightly
def test_a_module_in_the_current_folder_is_not_imported_by_the_child(tmp_path: Path) -> None:
    """A folder that is entered later may be a stranger's."""
    skops.io.dump(LinearRegression().fit([[0.0], [1.0]], [0, 1]), tmp_path / "m.skops")
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "sklearn.py").write_text("open('touched', 'w')")
    (strange / "numpy.py").write_text("open('touched', 'w')")
    code = (
        "import os, sqlml, sklearn.linear_model, skops.io, pandas\n"
        "sys.path.insert(0, '')\n"
        "os.chdir('strange')\n"
        "with sqlml.connect() as con:\n"
        "    con.execute(\"CREATE MODEL m INPUT (a DOUBLE) FROM '../m.skops'\")\n"
        "    print(con.execute('SELECT verification FROM sqlml.model_versions').fetchone()[0])\n"
    )
    done = script.run(code, tmp_path)
    assert '"rows"' in done.stdout, done.stderr
    assert not list(tmp_path.rglob("touched"))


def test_answers_of_a_child_are_checked_as_any_file() -> None:
    from sqlml.verifying.library_process import _unpack_predictions

    for content in (b"", b"{}", b'{"answers": {"label": {"shape": [9], "dtype": "<f8"}}}\n12'):
        with pytest.raises(errors.ArtifactError), report_damage("the answer", "try again"):
            _unpack_predictions(content)
