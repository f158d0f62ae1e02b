"""`Relation`: DuckDB's lazy relation, whose results raise sqlml's own typed errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from sqlml.planner.misspelt import hint
from sqlml.udfs.caller import Wrapper
from sqlml.udfs.failures import claim, is_interrupt


def hinted(
    error: duckdb.Error, sql: Any, is_function: Callable[[str], bool]
) -> duckdb.Error | None:
    """The engine's own error with a word about the call that was meant for us; None without one."""
    found = hint(sql, str(error), is_function) if isinstance(sql, str) else None
    return None if found is None else type(error)(f"{error}\n\nsqlml: {found}")


def typed(
    error: duckdb.Error | RuntimeError,
    texts: Sequence[str] = (),
    is_function: Callable[[str], bool] = lambda name: False,
    is_interrupt: Callable[[BaseException], bool] = is_interrupt,
) -> BaseException:
    """The error that a batch function parked, if the engine's is about one, or KeyboardInterrupt
    for a Ctrl-C, which `except Exception` would take for an error of the query; else its own.

    `texts` are pieces of SQL that the engine was given.
    """
    if is_interrupt(error):
        return KeyboardInterrupt()
    own = claim(str(error))
    if own is not None or not isinstance(error, duckdb.Error):
        return own or error
    found = (hinted(error, text, is_function) for text in texts)
    return next((e for e in found if e is not None), error)


@contextmanager
def typed_errors(texts: Sequence[str] = ()) -> Iterator[None]:
    """Raise `typed` errors in place of the engine's."""
    try:
        yield
    except (duckdb.Error, RuntimeError) as error:
        raise typed(error, texts) from None


class Relation(Wrapper):
    """A DuckDBPyRelation; everything it does is delegated to it.

    `native` is the relation itself, for functions that insist on DuckDB's own class.
    """

    def __init__(self, native: Any) -> None:
        super().__init__()
        self.native = native

    def __getattr__(self, name: str) -> Any:
        if name == "__arrow_c_stream__":
            # DuckDB 1.5 would scan it through the connection that is scanning, and hang.
            raise AttributeError(name)
        value = getattr(self.native, name)
        return _guarded(value) if callable(value) else value

    def __len__(self) -> int:
        with typed_errors():
            return len(self.native)

    def __getitem__(self, key: Any) -> Any:
        return wrap(self.native[key])

    def __contains__(self, key: Any) -> bool:
        return key in self.native

    def __str__(self) -> str:
        with typed_errors():
            return str(self.native)

    def __repr__(self) -> str:
        with typed_errors():
            return repr(self.native)

    def arrow(self) -> Any:
        """The result as a pyarrow Table, on every version of DuckDB."""
        with typed_errors():
            if hasattr(self.native, "to_arrow_table"):
                return self.native.to_arrow_table()
            return self.native.fetch_arrow_table()


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        texts = [a for a in (*args, *kwargs.values()) if isinstance(a, str)]
        with typed_errors(texts):
            return wrap(method(*map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()}))

    return call


def wrap(value: Any) -> Any:
    """A relation of DuckDB's as a Relation; anything else as it is."""
    return Relation(value) if isinstance(value, duckdb.DuckDBPyRelation) else value


def unwrap(value: Any) -> Any:
    """A Relation as DuckDB's own; anything else as it is."""
    return value.native if isinstance(value, Relation) else value
