"""Functions that each call a single model in plain `spark.sql`, such as `predict_churn(tenure)`.

These functions are temporary SQL functions of Spark. The body of a function is the planner's SQL
for a call, so Spark prunes columns and shares evaluations as in queries of a session. The
parameters are the features of the model's default version, in order and by name. `SparkQueries`
plans these calls and all queries of a session.
"""

from __future__ import annotations

import json
import warnings
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sqlml.catalog.lookup import Catalog, ModelCache
from sqlml.catalog.model import Model
from sqlml.dialects.spark import SPARK
from sqlml.errors import SqlmlError, UnknownModelError
from sqlml.host import Host
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.planner.plan.plan import Plan
from sqlml.planner.plan_cache import PlanCache
from sqlml.statements.planner_callbacks import are_disjoint, explain_by_rows, fetch_names
from sqlml.types import NESTED, fold
from sqlml.udfs.engine_function import register_functions
from sqlml.udfs.spark.engine import SparkEngine


class SparkQueries(PlanCache):
    """The plans of one SparkSession's queries, and the functions that these queries call."""

    def __init__(
        self, engine: SparkEngine, catalog: Catalog, lookup: ModelCache, host: Host
    ) -> None:
        context = replace(
            engine.make_context(lookup.model),
            small_models=lookup.catalog.small_models,
            training=lookup.training,
            explain_against=partial(explain_by_rows, host, catalog.programs, SPARK),
            models=lookup.load_all,
            read_names=partial(fetch_names, weakref.ref(self)),
            are_disjoint=partial(are_disjoint, weakref.ref(self)),
        )
        super().__init__(context, lookup.stamp)
        self._engine = engine
        self._catalog = catalog
        self.host = host

    def runnable(self, sql: str) -> str:
        """Rewrite a query that may call models to SQL for Spark, and register the functions."""
        plan = self.plan(sql, None)
        return sql if plan is None else self.register(plan)

    def register(self, plan: Plan) -> str:
        """Register the functions that a plan calls; return the SQL of the plan."""
        register_functions(self._engine, plan, self._catalog.program)
        return plan.sql


MAX_MODELS = 100
"""The maximum number of models for which a new session makes functions."""

_TYPES = {"number": "DOUBLE", "string": "VARCHAR", "datetime": "TIMESTAMP", "any": "VARCHAR"}

_open_sessions: Counter[str] = Counter()
"""Maps a model directory to the number of open sessions."""


class PlainFunctions:
    """The functions that a session makes for the models in `directory`.

    While the session is open, sessions on other directories do not replace these functions.
    """

    def __init__(
        self,
        engine: SparkEngine,
        catalog: Catalog,
        lookup: ModelCache,
        queries: SparkQueries,
        directory: str,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._lookup = lookup
        self._queries = queries
        self._directory = directory

    def make_all(self) -> None:
        """Make the functions of all models, unless there are more than `MAX_MODELS` models."""
        all_names = self._catalog.names()
        _open_sessions[self._directory] += 1
        for name in all_names if len(all_names) <= MAX_MODELS else ():
            self._update(name, all_names)

    def refresh(self, name: str) -> None:
        """Update the functions of a model, and of other models with the same function names."""
        all_names = self._catalog.names()
        self._update(name, all_names)
        for rival in find_rivals(name, all_names):
            self._update(rival, all_names)

    def release(self) -> None:
        """Allow sessions on other directories to replace the functions of this session."""
        _open_sessions[self._directory] -= 1

    def _update(self, name: str, all_names: Sequence[str]) -> None:
        try:
            model = self._lookup.model(name)
        except UnknownModelError:
            for model_function in OUTPUTS_OF:
                self._drop_sql_function(model_function, name)
        except SqlmlError:
            return  # The error is raised when the model is used.
        else:
            self._make_functions(model, all_names)

    def _make_functions(self, model: Model, all_names: Sequence[str]) -> None:
        """Make the functions of a model's default version, and drop all other functions.

        A model that reads lists or maps has no functions. If two models in `all_names` would have
        functions of the same name, neither model gets that function. `_may_replace` protects the
        functions of other owners.
        """
        other_names = [fold(name) for name in all_names if fold(name) != fold(model.name)]
        taken_names = {f"{function}_{name}" for name in other_names for function in OUTPUTS_OF}
        is_nested = any(feature.kind in NESTED for feature in model.features)
        for model_function in OUTPUTS_OF:
            is_created = False
            if fold(f"{model_function}_{model.name}") not in taken_names and not is_nested:
                with suppress(SqlmlError):  # The error is raised when a query calls the model.
                    is_created = self._create_sql_function(model_function, model)
            if not is_created:
                self._drop_sql_function(model_function, model.name)

    def _drop_sql_function(self, model_function: str, model_name: str) -> None:
        self._engine.drop_function(f"{model_function}_{model_name}", self._make_owner(model_name))

    def _make_owner(self, model_name: str) -> str:
        return json.dumps({"sqlml": self._directory, "model": fold(model_name)})

    def _create_sql_function(self, model_function: str, model: Model) -> bool:
        """Create the SQL function that wraps a model function; return False on failure."""
        if not any(output in model.program.outputs for output in OUTPUTS_OF[model_function]):
            return False
        types = {feature.name: SPARK.type(_TYPES[feature.kind]) for feature in model.features}
        quote = SPARK.quote_name
        nulls = [f"CAST(NULL AS {sql_type}) AS {quote(name)}" for name, sql_type in types.items()]
        source_sql = f"(SELECT {', '.join(nulls) or '0'})"
        call_sql = f"{model_function}({SPARK.quote_string(model.name)}{', *' if types else ''})"
        plan = self._queries.plan(f"SELECT {call_sql} FROM {source_sql}")
        assert plan is not None
        self._queries.register(plan)
        (planned_call,) = plan.calls
        parameters = ", ".join(f"{quote(name)} {sql_type}" for name, sql_type in types.items())
        signature = f"({parameters}) RETURNS {SPARK.type(planned_call.type)}"
        sql_name = f"{model_function}_{model.name}"
        owner = self._make_owner(model.name)
        may_replace = partial(_may_replace, owner)
        if self._engine.make_function(sql_name, signature, planned_call.sql, owner, may_replace):
            return True
        warnings.warn(
            f"{sql_name}(...) is not available in plain queries: another function has that "
            f"name, or Spark rejects it; use {model_function}({model.name!r}, ...) in con.sql",
            stacklevel=2,
        )
        return False


def find_rivals(name: str, model_names: Sequence[str]) -> list[str]:
    """Return the models in `model_names` that have a function name in common with model `name`.

    >>> find_rivals("m", ["m", "proba_m", "x"]), find_rivals("score_a", ["a", "b"])
    (['proba_m'], ['a'])
    """
    function_names = {f"{function}_{fold(name)}" for function in OUTPUTS_OF}
    others = (other for other in model_names if fold(other) != fold(name))
    return [o for o in others if any(f"{f}_{fold(o)}" in function_names for f in OUTPUTS_OF)]


def _may_replace(owner: str, existing_owner: str) -> bool:
    """Return whether `owner` may replace a function of `existing_owner`.

    Both owners must be equal, or no session may be open on the directory of `existing_owner`.
    """
    if existing_owner == owner:
        return True
    try:
        return _open_sessions[json.loads(existing_owner)["sqlml"]] <= 0
    except (ValueError, TypeError, KeyError):
        return False  # The function is the user's.
