"""Messages of libraries, shortened to one line."""

from __future__ import annotations

import pytest

from sqlml.training.fitting.fit import make_training_error


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (
            "[16:50:03] /workspace/src/objective/objective.cc:27: Unknown objective function: `x`\n"
            "Objective candidate: survival:aft\n\nStack trace:\n [1]",
            "Unknown objective function: `x`",
        ),
        (
            "[16:50:03] /src/data/data.cc:5: Check failed: a == b (1 vs. 2) : Sizes differ",
            "Sizes differ",
        ),
        (
            "value 7 for Parameter subsample exceed bound [0,1]\nsubsample: Row subsample ratio.",
            "value 7 for Parameter subsample exceed bound [0,1]",
        ),
        (
            "Check failed: (num_leaves) > (1) at /__w/src/io/config_auto.cpp, line 352 .\n",
            "num_leaves must be > 1",
        ),
        ("catboost/libs/options/json_helper.h:41: Can't parse parameter", "Can't parse parameter"),
        (
            "All the 5 fits failed.\n---\nTraceback (most recent call last):\n  F\nValueError: C",
            "ValueError: C",
        ),
        ("", ""),
    ],
)
def test_a_librarys_message_is_one_line_without_its_source(raised: str, says: str) -> None:
    error = make_training_error("X", RuntimeError(raised))
    assert str(error) == f"X cannot be trained: RuntimeError: {says}"
