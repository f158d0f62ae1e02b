"""Plots of a report: charts of Altair, drawn as SVG without scripts, fonts or links.

Series differ in dashes as well as in colors. Colors are variables of the page's style sheet, so one
drawing is right in light mode, in dark mode and in print. Any two neighboring colors can be told
apart with red-green color blindness.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from xml.etree import ElementTree

from sqlml.report.parts import Note, Part, Plot, number, table
from sqlml.report.subject import Subject

# `drawn`: a chart as SVG that stands in a page: without scripts, fonts or links of its own.
#
# Its colours are variables of the page's style sheet, so that one drawing is right in light, in
# dark and in print.


_SVG = "http://www.w3.org/2000/svg"

_KEPT = frozenset(
    "viewBox transform d x y x1 y1 x2 y2 width height cx cy r fill fill-opacity stroke "
    "stroke-width stroke-opacity stroke-dasharray stroke-miterlimit stroke-linecap opacity "
    "text-anchor font-size font-weight".split()
)
"""SVG attributes that draw; the others name roles and classes of Vega."""

_ELEMENTS = frozenset("svg g path line rect circle text tspan".split())

_LARGER = 1.15
"""Factor by which plots are larger than on a phone where there is room."""

_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def drawn(chart: Any) -> str:
    """Draw a chart of Altair as SVG markup."""
    import vl_convert

    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(chart.to_dict(validate=False)))
    _strip(root)
    root.set("width", f"{float(root.attrib['width']) * _LARGER:.0f}")
    del root.attrib["height"]
    root.set("aria-hidden", "true")
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _strip(element: ElementTree.Element) -> None:
    """Remove elements that draw nothing, and reject everything that may be more than a drawing."""
    for child in list(element):
        name = str(child.tag).removeprefix(f"{{{_SVG}}}")
        if name not in _ELEMENTS or child.get("display") == "none" or _is_blank(name, child):
            element.remove(child)
            continue
        _strip(child)
        if name == "g" and not len(child):
            element.remove(child)
    for attribute in list(element.attrib):
        if attribute not in _KEPT:
            del element.attrib[attribute]
    for attribute in ("d", "transform"):
        if attribute in element.attrib:
            element.set(attribute, _NUMBER.sub(_rounded, element.attrib[attribute]))


def _is_blank(name: str, element: ElementTree.Element) -> bool:
    """Return whether a path is a background without colors."""
    unseen = name == "path" and not {"fill", "stroke"} & set(element.keys())
    return unseen and element.get("class") in ("background", "foreground")


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}"


WIDTH, HEIGHT = 310, 220
"""Pixels of the plotting area, so that a phone shows all of it in readable letters."""

COLOURS = tuple(f"var(--c{n})" for n in range(1, 7))
"""Colors of series in order; a plot has at most this many."""

_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4])

_INK, _GRID = "var(--muted)", "var(--grid)"

_BAR = 20
"""Pixels between two bars."""

_LETTER = 7
"""Pixels of a letter of a name."""

_LABEL = 140
"""Maximum pixels of a name next to a bar."""


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
    layers = chart.encode(x=alt.X("x:Q", title=x, axis=alt.Axis(tickCount=4)), y=_names(alt))
    if rule is not None:
        mark = alt.Chart(alt.Data(values=[{"x": rule}])).mark_rule(
            stroke=COLOURS[1], strokeWidth=1.5, strokeDash=[4, 3]
        )
        layers = alt.layer(layers, mark.encode(x="x:Q"))
    return _styled(layers, WIDTH - 60, _BAR * len(rows), [name for name, _ in values])


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
        series_bins = [(low, high, height) for s, low, high, height in bins if s == name]
        rows += [{"s": name, "x": low, "y": height} for low, _, height in series_bins]
        rows.append({"s": name, "x": series_bins[-1][1], "y": series_bins[-1][2]})
    several = len({s for s, *_ in bins}) > 1
    area = alt.Chart(alt.Data(values=rows)).mark_area(
        interpolate="step-after", fillOpacity=0.18 if several else 0.35, line={"strokeWidth": 2}
    )
    names = [s for s, *_ in bins]
    outline = area.encode(
        x=alt.X(
            "x:Q",
            title=x,
            scale=alt.Scale(zero=False, nice=False),
            axis=alt.Axis(tickCount=5),
        ),
        y=alt.Y("y:Q", title=y, stack=None),
        **_by_series(names),
    )
    return _styled(outline, WIDTH, HEIGHT)


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
    """Return how series are distinguished, with a legend if there are several."""
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
    encoding = {"color": alt.Color("s:N", sort=None, scale=scale, legend=legend)}
    if dashes:
        patterns = alt.Scale(domain=names, range=[_DASHES[n % 6] for n in range(len(names))])
        encoding["strokeDash"] = alt.StrokeDash("s:N", sort=None, scale=patterns, legend=legend)
    return encoding


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


_BINS = 30
_TABLE = 10
"""Rows of the table next to a histogram: a third of the bins."""


def histogram(
    subject: Subject,
    rows: str,
    title: str,
    says: str,
    x: str,
    series: Mapping[int, str] | None = None,
    unit: bool = False,
) -> Part:
    """A plot of a column `x` of a query in brackets, in equal bins.

    Bins span what lies within three times the range from the 1% to the 99% quantile; what lies
    beyond is in the first and last of them, which the page says.

    Args:
        series: place -> name, of column `s`, whose rows are shown as shares of each; the others
            are left out.
        unit: the column holds probabilities.
    """
    (edges,) = subject.of_tables(
        f"""
        SELECT min(x) AS least, max(x) AS most, quantile(x, 0.01) AS low,
            quantile(x, 0.99) AS high, count(*) AS n
        FROM {rows} AS all_rows WHERE isfinite(x)
        """
    )
    if not edges["n"]:
        return Note(f"{title}: no row has a number.")
    least, most = float(edges["least"]), float(edges["most"])
    spread = float(edges["high"]) - float(edges["low"])
    low, high = max(least, edges["low"] - spread), min(most, edges["high"] + spread)
    if unit:
        low, high = 0.0, 1.0
    if not high > low or (high - low) / _BINS == 0:
        return Note(f"{title}: the same in all rows, {number(least)}.")
    width = (high - low) / _BINS
    key = "0" if series is None else "s"
    found = subject.of_tables(
        f"""
        SELECT {key} AS s, CAST(least(greatest(floor((x - {low!r}) / {width!r}), 0), {_BINS - 1})
            AS INTEGER) AS bin, count(*) AS n
        FROM {rows} AS all_rows WHERE isfinite(x) GROUP BY 1, 2
        """
    )
    names = {0: "Rows"} if series is None else series
    counts = {name: [0] * _BINS for name in names}
    for row in found:
        if row["s"] in counts:
            counts[row["s"]][row["bin"]] += row["n"]
    return _plot(title, says, x, names, counts, (low, width), least < low or most > high)


def _plot(
    title: str,
    says: str,
    x: str,
    names: Mapping[int, str],
    counts: Mapping[int, list[int]],
    place: tuple[float, float],
    beyond: bool,
) -> Part:
    low, width = place
    several = len(names) > 1
    bins: list[tuple[str, float, float, float]] = []
    for key, name in names.items():
        total = sum(counts[key])
        for n, count in enumerate(counts[key]):
            height = count / total if several and total else float(count)
            bins.append((name, low + n * width, low + (n + 1) * width, height))
    per = _BINS // _TABLE
    cells: list[list[Any]] = []
    for n in range(0, _BINS, per):
        span = f"{number(low + n * width)} to {number(low + (n + per) * width)}"
        cells.append([span, *(sum(counts[key][n : n + per]) for key in names)])
    columns = (x, *((f"Rows: {name}" for name in names.values()) if several else ("Rows",)))
    more = " Rows beyond the axis are in its first and last bin." if beyond else ""
    if several:
        more = f" Heights are shares of the rows of each.{more}"
    return Plot(
        title,
        says + more,
        drawn(steps(bins, x, "Share of rows" if several else "Rows")),
        f"Histogram of {x.lower()}; the numbers are in the table.",
        table(title, columns, cells),
    )
