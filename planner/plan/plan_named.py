"""Plan a call whose rows name their models: models that differ only in numbers share their SQL.

::

    predict(shop_model, *)
    CASE WHEN shop_model IS NULL THEN NULL ELSE [...][1 + f(shop_model, [a, b, c])] END

The function f scores the rows of each model together. Its arguments are all columns that any of the
models reads. Models that differ in more than numbers form several groups, and a CASE has the SQL of
each group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlml.dialects import Dialect
from sqlml.errors import SqlmlError
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.binding.models_of_rows import ModelsOfRows
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.call_draft import FromColumn
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.plan.plan_call import ROW_PLACEHOLDER, CallInFrom
from sqlml.planner.program.function_spec import FunctionSpec, ModelScorer, NamedFunction
from sqlml.planner.syntax.outline import ModelCall, ModelColumn
from sqlml.types import fold

PlanSingleCall = Callable[[ModelCall, Target], CallInFrom]


@dataclass
class _ModelGroup:
    """A group of models whose calls have the same SQL, apart from the name of the function."""

    sql: str
    example: PlannedCall  # The call of one of the models.
    scorers: dict[str, ModelScorer] = field(default_factory=dict)
    # SQL of a numeric or string argument of any model -> its index among the function's arguments.
    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, spec: FunctionSpec, call: CallInFrom) -> None:
        numbers = tuple(self.numbers.setdefault(n, len(self.numbers)) for n in call.numbers)
        texts = tuple(self.texts.setdefault(text, len(self.texts)) for text in call.texts)
        self.scorers[name] = ModelScorer(spec, numbers, texts)

    def make_function(self, errors: Mapping[str, SqlmlError], skips_unknown: bool) -> NamedFunction:
        return NamedFunction(
            scorers=self.scorers,
            num_numbers=len(self.numbers),
            num_strings=len(self.texts),
            errors=errors,
            skips_unknown=skips_unknown,
            by_column=self.example.spec.by_column,
        )


def plan_named_call(
    call: ModelCall,
    target: Target,
    models: ModelsOfRows,
    scope: Scope,
    plan_single: PlanSingleCall,
    sorts: bool,
) -> CallInFrom:
    """Plan a call whose rows name models. If `sorts`, FROM computes it on rows sorted by model."""
    assert isinstance(call.model, ModelColumn)
    dialect = scope.dialect
    name_sql = f"({scope.text(call.model.span)})"
    groups, errors, planned_calls = _group_models(call, models, plan_single)
    if not groups:
        raise next(iter(errors.values()))
    skips_unknown = call.skips_unknown
    sql, functions = _build_groups_sql(groups, errors, models, skips_unknown, name_sql, dialect)
    model_text = " ".join(scope.sql[call.model.span.start : call.model.span.end].split())
    reads: dict[str, BoundInput] = {model_text: BoundInput(name_sql, "VARCHAR")}
    for single_call in planned_calls:
        reads |= dict(single_call.reads)
    example, quote = groups[0].example, dialect.quote_name
    read_sql = {fold(bound.sql) for bound in reads.values()}
    other_columns = [c for c in example.other_columns if fold(quote(c)) not in read_sql]
    planned_call = replace(
        example,
        sql=sql,
        reads=tuple(reads.items()),
        unread=(),
        other_columns=tuple(other_columns),
        functions_of_models=tuple(f for f in functions if f.groups or f.name in sql),
        models=tuple(sorted(n for group in groups for n in group.scorers)),
    )
    if not sorts:
        return CallInFrom(planned=planned_call)
    arguments = ", ".join(bound.sql for bound in reads.values())
    column = FromColumn.of_models(sql, arguments, dialect.type(target.type), name_sql)
    planned_call = replace(planned_call, sql=dialect.quote_name(column.name))
    return CallInFrom(planned=planned_call, column=column)


def _build_groups_sql(
    groups: Sequence[_ModelGroup],
    errors: Mapping[str, SqlmlError],
    models: ModelsOfRows,
    skips_unknown: bool,
    name_sql: str,
    dialect: Dialect,
) -> tuple[str, list[NamedFunction]]:
    """Return the SQL that scores rows with the models that they name, and the SQL's functions.

    `name_sql` is the SQL of the model's name. If there are several groups, or if unknown names give
    NULL, an additional function returns the index of the model's group.
    """
    has_branches = len(groups) > 1 or skips_unknown
    functions = [g.make_function({} if has_branches else errors, has_branches) for g in groups]
    branches = []
    for group, function in zip(groups, functions, strict=True):
        arguments = dialect.columns_of_models(list(group.numbers), list(group.texts))
        placeholder = f"{dialect.scorer(group.example.spec.name)}({ROW_PLACEHOLDER})"
        call_sql = f"{dialect.scorer(function.name)}({name_sql}, {arguments})"
        branches.append(group.sql.replace(placeholder, call_sql))
    if not has_branches:
        return f"(CASE WHEN {name_sql} IS NULL THEN NULL ELSE {branches[0]} END)", functions
    group_function = NamedFunction(
        groups={n: k for k, group in enumerate(groups) for n in group.scorers},
        errors=errors,
        nulls=models.nulls,
        by_column=groups[0].example.spec.by_column,
    )
    group_number = f"{dialect.scorer(group_function.name)}({name_sql})"
    branches_sql = " ".join(f"WHEN {k} THEN {sql}" for k, sql in enumerate(branches))
    checked_number = dialect.require_success(group_number, dialect.value_of(group_number))
    return f"(CASE {checked_number} {branches_sql} END)", [*functions, group_function]


def _group_models(
    call: ModelCall, models: ModelsOfRows, plan_single: PlanSingleCall
) -> tuple[list[_ModelGroup], Mapping[str, SqlmlError], list[PlannedCall]]:
    """Return the groups of models, the errors of models whose calls fail, and the planned calls."""
    groups: dict[str, _ModelGroup] = {}
    errors = dict(models.errors)
    call_by_version: dict[object, CallInFrom] = {}
    error_by_version: dict[object, SqlmlError] = {}
    all_columns = frozenset[str]().union(*map(_fold_columns, models.targets.values()))
    for name, target in models.targets.items():
        # All names of one version, such as its aliases, share a call.
        model = target.model
        version = model.database, model.name, model.version, target.output, target.chosen
        if version not in call_by_version and version not in error_by_version:
            try:
                # Arguments for features that only other models have are left out.
                foreign = all_columns - _fold_columns(target)
                used = (a for a in call.arguments if a.name is None or fold(a.name) not in foreign)
                call_by_version[version] = plan_single(replace(call, arguments=tuple(used)), target)
            except SqlmlError as error:
                error_by_version[version] = error
        if version in error_by_version:
            errors[name] = error_by_version[version]
            continue
        planned = call_by_version[version].planned
        shared_sql = planned.sql.replace(planned.spec.name, "")
        group = groups.setdefault(shared_sql, _ModelGroup(planned.sql, planned))
        group.add(name, planned.spec, call_by_version[version])
    return list(groups.values()), errors, [call.planned for call in call_by_version.values()]


def _fold_columns(target: Target) -> frozenset[str]:
    return frozenset(fold(column.name) for column in target.model.columns)
