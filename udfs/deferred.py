"""Functions whose model is read and compiled when the first batch comes.

The macros of a database name a function for each of its models. Opening the database registers
them all, and most are never called.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa

from sqlml.errors import ArtifactError, SqlmlError, UnknownModelError
from sqlml.ir import store
from sqlml.planner.names import parse_name
from sqlml.udfs.arrow import BatchFunction, TextBatchFunction
from sqlml.udfs.failures import park
from sqlml.udfs.function import engine_function

Source = Callable[[str], bytes | None]
"""The stored content of a Program by the beginning of its hash; None: it is not there."""

Compiled = BatchFunction | TextBatchFunction


class Later:
    """Finds and compiles the function of a name, once. Thread-safe."""

    def __init__(self, name: str, source: Source) -> None:
        self._name = name
        self._sources = [source]
        self._made: Compiled | None = None
        self._lock = threading.Lock()

    def also(self, other: Callable[..., Any]) -> None:
        """Another function of the same name: of another database, or compiled already."""
        if isinstance(other, Compiled):
            self._made = other
        elif isinstance(other, Deferred | DeferredText):
            self._sources.append(other.later._sources[0])

    def get(self) -> Compiled:
        """The function.

        Raises:
            ParkedFailure: stands for the typed error that `failures.claim` gives back.
        """
        with self._lock:
            if self._made is None:
                try:
                    self._made = self._make()
                except SqlmlError as error:
                    raise park(error) from None
                self._sources.clear()
            return self._made

    def _make(self) -> Compiled:
        spec = parse_name(self._name)
        if spec is None:
            raise ArtifactError(f"the catalog names a function {self._name!r}, which is none")
        for source in reversed(self._sources):
            try:
                content = source(spec.program)
            except duckdb.Error:  # its database was closed
                continue
            if content is None:
                continue
            program = store.loads(content)
            if not program.hash.startswith(spec.program):
                raise ArtifactError(
                    f"the stored model {spec.program} has other content than its hash says; "
                    "create it again"
                )
            made = engine_function(spec, program).function
            assert isinstance(made, Compiled)
            return made
        raise UnknownModelError(
            f"the model program {spec.program} is not stored in this database; create the model "
            "again"
        )


class Deferred:
    """A `BatchFunction` to be."""

    def __init__(self, later: Later) -> None:
        self.later = later

    def __call__(self, packed: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Score one batch; see `BatchFunction`."""
        made = self.later.get()
        assert isinstance(made, BatchFunction)
        return made(packed)


class DeferredText:
    """A `TextBatchFunction` to be. The engine looks at the signature, so it is another class."""

    def __init__(self, later: Later) -> None:
        self.later = later

    def __call__(
        self, packed: pa.Array | pa.ChunkedArray, texts: pa.Array | pa.ChunkedArray
    ) -> pa.Array:
        """Score one batch; see `TextBatchFunction`."""
        made = self.later.get()
        assert isinstance(made, TextBatchFunction)
        return made(packed, texts)


def is_signature(arguments: tuple[str, ...], result: str) -> bool:
    """Whether the types are those of a function of ours (`function.engine_function`).

    >>> is_signature(("DOUBLE[4]", "BLOB[]"), "DOUBLE[]"), is_signature(("VARCHAR",), "DOUBLE")
    (True, False)
    """
    first, *texts = (*arguments, "")
    return (
        re.fullmatch(r"(FLOAT|DOUBLE)\[[1-9]\d{0,5}\]", first) is not None
        and texts in ([""], ["BLOB[]", ""])
        and re.fullmatch(r"(INTEGER|DOUBLE)(\[\]){0,2}", result) is not None
    )


def deferred(name: str, arguments: int, source: Source) -> Deferred | DeferredText:
    """The function of `name`, which takes one argument, or texts as its second."""
    later = Later(name, source)
    return Deferred(later) if arguments == 1 else DeferredText(later)
