"""Calls of functions in trees of the engine's parser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.errors import ParseError
from sqlml.types import fold


def called(tree: Mapping[str, Any]) -> str | None:
    """The function that a tree calls, folded: of BigQuery's `ML.name` it is `ml_name`; None if it
    is something else."""
    name = fold(str(tree.get("function_name") or ""))
    if tree["class"] not in ("FUNCTION", "WINDOW") or not name:
        return None
    return f"ml_{name}" if fold(str(tree.get("schema") or "")) == "ml" else name


def check_plain_call(tree: Mapping[str, Any]) -> None:
    """Refuse what a call of a preprocessing function cannot have.

    Raises:
        ParseError: arguments by name, or something that chooses or orders rows.
    """
    name = called(tree)
    if any("sqlml_name" in argument for argument in argument_trees(tree)):
        raise ParseError(f"{name} takes its arguments by place: leave out their names")
    if any(tree.get(part) for part in _CHOICES) or is_ordered(tree) or _has_frame(tree):
        raise ParseError(
            f"{name} knows all rows that the model is fitted to: write OVER () with nothing in it, "
            "and no DISTINCT, FILTER or ORDER BY"
        )


_CHOICES = ("distinct", "filter", "filter_expr", "partitions", "orders", "arg_orders")


def _has_frame(tree: Mapping[str, Any]) -> bool:
    """Whether OVER (..) or IGNORE NULLS says more than the defaults."""
    bounds = (tree.get("start"), tree.get("end"))
    plain = bounds in ((None, None), ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"))
    whole = tree.get("exclude_clause", "NO_OTHER") == "NO_OTHER" and not tree.get("ignore_nulls")
    return not (plain and whole)


def argument_trees(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The arguments of a call; those of a struct have their field's name as `sqlml_name`."""
    made: list[Mapping[str, Any]] = []
    for argument in tree.get("arguments", tree.get("children")) or ():
        inner = argument.get("expression", argument)
        name = argument.get("name") or inner.get("alias")
        made.append({**inner, **({"sqlml_name": name} if name else {})})
    return made


def is_ordered(tree: Mapping[str, Any]) -> bool:
    """Whether a call has ORDER BY among its arguments."""
    return bool((tree.get("order_bys") or {}).get("orders"))
