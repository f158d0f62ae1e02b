"""Plan a call whose rows name their models: models that differ only in numbers share their SQL.

::

    predict(shop_model, *)
    CASE WHEN shop_model IS NULL THEN NULL ELSE [...][1 + f(shop_model, [a, b, c])] END

f scores the rows of many models, those of each model together. It takes all columns that any of
them reads. Models that differ in more than numbers, such as in their labels, are another group: a
CASE has the SQL of each group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlml.dialects import Dialect
from sqlml.errors import SqlmlError
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.models_of_rows import ModelsOfRows
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.call_draft import FromColumn
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.plan.plan_call import ROW_PLACEHOLDER, CallInFrom
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.program.named_function import ModelScorer, NamedFunction
from sqlml.planner.syntax.outline import ModelCall, ModelColumn
from sqlml.types import fold

PlanSingleCall = Callable[..., CallInFrom]
"""`plan_call`, with all arguments bound except the call and its target."""


@dataclass
class _ModelGroup:
    """Models that share their SQL, and the arguments of all of them.

    Attributes:
        example: the planned call of one of the models.
        numbers, texts: expression of an argument -> index.
    """

    sql: str
    example: PlannedCall
    scorers: dict[str, ModelScorer] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, spec: FunctionSpec, call: CallInFrom) -> None:
        """Add a model under the name that rows use."""
        numbers = tuple(self.numbers.setdefault(n, len(self.numbers)) for n in call.numbers)
        texts = tuple(self.texts.setdefault(t, len(self.texts)) for t in call.texts)
        self.scorers[name] = ModelScorer(spec, numbers, texts)

    def make_function(self, errors: Mapping[str, SqlmlError], skips_unknown: bool) -> NamedFunction:
        """Return the function of all models of the group."""
        return NamedFunction(
            scorers=self.scorers,
            numbers=len(self.numbers),
            texts=len(self.texts),
            errors=errors,
            skips_unknown=skips_unknown,
            by_column=self.example.spec.by_column,
        )


def plan_named_call(
    call: ModelCall,
    target: Target,
    named: ModelsOfRows,
    scope: Scope,
    plan: PlanSingleCall,
    sorts: bool,
) -> CallInFrom:
    """Plan the call.

    Args:
        target: the requested output, with one of the models.
        plan: plans the call of one model.
        sorts: the result is a column of FROM, which sorts the rows by model.

    Raises:
        BindError and its subclasses: no model fits.
    """
    assert isinstance(call.model, ModelColumn)
    dialect, name = scope.dialect, f"({scope.text(call.model.span)})"
    groups, errors, planned = _group_models(call, named, plan)
    if not groups:
        raise next(iter(errors.values()))
    has_branches = len(groups) > 1 or call.skips_unknown
    by_column = groups[0].example.spec.by_column
    functions = [
        group.make_function({} if has_branches else errors, has_branches) for group in groups
    ]
    branches = [
        _write_branch(group, function, name, dialect)
        for group, function in zip(groups, functions, strict=True)
    ]
    if not has_branches:
        sql = f"(CASE WHEN {name} IS NULL THEN NULL ELSE {branches[0]} END)"
    else:
        group_numbers = {n: k for k, group in enumerate(groups) for n in group.scorers}
        group_function = NamedFunction(
            groups=group_numbers, errors=errors, nulls=named.nulls, by_column=by_column
        )
        functions.append(group_function)
        group_number = f"{dialect.scorer(group_function.name)}({name})"
        whens = " ".join(f"WHEN {k} THEN {sql}" for k, sql in enumerate(branches))
        sql = f"(CASE {dialect.checked(group_number, dialect.value_of(group_number))} {whens} END)"
    used_functions = [function for function in functions if function.groups or function.name in sql]
    model_text = " ".join(scope.sql[call.model.span.start : call.model.span.end].split())
    reads: dict[str, Bound] = {model_text: Bound(name, "VARCHAR")}
    for single in planned:
        reads |= dict(single.reads)
    planned_call = replace(
        groups[0].example,
        sql=sql,
        reads=tuple(reads.items()),
        unread=(),
        other_columns=_exclude_read(groups[0].example.other_columns, reads, dialect),
        functions_of_models=tuple(used_functions),
        models=tuple(sorted(n for group in groups for n in group.scorers)),
    )
    if not sorts:
        return CallInFrom(planned=planned_call, column=None, row=None)
    read_in_from = ", ".join(bound.sql for bound in reads.values())
    column = FromColumn.of_models(sql, read_in_from, dialect.type(target.type), name)
    planned_call = replace(planned_call, sql=dialect.quote_name(column.name))
    return CallInFrom(planned=planned_call, column=column, row=None)


def _exclude_read(
    columns: Sequence[str], reads: Mapping[str, Bound], dialect: Dialect
) -> tuple[str, ...]:
    """Return the columns that no model reads."""
    read_sql = {fold(bound.sql) for bound in reads.values()}
    return tuple(c for c in columns if fold(dialect.quote_name(c)) not in read_sql)


def _write_branch(group: _ModelGroup, function: NamedFunction, name: str, dialect: Dialect) -> str:
    """Return the SQL of a group, in which the group's function gets the name and all arguments."""
    arguments = dialect.columns_of_models(list(group.numbers), list(group.texts))
    call_sql = f"{dialect.scorer(function.name)}({name}, {arguments})"
    return group.sql.replace(_write_placeholder(group.example, dialect.scorer), call_sql)


def _group_models(
    call: ModelCall, named: ModelsOfRows, plan: PlanSingleCall
) -> tuple[list[_ModelGroup], Mapping[str, SqlmlError], list[PlannedCall]]:
    """Return the groups of models, the errors of models that cannot be called, and all calls."""
    groups: dict[str, _ModelGroup] = {}
    errors = dict(named.errors)
    calls: dict[object, CallInFrom] = {}
    failures: dict[object, SqlmlError] = {}
    all_columns = frozenset[str]().union(*map(_fold_columns, named.targets.values()))
    for name, target in named.targets.items():
        version = _identify_version(target)
        if version not in calls and version not in failures:
            try:
                calls[version] = plan(
                    call=_restrict_arguments(call, target, all_columns), target=target
                )
            except SqlmlError as error:
                failures[version] = error
        if version in failures:
            errors[name] = failures[version]
            continue
        placed = calls[version]
        spec, sql = placed.planned.spec, placed.planned.sql
        kind = groups.setdefault(sql.replace(spec.name, ""), _ModelGroup(sql, placed.planned))
        kind.add(name, spec, placed)
    return list(groups.values()), errors, [placed.planned for placed in calls.values()]


def _restrict_arguments(call: ModelCall, target: Target, all_columns: frozenset[str]) -> ModelCall:
    """Return the call of one model, without arguments for features that only others have."""
    others = all_columns - _fold_columns(target)
    arguments = (a for a in call.arguments if a.name is None or fold(a.name) not in others)
    return replace(call, arguments=tuple(arguments))


def _fold_columns(target: Target) -> frozenset[str]:
    return frozenset(fold(column.name) for column in target.model.columns)


def _identify_version(target: Target) -> object:
    """Return a key that is equal for all names of one version, such as its aliases."""
    model = target.model
    return model.database, model.name, model.version, target.output, target.chosen


def _write_placeholder(example: PlannedCall, scorer: Callable[[str], str]) -> str:
    """Return the call of the example's function, as it stands in the SQL of a group."""
    return f"{scorer(example.spec.name)}({ROW_PLACEHOLDER})"
