"""Whole pipelines, random ones as OpenML-CC18 has them, beside scikit-learn.

Each is fitted, compared (labels equal, probabilities or values within 1e-6), and scores its whole
test set at once, as in Hummingbird's section 6.3. One that fails in training is drawn anew, as the
paper leaves those out; one that sqlml does not import counts as not faster.

    python -m benchmarks.pipelines [--count N] [--seed N] [--write FILE]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import sqlml
from benchmarks.compare import Difference, canonical, compare
from benchmarks.contest import reason
from benchmarks.pipeline_space import Drawn, draw
from benchmarks.results import Row, parser, row_of, save, status, with_ratios
from benchmarks.rounds import best_calls

ATTEMPTS = 20
"""How often a pipeline that cannot be trained is drawn anew."""


def fitted(seed: int, index: int, options: argparse.Namespace) -> Drawn:
    """The first of the pipelines drawn for `index` that can be trained and scores its test set.

    Raises:
        RuntimeError: none of `ATTEMPTS` can.
    """
    for attempt in range(ATTEMPTS):
        drawn = draw(
            [seed, index, attempt], most_rows=options.most_rows, most_columns=options.most_columns
        )
        for name in drawn.pipeline.get_params():
            if name.endswith("__n_jobs") and options.threads > 1:
                drawn.pipeline.set_params(**{name: options.threads})
        try:
            drawn.pipeline.fit(drawn.train, drawn.target)
            drawn.pipeline.predict(drawn.test)
        except (ValueError, TypeError):  # a step that refuses what the one before makes
            continue
        return drawn
    raise RuntimeError(f"no pipeline of seed {seed}, {index} can be trained")


def measure(index: int, options: argparse.Namespace) -> list[Row]:
    """scikit-learn's time and sqlml's, of `predict` for the whole test set."""
    drawn = fitted(options.seed, index, options)
    rows, columns = drawn.test.shape
    case = {"pipeline": index, "steps": drawn.steps, "rows": rows, "columns": columns}
    model, test, threads = drawn.pipeline, drawn.test, options.threads
    try:
        scorer = sqlml.compile(model, threads=threads)
        difference = apart(model, scorer, test, drawn.classifies)
    except Exception as error:  # whatever sqlml raises is why it counts as not faster
        (ours,) = best_calls([partial(model.predict, test)], options.rounds, least=options.least)
        library = row_of(case, "library", threads=threads, ns=ours.seconds / rows * 1e9)
        return [library, row_of(case, "sqlml", threads=threads, reason=reason(error))]
    ways = [partial(model.predict, test), partial(scorer.predict, test)]
    timings = best_calls(ways, options.rounds, least=options.least, patience=options.patience)
    named = zip(("library", "sqlml"), (None, difference), timings, strict=True)
    return with_ratios(
        [
            row_of(
                case,
                name,
                threads=threads,
                ns=t.seconds / rows * 1e9,
                rounds=t.rounds,
                difference=d,
            )
            for name, d, t in named
        ]
    )


def apart(model: Any, scorer: Any, test: Any, classifies: bool) -> Difference:
    """What sets sqlml apart: labels by `predict`, and probabilities where the model has them."""
    want, got = model.predict(test), scorer.predict(test)
    if not classifies:
        return compare(
            canonical(got, "predict"), canonical(want, "predict"), "predict", labels=False
        )
    other = float(np.mean(np.asarray(want) != np.asarray(got)))
    if not hasattr(model, "predict_proba"):
        return Difference(0.0, 0.0, other, other)
    pair = [canonical(m.predict_proba(test), "predict_proba") for m in (scorer, model)]
    d = compare(pair[0], pair[1], "predict_proba", labels=True)
    return Difference(d.largest, d.relative, d.rows, other)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each pipeline, and write a JSON file when asked to."""
    made = parser("pipelines", __doc__.partition("\n")[0])
    made.set_defaults(threads=1, rounds=3)
    made.add_argument("--count", type=int, default=330, help="how many pipelines")
    made.add_argument("--most-rows", type=int, default=19_264, help="in a test set")
    made.add_argument("--most-columns", type=int, default=300, help="of a table")
    options = made.parse_args(arguments)
    rows: list[Row] = []
    with threadpool_limits(limits=options.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for index in range(options.count):
            part = measure(index, options)
            rows += part
            save("pipelines", options, rows)
            theirs, ours = part
            case = ours.case
            speed = f"{theirs.ratio:8.2f}x" if theirs.ratio else f"       - {ours.reason}"
            print(
                f"{index:>4}{case['rows']:>7} x {case['columns']:<4}{speed}  {case['steps']}",
                flush=True,
            )
    faster = sum((row.ratio or 0.0) > 1.0 for row in rows if row.contender == "library")
    print(f"faster than scikit-learn: {faster} of {options.count}")
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
