"""The tables of the statements about models are complete."""

from __future__ import annotations

from typing import get_args

import pytest

from sqlml.catalog.model import Reference
from sqlml.errors import ConfigError
from sqlml.parsing import statements
from sqlml.statements.alter import CHANGES
from sqlml.statements.registration import Registration, whole_model
from sqlml.statements.run import STATEMENTS


def test_every_statement_about_models_is_carried_out() -> None:
    of_sessions = {statements.Query, statements.Explain, statements.SetOption}
    assert set(STATEMENTS) == set(get_args(statements.Statement)) - of_sessions


def test_every_change_of_alter_model_is_carried_out() -> None:
    assert set(CHANGES) == set(get_args(statements.Change))


@pytest.mark.parametrize(
    "argument", [{"comment": 1}, {"number": True}, {"or_replace": 1}, {"options": {"bakend": "x"}}]
)
def test_a_registration_is_checked_when_it_is_made(argument: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="comment|number|or_replace|bakend"):
        Registration(Reference("m"), **argument)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "m/2", "m@first", "a.b.c"])
def test_a_name_to_register_is_of_a_whole_model(name: str) -> None:
    with pytest.raises(ConfigError, match="invalid model name"):
        whole_model(name)
