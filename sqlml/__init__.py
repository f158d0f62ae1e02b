"""sqlml: trained machine-learning models inside SQL engines.

>>> import sqlml
>>> with sqlml.connect() as con:
...     con.sql("SELECT 1 AS one").fetchall()
[(1,)]
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlml.importers.sql_steps.importer import register_step
    from sqlml.open_session import attach, connect
    from sqlml.scorer.scorer import Scorer, compile
    from sqlml.session.session import Session
    from sqlml.tools.calibration.calibrate import calibrate

try:
    __version__ = version("sqlml")
except PackageNotFoundError:  # run from a checkout
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

_HOMES = {
    "Plugin": "sqlml.tools.connectors.dbt_plugin",  # dbt-duckdb's plugin "sqlml"
    "Scorer": "sqlml.scorer.scorer",
    "Session": "sqlml.session.session",
    "SqlmlMagics": "sqlml.tools.connectors.ipython_magic",
    "attach": "sqlml.open_session",
    "calibrate": "sqlml.tools.calibration.calibrate",
    "compile": "sqlml.scorer.scorer",
    "connect": "sqlml.open_session",
    "errors": "sqlml.errors",
    "register_step": "sqlml.importers.sql_steps.importer",
}


def load_ipython_extension(ipython: Any) -> None:
    """Add `%sqlml` and `%%sqlml` to a notebook; `%load_ext sqlml` calls this."""
    ipython.register_magics(__getattr__("SqlmlMagics"))


def __getattr__(name: str) -> Any:
    """Load a public name at its first use, so that `import sqlml` costs next to nothing."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'sqlml' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    value = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value
