"""`plan_named`: a call whose rows name their models: one SQL for all models that are alike.

::

    predict(shop_model, *)
    CASE WHEN shop_model IS NULL THEN NULL ELSE [..][1 + f(shop_model, [a, b, c])] END

f scores rows of many models, those of one model together. It takes all columns that one of them
reads. Models that differ in more than their numbers, as in the labels that they give, are of
another kind: a CASE has the SQL of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlml.errors import SqlmlError
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.models_of_rows import ModelsOfRows
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.call.call_draft import Column
from sqlml.planner.call.plan_call import ROW, PlacedCall
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.program.named_functions import NamedFunction, Scorer
from sqlml.planner.syntax.outline import ModelCall, ModelColumn
from sqlml.types import fold

PlanOne = Callable[..., PlacedCall]
"""`plan_call` but for the call and its target."""


@dataclass
class _Kind:
    """Models that have the same SQL, and all that one of them takes."""

    sql: str
    example: PlannedCall
    scorers: dict[str, Scorer] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, spec: FunctionSpec, made: PlacedCall) -> None:
        """One more model, by the name that rows give it."""
        numbers = tuple(self.numbers.setdefault(n, len(self.numbers)) for n in made.numbers)
        texts = tuple(self.texts.setdefault(t, len(self.texts)) for t in made.texts)
        self.scorers[name] = Scorer(spec, numbers, texts)


def plan_named(
    call: ModelCall,
    target: Target,
    named: ModelsOfRows,
    scope: Scope,
    plan: PlanOne,
    sorts: bool,
) -> PlacedCall:
    """The call as planned.

    Args:
        target: what it computes, with one of its models.
        plan: plans the call of one model.
        sorts: FROM makes what it gives, and sorts the rows for that.

    Raises:
        BindError and its kin: no model fits.
    """
    assert isinstance(call.model, ModelColumn)
    dialect, name = scope.dialect, f"({scope.text(call.model.span)})"
    kinds, errors, planned = _kinds(call, named, plan)
    if not kinds:
        raise next(iter(errors.values()))
    several = len(kinds) > 1 or call.skips_unknown
    by_column = kinds[0].example.spec.by_column
    functions = []
    branches = []
    for kind in kinds:
        function = NamedFunction(
            scorers=kind.scorers,
            numbers=len(kind.numbers),
            texts=len(kind.texts),
            errors={} if several else errors,
            skips_unknown=several,
            by_column=by_column,
        )
        given = dialect.columns_of_models(list(kind.numbers), list(kind.texts))
        written = f"{dialect.scorer(function.name)}({name}, {given})"
        functions.append(function)
        branches.append(kind.sql.replace(_placeholder(kind.example, dialect.scorer), written))
    if not several:
        sql = f"(CASE WHEN {name} IS NULL THEN NULL ELSE {branches[0]} END)"
    else:
        places = {n: k for k, kind in enumerate(kinds) for n in kind.scorers}
        chooses = NamedFunction(kinds=places, errors=errors, nulls=named.nulls, by_column=by_column)
        functions.append(chooses)
        chosen = f"{dialect.scorer(chooses.name)}({name})"
        whens = " ".join(f"WHEN {k} THEN {sql}" for k, sql in enumerate(branches))
        sql = f"(CASE {dialect.checked(chosen, dialect.value_of(chosen))} {whens} END)"
    used = [function for function in functions if function.kinds or function.name in sql]
    written = " ".join(scope.sql[call.model.span.start : call.model.span.end].split())
    reads: dict[str, Bound] = {written: Bound(name, "VARCHAR")}
    for one in planned:
        reads |= dict(one.reads)
    read = {fold(bound.sql) for bound in reads.values()}
    made = replace(
        kinds[0].example,
        sql=sql,
        reads=tuple(reads.items()),
        unread=(),
        others=tuple(c for c in kinds[0].example.others if fold(dialect.quote_name(c)) not in read),
        named=tuple(used),
        models=tuple(sorted(n for kind in kinds for n in kind.scorers)),
    )
    if not sorts:
        return PlacedCall(planned=made, column=None, row=None)
    read_in_from = ", ".join(bound.sql for bound in reads.values())
    column = Column.of_models(sql, read_in_from, dialect.type(target.type), name)
    made = replace(made, sql=dialect.quote_name(column.name))
    return PlacedCall(planned=made, column=column, row=None)


def _kinds(
    call: ModelCall, named: ModelsOfRows, plan: PlanOne
) -> tuple[list[_Kind], Mapping[str, SqlmlError], list[PlannedCall]]:
    """The models by kinds, why others cannot be called, and all calls."""
    found: dict[str, _Kind] = {}
    errors = dict(named.errors)
    calls: dict[object, PlacedCall] = {}
    refused: dict[object, SqlmlError] = {}
    known = frozenset[str]().union(*map(_columns, named.targets.values()))
    for name, target in named.targets.items():
        version = _version(target)
        if version not in calls and version not in refused:
            try:
                calls[version] = plan(call=_call_of(call, target, known), target=target)
            except SqlmlError as error:
                refused[version] = error
        if version in refused:
            errors[name] = refused[version]
            continue
        made = calls[version]
        spec, sql = made.planned.spec, made.planned.sql
        kind = found.setdefault(sql.replace(spec.name, ""), _Kind(sql, made.planned))
        kind.add(name, spec, made)
    return list(found.values()), errors, [made.planned for made in calls.values()]


def _call_of(call: ModelCall, target: Target, known: frozenset[str]) -> ModelCall:
    """The call of one model: without arguments for features that only others have."""
    others = known - _columns(target)
    arguments = (a for a in call.arguments if a.name is None or fold(a.name) not in others)
    return replace(call, arguments=tuple(arguments))


def _columns(target: Target) -> frozenset[str]:
    """What a model's call may name, folded."""
    return frozenset(fold(column.name) for column in target.model.columns)


def _version(target: Target) -> object:
    """Equal for names of one version, as its alias is one."""
    model = target.model
    return model.database, model.name, model.version, target.output, target.chosen


def _placeholder(example: PlannedCall, scorer: Callable[[str], str]) -> str:
    """The call of one model's function, in its SQL."""
    return f"{scorer(example.spec.name)}({ROW})"
