"""`Page`: what a report says, read from its HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """The elements and the texts of a page.

    Attributes:
        elements: the names of all elements.
        attributes: all of their attributes.
        tables: caption -> rows of texts, the header first.
        notes: the sentences that stand in place of something.
        text: all that can be read.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.tables: dict[str, list[list[str]]] = {}
        self.notes: list[str] = []
        self._pieces: list[str] = []
        self._open: list[str] = []
        self._caption = ""
        self.feed(html)
        self.close()
        self.text = "".join(self._pieces)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "img", "br", "input", "link"):
            self._open.append(tag)
        if tag == "caption":
            self._caption = ""
        if tag == "tr":
            self.tables[self._caption].append([])
        if tag in ("th", "td"):
            self.tables[self._caption][-1].append("")
        if tag == "p":
            self.notes += [""] if ("class", "note") in attrs else []

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "style":
            return
        self._pieces.append(data)
        if inside == "caption":
            self._caption = data
            self.tables[data] = []
        elif set(self._open) & {"th", "td"}:
            self.tables[self._caption][-1][-1] += data.strip()
        elif inside == "p" and self.notes and self.notes[-1] == "":
            self.notes[-1] = data

    def columns(self, caption: str) -> dict[str, list[Any]]:
        """A table by the names of its columns."""
        header, *rows = self.tables[caption]
        return {name: [row[n] for row in rows] for n, name in enumerate(header)}

    def pairs(self, caption: str) -> dict[str, str]:
        """The first two columns of a table."""
        return {row[0]: row[1] for row in self.tables[caption][1:]}
