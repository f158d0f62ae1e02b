"""Kinds of joins that a probe leaves out: they change which rows there are, but no name or type."""

from __future__ import annotations

import re

_SEMI = re.compile(r"\b(SEMI|ANTI)\b(?=\s+JOIN\b)", re.IGNORECASE)
_ASOF = re.compile(r"\bASOF\b(?=\s+(LEFT|RIGHT|FULL|INNER|JOIN)\b)", re.IGNORECASE)


def without_semi(join: str) -> str:
    """A SEMI or ANTI JOIN as an inner one, behind which both sides are in sight.

    >>> without_semi("ANTI JOIN t ON a")
    ' JOIN t ON a'
    """
    return _SEMI.sub("", join, count=1)


def without_asof(query: str) -> str:
    """A query with plain joins for ASOF ones: names and types are the same.

    >>> without_asof("FROM t ASOF LEFT JOIN u ON t.a >= u.a")
    'FROM t  LEFT JOIN u ON t.a >= u.a'
    """
    return _ASOF.sub("", query)
