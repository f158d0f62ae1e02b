"""`SparkQueries`: from a query that calls models to SQL that Spark runs as it is."""

from __future__ import annotations

import json
import warnings
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sqlml.catalog.lookup import Catalog, Lookup
from sqlml.catalog.model import Model
from sqlml.dialects.spark import SPARK
from sqlml.errors import SqlmlError, UnknownModelError
from sqlml.host import Host
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.planner.plan.plan import Plan
from sqlml.planner.plan_cache import PlanCache
from sqlml.statements.planner_callbacks import explained_by_rows, names_in_rows
from sqlml.types import NESTED, fold
from sqlml.udfs.engine import names_to_call
from sqlml.udfs.spark.engine import SparkEngine


class SparkQueries(PlanCache):
    """The plans of one SparkSession's queries, and the functions that they call."""

    def __init__(self, engine: SparkEngine, catalog: Catalog, lookup: Lookup, host: Host) -> None:
        context = replace(
            engine.context(lookup.model),
            training=lookup.training,
            explained=partial(explained_by_rows, host, catalog.programs, SPARK),
            models=lookup.several,
            names=partial(names_in_rows, weakref.ref(self)),
        )
        super().__init__(context, lookup.stamp)
        self._engine = engine
        self._catalog = catalog
        self.host = host

    def runnable(self, sql: str) -> str:
        """A query that may call models as Spark runs it."""
        plan = self.plan(sql, None)
        return sql if plan is None else self.ready(plan)

    def ready(self, plan: Plan) -> str:
        """The plan's SQL once all its functions are registered, each by its own name."""
        names_to_call(self._engine, plan, self._catalog.program)
        return plan.sql


# Functions of one model each, for `spark.sql` itself: `predict_churn(tenure, plan)`.
#
# They are temporary functions of Spark whose bodies are what the planner makes of a call, so that
# Spark prunes columns through them and shares evaluations as everywhere. Their parameters are the
# features of the model's default version, in order and by name.


MOST = 100
"""Models whose functions a session makes when it begins: each is read for that."""

_TYPES = {"number": "DOUBLE", "string": "VARCHAR", "datetime": "TIMESTAMP", "any": "VARCHAR"}

_held: Counter[str] = Counter()
"""Place of a directory -> sessions on it that are open."""


class PlainFunctions:
    """The functions that one session has made of the models of the directory `place`.

    A session that is open holds its functions: those of another directory do not replace them.
    """

    def __init__(
        self,
        engine: SparkEngine,
        catalog: Catalog,
        lookup: Lookup,
        queries: SparkQueries,
        place: str,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._lookup = lookup
        self._queries = queries
        self._place = place

    def make_all(self) -> None:
        """A session begins: make the functions of its models, where these are not too many."""
        names = self._catalog.names()
        _held[self._place] += 1
        for name in names if len(names) <= MOST else ():
            self._make_or_drop(name, names)

    def refresh(self, name: str) -> None:
        """Make the functions of a model as its default version is now, and those of its rivals."""
        names = self._catalog.names()
        self._make_or_drop(name, names)
        for other in rivals(name, names):
            self._make_or_drop(other, names)

    def let_go(self) -> None:
        """The session has been closed: its functions may be replaced."""
        _held[self._place] -= 1

    def _make_or_drop(self, name: str, names: Sequence[str]) -> None:
        try:
            model = self._lookup.model(name)
        except UnknownModelError:
            for function in OUTPUTS_OF:
                self._drop(function, name)
        except SqlmlError:
            return  # whoever calls the model is told what is wrong with it
        else:
            self._make(model, names)

    def _make(self, model: Model, names: Sequence[str]) -> None:
        """Make the functions of a model's default version known to plain queries.

        A model that reads lists or maps has none. A function name that two of the models `names`
        would share is given to neither; functions of a user, or of a session on another directory,
        stay.
        """
        taken = {f"{f}_{fold(n)}" for n in names if fold(n) != fold(model.name) for f in OUTPUTS_OF}
        nested = any(f.kind in NESTED for f in model.features)
        for function in OUTPUTS_OF:
            made = False
            if fold(f"{function}_{model.name}") not in taken and not nested:
                with suppress(SqlmlError):  # a call in the session says what is wrong
                    made = self._made(function, model)
            if not made:
                self._drop(function, model.name)

    def _drop(self, function: str, name: str) -> None:
        self._engine.drop_function(f"{function}_{name}", self._owner(name))

    def _owner(self, model: str) -> str:
        return json.dumps({"sqlml": self._place, "model": fold(model)})

    def _made(self, function: str, model: Model) -> bool:
        if not any(output in model.program.outputs for output in OUTPUTS_OF[function]):
            return False
        kinds = {f.name: SPARK.type(_TYPES[f.kind]) for f in model.features}
        nulls = [f"CAST(NULL AS {kind}) AS {SPARK.quote_name(n)}" for n, kind in kinds.items()]
        source = f"(SELECT {', '.join(nulls) or '0'})"
        call = f"{function}({SPARK.quote_string(model.name)}{', *' if kinds else ''})"
        found = self._queries.plan(f"SELECT {call} FROM {source}")
        assert found is not None
        self._queries.ready(found)
        (made,) = found.calls
        parameters = ", ".join(f"{SPARK.quote_name(n)} {kind}" for n, kind in kinds.items())
        signature = f"({parameters}) RETURNS {SPARK.type(made.type)}"
        name, owner = f"{function}_{model.name}", self._owner(model.name)
        if not self._engine.make_function(
            name, signature, made.sql, owner, partial(_replaces, owner)
        ):
            warnings.warn(
                f"{name}(..) is not available in plain queries: another function has that name, "
                f"or Spark does not accept it; use {function}({model.name!r}, ..) in con.sql",
                stacklevel=2,
            )
            return False
        return True


def rivals(name: str, names: Sequence[str]) -> list[str]:
    """Those of the models `names` whose functions have names that those of `name` have.

    >>> rivals("m", ["m", "proba_m", "x"]), rivals("score_a", ["a", "b"])
    (['proba_m'], ['a'])
    """
    own = {f"{f}_{fold(name)}" for f in OUTPUTS_OF}
    others = (n for n in names if fold(n) != fold(name))
    return [n for n in others if any(f"{f}_{fold(n)}" in own for f in OUTPUTS_OF)]


def _replaces(owner: str, there: str) -> bool:
    """Whether a function of `owner` may take the place of one of another."""
    if there == owner:
        return True
    try:
        return _held[json.loads(there)["sqlml"]] <= 0
    except (ValueError, TypeError, KeyError):
        return False  # it is the user's
