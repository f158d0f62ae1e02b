"""HTML for notebooks: tables, texts and flow charts, with all text escaped.

Colours are inherited from the notebook, light or dark. Plans set a fixed-width font themselves,
since a page that is exported from a notebook may not set one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape, unescape

_NUMBER = ' style="text-align:right"'
_TEXT = ' style="text-align:left;white-space:pre-wrap"'
_FIXED = (
    ' style="font-family:monospace;line-height:1.25;white-space:pre;overflow-x:auto;'
    'text-align:left"'
)
_BOX = "border:1px solid;border-radius:4px;padding:.4em .8em;max-width:20em;text-align:left"

_MAX_CHARACTERS = 160
"""Maximum characters of a list, struct or MAP that a cell shows."""

_MAX_TOOLTIP = 4000
"""Maximum characters that the cell's tooltip shows."""


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | None]],
    numbers: Sequence[bool] = (),
    below: str = "",
    types: Sequence[str] = (),
) -> str:
    """Return an HTML table; None is shown as NULL, and nested values are shortened.

    `numbers` has a flag for each column that aligns it to the right; () aligns no column. `below`
    is a caption under the table, and `types` are SQL types to show under the column names.
    """
    styles = [_NUMBER if is_number else _TEXT for is_number in numbers] or [_TEXT] * len(columns)
    type_cells = [f"<br><small>{escape(_shorten(kind))}</small>" for kind in types]
    type_cells = type_cells or [""] * len(columns)
    header_cells = "".join(
        f"<th{style}>{escape(column)}{kind}</th>"
        for style, column, kind in zip(styles, columns, type_cells, strict=True)
    )
    are_nested = [kind.endswith(("]", ")")) and not kind.startswith("DECIMAL") for kind in types]
    are_nested = are_nested or [False] * len(columns)
    body = "".join(f"<tr>{''.join(map(_cell, row, styles, are_nested))}</tr>" for row in rows)
    html = f"<table><thead><tr>{header_cells}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{html}{f'<small>{escape(below)}</small>' if below else ''}</div>"


def _cell(value: str | None, style: str, is_nested: bool) -> str:
    if value is None:
        return f"<td{style}><i>NULL</i></td>"
    if not is_nested or len(value) <= _MAX_CHARACTERS:
        return f"<td{style}>{escape(value)}</td>"
    return f'<td{style} title="{escape(value[:_MAX_TOOLTIP])}">{escape(_shorten(value))}</td>'


def _shorten(value: str) -> str:
    """Truncate a long list, struct or MAP after one of its entries, and keep the closing bracket.

    >>> _shorten("{a=1, b=2}"), len(_shorten("{" + "a=1, " * 100 + "z=1}"))
    ('{a=1, b=2}', 153)
    """
    if len(value) <= _MAX_CHARACTERS:
        return value
    start = value[: _MAX_CHARACTERS - 5]
    cut_index = start.rfind(", ")
    return f"{start[:cut_index] if cut_index > 0 else start}, \N{HORIZONTAL ELLIPSIS}{value[-1]}"


def shorten_cells(page: str) -> str:
    """Shorten long lists, structs and MAPs in the cells of an HTML table that DuckDB made."""
    return _LONG_CELL.sub(lambda cell: _cell(unescape(cell[1]), "", True), page)


_LONG_CELL = re.compile(rf"<td>([{{\[][^<]{{{_MAX_CHARACTERS},}})</td>")


def text(lines: str) -> str:
    return f"<pre{_FIXED}>{escape(lines)}</pre>"


def flow(boxes: Sequence[tuple[str, str]]) -> str:
    """Return an HTML chart of boxes connected by arrows; each box has a title and a text."""
    box = '<div style="{}"><b>{}</b><br>{}</div>'
    divs = [box.format(_BOX, escape(title), escape(content)) for title, content in boxes]
    chart = "<div>&rarr;</div>".join(divs)
    style = "display:flex;flex-wrap:wrap;gap:.6em;align-items:center;margin:.6em 0"
    return f'<div style="{style}">{chart}</div>'
