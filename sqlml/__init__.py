"""Trained machine-learning models inside SQL engines.

`connect` opens a DuckDB file, and `attach` wraps an open connection of DuckDB or Spark. Both return
a session with statements and functions for models. `compile` scores without a database.
docs/python.md describes all public names, and CONTRIBUTING.md describes the packages. Public names
are loaded at first use, so that `import sqlml` is fast.

>>> import sqlml
>>> with sqlml.connect() as con:
...     con.sql("SELECT 1 AS one").fetchall()
[(1,)]
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlml import errors
    from sqlml.importers.expressions.sql_steps import register_step
    from sqlml.open_session import attach, connect
    from sqlml.scorer.scorer import Scorer, compile
    from sqlml.session.session import Session
    from sqlml.tools.calibration.calibrate import calibrate

try:
    __version__: str = version("sqlml")
except PackageNotFoundError:  # sqlml runs from a checkout that is not installed.
    __version__ = "0"

__all__ = [
    "Scorer",
    "Session",
    "attach",
    "calibrate",
    "compile",
    "connect",
    "errors",
    "register_step",
]

_MODULES = {
    "Plugin": "sqlml.tools.connectors.dbt_plugin",  # dbt-duckdb's plugin "sqlml"
    "Scorer": "sqlml.scorer.scorer",
    "Session": "sqlml.session.session",
    "SqlmlMagics": "sqlml.tools.connectors.ipython_magic",
    "attach": "sqlml.open_session",
    "calibrate": "sqlml.tools.calibration.calibrate",
    "compile": "sqlml.scorer.scorer",
    "connect": "sqlml.open_session",
    "errors": "sqlml.errors",
    "register_step": "sqlml.importers.expressions.sql_steps",
}
"""Maps public names to modules."""


def load_ipython_extension(ipython: Any) -> None:
    """Add `%sqlml` and `%%sqlml` to a notebook. `%load_ext sqlml` calls this function."""
    ipython.register_magics(_load("SqlmlMagics"))


def __dir__() -> list[str]:
    return sorted(__all__)


def _load(name: str) -> Any:
    import importlib

    if name not in _MODULES:
        raise AttributeError(f"module 'sqlml' has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    value = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # Otherwise, type checkers would accept misspelled names.
    __getattr__ = _load
