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
from tests.documents import ROOT

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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_links_to_files_of_the_repository_become_links_to_pages() -> None:
    text = (
        "[a](docs/train.md#limits) [b](../README.md) [c](train.md) [d](LICENSE) [e](https://e.org)"
    )
    assert with_links_of_the_site(text) == (
        "[a](train.md#limits) [b](index.md) [c](train.md) [d](LICENSE.txt) [e](https://e.org)"
    )


def test_every_link_leads_to_a_page_and_a_place_in_it(pages: dict[Path, Page]) -> None:
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
    assert broken == []


def test_nothing_comes_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        outside = [url for url in page.loaded if urlsplit(url).netloc]
        assert outside == [], path.name
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//", text) == [], path.name


def test_no_markdown_is_left_as_it_was(pages: dict[Path, Page]) -> None:
    for path in pages:
        text = path.read_text(encoding="utf-8")
        article = text.partition("<article")[2].partition("</article>")[0]
        prose = re.sub(r"<(pre|code)\b.*?</\1>", "", article, flags=re.DOTALL)
        for mark in (r"<p>\* ", r"\n\* ", r"\|---", r"```", r"\]\([\w./#-]+\)"):
            assert not re.search(mark, prose), (path.name, mark)


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


def test_a_reader_finds_a_function_by_searching(site: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium")
    wrong: list[str] = []
    with served(site) as address, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((address, "data:", "blob:"))
                else wrong.append(asked.url)
            ),
        )
        page.goto(f"{address}/index.html")
        page.fill("input.md-search__input", "predict_proba")
        found = page.wait_for_selector(".md-search-result__link")
        assert found is not None
        found.click()
        page.wait_for_selector("article")
        assert "predict_proba" in page.inner_text("article")
        browser.close()
    assert wrong == []
