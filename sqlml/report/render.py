"""`rendered`: sections as one page of HTML, every word of them escaped by the template."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from sqlml.report.parts import Section, Tile


def rendered(title: str, about: str, made: str, sections: Sequence[Section]) -> str:
    """The page.

    Args:
        about: a line below the title. made: when and by what it was made, at the end.
    """
    import jinja2

    here = files("sqlml.report")
    texts = {
        name: here.joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html.j2", "page.css")
    }
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(texts),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    tiles: list[Tile] = [tile for section in sections for tile in section.tiles]
    values: dict[str, Any] = {
        "title": title,
        "about": about,
        "made": made,
        "sections": sections,
        "tiles": tiles,
    }
    return environment.get_template("page.html.j2").render(values)
