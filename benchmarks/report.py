"""The tables of docs/performance.md and README.md, from the result files: `make bench-report`.

A table stands between `<!-- name -->` and `<!-- /name -->`; what is between them is written anew,
everything else is kept. `TABLES` has the names.

    python -m benchmarks.report
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import markdown
from benchmarks.bars import BARS, Results, by_case, by_cell, geometric_mean
from benchmarks.databases_report import databases, largest_models
from benchmarks.exported_report import exported, extension_files
from benchmarks.outside.report import converted, forests, prediction_queries
from benchmarks.planner_report import planner
from benchmarks.results import RESULTS, read

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")
FAMILIES = (
    *("trees", "operators", "scaling", "pipelines", "end_to_end", "exported", "choice"),
    *("starting", "planner", "texts", "cascades", "train", "explain", "databases", "gpu"),
    *("outside.imbridge", "outside.retree", "outside.real", "outside.forests", "outside.converted"),
)
Rows = Sequence[Mapping[str, Any]]
_MODEL_NAMES = {"texts": "text model", "words of two": "words and word pairs"}
"""Name of a model in the result files -> its name on the pages, where they differ."""


def render(page: str, results: Results) -> str:
    """The page with every table written anew.

    Raises:
        ValueError: a marker names no table.
    """

    def block(found: re.Match[str]) -> str:
        name = found[1]
        if name not in TABLES:
            raise ValueError(f"no table {name!r}; there are {', '.join(TABLES)}")
        return f"<!-- {name} -->\n\n{TABLES[name](results)}\n\n<!-- /{name} -->"

    return re.sub(r"<!-- ([\w-]+) -->.*?<!-- /\1 -->", block, page, flags=re.DOTALL)


def load(folder: Path = RESULTS) -> Results:
    """Every family's results."""
    return {family: read(family, folder) for family in FAMILIES}


def bars(results: Results) -> str:
    """What is asked, and what was measured."""
    lines = []
    for bar in BARS:
        sign = "<=" if bar.at_most else ">="
        found = results.get(bar.family)
        cells = bar.cells(found["rows"]) if found else {}
        asked = f"| {bar.text} | {sign} {markdown.ratio(bar.needed)} |"
        if not cells:
            lines.append(f"{asked} | | | not measured |")
            continue
        values = list(cells.values())
        worst = (
            max(cells, key=cells.__getitem__) if bar.at_most else min(cells, key=cells.__getitem__)
        )
        met = sum(bar.met(value) for value in values)
        typical = geometric_mean(values) if min(values) > 0 else 0.0
        where = f" ({model_name(worst)})" if len(cells) > 1 else ""
        shown = f"{markdown.ratio(typical)} | {markdown.ratio(cells[worst])}{where}"
        lines.append(f"{asked} {shown} | {met} of {len(cells)} |")
    return markdown.table(["comparison", "goal", "geometric mean", "worst case", "met"], lines)


_FOR_NEWCOMERS = {
    "XGBoost's `inplace_predict`, many rows": "XGBoost model, compared with `inplace_predict`",
    "LightGBM's `predict`, many rows": "LightGBM model, compared with LightGBM",
    "scikit-learn's random forest, many rows": "random forest, compared with scikit-learn",
    "onnxruntime, one row of a model of trees": (
        "one row, all tree models, compared with onnxruntime"
    ),
    "a query: fetching a frame, and `predict_proba`": (
        "data frame time / SQL query time, except for the linear model"
    ),
}
"""What the README calls some of the bars."""


def speed(results: Results) -> str:
    """Some of the bars in words for newcomers: the mean, and the worst case."""
    by_text = {bar.text: bar for bar in BARS}
    lines = []
    for words, text in _FOR_NEWCOMERS.items():
        found = results.get(by_text[text].family)
        values = list(by_text[text].cells(found["rows"]).values()) if found else []
        if values:
            told = f"{markdown.ratio(geometric_mean(values))} | {markdown.ratio(min(values))}"
            lines.append(f"| {words} | {told} | {len(values)} |")
    head = ["", "times as long (geometric mean)", "at least", "cases"]
    return markdown.table(head, lines)


def quick(results: Results) -> str:
    """Compare a query with fetching a frame, in rows per second, for each model of `end_to_end`."""
    found = results.get("end_to_end")
    if not found:
        return markdown.missing("end_to_end")
    lines = []
    for model, contenders in by_case(row for row in found["rows"] if "ns" in row).items():
        query, frame = contenders["sqlml"]["ns"], contenders["frame"]["ns"]
        speeds = " | ".join(f"{markdown.ratio(1e3 / ns)} million" for ns in (query, frame))
        lines.append(f"| {model_name(model)} | {speeds} | {markdown.ratio(frame / query)} |")
    head = ["model", "rows per second in SQL", "with a data frame", "times as fast"]
    return markdown.table(head, lines)


def trees(mode: str) -> Callable[[Results], str]:
    """Each model on each table, in one way to score."""
    return lambda results: _versus(results, "trees", ("model", "table"), {"mode": mode})


def operators(mode: str, dtype: str) -> Callable[[Results], str]:
    """Each operator, in one way to score."""
    where = {"mode": mode, "dtype": dtype}
    return lambda results: _versus(results, "operators", ("operator",), where)


def differences(results: Results) -> str:
    """The worst that each contender says, by library of the model."""
    found = results.get("trees")
    if not found:
        return markdown.missing("trees")
    worst: dict[tuple[str, str], list[float]] = {}
    for row in found["rows"]:
        if "largest" in row and not row["note"]:
            key = (row["contender"], row["case"]["model"])
            kept = worst.setdefault(key, [0.0, 0.0, 0.0])
            now = [row["largest"], row["differing"], row.get("labels", 0.0)]
            worst[key] = [max(pair) for pair in zip(kept, now, strict=True)]
    lines = [
        f"| {contender} | {model} | {markdown.small(largest)} | {markdown.share(rows)} "
        f"| {markdown.share(labels)} |"
        for (contender, model), (largest, rows, labels) in sorted(worst.items())
        if contender != "library"
    ]
    head = [
        *("contender", "model", "largest difference"),
        *("rows that differ by more than 1e-5", "rows with other labels"),
    ]
    return markdown.table(head, lines)


def preparing(results: Results) -> str:
    """Seconds from a fitted model to the first rows, as in the paper's table 10."""
    found = results.get("trees")
    if not found:
        return markdown.missing("trees")
    rows = [r for r in found["rows"] if r["case"]["mode"] == "whole table"]
    names = _contenders(r for r in rows if r["contender"] != "library" and not r["note"])
    lines = []
    for contenders in by_case(rows).values():
        case = next(iter(contenders.values()))["case"]
        times = [contenders.get(name, {}).get("prepare") for name in names]
        cells = " | ".join("-" if time is None else f"{time:.3g}" for time in times)
        lines.append(f"| {case['model']} | {case['table']} | {cells} |")
    return markdown.table(["model", "table", *names], lines)


def scaling(results: Results) -> str:
    """The first, a middle and the last point of every axis."""
    found = results.get("scaling")
    if not found:
        return markdown.missing("scaling")
    names = _contenders(found["rows"])
    points: dict[tuple[str, str, int], dict[str, Mapping[str, Any]]] = {}
    for row in found["rows"]:
        case = row["case"]
        points.setdefault((case["axis"], case["model"], case["at"]), {})[row["contender"]] = row
    lines = []
    for (axis, model, at), contenders in points.items():
        cells = " | ".join(_cell(contenders.get(name)) for name in names)
        lines.append(f"| {axis} | {at:,} | {model} | {cells} |")
    pictures = "\n".join(
        f"![{axis}](plots/scaling-{axis}.svg)" for axis in dict.fromkeys(key[0] for key in points)
    )
    head = ["dimension", "value", "model", "sqlml, per row", *map(_ratio_head, names[1:])]
    return f"{pictures}\n\n" + markdown.table(head, lines)


def pipelines(results: Results) -> str:
    """The distribution of speedups, and by the last step."""
    found = results.get("pipelines")
    if not found:
        return markdown.missing("pipelines")
    speeds = {
        row["case"]["pipeline"]: row for row in found["rows"] if row["contender"] == "library"
    }
    ratios = sorted(row.get("ratio", 0.0) for row in speeds.values())
    faster = sum(ratio > 1 for ratio in ratios)
    at = {f"{p:.0%}": ratios[min(int(p * len(ratios)), len(ratios) - 1)] for p in QUANTILES}
    summary = (
        f"{faster} of {len(ratios)} pipelines ({faster / len(ratios):.1%}) are faster than "
        f"scikit-learn. Quantiles of the speedup:"
    )
    head = markdown.table(
        list(at), ["| " + " | ".join(markdown.ratio(v) for v in at.values()) + " |"]
    )
    last: dict[str, list[float]] = {}
    for row in speeds.values():
        last.setdefault(row["case"]["steps"].split(" > ")[-1], []).append(row.get("ratio", 0.0))
    lines = [
        f"| {name} | {len(v)} | {sum(x > 1 for x in v)} | {markdown.ratio(sorted(v)[len(v) // 2])} "
        f"| {markdown.ratio(min(v))} |"
        for name, v in sorted(last.items())
    ]
    by_last = markdown.table(
        ["last step", "pipelines", "faster", "median speedup", "minimum speedup"], lines
    )
    refused = [r for r in found["rows"] if r.get("reason")]
    why = _notes(f"{r['case']['steps']}: {r['reason']}" for r in refused)
    picture = "![speedups](plots/pipelines.svg)"
    return "\n\n".join(part for part in (summary, head, picture, by_last, why) if part)


QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def end_to_end(results: Results) -> str:
    """Nanoseconds a row of each way."""
    found = results.get("end_to_end")
    if not found:
        return markdown.missing("end_to_end")
    timed = [row for row in found["rows"] if "ns" in row]
    ways = _contenders(timed)
    lines = []
    for model, contenders in by_case(timed).items():
        ns = {name: row["ns"] for name, row in contenders.items()}
        cells = " | ".join(markdown.ns(ns.get(way)) for way in ways)
        over = ns["sqlml"] / (ns["kernel"] + ns["scan"])
        by_frame = markdown.ratio(ns["frame"] / ns["sqlml"])
        lines.append(f"| {model_name(model)} | {cells} | {markdown.ratio(over)} | {by_frame} |")
    head = ["model, ns per row", *ways, "sqlml / (kernel + scan)", "frame / sqlml"]
    return "![times of a query](plots/end_to_end.svg)\n\n" + markdown.table(head, lines)


def memory(results: Results) -> str:
    """The most memory of a process."""
    found = results.get("end_to_end")
    if not found:
        return markdown.missing("end_to_end")
    lines = [
        f"| {r['case']['rows']:,} | {r['start'] / 2**20:,.0f} | {r['peak'] / 2**20:,.0f} |"
        for r in found["rows"]
        if "peak" in r
    ]
    return markdown.table(["rows", "MiB after 1,000 rows", "peak MiB"], lines)


def machines(results: Results) -> str:
    """What each family was measured with."""
    lines, alike = [], dict[str, list[str]]()
    for family, found in results.items():
        if not found:
            lines.append(f"* {family}: not measured yet, `make bench` does")
            continue
        m, p = found["machine"], found["parameters"]
        threads = f"{p['threads']} thread{'s' if p['threads'] > 1 else ''}"
        rounds = f"{p.get('of', 'best')} of {p['rounds']} rounds" if p["rounds"] > 1 else "1 round"
        lines.append(f"* {family}: {threads}, {rounds}, seed {p['seed']}")
        versions = ", ".join(f"{name} {v}" for name, v in m["versions"].items())
        about = f"{m['processor']}, {m['cores']} cores; Python {m['python']}, {versions}"
        alike.setdefault(about, []).append(family)
    lines += [f"* {', '.join(families)}: {about}" for about, families in alike.items()]
    return "\n".join(lines)


def _versus(results: Results, family: str, keys: Sequence[str], where: Mapping[str, Any]) -> str:
    """sqlml's time, and how many times as long each contender takes."""
    found = results.get(family)
    if not found:
        return markdown.missing(family)
    rows = [r for r in found["rows"] if all(r["case"][k] == v for k, v in where.items())]
    names = [name for name in _contenders(rows) if name != "sqlml"]
    lines, notes = [], dict[str, list[str]]()
    for contenders in by_case(rows).values():
        case = next(iter(contenders.values()))["case"]
        cells = " | ".join(_cell(contenders.get(name)) for name in names)
        named = " | ".join(str(case[key]) for key in keys)
        ours = contenders["sqlml"]
        time = (
            markdown.ns(ours.get("ns"))
            if ours.get("exact")
            else f"{markdown.ns(ours.get('ns'))} (not exact)"
        )
        lines.append(f"| {named} | {case['rows']:,} | {time} | {cells} |")
        for name, row in contenders.items():
            if row.get("reason"):
                notes.setdefault(f"{name}: {row['reason']}", []).append(case[keys[0]])
    if not lines:
        return markdown.missing(family)
    head = [*keys, "rows", "sqlml, ns per row", *map(_ratio_head, names)]
    slug = "-".join(str(v) for v in where.values()).replace(" ", "-")
    picture = f"![{family}, {', '.join(where.values())}](plots/{family}-{slug}.svg)"
    why = _notes(f"{why} ({', '.join(dict.fromkeys(of))})" for why, of in notes.items())
    return "\n\n".join(part for part in (markdown.table(head, lines), picture, why) if part)


def _cell(row: Mapping[str, Any] | None) -> str:
    """How many times as long as sqlml; a star where numbers are not the source library's."""
    if row is None or "ns" not in row:
        return "-"
    if "ratio" not in row:
        return f"{markdown.ns(row['ns'])} ns"
    if row["contender"] == "sqlml":
        return f"{markdown.ns(row['ns'])} ns"
    return markdown.ratio(row["ratio"]) + ("\\*" if row.get("differing") else "")


def model_name(name: str) -> str:
    """Return the name of a model as the pages show it."""
    return _MODEL_NAMES.get(name, name)


def _ratio_head(name: str) -> str:
    """Return the head of a column that says how many times as long as sqlml a contender takes."""
    return f"{name} / sqlml"


def _contenders(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Those that have a number somewhere, sqlml first."""
    names = list(dict.fromkeys(row["contender"] for row in rows if "ns" in row))
    return sorted(names, key=lambda name: name != "sqlml")


def _notes(reasons: Iterable[str]) -> str:
    """Each distinct reason once."""
    distinct = dict.fromkeys(reasons)
    return "\n".join(f"* {reason.replace('|', '/')}" for reason in distinct)


def choice(results: Results) -> str:
    """How often each way was the pick, and how often that was as good as the best."""
    found = results.get("choice")
    if not found:
        return markdown.missing("choice")
    picked: dict[str, list[float]] = {}
    for contenders in by_cell(found["rows"]):
        times = {c: row["ns"] for c, row in contenders.items() if "ns" in row}
        best = min(times, key=times.__getitem__)
        kernel = contenders[best].get("note") or best
        picked.setdefault(kernel, []).append(times["sqlml"] / times[best])
    lines = [
        f"| {name} | {len(v)} | {sum(x <= 1.2 for x in v)} | {markdown.ratio(max(v))} |"
        for name, v in sorted(picked.items(), key=lambda item: -len(item[1]))
    ]
    head = [
        *("fastest kernel", "combinations", "choice takes at most 1.2 times as long"),
        "worst case: chosen / fastest",
    ]
    return markdown.table(head, lines)


def starting(results: Results) -> str:
    """Seconds to the first prediction, by model and way."""
    found = results.get("starting")
    if not found:
        return markdown.missing("starting")
    lines = []
    for row in found["rows"]:
        case = row["case"]
        ready = f"{row['ready']:.1f}" if "compiling" in case["process"] else "-"
        times = f"{row['open']:.3f} | {row['first']:.3f} | {row['second'] * 1000:.2f}"
        lines.append(f"| {case['model']} | {case['way']} | {case['process']} | {times} | {ready} |")
    head = [
        *("model", "interface", "process", "open, s", "first call, s", "second call, ms"),
        "kernels ready, s",
    ]
    return markdown.table(head, lines)


def train(results: Results) -> str:
    """Seconds and memory of training, and sqlml's over those of the others."""
    found = results.get("train")
    if not found:
        return markdown.missing("train")
    lines = []
    for row in found["rows"]:
        ratios = "- | -"
        if "ratio" in row:
            ratios = f"{markdown.ratio(row['ratio'])} | {markdown.ratio(row['memory'])}"
        case = row["case"]
        lines.append(
            f"| {model_name(case['case'])} | {case['rows']:,} | {row['contender']} "
            f"| {row['seconds']:.1f} | {row['peak']:,.0f} | {ratios} |"
        )
    head = [
        *("model", "rows", "contender", "seconds", "peak, MB"),
        *("time of sqlml / contender", "memory of sqlml / contender"),
    ]
    return markdown.table(head, lines)


def beside_library(family: str, column: str, library: str) -> Callable[[Results], str]:
    """Models beside their library, by a `column` of the cases."""

    def table(results: Results) -> str:
        found = results.get(family)
        if not found:
            return markdown.missing(family)
        lines = []
        for contenders in by_cell(found["rows"]):
            if "library" not in contenders:
                continue
            ours, other = contenders["sqlml"], contenders["library"]
            case, faster = ours["case"], other["ns"] / ours["ns"]
            at = case[column]
            lines.append(
                f"| {model_name(case['model'])} | {f'{at:,}' if isinstance(at, int) else at} "
                f"| {ours['ns']:,.0f} | {other['ns']:,.0f} "
                f"| {markdown.ratio(faster)} | {markdown.ratio(case['bar'])} |"
            )
        head = [
            *("model", "rows", "sqlml, ns per row", f"{library}, ns per row"),
            *("times as fast", "goal"),
        ]
        return markdown.table(head, lines)

    return table


def beside_others(family: str, mode: str) -> Callable[[Results], str]:
    """The cases of one mode, each contender in a line."""

    def table(results: Results) -> str:
        found = results.get(family)
        rows = [r for r in found["rows"] if r["case"]["mode"] == mode] if found else []
        lines = [
            f"| {row['case']['model']} | {row['case']['rows']:,} | {row['contender']} "
            f"| {row['ns']:,.0f} | {markdown.ratio(row['ratio'])} |"
            for row in rows
        ]
        head = ["case", "rows", "contender", "ns per row", "times as long as sqlml"]
        return markdown.table(head, lines) if lines else markdown.missing(family)

    return table


def cascades(results: Results) -> str:
    """Approximate queries beside exact ones, by workload and kind of small model."""
    found = results.get("cascades")
    if not found:
        return markdown.missing("cascades")
    lines = []
    for row in found["rows"]:
        if row["case"]["seed"]:
            continue
        own = [r for r in found["rows"] if _of(r) == _of(row)]
        name, kind = _of(row)
        if "reason" in row:
            lines.append(f"| {name} | {kind} | | | {row['reason']} | | |")
            continue
        bar = markdown.ratio(row["bar"]) if "bar" in row else ""
        times = f"{row['exact_ns']:,.0f} | {row['ns']:,.0f} | {markdown.ratio(row['ratio'])}"
        lines.append(f"| {name} | {kind} | {times} | {bar} | {_kept(own)} |")
    head = [
        *("workload", "small model", "exact, ns per row", "approximate, ns per row"),
        *("times as fast", "goal", "promise kept"),
    ]
    return markdown.table(head, lines)


def gpu(results: Results) -> str:
    """The ways to score on a GPU, by model and rows of a batch, beside one core of its machine."""
    found = results.get("gpu")
    if not found:
        return markdown.missing("gpu")
    ways = {
        "fused": ("fused cuda host", "torch cuda host"),
        "fused, rows on the GPU": ("fused cuda device", "torch cuda device"),
        "tt": ("tt cuda host",),
        "ptt": ("ptt cuda host",),
        "Hummingbird": ("hummingbird cuda host",),
        "XGBoost": ("XGBoost cuda host",),
        "native, one core": ("native cpu",),
    }
    times = {(r["model"], r["rows"], r["way"]): r["ns"] for r in found["rows"]}
    lines = []
    for model, rows in dict.fromkeys((r["model"], r["rows"]) for r in found["rows"]):
        cells = [
            next((times[model, rows, n] for n in names if (model, rows, n) in times), None)
            for names in ways.values()
        ]
        lines.append(f"| {model} | {rows:,} | {' | '.join(map(markdown.ns, cells))} |")
    return markdown.table(["model", "rows", *ways], lines)


def _of(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["case"]["workload"], row["case"]["kind"]


def _kept(rows: Rows) -> str:
    """How often a small model kept its promise on fresh rows, over all seeds."""
    kept = sum(row["exact"] for row in rows)
    losses = [row["loss"] for row in rows if "loss" in row]
    if losses:
        return f"{kept} of {len(rows)} seeds; loses at most {max(losses):.5f}"
    precise = [row["precise"] for row in rows if "precise" in row]
    least = f"; in at least {min(precise):.1%} of queries" if precise else ""
    return f"{kept} of {len(rows)} seeds{least}"


TABLES: Mapping[str, Callable[[Results], str]] = {
    "bars": bars,
    "speed": speed,
    "quick": quick,
    "machines": machines,
    "trees-whole-table": trees("whole table"),
    "trees-batch": trees("batch"),
    "trees-one-row": trees("one row"),
    "tree-differences": differences,
    "tree-preparing": preparing,
    "operators-batch-float32": operators("batch", "float32"),
    "operators-batch-float64": operators("batch", "float64"),
    "operators-one-row": operators("one row", "float32"),
    "scaling": scaling,
    "pipelines": pipelines,
    "end-to-end": end_to_end,
    "memory": memory,
    "exported": exported,
    "extension-files": extension_files,
    "outside": prediction_queries,
    "forests": forests,
    "converted": converted,
    "choice": choice,
    "starting": starting,
    "texts": beside_library("texts", "mode", "scikit-learn"),
    "explain": beside_library("explain", "rows", "the library"),
    **{
        f"explain-{mode.replace(' ', '-')}": beside_others("explain", mode)
        for mode in ("evaluation", "a model per row", "estimates")
    },
    "cascades": cascades,
    "train": train,
    "databases": databases,
    "largest-models": largest_models,
    "gpu": gpu,
    "planner": planner,
}


def main() -> None:
    """Write the pages."""
    for page in PAGES:
        page.write_text(render(page.read_text(), load()))


if __name__ == "__main__":
    main()
