"""`python -m benchmarks.gpu`: what it says without a GPU, and that its parts work on any device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.gpu import FEATURES, MODELS, Contest, Timing, data, table


@pytest.mark.nightly
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_that_is_no_failure(tmp_path: Path) -> None:
    written = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--rows", "1000", "--write", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "no GPU: torch sees none" in done.stdout
    assert "nothing was tested or timed" in done.stdout
    assert not written.exists()


@pytest.mark.parametrize("name", ["DecisionTreeClassifier", "StandardScaler"])
def test_each_way_is_checked_and_timed(name: str) -> None:
    x, labels = data(500, seed=0)
    assert x.shape == (500, FEATURES) and set(np.unique(labels)) == {0, 1}
    contest = Contest(name, MODELS[name]().fit(x, labels), "cpu")
    timings = {t.way: t for t in contest.measure(200, rounds=2)}
    ways = [f"{s} cpu host" for s in ("tt", "fused")] if contest.trees else ["torch cpu host"]
    assert {"native cpu", "hummingbird cpu host", *ways} <= set(timings)
    for way in ("native cpu", ways[0]):
        taken = timings[way].ns
        assert taken is not None and taken > 0
    if contest.trees and not torch.cuda.is_available():
        assert "strategy fused needs" in timings["fused cpu host"].reason


def test_the_table_has_a_line_for_each_way() -> None:
    timings = [
        Timing("forest", 1000, "fused cuda host", 12.346),
        Timing("forest", 10, "fused cuda host", 99.0),
        Timing("forest", 1000, "gemm cuda host", None, "too deep"),
    ]
    head, fused, gemm = table(timings).splitlines()
    assert head.split() == ["ns", "a", "row", "10", "1,000"]
    assert fused.split() == ["forest", "fused", "cuda", "host", "99.00", "12.35"]
    assert gemm.split() == ["forest", "gemm", "cuda", "host", "-", "-", "too", "deep"]
