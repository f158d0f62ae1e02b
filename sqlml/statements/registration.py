"""`Registration`: what CREATE MODEL and ADD VERSION specify besides the model itself, checked
once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import Reference, parse_reference
from sqlml.errors import ConfigError, UnknownModelError
from sqlml.statements import options as model_options


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """Under which name a model is to be registered, and how.

    Args:
        reference: the model as a whole.
        inputs: names of the columns in training order, or name -> SQL type.
        output: name and SQL type of what it predicts.
        comment: of the model, or of the version that is added.
        or_replace: add a version that becomes the default, if the model exists.
        if_not_exists: do nothing if the model exists.
        number: of the version that is added; None: one more than the last one ever made.
        options: those of `options.py`.

    Raises:
        ConfigError: one of them is of the wrong type, or an option or value is unknown.
    """

    reference: Reference
    inputs: Sequence[str] | Mapping[str, str] | None = None
    output: Sequence[tuple[str, str]] | None = None
    comment: str | None = None
    or_replace: bool = False
    if_not_exists: bool = False
    number: int | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not (self.comment is None or isinstance(self.comment, str)):
            raise ConfigError(f"comment must be a string, not {self.comment!r}")
        if not (self.number is None or type(self.number) is int):
            raise ConfigError(f"number must be an integer, not {self.number!r}")
        for name in ("or_replace", "if_not_exists"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigError(f"{name} must be True or False, not {value!r}")
        model_options.stored(self.options)


def whole_model(name: Any) -> Reference:
    """The reference of `model` or `database.model`, as `create_model` is given it.

    Raises:
        ConfigError: it is not a valid reference, or names a version.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"the model name comes first and must be a string, not a {type(name).__name__}: "
            "create_model('churn', model)"
        )
    try:
        reference = parse_reference(name)
    except UnknownModelError:
        reference = None
    if reference is None or reference.names_a_version:
        raise ConfigError(
            f"invalid model name {name!r}: write 'model' or 'database.model', with neither part "
            "empty or containing . @ or /"
        )
    return reference
