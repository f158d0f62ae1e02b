"""`check_columns`: the columns that an evaluation names are there, and hold what it needs."""

from __future__ import annotations

from collections.abc import Mapping

from sqlml.dialects.type_names import NUMBERS
from sqlml.errors import BindError
from sqlml.planner.program.result_sql import label_type
from sqlml.suggestions import closest
from sqlml.types import Labels, fold, list_classes


def check_column(name: str, columns: Mapping[str, str]) -> str:
    """The type of a column.

    Args:
        columns: name -> type of those that there are.

    Raises:
        BindError: there is none of that name.
    """
    for column, kind in columns.items():
        if fold(column) == fold(name):
            return kind
    near = closest(fold(name), map(fold, columns))
    hint = (
        f"columns: {', '.join(list(columns)[:20])}" if near is None else f"did you mean {near!r}?"
    )
    raise BindError(f"the rows have no column {name!r}; {hint}")


def check_labels(name: str, kind: str, labels: Labels, model: str) -> None:
    """Check that a column may hold the classes of a model.

    Raises:
        BindError: its type is another.
    """
    fits = {
        "string": kind in ("VARCHAR", labels.sql_type) or kind.startswith("ENUM"),
        "int64": NUMBERS.fullmatch(kind) is not None,
        "float64": NUMBERS.fullmatch(kind) is not None,
        "bool": kind == "BOOLEAN",
    }
    if not fits[labels.kind] and kind not in ('"NULL"', "NULL"):
        wanted = label_type(labels)
        some = list_classes(labels.values, 3)
        raise BindError(
            f"column {name!r} is {kind}, and the classes of model {model!r} are {wanted} ({some}"
            f"{', ..' if len(labels) > 3 else ''}); cast the column in the rows"
        )
