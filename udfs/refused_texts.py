"""Texts that a model may refuse: which code stands for which, so that an error can name it.

Where the engine's SQL makes codes of categories, the function that scores never sees a text. So a
text that an encoder does not know is handed to a function of ours, which keeps it, and gives a code
below -1 that stands for it. It raises nothing itself: the engine may ask it about rows that the
query does not score. Rows of known categories never reach it.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator

import pyarrow as pa

from sqlml.planner.program.function_names import refused_text_names
from sqlml.udfs.engine_function import EngineFunction

_NULL = -2
"""The code of a missing text."""

_FIRST = -3
_CODES = 1 << 23
"""Codes before they begin again; a FLOAT holds all of them."""

_OF_A_BATCH = 256
"""Texts of one batch that are kept: an error is about the first that is refused."""

_KEPT = 1 << 14
_LONGEST = 1000
"""Characters of a text that are kept."""

_counter = itertools.count()
_texts: OrderedDict[int, str] = OrderedDict()
_lock = threading.Lock()


def _codes(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A code for each text (n,); -1 for those that are not kept."""
    first = texts.slice(0, _OF_A_BATCH).to_pylist()
    with _lock:
        codes = list(_kept(first))
    return pa.array(codes + [-1] * (len(texts) - len(first)), pa.int32())


def _kept(texts: list[str | None]) -> Iterator[int]:
    for text in texts:
        if text is None:
            yield _NULL
            continue
        code = _FIRST - next(_counter) % _CODES
        _texts.pop(code, None)
        _texts[code] = text[:_LONGEST]
        if len(_texts) > _KEPT:
            _texts.popitem(last=False)
        yield code


def refused_text(code: float) -> tuple[str | None] | None:
    """The text or NULL that a code stands for, in a tuple; None if unknown."""
    if code == _NULL:
        return (None,)
    with _lock:
        text = _texts.get(int(code))
    return None if text is None else (text,)


def refused_text_functions(sql: str) -> list[EngineFunction]:
    """The functions of this kind that a text calls; they may have several names.

    >>> [f.name for f in refused_text_functions("f([system.main.sqlml_refused_text(a)])")]
    ['sqlml_refused_text']
    """
    return [EngineFunction(n, _codes, ("VARCHAR",), "INTEGER") for n in refused_text_names(sql)]
