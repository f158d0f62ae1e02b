"""Calls inside lambdas, where an engine may not call functions of Python."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlml.dialects import Dialect
from sqlml.errors import BackendError, BindError
from sqlml.planner.binding.scope import Scope
from sqlml.planner.choice.settings import leaves_open
from sqlml.planner.model_sql.sql_or_function import Wanted, Written
from sqlml.planner.syntax.outline import ModelCall

_LONGEST = 20_000
"""Most characters of an expression that the user did not ask for."""


def in_lambda(call: ModelCall, scope: Scope, dialect: Dialect) -> bool:
    """Whether a call stands inside a lambda, where the engine cannot call a function of ours."""
    if dialect.calls_in_lambdas or scope.outline.created:
        return False
    return call.has_local_names


def for_lambda(
    wanted: Wanted, options: Mapping[str, Any], scope: Scope, call: ModelCall
) -> Written:
    """The model as an expression, at any cost, since there is no other way."""
    if leaves_open(options):
        with suppress(BackendError):
            made = wanted.as_asked()
            if len(made.value) <= _LONGEST:
                return replace(made, reason="a lambda calls no function of Python")
    raise BindError(
        f"{wanted.dialect.name} cannot call Python functions inside a lambda, and the model is "
        "not a short expression; unnest the list first, as in SELECT .. FROM t LATERAL VIEW "
        "explode(list) l AS x",
        scope.sql,
        call.span.start,
    )
