"""`check_step`: the SQL of a step held against the step itself, on rows of our own making."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, RawColumn
from sqlml.importers.sql_steps.expressions import operators_of, texts_in
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.types import DATETIME, Array, Kind

ROWS = 64

RELATIVE = 1e-9
"""How far the two may be from each other: `ln(1 + x)` is not log1p to the last bit."""


def check_step(step: Any, expressions: Mapping[str, str], frame: Frame) -> None:
    """Compare what a step makes of made-up rows with what its expressions make of them.

    Rows that the step refuses are left out: first those with missing values, then those with
    negative numbers. Columns that are handed on as they are and hold texts are not compared.

    Raises:
        UnsupportedModelError: they differ, or the step refuses all of these rows.
    """
    builder = Builder()
    made = operators_of(expressions, Frame.raw(builder, frame.names))
    compared = [i for i, part in enumerate(made) if not isinstance(part.blocks[0], RawColumn)]
    values = {str(i): made[i].matrix() for i in compared}
    program = builder.build(values)
    kinds = {f.name: f.kind for f in program.features}
    why: Exception | None = None
    asked = False
    for columns in _rows(frame.names, kinds, texts_in(expressions.values())):
        theirs, error = _asked(step, columns)
        if theirs is None:
            why = why or error
            continue
        asked = True
        if theirs.shape != (ROWS, len(made)):
            raise UnsupportedModelError(
                f"its SQL makes {len(made)} columns, but its transform made an array of shape "
                f"{theirs.shape} of {ROWS} rows"
            )
        ours = reference.run(program, {n: _input(columns[n]) for n in program.inputs})
        for i in compared:
            name = list(expressions)[i]
            _compare(name, ours[str(i)][:, 0], theirs[:, i], columns)
    if not asked:
        reason = f"{type(why).__name__}: {why}"
        raise UnsupportedModelError(
            f"its SQL cannot be compared with its transform, which fails on made-up rows "
            f"({reason:.200}); register it with verify=False to trust the SQL"
        )


def _rows(
    names: tuple[str, ...], kinds: Mapping[str, Kind], known: list[str]
) -> Iterator[dict[str, Array]]:
    """Columns of `ROWS` values, (n,) each: with missing ones, without, and of positive numbers."""
    rng = np.random.default_rng(0)
    plain: dict[str, Array] = {}
    gone: dict[str, Array] = {}
    positive: dict[str, Array] = {}
    words = np.array([*known, "\N{SNOWMAN} another"], object)
    for name in names:
        lacks = rng.random(ROWS) < 0.2
        if kinds.get(name) == DATETIME:
            moments = rng.integers(-(10**15), 2 * 10**15, ROWS).astype("datetime64[us]")
            positive[name] = plain[name] = moments
            gone[name] = np.where(lacks, np.datetime64("NaT"), moments)
            continue
        if kinds.get(name) == "string":
            positive[name] = plain[name] = rng.choice(words, ROWS)
            gone[name] = plain[name].copy()
            gone[name][lacks] = None
            continue
        numbers = np.concatenate(
            [rng.normal(size=ROWS), rng.normal(size=ROWS) * 30 + 40, rng.integers(-2, 6, ROWS)]
        )
        plain[name] = rng.choice(numbers, ROWS)
        gone[name] = np.where(lacks, np.nan, plain[name])
        positive[name] = np.abs(plain[name]) + 0.5
    yield gone
    yield plain
    yield positive


def _input(column: Array) -> Array:
    """A column as the Program takes it: dates as microseconds."""
    if column.dtype.kind != "M":
        return column
    return np.where(np.isnat(column), np.nan, column.astype(np.int64).astype(np.float64))


def _asked(step: Any, columns: Mapping[str, Array]) -> tuple[Array | None, Exception | None]:
    """What the step makes of a frame, or of a matrix where it takes no frame; else its error."""
    transform = step if not hasattr(step, "transform") else step.transform
    why: Exception | None = None
    for rows in _given(columns):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                made = transform(rows)
            made = made.toarray() if hasattr(made, "toarray") else np.asarray(made)
            return (made.reshape(-1, 1) if made.ndim == 1 else made), None
        except Exception as error:  # it is the user's own
            why = why or error
    return None, why


def _given(columns: Mapping[str, Array]) -> Iterator[Any]:
    with suppress(ImportError):
        import pandas as pd

        yield pd.DataFrame(dict(columns))
    yield np.column_stack(list(columns.values()))


def _compare(name: str, ours: Array, theirs: Array, columns: Mapping[str, Array]) -> None:
    try:
        wanted = theirs.astype(np.float64)
    except (TypeError, ValueError):
        raise UnsupportedModelError(
            f"its SQL makes numbers of its column {name!r}, but its transform made "
            f"{theirs[0]!r:.80}"
        ) from None
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(ours), np.abs(wanted))
        near = np.abs(ours - wanted) <= np.maximum(RELATIVE * size, RELATIVE**2)
    same = near | (ours == wanted) | (np.isnan(ours) & np.isnan(wanted))
    if same.all():
        return
    row = int(np.flatnonzero(~same)[0])
    given = ", ".join(f"{n} = {columns[n][row]!s:.40}" for n in list(columns)[:6])
    raise UnsupportedModelError(
        f"the SQL of its column {name!r} gives {_shown(ours[row])} where its transform gives "
        f"{_shown(wanted[row])} ({given}); correct the SQL"
    )


def _shown(value: float) -> str:
    return "NULL" if np.isnan(value) else str(value)
