"""What SHOW MODELS, DESCRIBE MODEL and EXPLAIN answer, each as a query with its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sqlml.catalog.catalog import Catalog
from sqlml.catalog.model import Model
from sqlml.ir.operators.items import unpack_items
from sqlml.ir.program import Program
from sqlml.types import Feature, Kind

Answer = tuple[str, list[str] | None]


def models(catalog: Catalog, like: str | None) -> Answer:
    """SHOW MODELS [LIKE ..]; no rows where no model was ever registered."""
    columns = "name, version, source, library, features, labels, comment, created_at"
    if not catalog.schema_exists():
        empty = ", ".join(f"NULL::VARCHAR AS {c}" for c in columns.split(", "))
        return f"SELECT {empty} WHERE false", None
    query = f"SELECT {columns} FROM ({catalog.models_query()})"
    if like is None:
        return f"{query} ORDER BY name", None
    return f"{query} WHERE name ILIKE ? ORDER BY name", [like]


def rows(columns: tuple[str, str], found: Sequence[tuple[str, str]]) -> Answer:
    """A query whose result is `found`."""
    marks = ", ".join(f"({n}, ?, ?)" for n in range(len(found)))
    query = (
        f"SELECT a AS {columns[0]}, b AS {columns[1]} FROM (VALUES {marks}) t(n, a, b) ORDER BY n"
    )
    return query, [text for row in found for text in row]


def description(model: Model) -> list[tuple[str, str]]:
    """What DESCRIBE MODEL shows."""
    program = model.program
    classes = [", ".join(map(str, labels.values)) for labels in program.labels]
    if len(classes) > 1:
        classes = [f"t{t}: {values}" for t, values in enumerate(classes)]
    operators = ", ".join(dict.fromkeys(n.op for n in program.nodes if n.op != "input"))
    properties = [
        ("name", model.name),
        ("version", str(model.version)),
        ("source", model.source),
        ("library", model.library),
        ("outputs", ", ".join(program.outputs)),
        ("targets", str(program.targets or "")),
        ("classes", "; ".join(classes)),
        ("operators", operators),
        ("bytes", str(program.nbytes)),
        ("hash", program.hash),
        ("options", ", ".join(f"{k}={v}" for k, v in model.options.items())),
        ("comment", model.comment or ""),
        ("created_at", str(model.created_at)),
    ]
    return properties + [
        (f"input {n}", f"{f.name} {_sql_type(program, f)}") for n, f in enumerate(model.features, 1)
    ]


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
        "any": "(not used)",
    }
)
