"""The results as drawings in docs/plots: `make bench-report`.

The same results give the same bytes: no date, fixed identifiers.

    python -m benchmarks.plots [FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.bars import Results, by_case
from benchmarks.report import load

PLOTS = Path(__file__).parent.parent / "docs" / "plots"

COLOURS: Mapping[str, str] = {
    "sqlml": "#c8102e",
    "library": "#1f4e79",
    "onnxruntime": "#7f7f7f",
    "hummingbird": "#e0a030",
    "onedal": "#2e8b57",
    "sklearnex": "#8fbc8f",
    "treelite": "#6a4c93",
    "tl2cgen": "#b39bc8",
    "ydf": "#5bb0ba",
    "sqlml torch": "#e57373",
    "sqlml onnxruntime": "#f4b6b6",
    "frame": "#1f4e79",
    "kernel": "#e57373",
    "scan": "#7f7f7f",
    "expression": "#2e8b57",
}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "sqlml",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
}
PLAIN = FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def draw(results: Results, folder: Path = PLOTS) -> list[Path]:
    """Write a drawing of every family that has results; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, figure in figures(results):
            path = folder / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
            # matplotlib ends some lines with a blank
            lines = path.read_text().splitlines()
            path.write_text("\n".join(line.rstrip() for line in lines) + "\n")
            written.append(path)
    return written


def figures(results: Results) -> Iterator[tuple[str, Figure]]:
    """File name and figure of each."""
    for family, key in (("trees", "table"), ("operators", "operator")):
        found = results.get(family)
        if found:
            yield from _ratios(family, key, found["rows"])
    if found := results.get("scaling"):
        for axis in dict.fromkeys(row["case"]["axis"] for row in found["rows"]):
            rows = [row for row in found["rows"] if row["case"]["axis"] == axis and "ns" in row]
            yield f"scaling-{axis}", _curves(axis, rows)
    if found := results.get("pipelines"):
        rows = found["rows"]
        ratios = [row.get("ratio", 0.0) for row in rows if row["contender"] == "library"]
        yield "pipelines", _speedups(sorted(ratios))
    if found := results.get("end_to_end"):
        yield "end_to_end", _ways([row for row in found["rows"] if "ns" in row])


def _ratios(
    family: str, key: str, rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Figure]]:
    """A figure for each way to score: for each model a panel of ratio bars."""
    ways: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        case = row["case"]
        ways.setdefault((case["mode"], *_some(case, "dtype")), []).append(row)
    for way, part in ways.items():
        models = list(dict.fromkeys(row["case"].get("model", "") for row in part))
        names = list(dict.fromkeys(r["contender"] for r in part if "ratio" in r))
        names = [name for name in names if name != "sqlml"]
        if not names:
            continue
        figure = Figure(figsize=(9, 2.1 * len(models) + 0.8), layout="constrained")
        panels = figure.subplots(len(models), squeeze=False)[:, 0]
        for panel, model in zip(panels, models, strict=True):
            mine = [row for row in part if row["case"].get("model", "") == model]
            _bars(panel, mine, key, names)
            panel.set_title(model, loc="left", fontweight="bold")
        most = max(panel.get_xticks().size for panel in panels)
        for panel in panels:
            panel.set_xlim(-0.5, most - 0.5)
            low, high = panel.get_ylim()
            panel.set_ylim(min(low, 0.5), max(high, 20.0))
        panels[0].legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1.12), frameon=False)
        figure.supylabel("times as long as sqlml")
        yield f"{family}-{'-'.join(way).replace(' ', '-')}", figure


def _bars(panel: Axes, rows: Sequence[Mapping[str, Any]], key: str, names: Sequence[str]) -> None:
    """Ratio bars on a log axis from 1: those below it are faster than sqlml."""
    cases = by_case(rows)
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        at, ratios = [], []
        for i, contenders in enumerate(cases.values()):
            ratio = contenders.get(name, {}).get("ratio")
            if ratio is not None:
                at.append(i + (place - (len(names) - 1) / 2) * width)
                ratios.append(ratio - 1.0)
        panel.bar(at, ratios, width, bottom=1.0, label=name, color=COLOURS.get(name, "#444444"))
    _logarithmic(panel)
    panel.axhline(1.0, color=COLOURS["sqlml"], linewidth=1.2)
    labels = [str(next(iter(c.values()))["case"][key]) for c in cases.values()]
    slanted = any(len(label) > 9 for label in labels)
    panel.set_xticks(
        range(len(labels)),
        labels,
        rotation=30 if slanted else 0,
        ha="right" if slanted else "center",
    )


def _curves(axis: str, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Nanoseconds a row against one axis, both logarithmic, a panel for each model."""
    models = list(dict.fromkeys(row["case"]["model"] for row in rows))
    figure = Figure(figsize=(3.2 * len(models) + 0.6, 3.2), layout="constrained")
    panels = figure.subplots(1, len(models), squeeze=False, sharey=True)[0]
    for panel, model in zip(panels, models, strict=True):
        for name in dict.fromkeys(row["contender"] for row in rows):
            points = [
                (row["case"]["at"], row["ns"])
                for row in rows
                if row["contender"] == name and row["case"]["model"] == model
            ]
            if points:
                x, y = zip(*sorted(points), strict=True)
                colour, wide = COLOURS.get(name, "#444444"), 2.0 if name == "sqlml" else 1.2
                panel.plot(x, y, marker="o", markersize=3, label=name, color=colour, linewidth=wide)
        panel.set_xscale("linear" if axis == "threads" else "log")
        _logarithmic(panel)
        if axis == "threads":
            panel.set_xticks(sorted({row["case"]["at"] for row in rows}))
        panel.xaxis.set_major_formatter(PLAIN)
        panel.set_title(model, loc="left", fontweight="bold")
        panel.set_xlabel("rows of a batch" if axis == "rows" else axis)
    panels[0].set_ylabel("ns a row")
    panels[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def _speedups(ratios: Sequence[float]) -> Figure:
    """Every pipeline's speedup over scikit-learn, in order, as figure 12 of the paper."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    panel = figure.subplots()
    shown = [max(ratio, 0.01) for ratio in ratios]
    colours = [COLOURS["sqlml"] if ratio > 1 else COLOURS["library"] for ratio in ratios]
    panel.bar(range(len(shown)), [r - 1 for r in shown], 1.0, bottom=1.0, color=colours)
    _logarithmic(panel)
    panel.set_xlabel("pipelines, by speedup")
    panel.set_ylabel("times faster than scikit-learn")
    return figure


def _ways(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Nanoseconds a row of each way to score a table; what the query consists of is stacked."""
    cases = by_case(rows)
    ways = [w for w in ("sqlml", "frame", "expression") if any(w in c for c in cases.values())]
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    panel = figure.subplots()
    width = 0.8 / (len(ways) + 1)
    for i, contenders in enumerate(cases.values()):
        bottom = 0.0
        for part in ("scan", "kernel"):
            panel.bar(
                i - 0.4 + width / 2,
                contenders[part]["ns"],
                width,
                bottom=bottom,
                label=part,
                color=COLOURS[part],
            )
            bottom += contenders[part]["ns"]
        for place, way in enumerate(ways, 1):
            if way in contenders:
                x = i - 0.4 + (place + 0.5) * width
                panel.bar(x, contenders[way]["ns"], width, label=way, color=COLOURS[way])
    panel.yaxis.set_major_formatter(PLAIN)
    panel.set_xticks(range(len(cases)), list(cases))
    panel.set_ylabel("ns a row")
    handles, labels = panel.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    panel.legend(
        once.values(),
        once.keys(),
        ncols=5,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        frameon=False,
    )
    return figure


def _logarithmic(panel: Axes) -> None:
    """A log axis with plain numbers at the powers of ten."""
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(PLAIN)
    panel.yaxis.set_minor_formatter(NullFormatter())


def _some(case: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return (str(case[key]),) if key in case else ()


def main() -> None:
    """Draw what the result files say."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PLOTS
    for path in draw(load(), folder):
        print(path)


if __name__ == "__main__":
    main()
