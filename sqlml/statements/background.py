"""`explained_by_rows`: a model's Program that explains against the rows of a query."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any, Protocol

from sqlml.catalog.model import Model, NewVersion
from sqlml.catalog.scoring_macros import ModelCall
from sqlml.catalog.stored_programs import Programs
from sqlml.dialects import Dialect
from sqlml.explaining.explained import explained_against
from sqlml.host import Host
from sqlml.importers.frame import Gaps
from sqlml.ir.operators.contributions import MOST_BACKGROUND
from sqlml.ir.program import Program
from sqlml.parsing.statements import AlterModel, Retrain, TrainModel, TrainVersion
from sqlml.planner.model_sql.macro_bodies import HELPERS, model_bodies
from sqlml.scorer.input_table import program_inputs
from sqlml.udfs.duckdb.functions_by_name import any_function
from sqlml.udfs.make_function import engine_function


def explained_by_rows(
    host: Host,
    programs: Programs,
    dialect: Dialect,
    model: Model,
    query: str,
    permutations: int | None,
) -> Program:
    """Run a query, and make the Program; `programs` finds it for as long as it is needed.

    Args:
        query: in brackets.
        permutations: pairs of orders that an estimate tries for each of the rows.

    Raises:
        ConfigError: no rows, or too many, or too many permutations.
        MissingColumnError: the rows lack a column of the model.
        UnsupportedModelError: the model cannot be explained.
    """
    items, transform = "*", model.transform
    if transform is not None:
        names = {column: dialect.quote_name(column) for column in transform.columns}
        items = ", ".join(
            f"{transform.sql(f.name, names)} AS {dialect.quote_name(f.name)}"
            if f.name in transform.made
            else dialect.quote_name(f.name)
            for f in model.program.features
        )
    rows = f"SELECT {items} FROM {query} AS sqlml_background LIMIT {MOST_BACKGROUND + 1}"
    gaps = Gaps(blanks=model.origin.blanks)
    given = program_inputs(model.program, host.fetch_frame(rows), gaps=gaps)
    made = explained_against(model.program, given, permutations)
    programs.keep(made)
    return made


# `with_parameters`: a training statement whose query has the values of its parameters in it.


def with_parameters(host: Host, statement: Any, parameters: Any) -> Any:
    """The statement, if it trains; others take no parameters, and stay as they are.

    Raises:
        ParseError: a parameter has no value, or there are more values than parameters.
    """
    if not parameters:
        return statement

    def bound(query: str) -> str:
        return host.with_values(query, parameters)

    if isinstance(statement, TrainModel):
        training = replace(statement.training, query=bound(statement.training.query))
        return replace(statement, training=training)
    change = statement.change if isinstance(statement, AlterModel) else None
    if isinstance(change, TrainVersion):
        training = replace(change.training, query=bound(change.training.query))
        return replace(statement, change=replace(change, training=training))
    if isinstance(change, Retrain) and change.query is not None:
        return replace(statement, change=replace(change, query=bound(change.query)))
    return statement


# `names_in_rows`: the models that the rows of a query name, for the planner.


class Queries(Protocol):
    """A session's queries."""

    host: Host

    def runnable(self, sql: str) -> str:
        """A query that may call models as the engine runs it."""
        ...


def names_in_rows(queries: weakref.ref[Queries], query: str) -> tuple[str, ...]:
    """The texts that a query of one column gives; it may call models.

    The planner holds `queries` weakly: a session that nobody holds goes at once, and lets go of its
    file.
    """
    own = queries()
    assert own is not None, "it is planning"
    return tuple(sorted(str(name) for (name,) in own.host.read(own.runnable(query))))


# `calls_of`: what the macros for plain connections compute of a version.


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
