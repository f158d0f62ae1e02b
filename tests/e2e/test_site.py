"""The site builds without a warning, its links lead somewhere, and it asks no other host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from mkdocs_pages import with_links_of_the_site
from tests.support.documents import ROOT

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
"""Tags by which a page loads something, and the attribute that says what."""


class Page(HTMLParser):
    """What a page links to, loads and can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if given.get(LOADED.get(tag, "")):
            self.loaded.append(given[LOADED[tag]])


def test_links_to_files_of_the_repository_become_links_to_pages() -> None:
    text = (
        "[a](docs/train.md#limits) [b](../README.md) [c](train.md) [d](LICENSE) [e](https://e.org)"
    )
    assert with_links_of_the_site(text) == (
        "[a](train.md#limits) [b](index.md) [c](train.md) [d](LICENSE.txt) [e](https://e.org)"
    )


def test_the_site(tmp_path: Path, subtests: pytest.Subtests) -> None:
    build(tmp_path)
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in tmp_path.rglob("*.html")}
    with subtests.test("every link leads to a page, and to a place in it"):
        assert broken_links(pages) == []
    with subtests.test("nothing comes from another host"):
        assert loaded_from_elsewhere(tmp_path, pages) == []
    with subtests.test("no Markdown is left as it was"):
        assert left_markdown(pages) == []
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium, so the search was not tried: apt-get install chromium")
    with subtests.test("a reader finds a function by searching"):
        assert wrong_while_searching(tmp_path, chromium) == []


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def broken_links(pages: dict[Path, Page]) -> list[tuple[str, str]]:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and anchor not in pages[target].ids):
                broken.append((path.name, link))
    return broken


def loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> list[tuple[str, str]]:
    found = [
        (path.name, url)
        for path, page in pages.items()
        for url in page.loaded
        if urlsplit(url).netloc
    ]
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        urls = re.findall(r"(?:url\(|@import )['\"]?((?:https?:)?//[^'\")]+)", text)
        found += [(path.name, url) for url in urls]
    return found


def left_markdown(pages: dict[Path, Page]) -> list[tuple[str, str]]:
    found = []
    for path in pages:
        text = path.read_text(encoding="utf-8")
        article = text.partition("<article")[2].partition("</article>")[0]
        prose = re.sub(r"<(pre|code)\b.*?</\1>", "", article, flags=re.DOTALL)
        marks = (r"<p>\* ", r"\n\* ", r"\|---", r"```", r"\]\([\w./#-]+\)")
        found += [(path.name, mark) for mark in marks if re.search(mark, prose)]
    return found


@contextmanager
def served(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def wrong_while_searching(site: Path, chromium: str) -> list[str]:
    """Errors of the page, and requests to other hosts, while a reader looks for `predict_proba`."""
    sync_api = pytest.importorskip("playwright.sync_api")
    wrong: list[str] = []
    with served(site) as address, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        own = (address, "data:", "blob:")
        page.on(
            "request", lambda asked: None if asked.url.startswith(own) else wrong.append(asked.url)
        )
        page.goto(f"{address}/index.html")
        # Key by key: the search hears keys, and what `fill` writes only if it is quick enough.
        page.locator("input.md-search__input").press_sequentially("predict_proba")
        # The list is drawn anew with every key, so the link is looked up until it holds still.
        page.locator(".md-search-result__link").first.click()
        # The article of the page before may stand there still.
        page.wait_for_selector("article:has-text('predict_proba')")
        browser.close()
    return wrong
