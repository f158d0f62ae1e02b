"""`cannot_be_trained`: what a library says of a training that failed, in one line."""

from __future__ import annotations

import re

from sqlml.errors import ConfigError


def cannot_be_trained(kind: str, error: BaseException, hint: str = "") -> ConfigError:
    """Return the error of a training that the library has ended.

    Args:
        kind: the name of the estimator. error: whatever the library has raised. hint: what to do.
    """
    message = f"{kind} cannot be trained: {type(error).__name__}: {reason(str(error))}"
    return ConfigError(f"{message.removesuffix('.')}; {hint}" if hint else message)


def reason(text: str) -> str:
    """A library's message in one line, without times, source files and stack traces.

    >>> reason("[16:50:03] /workspace/src/gbm/gbm.cc:24: Unknown gbm type DART\\nStack trace:\\n..")
    'Unknown gbm type DART'
    >>> reason("Check failed: (bagging_fraction) <= (1.0) at /src/io/config_auto.cpp, line 375 .")
    'bagging_fraction must be <= 1.0'
    >>> reason("catboost/libs/options.cpp:128: Maximum tree depth is 16")
    'Maximum tree depth is 16'
    """
    text = text.split("\nStack trace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    # what fits several times quotes what the fits have raised, the exception last
    line = lines[-1] if "Traceback (most recent call last)" in text else lines[0]
    for pattern, instead in _CUT:
        line = pattern.sub(instead, line).strip()
    return line


_CUT = (
    (re.compile(r"\[\d\d:\d\d:\d\d\]\s*"), ""),
    (re.compile(r"\S*\.(?:c|cc|cpp|cu|cuh|h|hpp):\d+:\s*"), ""),
    (re.compile(r"\s+at \S+, line \d+\s*\.?$"), ""),
    (re.compile(r"Check failed: \((.+?)\) ([<>=!]+) \((.+?)\)$"), r"\1 must be \2 \3"),
    (re.compile(r"Check failed: (?:[^:]|::)*:\s*(?=\S)"), ""),
)
"""What is cut from a line -> what stands in its place."""
