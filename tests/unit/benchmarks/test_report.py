"""docs/performance.md and README.md say what the result files say, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bars import BARS
from benchmarks.plots import draw
from benchmarks.report import FAMILIES, PAGES, ROOT, TABLES, load, render


def row(
    contender: str, ns: float | None, ratio: float | None = None, **more: Any
) -> dict[str, Any]:
    case = {"model": "xgboost", "table": "higgs", "mode": "whole table", "rows": 1000}
    made = {"case": case, "contender": contender, "threads": 2, "note": "", **more}
    return {**made, **{k: v for k, v in (("ns", ns), ("ratio", ratio)) if v is not None}}


RESULTS = {
    "trees": {
        "family": "trees",
        "machine": {"processor": "abacus", "cores": 2, "python": "3.11.7", "versions": {"x": "1"}},
        "parameters": {"threads": 2, "rounds": 5, "seed": 0},
        "rows": [
            row("library", 1234.0, 10.28, exact=True, largest=0.0, differing=0.0, labels=0.0),
            row("sqlml", 120.0, 1.0, exact=True, prepare=0.25, largest=0.0, differing=0.0),
            row("onedal", 300.0, 2.5, largest=0.015, differing=0.5, labels=0.01, prepare=1.0),
            row("ydf", None, reason="imports scikit-learn's forests only"),
        ],
    },
    "operators": None,
}


def test_a_small_result_is_this_table() -> None:
    assert TABLES["trees-whole-table"](RESULTS).splitlines() == [
        "| model | table | rows | sqlml, ns per row | library / sqlml | onedal / sqlml |",
        "|---|---|---|---|---|---|",
        "| xgboost | higgs | 1,000 | 120 | 10.3 | 2.5\\* |",
        "",
        "![trees, whole table](plots/trees-whole-table.svg)",
        "",
        "* ydf: imports scikit-learn's forests only (xgboost)",
    ]
    assert TABLES["tree-differences"](RESULTS).splitlines()[2:] == [
        "| onedal | xgboost | 1.5e-02 | 50.00% | 1.00% |",
        "| sqlml | xgboost | 0 | 0.00% | 0.00% |",
    ]
    assert TABLES["tree-preparing"](RESULTS).splitlines()[2:] == ["| xgboost | higgs | 0.25 | 1 |"]
    assert TABLES["machines"](RESULTS).splitlines() == [
        "* trees: 2 threads, best of 5 rounds, seed 0",
        "* operators: not measured yet, `make bench` does",
        "* trees: abacus, 2 cores; Python 3.11.7, x 1",
    ]


def test_bars_say_whether_they_are_met() -> None:
    lines = TABLES["bars"](RESULTS).splitlines()[2:]
    assert len(lines) == len(BARS)
    first = "| XGBoost model, compared with `inplace_predict` | >= 8 | 10.3 | 10.3 | 1 of 1 |"
    assert lines[0] == first
    assert lines[1] == "| XGBoost model, compared with oneDAL | >= 3 | 2.5 | 2.5 | 0 of 1 |"
    assert lines[2].endswith("| not measured |")


def test_what_was_not_measured_says_so() -> None:
    text = TABLES["operators-batch-float32"](RESULTS)
    assert text == "Not measured yet: `make bench` writes `benchmarks/results/operators.json`."


def test_only_what_stands_between_markers_is_written_anew() -> None:
    page = "a\n\n<!-- trees-whole-table -->\nold\n<!-- /trees-whole-table -->\n\nb\n"
    once = render(page, RESULTS)
    assert once.startswith("a\n\n<!-- trees-whole-table -->\n\n| model |")
    assert once.endswith("<!-- /trees-whole-table -->\n\nb\n")
    assert "old" not in once
    assert render(once, RESULTS) == once
    with pytest.raises(ValueError, match="no table 'nonsense'"):
        render("<!-- nonsense --><!-- /nonsense -->", RESULTS)


def test_newcomers_read_the_mean_and_the_worst_case() -> None:
    assert TABLES["speed"](RESULTS).splitlines()[2:] == [
        "| XGBoost's `inplace_predict`, many rows | 10.3 | 10.3 | 1 |"
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_holds_what_the_results_say(page: Path) -> None:
    text = page.read_text()
    assert render(text, load()) == text, f"run `make bench-report` and commit {page.name}"


def test_the_pages_have_every_table_and_picture() -> None:
    texts = [page.read_text() for page in PAGES]
    assert set(re.findall(r"<!-- ([\w-]+) -->", "".join(texts))) == set(TABLES)
    for page, text in zip(PAGES, texts, strict=True):
        for target in re.findall(r"!\[[^]]*\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), target


def test_the_same_results_are_the_same_drawings(tmp_path: Path) -> None:
    one, two = draw(RESULTS, tmp_path / "one"), draw(RESULTS, tmp_path / "two")
    assert [path.name for path in one] == ["trees-whole-table.svg"]
    for first, second in zip(one, two, strict=True):
        text = first.read_text()
        assert text == second.read_text()
        assert "<dc:date>" not in text
        assert ">library</text>" in text
        assert ">xgboost</text>" in text


def test_every_family_has_a_make_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (named,) = re.findall(r"^FAMILIES := (.*)$", makefile, flags=re.MULTILINE)
    assert tuple(named.split()) == FAMILIES
