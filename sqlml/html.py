"""HTML for notebooks: tables, texts and flows, every word of it escaped.

Colours and fonts are the notebook's own, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_NUMBER = ' style="text-align:right"'
_TEXT = ' style="text-align:left;white-space:pre-wrap"'
_BOX = "border:1px solid;border-radius:4px;padding:.4em .8em;max-width:20em;text-align:left"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | None]],
    numbers: Sequence[bool] = (),
    below: str = "",
) -> str:
    """A table.

    Args:
        rows: texts; None is shown as NULL.
        numbers: which columns are numbers, and stand at the right; by default none.
        below: a line under the table.
    """
    styles = [_NUMBER if is_number else _TEXT for is_number in numbers] or [_TEXT] * len(columns)
    head = "".join(f"<th{s}>{escape(c)}</th>" for s, c in zip(styles, columns, strict=True))
    body = "".join(f"<tr>{_cells(row, styles)}</tr>" for row in rows)
    made = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{made}{f'<small>{escape(below)}</small>' if below else ''}</div>"


def _cells(row: Sequence[str | None], styles: Sequence[str]) -> str:
    texts = ["<i>NULL</i>" if text is None else escape(text) for text in row]
    return "".join(f"<td{s}>{text}</td>" for s, text in zip(styles, texts, strict=True))


def text(lines: str) -> str:
    """A text in a fixed-width font."""
    return f"<pre>{escape(lines)}</pre>"


def flow(boxes: Sequence[tuple[str, str]]) -> str:
    """Boxes, each with a title and a text, with arrows from one to the next."""
    drawn = [
        f'<div style="{_BOX}"><b>{escape(title)}</b><br>{escape(told)}</div>'
        for title, told in boxes
    ]
    made = "<div>&rarr;</div>".join(drawn)
    style = "display:flex;flex-wrap:wrap;gap:.6em;align-items:center;margin:.6em 0"
    return f'<div style="{style}">{made}</div>'
