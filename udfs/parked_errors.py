"""Errors on their way out of an engine, which turns every exception into plain text.

A batch function parks its own error here under a token and raises the token; the session finds
the token in the engine's message and raises the error itself. A model that is an expression of the
engine fails with a text that begins with the name of the error's class.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType

from sqlml.errors import MissingValueError, ScoringError, SqlmlError, UnknownCategoryError

_TOKEN = re.compile(r"sqlml-failure-(\d+)")
_CLASSES: Mapping[str, type[ScoringError]] = MappingProxyType(
    {kind.__name__: kind for kind in (MissingValueError, UnknownCategoryError)}
)
"""What `backends.sql.printing.Printing.error` writes."""
_TOLD = re.compile(rf"Invalid Input Error: ({'|'.join(_CLASSES)}): (.*)", re.DOTALL)
_MOST = 100

_counter = itertools.count(1)
_parked: OrderedDict[int, BaseException] = OrderedDict()
_lock = threading.Lock()


class ParkedFailure(Exception):
    """Raised inside the engine; its text holds the token."""


def park(error: Exception) -> ParkedFailure:
    """Keep `error` and return the exception to raise in its place.

    An error that is not sqlml's own becomes the cause of one that asks to be reported. Tracebacks
    are not kept, which hold the batch and the model: nobody may ever ask for them.
    """
    if not isinstance(error, SqlmlError):
        unforeseen = ScoringError(
            f"scoring failed in backend code ({type(error).__name__}: {error}); "
            "please report this with the model's DESCRIBE"
        )
        unforeseen.__cause__ = error
        error = unforeseen
    kept: BaseException | None = error
    while kept is not None:
        kept.__traceback__ = None
        kept = kept.__cause__ or kept.__context__
    number = next(_counter)
    with _lock:
        _parked[number] = error
        while len(_parked) > _MOST:  # a client that never asks must not make us grow
            _parked.popitem(last=False)
    return ParkedFailure(f"sqlml-failure-{number}: {error}")


def claim(message: str) -> BaseException | None:
    """The error of ours that an engine's message is about; None when it is about none."""
    match = _TOKEN.search(message)
    if match is None:
        told = _TOLD.match(message)
        return None if told is None else _CLASSES[told[1]](told[2])
    with _lock:
        return _parked.pop(int(match[1]), None)
