"""`EngineFunction`: a function as an engine registers it."""

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


class Measured(Protocol):
    """A function that is measured, as machine code sees it."""

    def batch_function(self) -> BatchFunction:
        """What scores now."""
        ...

    def enter(self) -> None:
        """A batch begins on this thread."""
        ...

    def leave(self, rows: int) -> None:
        """A batch of so many rows ends on this thread."""
        ...


@dataclass(frozen=True, slots=True)
class EngineFunction:
    """A function to register: its name, its batch function, and its types in the engine.

    Without a `function` it is one of ours, to be made from its name when the first batch comes.
    A `volatile` one is evaluated where it is written, and nowhere else. One that is called
    `by_column` may be machine code that the engine calls without Python; that tells `measured`. So
    may one that is `named`, which calls the function whose name is its first argument, and one of
    `models`, which calls that of the model that a row names.
    """

    name: str
    function: Callable[..., Any] | None
    argument_types: tuple[str, ...]
    result_type: str
    volatile: bool = False
    by_column: bool = False
    named: bool = False
    measured: Measured | None = None
    models: NamedFunction | None = None

    @property
    def types(self) -> tuple[str, ...]:
        """Its arguments' types, and that of its result."""
        return (*self.argument_types, self.result_type)


def taking(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as one of `count` columns: an engine looks at the signature."""

    def call(*columns: Any) -> Any:
        return function(*columns)

    named = [
        inspect.Parameter(f"column{k}", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for k in range(count)
    ]
    call.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return call


# `scored_by_name`: the rows of a batch, those that give one name together, and back in order.


def scored_by_name(
    names: pa.Array | pa.ChunkedArray,
    kind: pa.DataType,
    score: Callable[[str, Array], pa.Array | None],
) -> pa.Array:
    """What `score` makes of each row, an array of `kind`.

    Args:
        names: (n,) texts; where one is NULL, the result is NULL.
        score: a name, and the places (m,) of its rows -> an array (m,); None: they have NULL.
    """
    parts, places = [], [np.empty(0, np.int64)]
    for name, rows in _places(names):
        made = None if name is None else score(name, rows)
        if made is not None and len(rows) == len(names):
            return made
        parts.append(pa.nulls(len(rows), kind) if made is None else made)
        places.append(rows)
    order = np.concatenate(places)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    joined = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
    return joined.take(arrow_of(back, pa.int64()))


def _places(names: pa.Array | pa.ChunkedArray) -> Iterator[tuple[str | None, Array]]:
    """Each name, and where it stands, in order."""
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
