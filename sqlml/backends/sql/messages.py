"""Values of a row in the messages of errors, as SQL: cut short as `unknown_category.shown` does."""

from __future__ import annotations

from sqlml.dialects import Dialect

_LONGEST = 58
"""Characters between the quotes."""


def quoted_value(text: str, dialect: Dialect) -> str:
    """A text in quotes; NULL for a missing one."""
    begin = dialect.call("left", text, str(_LONGEST - 3))
    long = f"{dialect.call('length', text)} > {_LONGEST}"
    quote = dialect.text("'")
    cut = dialect.call("concat", quote, begin, dialect.text("..'"))
    whole = dialect.call("concat", quote, text, quote)
    null = dialect.text("NULL")
    return f"CASE WHEN {text} IS NULL THEN {null} WHEN {long} THEN {cut} ELSE {whole} END"


def shown_number(number: str, nan: bool, dialect: Dialect) -> str:
    """A number in as few digits as tell it from others; NULL for NaN, which it may be if `nan`."""
    digits = f"CAST({number} AS {dialect.type('VARCHAR')})"
    short = dialect.call("regexp_replace", digits, dialect.text("[.]0$"), dialect.text(""))
    null = dialect.text("NULL")
    if not nan:
        return short
    return f"CASE WHEN {dialect.call('isnan', number)} THEN {null} ELSE {short} END"
