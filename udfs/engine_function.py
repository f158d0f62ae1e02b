"""A function as an engine registers it, and the scoring of rows that name their functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute

from sqlml.types import Array
from sqlml.udfs.batch_function import arrow_of

if TYPE_CHECKING:
    from sqlml.planner.program.named_function import NamedFunction
    from sqlml.udfs.batch_function import BatchFunction


class Metered(Protocol):
    """A function with a meter, as native code sees it."""

    def batch_function(self) -> BatchFunction:
        """Return the function that scores the batches."""
        ...

    def enter(self) -> None:
        """Record the start of a batch on this thread."""
        ...

    def leave(self, rows: int) -> None:
        """Record the end of a batch of `rows` rows on this thread."""
        ...


@dataclass(frozen=True, slots=True)
class EngineFunction:
    """A function to register: its name, its batch function, and its SQL types.

    Attributes:
        function: scores a batch. None for a function of sqlml that is built from its name when the
            first batch arrives.
        volatile: the engine must evaluate each call exactly where the query writes it.
        by_column: takes one argument per column, so native code may run it without Python.
        named: calls the function whose name is the first argument; native code may run it.
        measured: counts the batches of native code.
        models: scores each row with the model that the row names; native code may run it.
    """

    name: str
    function: Callable[..., Any] | None
    argument_types: tuple[str, ...]
    result_type: str
    volatile: bool = False
    by_column: bool = False
    named: bool = False
    metered: Metered | None = None
    models: NamedFunction | None = None

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types of the arguments, then the type of the result."""
        return (*self.argument_types, self.result_type)


def with_signature(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` with a signature of `count` columns, which engines inspect."""

    def call(*columns: Any) -> Any:
        return function(*columns)

    parameters = [
        inspect.Parameter(f"column{k}", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for k in range(count)
    ]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def score_by_name(
    names: pa.Array | pa.ChunkedArray,
    kind: pa.DataType,
    score: Callable[[str, Array], pa.Array | None],
) -> pa.Array:
    """Score the rows of a batch in groups of the same name, and restore their order.

    Args:
        names: (n,) texts. The result is NULL where the name is NULL.
        kind: type of the result.
        score: maps a name and the positions (m,) of its rows to an array (m,), or to None if these
            rows are NULL.
    """
    results, positions = [], [np.empty(0, np.int64)]
    for name, rows in _group_rows(names):
        scores = None if name is None else score(name, rows)
        if scores is not None and len(rows) == len(names):
            return scores
        results.append(pa.nulls(len(rows), kind) if scores is None else scores)
        positions.append(rows)
    order = np.concatenate(positions)
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    joined = pa.concat_arrays(results) if results else pa.nulls(0, kind)
    return joined.take(arrow_of(inverse, pa.int64()))


def _group_rows(names: pa.Array | pa.ChunkedArray) -> Iterator[tuple[str | None, Array]]:
    """Yield each name with the ascending positions of its rows."""
    if isinstance(names, pa.ChunkedArray):
        names = pa.concat_arrays(names.chunks) if names.num_chunks else names.combine_chunks()
    coded = names.dictionary_encode() if not pa.types.is_dictionary(names.type) else names
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if not len(codes):
        return
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, ends):
        code = codes[rows[0]]
        yield (None if code < 0 else coded.dictionary[int(code)].as_py()), rows
