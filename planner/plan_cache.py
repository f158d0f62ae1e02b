"""A cache of plans, each valid as long as all questions that it depends on have the same answers.

Planning asks the engine for the types of columns, the catalog for the models behind names, and
whether the user has functions of certain names. A plan is stored with these questions and answers,
and asking them again costs far less than planning. A statement is planned anew if a column has
another type, a model was replaced (by any connection, in any transaction), or another data frame
has the same name.
"""

from __future__ import annotations

import datetime
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.plan.plan import Plan
from sqlml.planner.plan_statement import plan_statement
from sqlml.planner.program.choose import change_setting

MAX_PLANS = 256
"""The maximum number of plans in the cache. The least recently used plan is removed first."""

Stamp = Callable[[str], Any]
"""A function that maps a model name to a value that changes with the model, or to None."""

Question = tuple[str, Any]
"""The name of a function in `_RECORDED_FUNCTIONS`, and its argument: a string or a tuple."""

_RECORDED_FUNCTIONS = (
    *("describe", "model", "models", "is_user_function", "unique_keys", "view", "function_type"),
    *("is_repeatable", "read_names", "are_disjoint"),
)
"""The functions of a `Context` on whose answers a plan depends."""

_KEY_TYPES = (type(None), int, float, str, bytes, datetime.date, datetime.time, Decimal)


@dataclass(frozen=True, slots=True)
class _CachedPlan:
    plan: Plan | None
    answers: Mapping[Question, Any]


class PlanCache:
    """A thread-safe cache of the plans of one session's statements, and the SET options."""

    def __init__(self, context: Context, stamp: Stamp) -> None:
        self._context = context
        functions = {name: getattr(context, name) for name in _RECORDED_FUNCTIONS}
        self._recorded_functions = {name: ask for name, ask in functions.items() if ask is not None}
        self._lookups: dict[str, Callable[[Any], Any]]
        self._lookups = {**self._recorded_functions, "model": stamp}
        self._settings: Mapping[str, str] = {}
        self._cached_plans: OrderedDict[Any, _CachedPlan] = OrderedDict()
        self._lock = threading.Lock()

    def set(self, option: str, value: Any) -> None:
        """Set an option of the session, which overrides those of models. None removes the option.

        Raises ConfigError for an unknown option or value.
        """
        self._settings = change_setting(self._settings, option, value)

    def plan(self, sql: str, parameters: Any = None) -> Plan | None:
        """Return the plan of a statement, or None if it calls no model.

        Raises the errors of `plan_statement`.
        """
        key = _make_key(sql, parameters)
        settings = self._settings
        if settings and key is not None:
            key = (*key, tuple(sorted(settings.items())))
        with self._lock:
            cached_plan = self._cached_plans.get(key)
            if cached_plan is not None:
                self._cached_plans.move_to_end(key)
        if cached_plan is not None and self._is_current(cached_plan):
            return cached_plan.plan
        answers: dict[Question, Any] = {}
        context = replace(self._make_recording_context(answers), settings=settings)
        plan = plan_statement(sql, parameters, context)
        if key is not None and (plan is None or not plan.is_temporary):
            with self._lock:
                self._cached_plans[key] = _CachedPlan(plan, answers)
                while len(self._cached_plans) > MAX_PLANS:
                    self._cached_plans.popitem(last=False)
        return plan

    def _is_current(self, cached_plan: _CachedPlan) -> bool:
        return not any(
            (answer is None and question[0] == "model") or self._look_up(*question) != answer
            for question, answer in cached_plan.answers.items()
        )

    def _look_up(self, function_name: str, argument: Any) -> Any:
        """Return a function's current answer for `argument`, as a value that can be compared."""
        try:
            return self._lookups[function_name](argument)
        except ProbeError as error:
            return str(error)

    def _make_recording_context(self, answers: dict[Question, Any]) -> Context:
        """Return a copy of the context whose functions record answers in `answers`."""
        stamped_together: set[str] = set()  # Models whose stamps `models` records together.

        def ask_and_record(name: str, ask: Callable[[Any], Any], argument: Any) -> Any:
            if name == "model":
                if argument not in stamped_together:
                    # The stamp is read first, so that a change in between invalidates the plan.
                    answers[name, argument] = self._look_up(name, argument)
                return ask(argument)
            try:
                answer = answers[name, argument] = ask(argument)
            except ProbeError as error:
                answers[name, argument] = str(error)
                raise
            if name == "models":
                stamped_together.update(answer)
            return answer

        functions = self._recorded_functions.items()
        recorded: dict[str, Any] = {name: partial(ask_and_record, name, f) for name, f in functions}
        return replace(self._context, **recorded)


def _make_key(sql: str, parameters: Any) -> Any:
    """Return the cache key of a statement, or None if a parameter's value cannot be compared."""
    if parameters is None:
        return (sql,)
    if isinstance(parameters, Mapping):
        names, values = tuple(parameters), tuple(parameters.values())
    elif isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes):
        names, values = (), tuple(parameters)
    else:
        return None
    if not all(isinstance(value, _KEY_TYPES) for value in values):
        return None
    # 1, 1.0 and True are equal, but not the same parameter.
    return sql, names, values, tuple(map(type, values))
