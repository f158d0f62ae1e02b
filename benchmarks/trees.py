"""Tree ensembles, as in Hummingbird's tables 7 and 8.

500 trees of depth 8 of each library on five tables, beside a forest without a limit of depth and
CatBoost's oblivious trees on one. Three ways to score: the whole table in a call, batches of
10,000 rows, and single rows on one thread.

    python -m benchmarks.trees [--model NAME].. [--table NAME].. [--contender NAME].. [--write FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.contest import (
    ONE_ROW,
    Effort,
    chosen,
    field,
    in_batches,
    one_by_one,
    timed,
    whole,
)
from benchmarks.models import CACHE, KINDS, ensemble
from benchmarks.peers import PEERS, Setting
from benchmarks.results import Row, line, parser, save, status, with_ratios
from benchmarks.tables import TABLES, table

BESIDES = ("unlimited forest", "catboost")
"""Models that the paper does not have; they run on `BESIDES_TABLE` alone unless asked for."""
BESIDES_TABLE = "higgs"


def measure(kind: str, name: str, options: argparse.Namespace) -> Iterator[list[Row]]:
    """The rows of each way to score one model on one table."""
    shape = TABLES[name]
    most = max(options.batch, options.cells // shape.features)
    subject = ensemble(
        kind,
        name,
        trees=options.trees,
        depth=options.depth,
        rows=min(options.train, most),
        seed=options.seed,
        threads=options.threads,
        cache=options.cache,
    )
    x, _ = table(name, min(options.rows, most), options.seed + 1)
    effort = Effort(options.rounds, options.least, options.patience)
    names = chosen(options.contender)
    names = [n for n in names if n not in (options.without or ())]
    many = field(subject, names, Setting(options.threads, options.compile_limit, options.cache), x)
    about = {"model": kind, "table": name, "trees": options.trees, "features": shape.features}
    case = {**about, "mode": "whole table", "rows": len(x)}
    yield timed(many, case, len(x), whole(x), effort)
    some = x[: options.batch * options.batches]
    case = {**about, "mode": "batch", "rows": min(options.batch, len(some))}
    yield timed(many, case, len(some), in_batches(some, options.batch), effort)
    single = field(subject, names, Setting(1, options.compile_limit, options.cache), x[:ONE_ROW])
    case = {**about, "mode": "one row", "rows": 1}
    yield timed(single, case, len(x[:ONE_ROW]), one_by_one(x[:ONE_ROW]), effort)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    made = parser("trees", __doc__.partition("\n")[0])
    made.add_argument("--rows", type=int, default=200_000, help="of the whole table")
    made.add_argument("--cells", type=int, default=40_000_000, help="bound of rows x features")
    made.add_argument("--batch", type=int, default=10_000, help="rows of a batch")
    made.add_argument("--batches", type=int, default=5, help="how many batches in a round")
    made.add_argument("--train", type=int, default=50_000, help="rows to fit on")
    made.add_argument("--trees", type=int, default=500)
    made.add_argument("--depth", type=int, default=8)
    made.add_argument("--model", action="append", choices=list(KINDS), help="default: all")
    made.add_argument("--table", action="append", choices=list(TABLES), help="default: all")
    made.add_argument("--contender", action="append", choices=list(PEERS), help="default: most")
    made.add_argument("--without", action="append", choices=list(PEERS), help="leave it out")
    made.add_argument("--compile-limit", type=float, default=300.0, help="seconds for gcc")
    made.add_argument("--cache", type=Path, default=CACHE, help="folder of fitted models")
    options = made.parse_args(arguments)
    rows: list[Row] = []
    for kind in options.model or KINDS:
        tables = options.table or ([BESIDES_TABLE] if kind in BESIDES else TABLES)
        for name in tables:
            for part in measure(kind, name, options):
                compared = with_ratios(part)
                rows += compared
                save("trees", options, rows)
                case = compared[0].case
                print(f"{kind}, {name}, {case['mode']} ({case['rows']:,}):")
                print("\n".join(line(row) for row in compared), flush=True)
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
