"""Tables and numbers of the report, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], lines: Iterable[str]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines])


def missing(family: str) -> str:
    return f"Not measured yet: `make bench` writes `benchmarks/results/{family}.json`."


def ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ns(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def small(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def share(value: float) -> str:
    return f"{value:.2%}" if value >= 0.0001 or not value else f"{value:.1e}"
