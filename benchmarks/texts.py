"""Vectorizers of texts, compiled, beside scikit-learn's: words and characters, with a linear model.

On one thread, over many texts and one at a time. Willump's own compiler made its pipelines of texts
up to 4.3 times as fast (section 6.3), and single inputs up to 400 times.

    python -m benchmarks.texts [--rows N] [--write FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import sqlml
from benchmarks.cascade_workloads import comments, words_and_characters
from benchmarks.compare import canonical, compare
from benchmarks.results import Row, line, parser, row_of, save, status, with_ratios
from benchmarks.rounds import best_calls

MANY, ONE = 4.0, 100.0
"""How many times as fast as scikit-learn it has to be, over many texts and for one."""


def _one(part: int) -> Any:
    return ColumnTransformer([words_and_characters("comment")[part]])


MODELS: Mapping[str, Callable[[], Any]] = {
    "words": lambda: _one(0),
    "characters": lambda: _one(1),
    "words and characters": lambda: ColumnTransformer(words_and_characters("comment")),
    "words of two": lambda: ColumnTransformer(
        [("words", TfidfVectorizer(ngram_range=(1, 2), min_df=3), "comment")]
    ),
}
"""Vectorizers, before a logistic regression."""


def measure(name: str, options: Any) -> Iterator[list[Row]]:
    """Times of one model: over all rows, and one by one."""
    train = comments(options.train, np.random.default_rng(options.seed))
    fresh = comments(options.rows, np.random.default_rng(options.seed + 1))[["comment"]]
    model = make_pipeline(MODELS[name](), LogisticRegression(C=30, max_iter=300))
    model.fit(train[["comment"]], train.toxic)
    scorer = sqlml.compile(model, threads=1)
    for mode, frame, bar in (("many", fresh, MANY), ("one", fresh.head(1), ONE)):
        got, want = scorer.predict_proba(frame), model.predict_proba(frame)
        kind = "predict_proba"
        difference = compare(canonical(got, kind), canonical(want, kind), kind, labels=True)
        ways = {
            "sqlml": lambda frame=frame: scorer.predict_proba(frame),
            "library": lambda frame=frame: model.predict_proba(frame),
        }
        times = best_calls(list(ways.values()), options.rounds, least=options.least)
        case = {"model": name, "mode": mode, "rows": len(frame), "bar": bar}
        yield with_ratios(
            [
                row_of(
                    case,
                    way,
                    threads=1,
                    ns=t.seconds / len(frame) * 1e9,
                    rounds=t.rounds,
                    difference=difference if way == "sqlml" else None,
                )
                for way, t in zip(ways, times, strict=True)
            ]
        )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    made = parser("texts", __doc__)
    made.add_argument("--train", type=int, default=10_000, help="rows to fit on")
    made.add_argument("--rows", type=int, default=20_000, help="of the table")
    made.add_argument("--model", action="append", choices=MODELS, help="default: all")
    options = made.parse_args(arguments)
    kept: list[Row] = []
    for name in options.model or MODELS:
        for rows in measure(name, options):
            kept += rows
            save("texts", options, kept)
            print(f"{name}, {rows[0].case['mode']}:")
            print("\n".join(map(line, rows)), flush=True)
    return status(kept)


if __name__ == "__main__":
    sys.exit(main())
