"""Errors of Spark about a rewritten query, with their place in the text that a user wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from sqlml.dialects import SPARK
from sqlml.errors import excerpt
from sqlml.parsing.moved_place import place_in

_AT = re.compile(r"; line (\d+) pos (\d+)|\s*\(line (\d+), pos (\d+)\)")

_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "INVALID_INLINE_TABLE": "no models in VALUES; write SELECT .. UNION ALL SELECT ..",
        "INVALID_TEMP_OBJ_REFERENCE": "models are temporary functions; CREATE TEMPORARY VIEW",
    }
)
"""Spark's condition -> what to do about it."""


@contextmanager
def reworded_errors(rewritten: str, written: str) -> Iterator[None]:
    """Raise errors about the query that a user wrote, in place of Spark's about ours.

    Raises:
        pyspark.errors.ParseException, AnalysisException: with Spark's condition.
    """
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except AnalysisException as error:  # a ParseException is one
        kind = ParseException if isinstance(error, ParseException) else AnalysisException
        made = kind(message=_text(error, rewritten, written))
        made._errorClass = error.getCondition()
        raise made from None


_MODEL_SQL = re.compile(r'"[^"]*(?:\bsqlml_|raise_error\(|named_struct\()[^"]*"')
"""An expression in Spark's quotes that holds a model's SQL or its function."""

_FUNCTION = re.compile(r"the temporary object `sqlml_\w+` of the type FUNCTION")

_ADVICE = re.compile(r"Please make the temporary object `sqlml_\w+` persistent, or make")

_NAME = re.compile(r"`?\bsqlml_\w+`?")
"""A name that the user has never seen."""


def _text(error: Exception, rewritten: str, written: str) -> str:
    """Return the first line of Spark's message in the user's words, a remedy, and the place."""
    lines = str(error).strip().splitlines()
    first = next((line for line in lines if line.strip()), "")
    found = _AT.search(str(error))
    remedy = next((text for name, text in _REMEDIES.items() if f"[{name}" in first), "")
    first = re.sub(r"^\[[A-Z_.]+\] ", "", first)  # the exception itself shows its condition
    first = _MODEL_SQL.sub('"... model call ..."', first)
    first = _FUNCTION.sub("a model's function, which is temporary", first)
    first = _ADVICE.sub("Please make", first)
    first = _NAME.sub("a model's function", first)
    told = f"{_AT.sub('', first).rstrip(';').strip()}{remedy and '; '}{remedy}"
    place = None
    if found is not None:
        line, column = (int(n) for n in found.groups() if n is not None)
        before = rewritten.split("\n")[: line - 1]
        offset = sum(len(text) + 1 for text in before) + column
        place = place_in(rewritten, written, offset, SPARK.name)
    return told if place is None else f"{told}\n\n{excerpt(written, place)}"
