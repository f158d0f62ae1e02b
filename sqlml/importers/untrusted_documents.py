"""How many features and outputs a model file may claim, before memory is taken for them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from itertools import chain
from typing import Any

from sqlml.errors import ArtifactError

MAX_FEATURES = 1_000_000
MAX_OUTPUTS = 100_000
"""Most classes, targets, or trees per iteration."""


def bounded(given: Any, most: int, library: str, things: str) -> int:
    """The number, maybe as text, of `things` that a file of `library` says it has.

    >>> bounded("3", MAX_OUTPUTS, "XGBoost", "classes")
    3

    Raises:
        ArtifactError: negative, or more than `most`.
        ValueError, TypeError: not an integer.
    """
    if isinstance(given, str) and not given.isascii() or "_" in str(given):
        raise ValueError(f"{given!r} is not a number")
    number = int(given)
    if not 0 <= number <= most:
        raise ArtifactError(f"the {library} model claims {number} {things}; the limit is {most}")
    return number


# `read_json`: a JSON document out of bytes, using little memory beyond the result.
#
# One character outside ASCII makes Python hold the whole text with two or four bytes a character,
# so such characters become JSON escapes while the text is decoded.


Hook = Callable[[dict[str, Any]], Any]

_FOREIGN = re.compile(rb"[\x80-\xff]+")
_CHUNK = 1 << 16


def read_json(content: bytes, hook: Hook | None = None, *, strict: bool = False) -> Any:
    r"""The document in UTF-8 `content`, of which each object goes through `hook`.

    Args:
        strict: refuse NaN and Infinity, which are not JSON.

    >>> read_json('{"name": "größe"}'.encode())
    {'name': 'größe'}

    Raises:
        ValueError: it is not JSON, or not UTF-8.
        RecursionError: it is nested too deeply.
    """
    return json.loads(
        content.decode() if content.isascii() else _escaped(content),
        object_hook=hook,
        parse_constant=_no_constant if strict else None,
    )


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _escaped(content: bytes) -> str:
    text = StringIO()  # which holds one byte a character as long as all are ASCII
    at = 0
    for found in chain(_FOREIGN.finditer(content), [None]):
        end = len(content) if found is None else found.start()
        for start in range(at, end, _CHUNK):
            text.write(content[start : min(start + _CHUNK, end)].decode("ascii"))
        if found is not None:
            before = end
            while before > at and content[before - 1] == 0x5C:
                before -= 1
            if (end - before) % 2:
                raise ValueError(f"a needless escape at byte {end}")
            text.write(json.dumps(found[0].decode())[1:-1])
            at = found.end()
    return text.getvalue()
