"""`Report`: a page about a model, to be saved or shown in a notebook."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

_FRAME = "width:100%;height:80vh;min-height:480px;border:1px solid;border-radius:4px"

_HEAD_IN_FRAME = '<head><base href="about:srcdoc">'
"""Links of the page would lead to the notebook's sections without it."""


@dataclass(frozen=True, slots=True)
class Report:
    """One self-contained page of HTML, as `Session.report` makes it.

    Attributes:
        title: the model and its version.
        html: the page.
    """

    title: str
    html: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, replacing an existing one.

        Raises:
            OSError: it cannot be written.
        """
        written = Path(path)
        written.write_text(self.html, encoding="utf-8", newline="\n")
        return written

    def _repr_html_(self) -> str:
        """The page in a frame of its own, where nothing of it can run or reach the notebook."""
        page = self.html.replace("<head>", _HEAD_IN_FRAME, 1)
        return (
            f'<iframe title="{escape(self.title)}" sandbox="" style="{_FRAME}" '
            f'srcdoc="{escape(page)}"></iframe>'
        )
