"""Which tests run by day; kernels are waited for."""

import os
from collections import Counter

import pytest

# Tests are about machine code, but those that are about the wait.
os.environ.setdefault("SQLML_WAIT_FOR_KERNELS", "1")


@pytest.hookimpl(tryfirst=True)  # before `-m` picks tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests marked `by_day(n)`, leave all parameters but one in n to the night.

    Those of the day lie on a diagonal, so that where two parameters vary, all values of both occur.
    """
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("by_day")
        if mark is not None:
            count, test = mark.args[0], item.nodeid.partition("[")[0]
            number = seen[test]
            if (number + number // count) % count:
                item.add_marker(pytest.mark.nightly)
            seen[test] += 1
