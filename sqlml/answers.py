"""What SHOW, DESCRIBE and EXPLAIN answer, each as a query with its parameters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlml.catalog.catalog import Catalog
from sqlml.catalog.model import Model, Reference
from sqlml.dialects import Dialect
from sqlml.dialects.duckdb import builtin
from sqlml.ir.operators.items import unpack_items
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.options import OUTPUT
from sqlml.planner.results import result_type
from sqlml.types import Feature, Kind

Answer = tuple[str, list[Any] | None]

NOT_USED = "(not used)"


def models(catalog: Catalog, like: str | None, database: str | None = None) -> Answer:
    """SHOW MODELS [LIKE ..]; no rows where no model was ever registered."""
    columns = (
        "name, version, source, library, features, labels, versions, aliases, tags, comment, "
        "created_at"
    )
    catalog.check_database(database)
    if not catalog.schema_exists(database):
        empty = ", ".join(f"NULL::VARCHAR AS {c}" for c in columns.split(", "))
        return f"SELECT {empty} WHERE false", None
    query = f"SELECT {columns} FROM ({catalog.models_query(database)})"
    if like is None:
        return f"{query} ORDER BY name", None
    return f"{query} WHERE {builtin('~~*')}(name, ?) ORDER BY name", [like]


def versions(catalog: Catalog, reference: Reference) -> Answer:
    """SHOW VERSIONS IN MODEL, the oldest first."""
    query = f"SELECT * EXCLUDE (name) FROM ({catalog.versions_query(reference.database)})"
    return f"{query} WHERE {builtin('lower')}(name) = ? ORDER BY version", [reference.key]


def rows(columns: tuple[str, str], found: Sequence[tuple[str, str]]) -> Answer:
    """A query whose result is `found`."""
    marks = ", ".join(f"({n}, ?, ?)" for n in range(len(found)))
    query = (
        f"SELECT a AS {columns[0]}, b AS {columns[1]} FROM (VALUES {marks}) t(n, a, b) ORDER BY n"
    )
    return query, [text for row in found for text in row]


def table(columns: Mapping[str, str], found: Sequence[Sequence[Any]]) -> Answer:
    """A query whose result is `found`, its columns of these types."""
    names = ", ".join(f"CAST(c{n} AS {t}) AS {c}" for n, (c, t) in enumerate(columns.items()))
    marks = ", ".join("?" * len(columns))
    values = ", ".join(f"({n}, {marks})" for n in range(len(found)))
    held = ", ".join(f"c{n}" for n in range(len(columns)))
    query = f"SELECT {names} FROM (VALUES {values}) t(place, {held}) ORDER BY place"
    return query, [value for row in found for value in row]


def description(catalog: Catalog, reference: Reference) -> Answer:
    """What DESCRIBE MODEL shows."""
    model = catalog.get(reference)
    program, origin = model.program, model.origin
    whole = Reference(reference.name, reference.database)
    classes = [", ".join(map(str, labels.values)) for labels in program.labels]
    if len(classes) > 1:
        classes = [f"t{t}: {values}" for t, values in enumerate(classes)]
    steps = [node for node in program.nodes if node.op not in ("input", "constant")]
    operators = Counter(node.op for node in steps)
    aliases = [a for a, version in catalog.aliases(whole).items() if version == model.version]
    properties = [
        ("name", model.name),
        ("version", str(model.version)),
        ("is_default", str(catalog.default(whole) == model.version).lower()),
        ("aliases", ", ".join(aliases)),
        ("tags", ", ".join(f"{k}={v}" for k, v in catalog.tags(whole).items())),
        ("comment", model.comment or ""),
        ("source", origin.source),
        ("library", origin.library),
        ("path", origin.path or ""),
        ("sha256", origin.sha256 or ""),
        ("outputs", ", ".join(program.outputs)),
        ("targets", str(program.targets or "")),
        ("classes", "; ".join(classes)),
        ("operators", ", ".join(op if n == 1 else f"{op} x{n}" for op, n in operators.items())),
        ("nodes", str(len(steps))),
        ("trees", _trees(program)),
        ("bytes", str(program.nbytes)),
        ("stored_bytes", str(catalog.stored_bytes(model))),
        ("hash", program.hash),
        ("options", ", ".join(f"{k}={v}" for k, v in model.options.items())),
        ("verification", _verification(model.verification)),
        ("created_at", str(model.created_at)),
    ]
    inputs = [
        (f"input {n}", f"{f.name} {_sql_type(program, f) if f.name in model.used else NOT_USED}")
        for n, f in enumerate(model.features, 1)
    ]
    return rows(("property", "value"), properties + inputs)


def _trees(program: Program) -> str:
    """How many trees with how many nodes, leaves included, a model has; empty: it has none."""
    forests = [Ensemble.of(node.attrs) for node in program.nodes if node.op == "tree_ensemble"]
    if not forests:
        return ""
    trees, nodes = sum(f.trees for f in forests), sum(f.nodes + len(f.leaf_values) for f in forests)
    return f"{trees} with {nodes} nodes"


def _verification(found: Mapping[str, Any] | None) -> str:
    return "" if found is None else ", ".join(f"{k}={v}" for k, v in found.items())


def creation(catalog: Catalog, reference: Reference, dialect: Dialect) -> Answer:
    """SHOW CREATE MODEL: statements that make the version, and what the model says of itself."""
    model = catalog.get(reference)
    return rows(
        ("name", "statement"), [(model.name, creation_text(catalog, reference, model, dialect))]
    )


def creation_text(catalog: Catalog, reference: Reference, model: Model, dialect: Dialect) -> str:
    """CREATE MODEL, with what ALTER MODEL adds behind it.

    A model that came from an object of Python has no file; its statement names one that EXPORT
    MODEL writes.
    """
    name, origin = dialect.quote_name(model.name), model.origin
    if reference.database is not None:
        name = f"{dialect.quote_name(reference.database)}.{name}"
    lines = []
    if origin.path is None:
        path = f"{model.name}.sqlml"
        version = "" if not reference.names_a_version else f"/{model.version}"
        lines.append(
            f"-- came from an object of Python: EXPORT MODEL {name}{version} TO "
            f"{dialect.quote_string(path)} writes the file"
        )
        lines += [f"CREATE MODEL {name}", f"FROM {dialect.quote_string(path)} FORMAT SQLML"]
    else:
        columns = ", ".join(
            f"{dialect.quote_name(f.name)} {_sql_type(model.program, f)}" for f in model.features
        )
        lines += [f"CREATE MODEL {name}", f"INPUT ({columns})"]
        lines.append(f"FROM {dialect.quote_string(origin.path)} FORMAT {origin.format}")
    options = {**model.options, **({} if origin.sha256 is None else {"sha256": origin.sha256})}
    label = options.pop(OUTPUT, None)
    if label is not None:
        kind = result_type(model.program, "label", None)
        lines.insert(-1, f"OUTPUT ({dialect.quote_name(str(label))} {kind})")
    if options:
        lines.append(
            f"OPTIONS ({', '.join(f'{k} = {_literal(v, dialect)}' for k, v in options.items())})"
        )
    whole = Reference(reference.name, reference.database)
    comment = catalog.comment(whole)
    if comment is not None:
        lines.append(f"COMMENT {dialect.quote_string(comment)}")
    text = "\n".join(lines) + ";"
    for tag, value in catalog.tags(whole).items():
        told = f"{dialect.quote_name(tag)} = {dialect.quote_string(value)}"
        text += f"\nALTER MODEL {name} SET TAG {told};"
    return text


def _literal(value: Any, dialect: Dialect) -> str:
    if isinstance(value, str):
        return dialect.quote_string(value)
    return json.dumps(value)


def _sql_type(program: Program, feature: Feature) -> str:
    """A type of column that feeds the feature; for a list that of the items that it looks for."""
    for node in program.nodes:
        if node.op == "has_items" and node.attrs["feature"] == feature.name:
            items = unpack_items(node.attrs["words"], node.attrs["ends"])
            if all(isinstance(item, int) for item in items):
                return "BIGINT[]"
            if all(isinstance(item, int | float) for item in items):
                return "DOUBLE[]"
    return _SQL_KIND[feature.kind]


_SQL_KIND: Mapping[Kind, str] = MappingProxyType(
    {
        "number": "DOUBLE",
        "string": "VARCHAR",
        "list": "VARCHAR[]",
        "map": "MAP(VARCHAR, DOUBLE)",
        "pairs": "STRUCT(name VARCHAR, value DOUBLE)[]",
        "any": "DOUBLE",
    }
)
"""A type that feeds a feature; of one that the model never reads any would do."""
