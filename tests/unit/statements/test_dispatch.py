"""The tables of the statements about models are complete."""

from __future__ import annotations

import pytest

from sqlml.catalog.model import Reference
from sqlml.errors import ConfigError
from sqlml.parsing import statements
from sqlml.statements.create_model import ModelRequest, parse_model_name
from sqlml.statements.dispatch import CHANGES, STATEMENTS


def kinds_of(base: type) -> set[type]:
    """The classes of `statements` that have this base, but for those that others build on."""
    found = [k for k in vars(statements).values() if isinstance(k, type) and issubclass(k, base)]
    return {k for k in found if not any(k is not other and k in other.__mro__ for other in found)}


def test_every_statement_about_models_is_carried_out() -> None:
    of_sessions = {statements.Query, statements.Explain, statements.SetOption}
    assert set(STATEMENTS) == kinds_of(statements.Statement) - of_sessions


def test_every_change_of_alter_model_is_carried_out() -> None:
    assert set(CHANGES) == kinds_of(statements.Change)


@pytest.mark.parametrize(
    "argument",
    [
        {"description": statements.Description(comment=1)},  # type: ignore[arg-type]
        {"number": True},
        {"or_replace": 1},
        {"options": {"bakend": "x"}},
    ],
)
def test_a_request_is_checked_when_it_is_made(argument: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="comment|number|or_replace|bakend"):
        ModelRequest(Reference("m"), **argument)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "m/2", "m@first", "a.b.c"])
def test_a_name_to_register_is_of_a_whole_model(name: str) -> None:
    with pytest.raises(ConfigError, match="invalid model name"):
        parse_model_name(name)
