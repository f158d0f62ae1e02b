"""LightGBM texts that LightGBM would not write."""

from __future__ import annotations

import re

import pytest

from tests.support import small_files
from tests.support.hostile import refused


def lightgbm(key: str, value: str, which: int = 1) -> bytes:
    """A LightGBM text with another value for the first line of `key`."""
    lines = small_files.lightgbm_files()[which].decode().split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{key}="))
    lines[at] = f"{key}={value}"
    text = "\n".join(lines)
    if key != "tree_sizes":  # which would refuse all else
        blocks = re.findall(r"(?ms)^Tree=.*?(?=^Tree=|^end of trees)", text)
        sizes = " ".join(str(len(block)) for block in blocks)
        text = re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", text)
    return text.encode()


LIGHTGBM = {
    "cycle": ("left_child", "0 0 0", "damaged"),
    "two parents": ("left_child", "1 -1 -1", "damaged"),
    "child beyond": ("right_child", "99 -1 -2", "out of range"),
    "NaN threshold": ("threshold", "nan 1 2", "NaN"),
    "feature beyond": ("split_feature", "5 0 0", "reads beyond its 5 features"),
    "feature below": ("split_feature", "-1 0 0", "reads beyond its 5 features"),
    "10^9 leaves": ("num_leaves", "1000000000", "999999999 entries of split_gain"),
    "-1 leaves": ("num_leaves", "-1", "no leaves"),
    "10^9 classes": ("num_tree_per_iteration", "1000000000", "claims 1000000000"),
    "10^9 features": ("max_feature_idx", "1000000000", "claims 1000000000"),
    "fewer values": ("leaf_value", "1 2", "entries of leaf_value"),
    "a set without words": ("decision_type", "1 1 1", "has no set"),
    "an unknown objective": ("objective", "mischief", "mischief"),
    # what no prediction of ours reads, and LightGBM reads without a look
    "other classes than trees": ("num_class", "2", "does not match its number of classes"),
    "classes of another objective": ("objective", "multiclass num_class:4", "number of classes"),
    "an objective without a name": ("objective", "", "no name"),
    "sizes of other trees": ("tree_sizes", "1 2 3 4 5 6", "stated sizes"),
    "fewer gains": ("split_gain", "1 2", "split_gain"),
    "fewer counts": ("leaf_count", "1 2", "leaf_count"),
    "a gain that is a text": ("split_gain", "1 x 2", "split_gain"),
    "a shrinkage that is a text": ("shrinkage", "x", "could not convert"),
    "sets that are not there": ("num_cat", "1", "damaged"),
    "a decision of 64": ("decision_type", "64 2 2", "unknown decision type"),
    "a decision of -2": ("decision_type", "-2 2 2", "unknown decision type"),
    "a number of Python's": ("threshold", "1_0 1 2", "not a line of a LightGBM tree"),
    "another's digits": (
        "split_feature",
        "\N{FULLWIDTH DIGIT ONE} 0 0",
        "not a line of a LightGBM tree",
    ),
    "a line twice": ("num_cat", "0\nnum_cat=0", "repeats"),
    "a line of no kind": ("num_cat", "0\nmischief=0", "not a line of a LightGBM tree"),
    "a line behind a blank one": ("num_cat", "0\n\nshrinkage=0", "not a line of a LightGBM tree"),
    "a header's line twice": ("label_index", "0\nlabel_index=0", "repeats"),
}


@pytest.mark.parametrize(("key", "value", "match"), LIGHTGBM.values(), ids=LIGHTGBM)
def test_hostile_lightgbm_texts(key: str, value: str, match: str) -> None:
    refused(lightgbm(key, value), "LIGHTGBM", match)


@pytest.mark.parametrize("line", ["[heade0]", "", "mischief=1", "end of parameters", "parameters:"])
def test_a_line_among_lightgbms_parameters_that_is_none(line: str) -> None:
    """LightGBM looks behind the colon of each."""
    text = small_files.lightgbm_files()[1].decode()
    changed = text.replace("[max_depth: -1]", line)
    assert changed != text
    if line:
        refused(changed.encode(), "LIGHTGBM", "parameters? of the LightGBM model")
    refused(
        text.replace("end of parameters", "").encode(), "LIGHTGBM", "begin and end exactly once"
    )


@pytest.mark.parametrize("number", ["1e400", "1e-310", "nan"])
def test_a_number_in_a_linear_leaf_that_lightgbm_ends_on(number: str) -> None:
    content = lightgbm("leaf_const", f"{number} 0 0 0", 2)
    refused(content, "LIGHTGBM", "not a normal float64")
