"""The plots of a report, as charts of Altair's; `draw.py` makes SVG of them.

Series differ in dashes as well as in colours. The colours are the page's own variables, of which
any two neighbours can be told apart by who sees no red or no green.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

WIDTH, HEIGHT = 310, 220
"""Pixels of the area within the axes, so that a phone shows all of it in readable letters."""

COLOURS = tuple(f"var(--c{n})" for n in range(1, 7))
"""Of series, in their order: as many as a plot has at most."""

_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4])

_INK, _GRID = "var(--muted)", "var(--grid)"

_BAR = 20
"""Pixels from one bar to the next."""

_LETTER = 7
"""Pixels of a letter of a name."""

_LABEL = 140
"""Pixels of a name beside a bar."""


def lines(
    points: Sequence[tuple[str, float, float]],
    x: str,
    y: str,
    diagonal: bool = False,
    dots: bool = False,
) -> Any:
    """Lines from point to point in a square from 0 to 1.

    Args:
        points: series, x and y, in the order of the line.
        diagonal: also the line on which both are the same.
        dots: mark the points.
    """
    alt = _altair()
    rows = [{"s": s, "x": a, "y": b, "i": i} for i, (s, a, b) in enumerate(points)]
    unit = alt.Scale(domain=[0, 1], nice=False)
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("x:Q", title=x, scale=unit, axis=alt.Axis(format=".1f", tickCount=5)),
        y=alt.Y("y:Q", title=y, scale=unit, axis=alt.Axis(format=".1f", tickCount=5)),
        **_by_series([s for s, _, _ in points], dashes=True),
    )
    layers = [base.mark_line(strokeWidth=2).encode(order="i:Q")]
    if diagonal:
        corners = alt.Data(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}])
        line = alt.Chart(corners).mark_line(stroke=_INK, strokeWidth=1, strokeDash=[3, 3])
        layers.insert(0, line.encode(x="x:Q", y="y:Q"))
    if dots:
        names = list(dict.fromkeys(s for s, _, _ in points))
        colours = alt.Color("s:N", scale=alt.Scale(domain=names, range=_colours(names)))
        marks = alt.Chart(alt.Data(values=rows)).mark_circle(size=36, opacity=1)
        layers.append(marks.encode(x="x:Q", y="y:Q", color=colours.legend(None)))
    return _styled(alt.layer(*layers), WIDTH, HEIGHT + 40)


def bars(values: Sequence[tuple[str, float]], x: str, rule: float | None = None) -> Any:
    """A bar for each name, from the top in the order given.

    Args:
        rule: a value that a line marks.
    """
    alt = _altair()
    rows = [{"name": name, "x": value} for name, value in values]
    chart = alt.Chart(alt.Data(values=rows)).mark_bar(fill=COLOURS[0], height=_BAR - 7)
    made = chart.encode(x=alt.X("x:Q", title=x, axis=alt.Axis(tickCount=4)), y=_names(alt))
    if rule is not None:
        mark = alt.Chart(alt.Data(values=[{"x": rule}])).mark_rule(
            stroke=COLOURS[1], strokeWidth=1.5, strokeDash=[4, 3]
        )
        made = alt.layer(made, mark.encode(x="x:Q"))
    return _styled(made, WIDTH - 60, _BAR * len(rows), [name for name, _ in values])


def intervals(values: Sequence[tuple[str, float, float, float]], x: str, zero: bool = False) -> Any:
    """A point for each name, with a line from the low to the high value.

    Args:
        values: name, low, middle and high. zero: mark where nothing is.
    """
    alt = _altair()
    rows = [{"name": n, "low": a, "x": b, "high": c} for n, a, b, c in values]
    scale, axis = alt.Scale(zero=False), alt.Axis(tickCount=4)
    across = partial(alt.X, title=x, scale=scale, axis=axis)
    base = alt.Chart(alt.Data(values=rows)).encode(y=_names(alt))
    rule = base.mark_rule(stroke=COLOURS[0], strokeWidth=3, strokeOpacity=0.45)
    point = base.mark_circle(fill=COLOURS[0], size=52, opacity=1)
    layers = [
        rule.encode(x=across("low:Q"), x2="high:Q"),
        point.encode(x=across("x:Q")),
    ]
    if zero:
        nothing = alt.Chart(alt.Data(values=[{"x": 0}])).mark_rule(stroke=_INK, strokeWidth=1)
        layers.insert(0, nothing.encode(x=across("x:Q")))
    names = [name for name, *_ in values]
    return _styled(alt.layer(*layers), WIDTH - 60, _BAR * len(rows), names)


def steps(bins: Sequence[tuple[str, float, float, float]], x: str, y: str) -> Any:
    """A histogram: for each series an outline over its bins.

    Args:
        bins: series, low and high edge, and height.
    """
    alt = _altair()
    rows = []
    for name in dict.fromkeys(s for s, *_ in bins):
        own = [(low, high, height) for s, low, high, height in bins if s == name]
        rows += [{"s": name, "x": low, "y": height} for low, _, height in own]
        rows.append({"s": name, "x": own[-1][1], "y": own[-1][2]})
    several = len({s for s, *_ in bins}) > 1
    area = alt.Chart(alt.Data(values=rows)).mark_area(
        interpolate="step-after", fillOpacity=0.18 if several else 0.35, line={"strokeWidth": 2}
    )
    names = [s for s, *_ in bins]
    made = area.encode(
        x=alt.X(
            "x:Q",
            title=x,
            scale=alt.Scale(zero=False, nice=False),
            axis=alt.Axis(tickCount=5),
        ),
        y=alt.Y("y:Q", title=y, stack=None),
        **_by_series(names),
    )
    return _styled(made, WIDTH, HEIGHT)


def heat(cells: Sequence[tuple[str, str, float, str]], x: str, y: str) -> Any:
    """Cells whose shade is a share from 0 to 1, with a text in each.

    Args:
        cells: row, column, share and text.
    """
    alt = _altair()
    rows = [{"y": r, "x": c, "share": share, "text": text} for r, c, share, text in cells]
    size = len({r["y"] for r in rows})
    side = max(24, min(80, WIDTH // max(size, 1)))
    plain = {"labelLimit": 90, "ticks": False, "domain": False, "grid": False}
    flat = max(len(c) for _, c, _, _ in cells) * _LETTER < side
    across = alt.Axis(labelAngle=0 if flat else -90, **plain)
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("x:N", sort=None, title=x, axis=across),
        y=alt.Y("y:N", sort=None, title=y, axis=alt.Axis(**plain)),
    )
    shade = alt.Scale(domain=[0, 1], range=[0.03, 0.5])
    rect = base.mark_rect(fill=COLOURS[0], stroke="var(--paper)", strokeWidth=2).encode(
        fillOpacity=alt.FillOpacity("share:Q", scale=shade, legend=None)
    )
    text = base.mark_text(fill="var(--ink)", fontSize=13 if size <= 4 else 9).encode(text="text:N")
    return _styled(alt.layer(rect, text), side * len({r["x"] for r in rows}), side * size)


def band(points: Sequence[tuple[float, float, float, float]], x: str, y: str) -> Any:
    """A line in a band, beside the line on which both axes are the same.

    Args:
        points: x, which rises, low, middle and high.
    """
    alt = _altair()
    rows = [{"x": a, "low": b, "y": c, "high": d} for a, b, c, d in points]
    least, most = points[0][0], points[-1][0]
    scale = alt.Scale(zero=False, nice=True)
    base = alt.Chart(alt.Data(values=rows))
    across = alt.X("x:Q", title=x, scale=scale, axis=alt.Axis(tickCount=5))
    area = base.mark_area(fill=COLOURS[0], fillOpacity=0.18).encode(
        x=across, y=alt.Y("low:Q", title=y, scale=scale), y2="high:Q"
    )
    line = base.mark_line(stroke=COLOURS[0], strokeWidth=2, point={"fill": COLOURS[0], "size": 30})
    corners = alt.Data(values=[{"x": least, "y": least}, {"x": most, "y": most}])
    same = alt.Chart(corners).mark_line(stroke=_INK, strokeWidth=1, strokeDash=[3, 3])
    up = alt.Y("y:Q", title=y, scale=scale)
    return _styled(
        alt.layer(area, same.encode(x=across, y=up), line.encode(x=across, y=up)),
        WIDTH,
        HEIGHT + 40,
    )


def _altair() -> Any:
    import altair

    return altair


def _names(alt: Any) -> Any:
    axis = alt.Axis(labelLimit=_LABEL, ticks=False, domain=False, grid=False)
    return alt.Y("name:N", sort=None, title=None, axis=axis)


def _colours(names: Sequence[str]) -> list[str]:
    return [COLOURS[n % len(COLOURS)] for n in range(len(names))]


def _by_series(series: Sequence[str], dashes: bool = False) -> dict[str, Any]:
    """How series are told apart; a legend only where there are several."""
    alt = _altair()
    names = list(dict.fromkeys(series))
    legend = None
    if len(names) > 1:
        legend = alt.Legend(
            title=None,
            orient="top",
            columns=2 if max(map(len, names)) > 12 else 3,
            labelLimit=140,
            columnPadding=14,
            rowPadding=4,
            symbolStrokeWidth=2.5,
        )
    scale = alt.Scale(domain=names, range=_colours(names))
    made = {"color": alt.Color("s:N", sort=None, scale=scale, legend=legend)}
    if dashes:
        patterns = alt.Scale(domain=names, range=[_DASHES[n % 6] for n in range(len(names))])
        made["strokeDash"] = alt.StrokeDash("s:N", sort=None, scale=patterns, legend=legend)
    return made


def _styled(chart: Any, width: int, height: int, names: Sequence[str] = ()) -> Any:
    """The chart in the colours and the size of the page.

    Args:
        names: beside it, which the page's font may make wider than the one that was measured.
    """
    longest = min(max(map(len, names), default=0) * _LETTER, _LABEL)
    room = {"left": 4 + longest // 8, "top": 4, "right": 8, "bottom": 4}
    return (
        chart.properties(width=width, height=height, background="transparent", padding=room)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_INK,
            titleColor=_INK,
            gridColor=_GRID,
            domainColor=_GRID,
            tickColor=_GRID,
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
            titlePadding=8,
            labelPadding=4,
            domain=False,
        )
        .configure_legend(labelColor="var(--ink)", labelFontSize=11, padding=0, offset=10)
    )
