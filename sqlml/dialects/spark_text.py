"""Texts in Spark's SQL, which may mean others under a user's settings.

Before it reads a statement, Spark replaces `${..}` in it, also within quotes; and with
`spark.sql.parser.escapedStringLiterals` a backslash is one.
"""

from __future__ import annotations


def quoted(text: str) -> str:
    r"""A text in quotes; two quotes side by side would end one text and begin another.

    >>> quoted("it's a \\")
    "'it\\'s a \\\\'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def exact(text: str) -> str:
    """A text that is the same under all settings: one of odd characters by its bytes.

    >>> exact("pro"), exact("it's")
    ("'pro'", "CAST(X'69742773' AS STRING)")
    """
    if any(odd in text for odd in ("'", "\\", "${")):
        return f"CAST(X'{text.encode().hex().upper()}' AS STRING)"
    return f"'{text}'"
