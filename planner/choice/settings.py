"""The settings that choose how a model runs: their names, their values, and what they leave open.

A session sets them with `SET sqlml_..`, a model with `OPTIONS (..)`; only a session sets the route.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlml.backends.base import BACKENDS
from sqlml.errors import ConfigError

OPTIONS = ("backend", "strategy", "device")
DEVICES = ("auto", "cpu", "cuda")
MOST_ROWS = 100_000_000
STRATEGIES = ("auto", *dict.fromkeys(s for entry in BACKENDS.values() for s in entry.strategies))
SQL = "sql"
"""The backend of expressions, in which the engine itself does all the work."""
NAMES = ("auto", SQL, *BACKENDS)
"""What the option `backend` takes."""
ROUTES = ("auto", "native", "arrow")
"""How rows may reach a function (`planner.program.route`)."""

SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "backend": NAMES,
        "strategy": STRATEGIES,
        "device": DEVICES,
        "route": ROUTES,
        "approximate": ("true", "false"),
    }
)
"""The settings of a session, and what each of them takes."""


def with_setting(settings: Mapping[str, str], name: str, value: Any) -> Mapping[str, str]:
    """The options of a session with `name` set, or (None) without it.

    Raises:
        ConfigError: unknown option or value.
    """
    known = SETTINGS.get(name)
    if known is None:
        raise ConfigError(
            f"unknown setting sqlml_{name}; settings: "
            + ", ".join(f"sqlml_{option}" for option in SETTINGS)
        )
    others = {k: v for k, v in settings.items() if k != name}
    if value is None:
        return others
    text = str(value).lower() if isinstance(value, str | bool) else ""
    if text not in known:
        raise ConfigError(f"unknown {name} {value!r}; sqlml_{name} takes {', '.join(known)}")
    return {**others, name: text}


def batch_rows(options: Mapping[str, Any]) -> int | None:
    """The most rows to score at once, from the option `batch_size`; None leaves it to the engine.

    Raises:
        ConfigError: it is not a number of rows from 1 to `MOST_ROWS`.
    """
    rows = options.get("batch_size")
    if rows is not None and (type(rows) is not int or not 0 < rows <= MOST_ROWS):
        raise ConfigError(
            f"option batch_size must be a number of rows from 1 to {MOST_ROWS}, not {rows!r}"
        )
    return rows


def may_approximate(options: Mapping[str, Any], asked: bool | None) -> bool:
    """Whether a call may be answered by a cascade.

    Args:
        options: of the model, and those of the session in their place.
        asked: what the call says of itself.
    """
    return str(options.get("approximate")).lower() == "true" if asked is None else asked


def asks_for_sql(options: Mapping[str, Any]) -> bool:
    """Whether the user's options say that the model is to be written as SQL."""
    return str(options.get("backend", "auto")).lower() == SQL


def leaves_open(options: Mapping[str, Any]) -> bool:
    """Whether the user's options let a model be written as SQL."""
    return all(str(options.get(name, "auto")).lower() == "auto" for name in OPTIONS)
