"""Which tests run by day, the home that they have, and that they wait for kernels."""

import os
import signal
import tempfile
from collections import Counter

import pytest

# Tests are about machine code, except those that are about the wait.
os.environ.setdefault("SQLML_WAIT_FOR_KERNELS", "1")

# Native functions are installed in a home of the tests' own: the user's may be read-only, or hold
# settings and measured costs, which decide what a test sees.
_HOME = tempfile.TemporaryDirectory(prefix="sqlml-home-", ignore_cleanup_errors=True)
os.environ["HOME"] = os.environ["USERPROFILE"] = _HOME.name
for _name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "SQLML_COSTS", "SQLML_HISTORY"):
    os.environ.pop(_name, None)


# A shell that starts the tests in the background makes them, and their processes, ignore a Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before `-m` picks tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the night all parameters but one in n of the tests marked `by_day(n)`.

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
