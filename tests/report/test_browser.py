"""A report in Chromium: nothing is fetched, nothing runs, all can be reached, read and printed.

The browser is the system's own; without one these tests are skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright

import sqlml
from sqlml.report.make_report import Report

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")

MOST_BYTES = 3_000_000
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # a sandbox of Chromium's needs privileges that containers do not give; the page is ours
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def report(con: sqlml.Session) -> Report:
    return con.report("churn", "SELECT * FROM customers WHERE tenure < 60", by=["region", "plan"])


@dataclass
class Opened:
    """A page in the browser, with what it complained of, and what it asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def opened(
    browser: Browser, report: Report, folder: Path, width: int = 1280, scheme: Any = "light"
) -> Iterator[Opened]:
    """The page as a file; whatever else it asks for is refused."""
    url = report.save(folder / "report.html").as_uri()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        made = Opened(context.new_page())
        made.page.on("console", lambda message: made.complaints.append(message.text))
        made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
        made.page.on("dialog", lambda dialog: made.complaints.append(dialog.message))

        def route(asked: Any) -> None:
            made.asked.append(asked.request.url)
            if asked.request.url == url:
                asked.continue_()
            else:
                asked.abort()

        context.route("**/*", route)
        made.page.goto(url, wait_until="load")
        yield made
        assert made.complaints == []
        assert made.asked == [url]
    finally:
        context.close()


def serious(page: Any) -> list[str]:
    """What axe-core finds that keeps somebody from reading the page."""
    found = Axe().run(page).response["violations"]
    return [
        f"{v['id']}: {v['nodes'][0]['html'][:200]}"
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


@pytest.mark.by_day(4)
@pytest.mark.parametrize(
    ("which", "scheme"),
    [("report", "dark"), ("hostile", "light"), ("report", "light"), ("hostile", "dark")],
)
def test_axe_finds_nothing_serious_and_nothing_is_fetched_or_run(
    browser: Browser, which: str, scheme: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made: Report = request.getfixturevalue(which)
    assert len(made.html.encode()) < MOST_BYTES
    with opened(browser, made, tmp_path, scheme=scheme) as it:
        assert serious(it.page) == []
        assert it.page.title() == made.title
        dark = it.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.by_day(4)
@pytest.mark.parametrize(
    ("which", "width"),
    [(which, width) for width in (375, 768, 1920) for which in ("report", "hostile")],
)
def test_no_width_needs_scrolling_sideways(
    browser: Browser, which: str, width: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened(browser, request.getfixturevalue(which), tmp_path, width) as it:
        assert it.page.evaluate(OVERFLOW) == 0


def test_names_of_strangers_run_nothing_on_a_phone(
    browser: Browser, hostile: Report, tmp_path: Path
) -> None:
    with opened(browser, hostile, tmp_path, 375) as it:
        assert it.page.evaluate(OVERFLOW) == 0
        assert it.page.locator("img, script").count() == 0


def test_colours_of_plots_are_those_of_the_page(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    seen = []
    for scheme in ("light", "dark"):
        with opened(browser, report, tmp_path, scheme=scheme) as it:
            line = it.page.locator("svg path[stroke='var(--c1)']").first
            seen.append(line.evaluate("e => getComputedStyle(e).stroke"))
    assert seen == ["rgb(31, 111, 178)", "rgb(99, 173, 234)"]


def test_the_keyboard_reaches_every_link_table_and_text(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    with opened(browser, report, tmp_path) as it:
        wanted = it.page.locator("a, summary, .scroll").count()
        reached = set()
        for _ in range(wanted + 5):
            it.page.keyboard.press("Tab")
            reached.add(
                it.page.evaluate(
                    "[...document.querySelectorAll('a, summary, .scroll')]"
                    ".indexOf(document.activeElement)"
                )
            )
        assert reached >= set(range(wanted))
        plan = it.page.locator("summary").last
        plan.press("Enter")
        assert it.page.locator("details").last.get_attribute("open") is not None


def test_every_plot_has_a_name_and_a_table(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    with opened(browser, report, tmp_path) as it:
        plots = it.page.get_by_role("img").count()
        assert plots == it.page.locator("figure").count() >= 8
        assert it.page.locator("figure table").count() == plots


def test_print_shows_all_rows_and_texts_on_white(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    with opened(browser, report, tmp_path, width=794, scheme="dark") as it:
        it.page.emulate_media(media="print", color_scheme="dark")
        assert it.page.evaluate(OVERFLOW) == 0
        assert it.page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)"
        )
        hidden = it.page.evaluate(
            "[...document.querySelectorAll('.scroll')]"
            ".filter(e => e.scrollHeight > e.clientHeight + 1).length"
        )
        assert hidden == 0
        assert it.page.locator("pre").last.is_visible()
        assert it.page.pdf(format="A4").startswith(b"%PDF")


def test_a_notebook_shows_the_page_in_a_frame(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    cell = Report("cell", f"<!DOCTYPE html><title>cell</title>{report._repr_html_()}")
    with opened(browser, cell, tmp_path) as it:
        inside = it.page.frame_locator("iframe")
        assert inside.locator("h1").inner_text() == "churn, version 1"
        inside.get_by_role("link", name="Cost and plan").click()
        assert it.page.frames[1].evaluate("location.href") == "about:srcdoc#cost"
        assert inside.locator("#cost").is_visible()
