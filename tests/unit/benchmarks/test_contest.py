"""A contender that cannot run, or says another number, is a row and never a crash."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from benchmarks import peers
from benchmarks.contest import Effort, chosen, field, in_batches, one_by_one, timed, whole
from benchmarks.models import Subject
from benchmarks.peers import Peer, Setting, Unsuited
from benchmarks.results import save, status, with_ratios
from benchmarks.rounds import best_calls, best_times

ONCE = Effort(1, 0.0, 10.0)
CASE = {"model": "linear", "rows": 30}


def subject(model: Any = None, seed: int = 0) -> Subject:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    fitted = (model or LogisticRegression()).fit(x.astype(np.float64), y)
    return Subject(fitted, "scikit-learn", "predict_proba", True, "key", (x, y))


def absent(*_: object) -> Any:
    raise ModuleNotFoundError("No module named 'faster'", name="faster")


def unsuited(*_: object) -> Any:
    raise Unsuited("does not do this")


def fails_later(*_: object) -> Any:
    return lambda x: 1 / 0


def wrong(s: Subject, _: Setting) -> Any:
    return lambda x: 1 - s.model.predict_proba(x)


def test_reasons_and_differences_stand_beside_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"a": absent, "b": unsuited, "c": fails_later, "d": wrong}
    table = {**peers.PEERS, **{name: Peer(make) for name, make in others.items()}}
    monkeypatch.setattr("benchmarks.contest.PEERS", table)
    s = subject()
    names = ["library", "sqlml", *others]
    contenders = field(s, names, Setting(1), s.train[0])
    rows = {
        r.contender: r for r in with_ratios(timed(contenders, CASE, 30, whole(s.train[0]), ONCE))
    }
    assert set(rows) == set(names)
    assert rows["a"].reason == "faster is not installed"
    assert rows["b"].reason == "does not do this"
    assert rows["c"].reason == "division by zero"
    assert all(rows[name].ns is None and rows[name].ratio is None for name in "abc")
    assert rows["d"].labels == 1.0
    assert rows["d"].exact is False
    assert rows["sqlml"].exact
    assert rows["sqlml"].ratio == 1.0
    assert rows["library"].ratio == pytest.approx(
        (rows["library"].ns or 0) / (rows["sqlml"].ns or 1), rel=1e-3
    )


@pytest.mark.parametrize(("culprit", "expected"), [("d", 0), ("sqlml", 1)])
def test_only_a_wrong_sqlml_fails_the_run(
    culprit: str,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = {**peers.PEERS, "d": Peer(absent), culprit: Peer(wrong)}
    monkeypatch.setattr("benchmarks.contest.PEERS", table)
    s = subject()
    contenders = field(s, ["library", "sqlml", "d"], Setting(1), s.train[0])
    rows = with_ratios(timed(contenders, CASE, 30, whole(s.train[0]), ONCE))
    path = tmp_path / "new" / "x.json"
    options = argparse.Namespace(threads=1, rounds=1, seed=0, write=path, cache=tmp_path)
    save("x", options, rows)
    kept = json.loads(path.read_text())
    assert [row.get("exact") for row in kept["rows"]] == [row.exact for row in rows]
    assert set(kept["parameters"]) == {"threads", "rounds", "seed", "OMP_WAIT_POLICY"}
    assert status(rows) == expected
    said = capsys.readouterr().out
    assert ("not exact: sqlml on" in said) == bool(expected)


def test_a_sqlml_that_cannot_score_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.contest.PEERS", {**peers.PEERS, "sqlml": Peer(unsuited)})
    s = subject()
    rows = timed(
        field(s, ["library", "sqlml"], Setting(1), s.train[0]), CASE, 30, whole(s.train[0]), ONCE
    )
    assert status(rows) == 1


@pytest.mark.nightly
def test_all_contenders_take_a_tree_or_say_why_not() -> None:
    s = subject(DecisionTreeClassifier(random_state=0))
    contenders = field(s, chosen(None), Setting(1), s.train[0])
    assert {"library", "sqlml", "onnxruntime"} <= {ready.name for ready in contenders.ready}
    assert all(ready.difference.exact for ready in contenders.ready[:2])
    assert all(len(why) > 5 for why in contenders.reasons.values())


def test_a_contender_beyond_patience_has_the_time_of_its_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def slow(s: Subject, _: Setting) -> Any:
        def score(x: Any) -> Any:
            calls.append(len(x))
            time.sleep(0.05)
            return s.model.predict_proba(x)

        return score

    monkeypatch.setattr("benchmarks.contest.PEERS", {**peers.PEERS, "slow": Peer(slow)})
    s = subject()
    contenders = field(s, ["library", "sqlml", "slow"], Setting(1), s.train[0])
    assert calls == [10, 30], "ten rows to prepare, and all of them to compare"
    x = s.train[0]
    rows = {r.contender: r for r in timed(contenders, CASE, 30, whole(x), Effort(2, 0.0, 0.004))}
    assert calls == [10, 30]
    assert rows["slow"].rounds == 1
    assert 0.05e9 <= (rows["slow"].ns or 0) * 30 < 0.5e9
    assert rows["sqlml"].rounds == 2


def test_the_library_and_sqlml_always_run() -> None:
    assert chosen(["ydf"]) == ["library", "sqlml", "ydf"]
    assert chosen(["sqlml"]) == ["library", "sqlml"]
    assert "sqlml torch" not in chosen(None)
    assert "treelite" not in chosen(None, trees=False)


def test_batches_hold_every_row_once() -> None:
    x = np.arange(70, dtype=np.float32).reshape(7, 10)
    seen: list[Any] = []
    in_batches(x, 3)(seen.append)()
    assert [len(batch) for batch in seen] == [3, 3, 1]
    assert np.array_equal(np.concatenate(seen), x)
    seen.clear()
    one_by_one(x)(seen.append)()
    assert [batch.shape for batch in seen] == [(1, 10)] * 7


def test_contenders_take_turns() -> None:
    turns: list[str] = []
    ways = [lambda: turns.append("a"), lambda: turns.append("b")]
    assert len(best_times(ways, 3)) == 2
    assert turns == ["a", "b"] * 3


def test_a_slow_contender_is_called_once() -> None:
    calls = [0, 0]

    def call(i: int) -> None:
        calls[i] += 1

    timings = best_calls([lambda: call(0), lambda: call(1)], 4, least=0.0, patience=-1.0)
    assert calls == [1, 1]
    assert [t.rounds for t in timings] == [1, 1]
    timings = best_calls([lambda: call(0), lambda: call(1)], 4, least=0.001)
    assert min(calls) > 8, "a short call fills a millisecond in each round"
    assert [t.rounds for t in timings] == [4, 4]
    assert all(0 < t.seconds < 0.001 for t in timings)


def test_what_the_first_call_compiles_is_not_measured() -> None:
    waits = iter([0.05])

    def call() -> None:
        time.sleep(next(waits, 0.0))

    (timing,) = best_calls([call], 3, least=0.001, patience=0.02)
    assert timing.rounds == 3
    assert timing.seconds < 0.02


def test_another_summary_than_the_best_round_gets_all_rounds() -> None:
    (timing,) = best_calls([lambda: None], 3, least=0.0, of=lambda times: float(len(times)))
    assert timing.seconds == 3.0
