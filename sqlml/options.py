"""OPTIONS of CREATE MODEL and keyword options of create_model: one table, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlml.errors import ConfigError

STORED = ("backend", "strategy", "device")
"""Options that are kept with the model and decide how it is run."""
AT_CREATION = ("allow_pickle", "sha256", "verify")
"""Options that matter while a model is read and compared with its source."""
VERIFY = (True, False, "record")
"""Values of `verify`: refuse a model that answers otherwise than its source, do not compare them,
or compare them and keep what was found."""
RESERVED = ("batch_size", "on_missing_column", "on_null", "positive_class")
"""Options that a later version carries out."""


def stored(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options to keep with the model.

    Raises:
        ConfigError: an unknown option, or one that is reserved for a later version.
    """
    for name in options:
        if name in RESERVED:
            raise ConfigError(f"option {name} comes with a later version of sqlml; leave it out")
        if name not in STORED and name not in AT_CREATION:
            known = ", ".join(sorted((*STORED, *AT_CREATION)))
            raise ConfigError(
                f"unknown option {name!r}; there are {known} (and inputs, or_replace, "
                "if_not_exists, comment in create_model)"
            )
    verify = options.get("verify", True)  # 1 is equal to True, but says less
    if type(verify) not in (bool, str) or verify not in VERIFY:
        raise ConfigError(f"option verify cannot be {verify!r}; it takes true, false or 'record'")
    return {k: v for k, v in options.items() if k in STORED}


def altered(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that ALTER MODEL gives to a version.

    Raises:
        ConfigError: an unknown option, one of a later version, or one that matters at creation.
    """
    for name in options:
        if name in AT_CREATION:
            raise ConfigError(f"option {name} matters while a model is created, and not afterwards")
        if name not in STORED and name not in RESERVED:
            raise ConfigError(f"there is no option {name!r}; there are {', '.join(STORED)}")
    return stored(options)


def checked(names: Sequence[str]) -> tuple[str, ...]:
    """The names of stored options.

    Raises:
        ConfigError: there is no such option.
    """
    altered(dict.fromkeys(names))
    return tuple(names)
