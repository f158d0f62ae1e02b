"""Altair charts as SVG without scripts, fonts or links.

Series differ in dashes as well as in colors. Colors are variables of the page's style sheet, so the
same drawing works in light mode, in dark mode and in print. People with red-green color blindness
can distinguish any two neighboring colors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from sqlml.report.parts import Note, Plot, ReportPart, format_number, make_table
from sqlml.report.subject import Subject

_SVG = "http://www.w3.org/2000/svg"

_ATTRIBUTES = frozenset(
    "viewBox transform d x y x1 y1 x2 y2 width height cx cy r fill fill-opacity stroke "
    "stroke-width stroke-opacity stroke-dasharray stroke-miterlimit stroke-linecap opacity "
    "text-anchor font-size font-weight".split()
)
"""SVG attributes that affect the drawing. Other attributes are removed, such as class names."""

_ELEMENTS = frozenset("svg g path line rect circle text tspan".split())

_MAGNIFICATION = 1.15
"""Scale factor of plots on screens that are wider than a phone."""

_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def draw_svg(chart: Any) -> str:
    import vl_convert

    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(chart.to_dict(validate=False)))
    _strip_markup(root)
    root.set("width", f"{float(root.attrib['width']) * _MAGNIFICATION:.0f}")
    del root.attrib["height"]
    root.set("aria-hidden", "true")
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _strip_markup(element: ElementTree.Element) -> None:
    """Remove elements and attributes that do not affect the drawing, and round long decimals."""
    for child in list(element):
        name = str(child.tag).removeprefix(f"{{{_SVG}}}")
        if name not in _ELEMENTS or child.get("display") == "none" or _is_blank(name, child):
            element.remove(child)
            continue
        _strip_markup(child)
        if name == "g" and not len(child):
            element.remove(child)
    for attribute in element.attrib.keys() - _ATTRIBUTES:
        del element.attrib[attribute]
    for attribute in element.attrib.keys() & {"d", "transform"}:
        text = element.attrib[attribute]
        element.set(attribute, _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}", text))


def _is_blank(name: str, element: ElementTree.Element) -> bool:
    is_colorless = name == "path" and not {"fill", "stroke"} & element.attrib.keys()
    return is_colorless and element.get("class") in ("background", "foreground")


WIDTH, HEIGHT = 310, 220
"""Size of the plotting area in pixels. On a phone, letters in larger plots would be too small."""

COLORS = tuple(f"var(--c{n})" for n in range(1, 7))
"""Colors of the first, second, ... series, as variables of the page's style sheet."""

_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4])

_INK, _GRID = "var(--muted)", "var(--grid)"

_BAR_PITCH = 20
_LETTER_WIDTH = 7
_MAX_NAME_WIDTH = 140


def draw_lines(
    points: Sequence[tuple[str, float, float]],
    xlabel: str,
    ylabel: str,
    diagonal: bool = False,
    dots: bool = False,
) -> str:
    """Draw a line per series through `points` (series, x, y). Both axes range from 0 to 1."""
    alt = _import_altair()
    rows = [{"s": name, "x": x0, "y": y0, "i": i} for i, (name, x0, y0) in enumerate(points)]
    unit_scale = alt.Scale(domain=[0, 1], nice=False)
    axis = alt.Axis(format=".1f", tickCount=5)
    curves = _make_chart(rows).encode(
        x=alt.X("x:Q", title=xlabel, scale=unit_scale, axis=axis),
        y=alt.Y("y:Q", title=ylabel, scale=unit_scale, axis=axis),
        **_encode_series([name for name, _, _ in points], dashes=True),
    )
    layers = [curves.mark_line(strokeWidth=2).encode(order="i:Q")]
    if diagonal:
        layers.insert(0, _draw_diagonal(0, 1).encode(x="x:Q", y="y:Q"))
    if dots:
        names = list(dict.fromkeys(name for name, _, _ in points))
        colors = alt.Color("s:N", scale=alt.Scale(domain=names, range=_cycle_values(COLORS, names)))
        circles = _make_chart(rows).mark_circle(size=36, opacity=1)
        layers.append(circles.encode(x="x:Q", y="y:Q", color=colors.legend(None)))
    return _draw(alt.layer(*layers), WIDTH, HEIGHT + 40)


def draw_bars(values: Sequence[tuple[str, float]], xlabel: str, rule: float | None = None) -> str:
    """Draw a horizontal bar for each (name, value), and a vertical line at `rule`."""
    alt = _import_altair()
    rows = [{"name": name, "x": value} for name, value in values]
    bars = _make_chart(rows).mark_bar(fill=COLORS[0], height=_BAR_PITCH - 7)
    chart = bars.encode(
        x=alt.X("x:Q", title=xlabel, axis=alt.Axis(tickCount=4)), y=_make_name_axis()
    )
    if rule is not None:
        style = {"stroke": COLORS[1], "strokeWidth": 1.5, "strokeDash": [4, 3]}
        rule_chart = _make_chart([{"x": rule}]).mark_rule(**style)
        chart = alt.layer(chart, rule_chart.encode(x="x:Q"))
    return _draw(chart, WIDTH - 60, _BAR_PITCH * len(rows), [name for name, _ in values])


def draw_intervals(
    values: Sequence[tuple[str, float, float, float]], xlabel: str, zero: bool = False
) -> str:
    """Draw a line from low to high, and a point at the middle, for each (name, low, middle, high).

    If `zero`, add a vertical line at 0.
    """
    alt = _import_altair()
    rows = [{"name": name, "low": low, "x": mid, "high": high} for name, low, mid, high in values]
    encode_x = partial(alt.X, title=xlabel, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
    base = _make_chart(rows).encode(y=_make_name_axis())
    lines = base.mark_rule(stroke=COLORS[0], strokeWidth=3, strokeOpacity=0.45)
    circles = base.mark_circle(fill=COLORS[0], size=52, opacity=1)
    layers = [lines.encode(x=encode_x("low:Q"), x2="high:Q"), circles.encode(x=encode_x("x:Q"))]
    if zero:
        origin = _make_chart([{"x": 0}]).mark_rule(stroke=_INK, strokeWidth=1)
        layers.insert(0, origin.encode(x=encode_x("x:Q")))
    names = [name for name, *_ in values]
    return _draw(alt.layer(*layers), WIDTH - 60, _BAR_PITCH * len(rows), names)


def _draw_histogram(
    bins: Mapping[str, Sequence[tuple[float, float, float]]], xlabel: str, ylabel: str
) -> str:
    """Draw a histogram per series; `bins` maps the names of series to (low, high, height)."""
    alt = _import_altair()
    rows = []
    for name, series_bins in bins.items():
        corners = [*((low, height) for low, _, height in series_bins), series_bins[-1][1:]]
        rows += [{"s": name, "x": edge, "y": height} for edge, height in corners]
    style = {"interpolate": "step-after", "line": {"strokeWidth": 2}}
    outline = _make_chart(rows).mark_area(fillOpacity=0.18 if len(bins) > 1 else 0.35, **style)
    scale = alt.Scale(zero=False, nice=False)
    chart = outline.encode(
        x=alt.X("x:Q", title=xlabel, scale=scale, axis=alt.Axis(tickCount=5)),
        y=alt.Y("y:Q", title=ylabel, stack=None),
        **_encode_series([*bins]),
    )
    return _draw(chart, WIDTH, HEIGHT)


def draw_heatmap(cells: Sequence[tuple[str, str, float, str]], xlabel: str, ylabel: str) -> str:
    """Draw cells (row, column, share, text). The shade depends on the share, from 0 to 1."""
    alt = _import_altair()
    keys = ("y", "x", "share", "text")
    rows: list[dict[str, Any]] = [dict(zip(keys, cell, strict=True)) for cell in cells]
    num_rows = len({row["y"] for row in rows})
    cell_size = max(24, min(80, WIDTH // max(num_rows, 1)))
    axis_style = {"labelLimit": 90, "ticks": False, "domain": False, "grid": False}
    angle = 0 if max(len(column) for _, column, _, _ in cells) * _LETTER_WIDTH < cell_size else -90
    base = _make_chart(rows).encode(
        x=alt.X("x:N", sort=None, title=xlabel, axis=alt.Axis(labelAngle=angle, **axis_style)),
        y=alt.Y("y:N", sort=None, title=ylabel, axis=alt.Axis(**axis_style)),
    )
    shade = alt.Scale(domain=[0, 1], range=[0.03, 0.5])
    squares = base.mark_rect(fill=COLORS[0], stroke="var(--paper)", strokeWidth=2).encode(
        fillOpacity=alt.FillOpacity("share:Q", scale=shade, legend=None)
    )
    texts = base.mark_text(fill="var(--ink)", fontSize=13 if num_rows <= 4 else 9)
    chart = alt.layer(squares, texts.encode(text="text:N"))
    return _draw(chart, cell_size * len({row["x"] for row in rows}), cell_size * num_rows)


def draw_band(points: Sequence[tuple[float, float, float, float]], xlabel: str, ylabel: str) -> str:
    """Draw a line through the middle values, a band from low to high, and a dashed diagonal.

    `points` are (x, low, middle, high), sorted by x.
    """
    alt = _import_altair()
    rows = [{"x": x0, "low": low, "y": middle, "high": high} for x0, low, middle, high in points]
    base, scale = _make_chart(rows), alt.Scale(zero=False, nice=True)
    x_axis = alt.X("x:Q", title=xlabel, scale=scale, axis=alt.Axis(tickCount=5))
    y_axis = alt.Y("y:Q", title=ylabel, scale=scale)
    band = base.mark_area(fill=COLORS[0], fillOpacity=0.18).encode(
        x=x_axis, y=alt.Y("low:Q", title=ylabel, scale=scale), y2="high:Q"
    )
    line = base.mark_line(stroke=COLORS[0], strokeWidth=2, point={"fill": COLORS[0], "size": 30})
    diagonal = _draw_diagonal(points[0][0], points[-1][0])
    layers = (band, diagonal.encode(x=x_axis, y=y_axis), line.encode(x=x_axis, y=y_axis))
    return _draw(alt.layer(*layers), WIDTH, HEIGHT + 40)


def _import_altair() -> Any:
    import altair

    return altair


def _make_chart(rows: list[dict[str, Any]]) -> Any:
    alt = _import_altair()
    return alt.Chart(alt.Data(values=rows))


def _draw_diagonal(low: float, high: float) -> Any:
    corners = _make_chart([{"x": low, "y": low}, {"x": high, "y": high}])
    return corners.mark_line(stroke=_INK, strokeWidth=1, strokeDash=[3, 3])


def _make_name_axis() -> Any:
    alt = _import_altair()
    axis = alt.Axis(labelLimit=_MAX_NAME_WIDTH, ticks=False, domain=False, grid=False)
    return alt.Y("name:N", sort=None, title=None, axis=axis)


def _cycle_values(values: Sequence[Any], names: Sequence[str]) -> list[Any]:
    return [values[n % len(values)] for n in range(len(names))]


def _encode_series(series: Sequence[str], dashes: bool = False) -> dict[str, Any]:
    alt = _import_altair()
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
    scale = alt.Scale(domain=names, range=_cycle_values(COLORS, names))
    encoding = {"color": alt.Color("s:N", sort=None, scale=scale, legend=legend)}
    if dashes:
        patterns = alt.Scale(domain=names, range=_cycle_values(_DASHES, names))
        encoding["strokeDash"] = alt.StrokeDash("s:N", sort=None, scale=patterns, legend=legend)
    return encoding


def _draw(chart: Any, width: int, height: int, names: Sequence[str] = ()) -> str:
    """Draw a chart as SVG in the style of the page. `names` are the labels of the y axis."""
    # The reader's font may be wider than the font in which vl_convert measures the labels.
    label_width = min(max(map(len, names), default=0) * _LETTER_WIDTH, _MAX_NAME_WIDTH)
    padding = {"left": 4 + label_width // 8, "top": 4, "right": 8, "bottom": 4}
    return draw_svg(
        chart.properties(width=width, height=height, background="transparent", padding=padding)
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
_BINS_PER_ROW = 3


def plot_histogram(
    subject: Subject,
    rows: str,
    title: str,
    explanation: str,
    xlabel: str,
    series: Mapping[int, str] | None = None,
    are_probabilities: bool = False,
) -> ReportPart:
    """Plot a histogram of the column `x` of `rows`, a parenthesized query, in bins of equal width.

    The bins extend beyond the 1% and 99% quantiles by the distance between these quantiles, but not
    beyond the extreme values. The first and the last bin include all values farther out. `series`
    maps the values of the column `s` to names. Heights are then shares of each series.
    """
    (extent,) = subject.query_tables(
        f"""
        SELECT min(x) AS min_x, max(x) AS max_x, quantile(x, 0.01) AS low,
            quantile(x, 0.99) AS high, count(*) AS n
        FROM {rows} AS all_rows WHERE isfinite(x)
        """
    )
    if not extent["n"]:
        return Note(f"{title}: no row has a number.")
    min_x, max_x = float(extent["min_x"]), float(extent["max_x"])
    spread = float(extent["high"]) - float(extent["low"])
    low, high = max(min_x, extent["low"] - spread), min(max_x, extent["high"] + spread)
    if are_probabilities:
        low, high = 0.0, 1.0
    width = (high - low) / _BINS
    if not high > low or width == 0:
        return Note(f"{title}: the same in all rows, {format_number(min_x)}.")
    counts = _count_bins(subject, rows, series, low, width)
    if series is not None:
        explanation += " Heights are shares of the rows of each series."
    if min_x < low or max_x > high:
        explanation += " The first and the last bin include the rows beyond the axis."
    edges = [low + n * width for n in range(_BINS + 1)]
    bins = {}
    for name, bin_counts in counts.items():
        denominator = 1 if series is None else max(sum(bin_counts), 1)
        heights = [n / denominator for n in bin_counts]
        bins[name] = [(*ends, h) for ends, h in zip(pairwise(edges), heights, strict=True)]
    cells = [
        [
            f"{format_number(edges[n])} to {format_number(edges[n + _BINS_PER_ROW])}",
            *(sum(bin_counts[n : n + _BINS_PER_ROW]) for bin_counts in counts.values()),
        ]
        for n in range(0, _BINS, _BINS_PER_ROW)
    ]
    columns = ["Rows"] if series is None else [f"Rows: {name}" for name in counts]
    return Plot(
        title,
        explanation,
        _draw_histogram(bins, xlabel, "Rows" if series is None else "Share of rows"),
        f"Histogram of {xlabel.lower()}",
        make_table(title, (xlabel, *columns), cells),
    )


def _count_bins(
    subject: Subject, rows: str, series: Mapping[int, str] | None, low: float, width: float
) -> dict[str, list[int]]:
    names = {0: "Rows"} if series is None else series
    counts = {name: [0] * _BINS for name in names.values()}
    for row in subject.query_tables(
        f"""
        SELECT {"0" if series is None else "s"} AS s, count(*) AS n, CAST(
            least(greatest(floor((x - {low!r}) / {width!r}), 0), {_BINS - 1}) AS INTEGER) AS bin
        FROM {rows} AS all_rows WHERE isfinite(x) GROUP BY 1, 3
        """
    ):
        if row["s"] in names:
            counts[names[row["s"]]][row["bin"]] += row["n"]
    return counts
