"""HTML for notebooks: tables, texts and flow charts, with all text escaped.

Colors are inherited from the notebook. Plans set a fixed-width font, since a page that is exported
from a notebook may not set such a font.
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

_MAX_CELL_LENGTH = 160
"""Maximum length of a list, struct or MAP in a cell."""

_MAX_TOOLTIP_LENGTH = 4000
"""Maximum length of the tooltip of a cell."""


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | None]],
    numbers: Sequence[bool] = (),
    below: str = "",
    types: Sequence[str] = (),
) -> str:
    """Return an HTML table. None is shown as NULL, and nested values are shortened.

    `numbers` marks the columns to align to the right; () marks no column. `below` is a caption
    under the table. `types` are SQL types to show under the column names.
    """
    styles = [_NUMBER if is_number else _TEXT for is_number in numbers] or [_TEXT] * len(columns)
    type_labels = [f"<br><small>{escape(_shorten(sql_type))}</small>" for sql_type in types]
    type_labels = type_labels or [""] * len(columns)
    header_cells = "".join(
        f"<th{style}>{escape(column)}{type_label}</th>"
        for style, column, type_label in zip(styles, columns, type_labels, strict=True)
    )
    are_nested = [t.endswith(("]", ")")) and not t.startswith("DECIMAL") for t in types]
    are_nested = are_nested or [False] * len(columns)
    cells_by_row = ("".join(map(_render_cell, row, styles, are_nested)) for row in rows)
    body = "".join(f"<tr>{row_cells}</tr>" for row_cells in cells_by_row)
    html = f"<table><thead><tr>{header_cells}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{html}{f'<small>{escape(below)}</small>' if below else ''}</div>"


def _render_cell(value: str | None, style_attribute: str, is_nested: bool) -> str:
    if value is None:
        return f"<td{style_attribute}><i>NULL</i></td>"
    if not is_nested or len(value) <= _MAX_CELL_LENGTH:
        return f"<td{style_attribute}>{escape(value)}</td>"
    tooltip = escape(value[:_MAX_TOOLTIP_LENGTH])
    return f'<td{style_attribute} title="{tooltip}">{escape(_shorten(value))}</td>'


def _shorten(value: str) -> str:
    """Truncate a long list, struct or MAP after an entry, and keep the closing bracket.

    >>> _shorten("{a=1, b=2}"), len(_shorten("{" + "a=1, " * 100 + "z=1}"))
    ('{a=1, b=2}', 153)
    """
    if len(value) <= _MAX_CELL_LENGTH:
        return value
    start = value[: _MAX_CELL_LENGTH - 5]
    cut_index = start.rfind(", ")
    return f"{start[:cut_index] if cut_index > 0 else start}, \N{HORIZONTAL ELLIPSIS}{value[-1]}"


def shorten_cells(page: str) -> str:
    """Shorten long lists, structs and MAPs in the cells of an HTML table of DuckDB."""
    return _LONG_CELL.sub(lambda cell: _render_cell(unescape(cell[1]), "", True), page)


_LONG_CELL = re.compile(rf"<td>([{{\[][^<]{{{_MAX_CELL_LENGTH},}})</td>")


def text(lines: str) -> str:
    return f"<pre{_FIXED}>{escape(lines)}</pre>"


def flow(boxes: Sequence[tuple[str, str]]) -> str:
    """Return an HTML chart of boxes (title, text) that are connected by arrows."""
    box_template = '<div style="{}"><b>{}</b><br>{}</div>'
    divs = [box_template.format(_BOX, escape(title), escape(content)) for title, content in boxes]
    chart = "<div>&rarr;</div>".join(divs)
    style = "display:flex;flex-wrap:wrap;gap:.6em;align-items:center;margin:.6em 0"
    return f'<div style="{style}">{chart}</div>'
