"""Functions of one model each, for `spark.sql` itself: `predict_churn(tenure, plan)`.

They are temporary functions of Spark whose bodies are what the planner makes of a call, so that
Spark prunes columns through them and shares evaluations as everywhere. Their parameters are the
features of the model's default version, in order and by name.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from sqlml.catalog.model import Model
from sqlml.dialects import SPARK
from sqlml.errors import SqlmlError
from sqlml.planner.target import OUTPUTS_OF
from sqlml.spark.scoring import SparkScoring
from sqlml.types import NESTED, fold
from sqlml.udfs.spark import SparkEngine

MOST = 100
"""Models whose functions a session makes when it begins: each is read for that."""

_TYPES = {"number": "DOUBLE", "string": "VARCHAR", "any": "VARCHAR"}


def make_functions(
    model: Model, names: Sequence[str], place: str, scoring: SparkScoring, engine: SparkEngine
) -> None:
    """Make the functions of a model's default version known to plain queries.

    A model that reads lists or maps has none. One whose function would also be that of another of
    the models `names` of the directory `place` has not that one, and neither has the other; what a
    user or a session on another directory has made stays.
    """
    taken = {f"{f}_{fold(n)}" for n in names if fold(n) != fold(model.name) for f in OUTPUTS_OF}
    nested = any(f.kind in NESTED for f in model.features)
    for function in OUTPUTS_OF:
        name = f"{function}_{model.name}"
        made = False
        if fold(name) not in taken and not nested:
            with suppress(SqlmlError):  # the session says what is wrong, when it is called there
                made = _made(function, model, place, scoring, engine)
        if not made:
            engine.drop_function(name, _owner(place, model.name))


def drop_functions(name: str, place: str, engine: SparkEngine) -> None:
    """Take the functions of a model away."""
    for function in OUTPUTS_OF:
        engine.drop_function(f"{function}_{name}", _owner(place, name))


def rivals(name: str, names: Sequence[str]) -> list[str]:
    """Those of the models `names` whose functions have names that those of `name` have.

    >>> rivals("m", ["m", "proba_m", "x"]), rivals("score_a", ["a", "b"])
    (['proba_m'], ['a'])
    """
    own = {f"{f}_{fold(name)}" for f in OUTPUTS_OF}
    others = (n for n in names if fold(n) != fold(name))
    return [n for n in others if any(f"{f}_{fold(n)}" in own for f in OUTPUTS_OF)]


def _owner(place: str, model: str) -> str:
    return json.dumps({"sqlml": place, "model": fold(model)})


def _made(
    function: str, model: Model, place: str, scoring: SparkScoring, engine: SparkEngine
) -> bool:
    if not any(output in model.program.outputs for output in OUTPUTS_OF[function]):
        return False
    kinds = {f.name: SPARK.type(_TYPES[f.kind]) for f in model.features}
    nulls = [f"CAST(NULL AS {kind}) AS {SPARK.quote_name(n)}" for n, kind in kinds.items()]
    source = f"(SELECT {', '.join(nulls) or '0'})"
    call = f"{function}({SPARK.quote_string(model.name)}{', *' if kinds else ''})"
    found = scoring.plan(f"SELECT {call} FROM {source}")
    assert found is not None
    scoring.ready(found)
    (made,) = found.calls
    parameters = ", ".join(f"{SPARK.quote_name(n)} {kind}" for n, kind in kinds.items())
    signature = f"({parameters}) RETURNS {SPARK.type(made.type)}"
    name, owner = f"{function}_{model.name}", _owner(place, model.name)
    if not engine.make_function(name, signature, made.sql, owner, partial(_replaces, owner)):
        warnings.warn(
            f"{name}(..) of plain queries is not made: there is another function of that name, or "
            f"Spark does not take it; con.sql knows {function}({model.name!r}, ..)",
            stacklevel=2,
        )
        return False
    return True


_held: Counter[str] = Counter()
"""Place of a directory -> sessions on it that are open."""


def hold(place: str) -> None:
    """A session on a directory is open: its functions are not replaced by those of others."""
    _held[place] += 1


def let_go(place: str) -> None:
    """It has been closed."""
    _held[place] -= 1


def _replaces(owner: str, there: str) -> bool:
    """Whether a function of `owner` may take the place of one of another."""
    if there == owner:
        return True
    try:
        return _held[json.loads(there)["sqlml"]] <= 0
    except (ValueError, TypeError, KeyError):
        return False  # it is the user's
