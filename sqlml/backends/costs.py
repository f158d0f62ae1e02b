"""`Costs`: nanoseconds that a backend takes for elementary steps on one thread.

The shipped numbers come from one machine; `sqlml calibrate` measures them again and saves them in
the user's cache folder, or in the file that SQLML_COSTS names. SQLML_COSTS=default uses the
shipped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from sqlml.backends import own_files
from sqlml.errors import ConfigError

Costs = Mapping[str, float]

SHIPPED: Costs = MappingProxyType(
    {
        # A column in an expression of the engine; of a small tree there a level that rows pass, and
        # a test.
        "sql.number": 0.7,
        "sql.level": 2.5,
        "sql.test": 0.5,
        # A category of an encoder in an expression, which is planned with each query, and is looked
        # at for each row; and the text of a row that is handed to a function in its place.
        "sql.category": 33_000.0,
        "sql.lookup": 3.4,
        "udf.text": 230.0,
        # A column packed and handed to a function, and each call of that for a batch of rows; the
        # same of a native function.
        "udf.number": 4.0,
        "udf.call": 40_000.0,
        "column.number": 1.2,
        "column.call": 10_000.0,
        # Trees, a row: a node over a block of bytes, of 16-bit numbers or of their pages; a tree; a
        # value of a leaf that lies in registers, or in memory; a column's bin; a set's; entering a
        # descent, and a step of it; a row in a tree by lockstep, and a step of it; a row in the top
        # of a tree of a turned block, and a number that is turned. Far steps are those in trees of
        # 64 MB, which no cache holds; far nodes and wide steps those in tables of 2,000 columns. A
        # batch by blocks takes so much more than one by lockstep.
        "native.node": 0.007,
        "native.far_node": 0.105,
        "native.short_node": 0.018,
        "native.paged_node": 0.0105,
        "native.tree": 0.05,
        "native.cursor_leaf": 0.15,
        "native.leaf": 0.5,
        "native.bin": 1.5,
        "native.set": 0.5,
        "native.descent": 2.0,
        "native.step": 1.0,
        "native.far_step": 2.2,
        "native.wide_step": 30.0,
        "native.pair": 2.0,
        "native.pair_step": 0.85,
        "native.far_pair_step": 1.0,
        "native.wide_pair_step": 2.3,
        "native.top": 2.9,
        "native.turned_number": 0.35,
        "native.wide_turned_step": 1.4,
        "native.batch": 3_000.0,
        # An operator's call, a number that it makes, and a multiplication with its addition.
        "native.call": 1_000.0,
        "native.number": 0.4,
        "native.product": 0.03,
        "onnxruntime.call": 8_000.0,
        "onnxruntime.number": 0.4,
        "onnxruntime.product": 0.03,
        "onnxruntime.step": 10.0,
        "torch.call": 6_000.0,
        "torch.number": 0.4,
        "torch.product": 0.03,
        "torch.step": 8.0,
        # The same on a GPU, whose transfers are a byte each way.
        "cuda.call": 10_000.0,
        "cuda.number": 0.004,
        "cuda.product": 0.0002,
        "cuda.step": 0.02,
        "cuda.byte": 0.05,
    }
)


def place() -> Path:
    """Where measured costs are kept."""
    named = os.environ.get("SQLML_COSTS")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sqlml" / "costs.json"


@cache
def current() -> Costs:
    """The shipped costs, with those measured on this machine in their place.

    Raises:
        ConfigError: the file that SQLML_COSTS names cannot be used.
    """
    named = os.environ.get("SQLML_COSTS")
    if named == "default":
        return SHIPPED
    try:
        return MappingProxyType({**SHIPPED, **parse(place().read_text())})
    except OSError as error:
        if named:
            raise ConfigError(f"SQLML_COSTS: cannot read {named}: {error.strerror}") from None
        return SHIPPED
    except ValueError as error:
        if named:
            raise ConfigError(f"SQLML_COSTS: {named}: {error}") from None
        return SHIPPED  # a damaged cache is as good as none


def parse(text: str) -> dict[str, float]:
    """Costs by name from JSON.

    Raises:
        ValueError: not an object of known names with positive numbers.

    >>> parse('{"native.node": 0.01}')
    {'native.node': 0.01}
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not an object of costs by name")
    for name, value in found.items():
        if name not in SHIPPED:
            raise ValueError(f"unknown cost {name!r}; costs: {', '.join(SHIPPED)}")
        if type(value) not in (int, float) or not 0 < value < 1e12:
            raise ValueError(f"{name} must be nanoseconds above 0, not {value!r}")
    return {name: float(value) for name, value in found.items()}


def keep(measured: Mapping[str, float]) -> Path:
    """Keep measured costs, and use them from now on in this process; where they are kept.

    Raises:
        OSError: the file cannot be written.
    """
    path = place()
    path.parent.mkdir(parents=True, exist_ok=True)
    own_files.replace(path, (json.dumps(dict(measured), indent=2) + "\n").encode())
    current.cache_clear()
    return path
