"""`queries`: the queries that compute a model's predictions, each over the one before it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from sqlml.backends.sql.expression import Walked
from sqlml.backends.sql.layers import Printed, print_layers
from sqlml.dialects import DUCKDB
from sqlml.errors import BackendError
from sqlml.ir.program import Program
from sqlml.passes.fold_into_trees import fold_casts_into_trees
from sqlml.planner.binding.refused_nulls import refused
from sqlml.planner.binding.requested_output import index_of, spelled_class
from sqlml.planner.databases.targets import Database
from sqlml.planner.databases.transpiled import quoted_name, transpiled
from sqlml.planner.program.function_names import Output, Part
from sqlml.planner.program.prepare import prepare_parts
from sqlml.types import FLOATS, Feature, Labels

# `predictions`: the columns that a model's answers become in a database without maps and lists.


OUTPUTS: tuple[Output, ...] = ("label", "proba", "score", "samples", "transform")

Kind = Literal["number", "string", "integer", "boolean"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One column: its name, the output and its column that it shows, its kind, the labels that the
    numbers of classes stand for, and whether it is the `rest` of 1."""

    name: str
    output: Output
    column: int | None
    kind: Kind
    labels: Labels | None = None
    rest: bool = False


def predictions(program: Program, options: Mapping[str, Any]) -> list[Prediction]:
    """All columns: of the label, of each class's probability, or of the positive class's alone if
    the model's options name one, and of scores and features. Those of one of several targets, or of
    one of several numbers, are named by its place from 0."""
    made: list[Prediction] = []
    for output in OUTPUTS:
        if output not in program.outputs:
            continue
        if output == "label":
            made += _labels(program)
        elif output == "proba" and program.labels:
            made += _probabilities(program, options.get("positive_class"))
        else:
            width = program.output_type(output).width
            made += [
                Prediction(f"{output}{_place(k, width)}", output, _class_column(k, width), "number")
                for k in range(width)
            ]
    return made


def _labels(program: Program) -> list[Prediction]:
    width = program.output_type("label").width
    made = []
    for k, labels in enumerate(program.labels or [None] * width):
        kind = "number" if labels is None else _KINDS[labels.kind]
        name = f"predicted_label{_place(k, width)}"
        made.append(Prediction(name, "label", _class_column(k, width), kind, labels))
    return made


def _probabilities(program: Program, positive: Any) -> list[Prediction]:
    """Of the classes of each target; where a model has `one_probability` of each, it is that of the
    second class, and the first has the rest."""
    made, first, one = [], 0, program.one_probability
    for target, labels in enumerate(program.labels):
        place = _place(target, len(program.labels))
        chosen = None if positive is None else index_of(labels, positive)
        for k, value in enumerate(labels.values):
            name = f"probability{place}_{spelled_class(value)}"
            column = target if one else first + k
            if positive is None or chosen == k:
                made.append(Prediction(name, "proba", column, "number", rest=one and k == 0))
        first += len(labels)
    return made


def _place(k: int, width: int) -> str:
    return f"_{k}" if width > 1 else ""


def _class_column(k: int, width: int) -> int | None:
    return k if width > 1 else None


_KINDS: Mapping[str, Kind] = {
    "string": "string",
    "int64": "integer",
    "float64": "number",
    "bool": "boolean",
}


_INPUT = re.compile(r"\bsqlml_x\d+\b")


@dataclass(frozen=True, slots=True)
class Queries:
    """What a SELECT with predictions is made of.

    Attributes:
        below: the WITH clause of the queries below it. last: that which it reads.
        kept: the quoted names of the table's columns that it keeps.
        predictions: quoted name -> expression over the last query.
        parameters: the features of the model, whether this reads them or not.
    """

    below: str
    last: str
    kept: tuple[str, ...]
    predictions: Mapping[str, str]
    parameters: tuple[Feature, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, its features in the order in which users name them, its options, the features whose
    columns are BOOLEAN, and the database that it is exported for."""

    database: Database
    program: Program
    features: tuple[Feature, ...]
    options: Mapping[str, Any]
    booleans: frozenset[str] = frozenset()

    def column_kind(self, feature: Feature) -> str:
        """Return the kind of a feature, or "boolean" for a column that the database does not cast
        to a number by itself."""
        is_boolean = feature.name in self.booleans and self.database.boolean_column is not None
        return "boolean" if is_boolean and feature.kind == "number" else feature.kind


def queries(
    subject: Subject,
    asked: Sequence[Prediction],
    table: str | None,
    columns: Sequence[str] | None,
    walked: Walked | None = None,
) -> Queries:
    """The queries that compute predictions.

    Args:
        table: the quoted name of what holds the rows; None: a row of parameters.
        columns: of the table to keep; None: those that the model reads.
        walked: sums up the trees, if they are not to be CASEs.

    Raises:
        BackendError: the database's SQL cannot express the model; the message says why.
    """
    database, program = subject.database, subject.program
    parts = tuple(Part(one.output, one.column) for one in asked)
    own = fold_casts_into_trees(prepare_parts(program, parts).program)
    inputs_of_all = {f.name for f in program.features}
    known = tuple(f for f in subject.features if f.name in inputs_of_all)
    reads = tuple(f for f in known if f.name in own.inputs)
    inputs, first = {}, {}
    for k, feature in enumerate(reads):
        inputs[feature.name] = [f"sqlml_x{k}"]
        first[f"sqlml_x{k}"] = _feature_column(subject, feature, table)
    nulls = refused(subject.options, program) & inputs.keys()
    missing = [f"{inputs[name][0]} IS NULL" for name in sorted(nulls)]
    if database.range_errors.overflow:
        wild = _limits(own)
        missing += [f"abs({inputs[name][0]}) > {wild[name]}" for name in inputs if name in wild]
    printed = print_layers(own, list(own.outputs), inputs, database.numbers, missing, walked)
    kept = [f.name for f in reads] if columns is None else columns
    _check_names([*kept, *(f.name for f in reads)])
    ((_, values),) = printed.values.items()
    last = [*values, printed.refused]
    if table is None and database.merges is not None:
        longest = max(map(printed.inlined, last))
        if longest > database.merges:
            raise BackendError(
                f"{database.name} would merge the queries of a function to an expression of "
                f"{longest:,} characters; write FORM select or view, and TABLE"
            )
    made = _layers(database, printed, first, kept, table, last)
    shown = {}
    for one, value in zip(asked, values, strict=True):
        if one.labels is None:
            sql = transpiled(f"1 - ({value})" if one.rest else value, database)
        else:
            sql = transpiled(_label(value, one.labels), database, shown=True)
        if one.kind == "number" and not database.has_infinity:
            sql = f"CASE WHEN abs({sql}) < {database.infinity} THEN {sql} END"
        if printed.refused:
            sql = f"CASE WHEN {transpiled(printed.refused, database)} THEN NULL ELSE {sql} END"
        shown[quoted_name(one.name, database)] = sql
    named = [f"sqlml_{n} AS (\n  {query}\n)" for n, query in enumerate(made)]
    return Queries(
        f"WITH {', '.join(named)}\n",
        f"sqlml_{len(named) - 1}",
        tuple(quoted_name(name, database) for name in kept),
        shown,
        known,
    )


_LIMITS: Mapping[str, str] = MappingProxyType(
    {"float64": "'1e+150'::DOUBLE", "float32": "'1e+18'::DOUBLE"}
)
"""Where results that are too large end a query, numbers beyond these are refused by operators that
compute with numbers of that type: their squares might be too large."""

_NO_ARITHMETIC = frozenset(
    "cast concat encode eq ge gt impute isnan le lt ne require_finite require_known reshape "
    "search_sorted select tree_ensemble".split()
)


def _limits(program: Program) -> dict[str, str]:
    """Return the limits of the inputs whose numbers are added or multiplied."""
    unchanged: list[set[str]] = []
    found: dict[str, str] = {}
    for node in program.nodes:
        below = set[str]().union(*(unchanged[j] for j in node.inputs))
        is_number = node.type.dtype in FLOATS
        if node.op == "input":
            below = {str(node.attrs["name"])} if is_number else set()
        elif node.op not in _NO_ARITHMETIC and is_number:
            limit = _LIMITS[node.type.dtype]
            found |= {name: limit for name in below if found.get(name) != _LIMITS["float32"]}
        passes_on = is_number and node.op != "tree_ensemble"
        unchanged.append(below if passes_on else set())
    return found


_SOURCE = "sqlml_t"
"""What the table is called in the first query."""

_OURS = re.compile(r"sqlml_(?:t|sum|[vx]?\d*)", re.IGNORECASE)
"""Names of the queries and their columns."""


def _check_names(names: Sequence[str]) -> None:
    """Raise BackendError for a column that would be confused with one of the queries' own."""
    for name in names:
        if _OURS.fullmatch(name):
            raise BackendError(
                f"column {name!r} has a name that the exported queries use themselves; export "
                "for a view in which it has another name, from a model with that name"
            )


def _of_table(name: str, database: Database) -> str:
    """Return a column of the table, in a form that can mean nothing else.

    The bare name of a column that the table lacks is a text in SQLite, the whole row where it is
    the table's name in DuckDB and PostgreSQL, and a column of the query around this one elsewhere.
    """
    quoted = quoted_name(name, database)
    return quoted if name in database.functions_of_rows else f"{_SOURCE}.{quoted}"


def _feature_column(subject: Subject, feature: Feature, table: str | None) -> str:
    """Return the column of the table, or the parameter, of a feature for the first query."""
    database = subject.database
    ways = {
        "number": database.number_column,
        "boolean": database.boolean_column,
        "string": database.text_column,
        "datetime": database.date_column,
    }
    read = ways.get(subject.column_kind(feature))
    if read is None:
        raise BackendError(
            f"feature {feature.name!r} is a {feature.kind}, which is not exported for "
            f"{database.name}"
        )
    is_parameter = table is None
    name = feature.name
    return read(quoted_name(name, database) if is_parameter else _of_table(name, database))


def _layers(
    database: Database,
    printed: Printed,
    first: Mapping[str, str],
    kept: Sequence[str],
    table: str | None,
    last: Sequence[str],
) -> list[str]:
    """Return the query over the table, and those each over the one before it.

    Args:
        kept: names of columns of the table.
        last: the expressions over the last of them.
    """
    quoted = [quoted_name(name, database) for name in kept]
    items = [f"{_of_table(name, database)} AS {q}" for name, q in zip(kept, quoted, strict=True)]
    items += [f"{sql} AS {name}" for name, sql in first.items()]
    source = "" if table is None else f" FROM {table} AS {_SOURCE}"
    made = [f"SELECT {', '.join(items or ['1 AS sqlml_x'])}{source}{database.fence}"]
    later: list[set[str]] = [set(_INPUT.findall(" ".join(last)))]
    for layer in reversed(printed.layers):
        later.insert(0, later[0] | set(_INPUT.findall(" ".join(layer.values()))))
    for n, layer in enumerate(printed.layers):
        items = [*quoted, *(name for name in first if name in later[n + 1])]
        items += [
            name if sql == name else f"{transpiled(sql, database)} AS {name}"
            for name, sql in layer.items()
        ]
        if len(items) > database.columns:
            raise BackendError(
                f"the model takes {len(items):,} columns at a time; {database.name} takes "
                f"{database.columns:,}"
            )
        made.append(f"SELECT {', '.join(items)} FROM sqlml_{n}{database.fence}")
    return made


def _label(code: str, labels: Labels) -> str:
    cases = [f"WHEN {k} THEN {_literal(v, labels)}" for k, v in enumerate(labels.values)]
    return f"CASE {code} {' '.join(cases)} END"


def _literal(value: Any, labels: Labels) -> str:
    """A label, in `Portable`'s SQL."""
    if labels.kind == "string":
        if "\0" in value:
            raise BackendError(f"the class {value!r} contains a NUL character")
        return DUCKDB.quote_string(str(value))
    if labels.kind == "bool":
        return "TRUE" if value else "FALSE"
    return f"'{float(value)!r}'::DOUBLE" if labels.kind == "float64" else str(value)
