"""`Relation`: DuckDB's lazy relation, whose results raise sqlml's own typed errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from sqlml.session.engine_errors import user_errors
from sqlml.udfs.duckdb.user_frame import Wrapper


class Relation(Wrapper):
    """A DuckDBPyRelation; everything it does is delegated to it.

    `native` is the relation itself, for functions that insist on DuckDB's own class.
    """

    def __init__(self, native: Any) -> None:
        super().__init__()
        self.native = native

    def __getattr__(self, name: str) -> Any:
        if name == "__arrow_c_stream__":
            # DuckDB 1.5 would scan it through the connection that is scanning, and hang, as in
            # https://github.com/duckdb/duckdb-python/issues/85
            raise AttributeError(name)
        value = getattr(self.native, name)
        return _guarded(value) if callable(value) else value

    def __len__(self) -> int:
        with user_errors():
            return len(self.native)

    def __getitem__(self, key: Any) -> Any:
        return wrap(self.native[key])

    def __contains__(self, key: Any) -> bool:
        return key in self.native

    def __str__(self) -> str:
        with user_errors():
            return str(self.native)

    def __repr__(self) -> str:
        with user_errors():
            return repr(self.native)

    def arrow(self) -> Any:
        """The result as a pyarrow Table, on every version of DuckDB."""
        with user_errors():
            if hasattr(self.native, "to_arrow_table"):
                return self.native.to_arrow_table()
            return self.native.fetch_arrow_table()


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        texts = [a for a in (*args, *kwargs.values()) if isinstance(a, str)]
        with user_errors(texts):
            return wrap(method(*map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()}))

    return call


def wrap(value: Any) -> Any:
    """A relation of DuckDB's as a Relation; anything else as it is."""
    return Relation(value) if isinstance(value, duckdb.DuckDBPyRelation) else value


def unwrap(value: Any) -> Any:
    """A Relation as DuckDB's own; anything else as it is."""
    return value.native if isinstance(value, Relation) else value
