"""Functions of one model each, for `spark.sql` itself: `predict_churn(tenure, plan)`.

They are temporary functions of Spark whose bodies are what the planner makes of a call, so that
Spark prunes columns through them and shares evaluations as everywhere. Their parameters are the
features of the model's default version, in order and by name.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlml.catalog.model import Model
from sqlml.dialects import SPARK
from sqlml.errors import SqlmlError
from sqlml.planner.target import OUTPUTS_OF
from sqlml.spark.scoring import SparkScoring
from sqlml.types import NESTED
from sqlml.udfs.spark import SparkEngine

MOST = 100
"""Models whose functions a session makes when it begins: each is read for that."""

_TYPES = {"number": "DOUBLE", "string": "VARCHAR", "any": "VARCHAR"}


def make_functions(model: Model, scoring: SparkScoring, engine: SparkEngine) -> None:
    """Make the functions of a model's default version known to plain queries.

    A model that reads lists or maps has none.
    """
    if any(f.kind in NESTED for f in model.features):
        return
    for function in OUTPUTS_OF:
        engine.drop_function(f"{function}_{model.name}")
    for statement in _statements(model, scoring):
        engine.make_function(statement)


def drop_functions(name: str, engine: SparkEngine) -> None:
    """Take the functions of a model away."""
    for function in OUTPUTS_OF:
        engine.drop_function(f"{function}_{name}")


def _statements(model: Model, scoring: SparkScoring) -> Iterator[str]:
    kinds = {f.name: SPARK.type(_TYPES[f.kind]) for f in model.features}
    nulls = [f"CAST(NULL AS {kind}) AS {SPARK.quote_name(n)}" for n, kind in kinds.items()]
    source = f"(SELECT {', '.join(nulls) or '0'})"
    for function, outputs in OUTPUTS_OF.items():
        if not any(output in model.program.outputs for output in outputs):
            continue
        call = f"{function}({SPARK.quote_string(model.name)}{', *' if kinds else ''})"
        try:
            found = scoring.plan(f"SELECT {call} FROM {source}")
            assert found is not None
            scoring.ready(found)
        except SqlmlError:
            continue  # the session says what is wrong, when the model is called there
        (made,) = found.calls
        parameters = ", ".join(f"{SPARK.quote_name(n)} {kind}" for n, kind in kinds.items())
        name = SPARK.quote_name(f"{function}_{model.name}")
        yield (
            f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({parameters}) "
            f"RETURNS {SPARK.type(made.type)} RETURN {made.sql}"
        )
