"""Which parameters of a test run by day, in `make test`; those of the night in `make nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """Parameters: one in `count` by day, the others by night; a tuple is several parameters."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=[] if number % count == 0 else [pytest.mark.nightly],
        )
        for number, value in enumerate(values)
    ]
