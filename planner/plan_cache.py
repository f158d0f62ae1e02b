"""`PlanCache`: plans that are used again as long as every question they rest on has its old answer.

Planning asks the engine what it would bind, the catalog which model a name means, and whether the
user has a function of that name. A plan is kept with these questions and their answers, and asked
again they cost far less than planning: a column that changed its type, a model that was replaced
(by whomever, in whatever transaction) or another frame under the same name make a new plan.
"""

from __future__ import annotations

import datetime
import decimal
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.choice.choose import with_setting
from sqlml.planner.plan.plan import Plan
from sqlml.planner.plan_statement import plan

MOST = 256
"""Plans that are kept; the one that was not used for longest goes first."""

Stamp = Callable[[str], Any]
"""A value that changes with the model behind a reference; None if it is unknown."""

Question = tuple[str, Any]
"""What was asked (a name in `PlanCache`), and about which text, or texts."""

_PLAIN = (type(None), bool, int, float, str, bytes, datetime.date, datetime.time, decimal.Decimal)


@dataclass(frozen=True, slots=True)
class _Kept:
    plan: Plan | None
    answers: Mapping[Question, Any]


class PlanCache:
    """Plans of one session's queries, with the options that SET gives them. Thread-safe."""

    def __init__(self, context: Context, stamp: Stamp) -> None:
        self._context = context
        self._asked: Mapping[str, Callable[[Any], Any]] = {
            "model": stamp,
            "models": context.models,
            "describe": context.describe,
            "function": context.is_user_function,
            "keys": context.unique_keys or str,  # where there are none, nobody asks
            "view": context.view,
            "function type": context.function_type,
            "steady": context.is_steady,
            "names": context.names,
        }
        self._settings: Mapping[str, str] = {}
        self._kept: OrderedDict[Any, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def set(self, option: str, value: Any) -> None:
        """Set an option for the session's queries, which overrides those of their models; None
        resets it.

        Raises:
            ConfigError: unknown option or value.
        """
        self._settings = with_setting(self._settings, option, value)

    def plan(self, sql: str, parameters: Any = None) -> Plan | None:
        """The plan of one statement, or None when it calls no model.

        Raises:
            ParseError, BindError and its kin, UnknownModelError, ConfigError: as
                `plan_statement.plan` says.
        """
        key, settings = _key(sql, parameters), self._settings
        if settings and key is not None:
            key = (*key, tuple(sorted(settings.items())))
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        if kept is not None and self._holds(kept):
            return kept.plan
        answers: dict[Question, Any] = {}
        made = plan(sql, parameters, replace(self._noting(answers), settings=settings))
        if key is not None and not (made is not None and made.is_for_now):
            with self._lock:
                self._kept[key] = _Kept(made, answers)
                while len(self._kept) > MOST:
                    self._kept.popitem(last=False)
        return made

    def _holds(self, kept: _Kept) -> bool:
        for question, answer in kept.answers.items():
            unknown = answer is None and question[0] == "model"
            if unknown or self._answer(*question) != answer:
                return False
        return True

    def _answer(self, kind: str, text: Any) -> Any:
        """The answer to a question now: a value that can be compared with another."""
        try:
            return self._asked[kind](text)
        except ProbeError as error:
            return str(error)

    def _noting(self, answers: dict[Question, Any]) -> Context:
        """The context, whose answers are noted."""
        of_several: set[str] = set()  # models whose stamps are noted together

        def noted(kind: str, asked: Callable[[Any], Any], text: Any) -> Any:
            if kind == "model" and text in of_several:
                return asked(text)
            if kind == "model":  # stamp first: a model changed meanwhile is looked up again
                answers[kind, text] = self._answer(kind, text)
                return asked(text)
            try:
                answer = answers[kind, text] = asked(text)
            except ProbeError as error:
                answers[kind, text] = str(error)
                raise
            if kind == "models":
                of_several.update(answer)
            return answer

        context = self._context
        keys = context.unique_keys
        return replace(
            context,
            describe=partial(noted, "describe", context.describe),
            model=partial(noted, "model", context.model),
            models=partial(noted, "models", context.models),
            is_user_function=partial(noted, "function", context.is_user_function),
            unique_keys=None if keys is None else partial(noted, "keys", keys),
            view=partial(noted, "view", context.view),
            function_type=partial(noted, "function type", context.function_type),
            is_steady=partial(noted, "steady", context.is_steady),
            names=partial(noted, "names", context.names),
        )


def _key(sql: str, parameters: Any) -> Any:
    """The cache key of a statement; None for parameters without plain values."""
    if parameters is None:
        return (sql,)
    if isinstance(parameters, Mapping):
        names, values = tuple(parameters), tuple(parameters.values())
    elif isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes):
        names, values = (), tuple(parameters)
    else:
        return None
    if not all(isinstance(v, _PLAIN) for v in values):
        return None
    # 1, 1.0 and True are equal, but not the same parameter.
    return sql, names, values, tuple(map(type, values))
