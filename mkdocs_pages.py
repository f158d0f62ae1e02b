"""Pages of the site that are no files of docs/: README.md and its like, each kept in one place.

mkdocs calls the functions (`hooks` in mkdocs.yml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent

PAGES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "LICENSE.txt": "LICENSE",
}
"""Place in the site -> file at the top of the repository."""


def on_files(files: Files, config: Any) -> Files:
    """The files of docs/, and those above."""
    for place, name in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=with_links_of_the_site(text)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A page of docs/; one that is alone in its tab has no list of pages beside it."""
    if page.parent is None:
        page.meta["hide"] = ["navigation"]
    return with_links_of_the_site(markdown)


def with_links_of_the_site(text: str) -> str:
    """A text whose links lead to pages of the site, where they led to files of the repository."""
    places = {name: place for place, name in PAGES.items()}

    def moved(link: re.Match[str]) -> str:
        path = link[1].removeprefix("../").removeprefix("docs/")
        return f"]({places.get(path, path)}{link[2]})"

    return re.sub(r"\]\(([\w./-]+)((?:#[\w-]*)?)\)", moved, text)
