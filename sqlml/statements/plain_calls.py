"""`calls_of`: what the macros for plain connections compute of a version."""

from __future__ import annotations

from sqlml.catalog.model import NewVersion
from sqlml.catalog.plain_macros.keep import ModelCall
from sqlml.planner.model_sql.plain_macros import HELPERS, model_bodies
from sqlml.udfs.duckdb.functions_by_name import any_function
from sqlml.udfs.make_function import engine_function


def calls_of(version: NewVersion) -> list[ModelCall]:
    """What the macros for plain connections compute of a version."""
    calls = []
    given = version.features, version.program, version.options, version.transform
    for body in model_bodies(*given):
        if body.function is None:
            calls.append(ModelCall(body.kind, body.sql))
            continue
        made = engine_function(body.function, version.program, on_use=True)
        common = any_function(made.argument_types, made.result_type)
        assert common is not None
        sql = body.sql.replace(f"{made.name}(", f"{common.name}('{made.name}', ")
        types = common.argument_types, common.result_type
        calls.append(ModelCall(body.kind, sql, common.name, *types, HELPERS))
    return calls
