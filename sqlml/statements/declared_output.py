"""`label_name`: what OUTPUT (name type) declares, checked against what the model predicts."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.planner.program.result_sql import result_type


def label_name(program: Program, output: Sequence[tuple[str, str]]) -> str:
    """The name that OUTPUT gives to what the model predicts.

    Args:
        output: the names and SQL types that it declares.

    Raises:
        ConfigError: several of them, another type, or a model that predicts nothing.
    """
    if "label" not in program.outputs:
        raise ConfigError("OUTPUT names what a model predicts, but this one predicts nothing")
    if len(output) != 1:
        raise ConfigError("OUTPUT names one column: predict(..) returns no more")
    ((name, declared),) = output
    kind = result_type(program, "label", None)
    if _same_type(declared) != _same_type(kind):
        raise ConfigError(
            f"OUTPUT declares {name} {declared}, but the model predicts {kind}: write "
            f"OUTPUT ({name} {kind})"
        )
    return name


def _same_type(name: str) -> str:
    """One name of those that SQL has for a type."""
    words = "".join(name.upper().split())
    return _TYPES.get(words, words)


_TYPES = MappingProxyType(
    {
        **dict.fromkeys(("TEXT", "STRING", "CHAR", "BPCHAR"), "VARCHAR"),
        **dict.fromkeys(("INT8", "LONG", "INT64"), "BIGINT"),
        **dict.fromkeys(("FLOAT8", "FLOAT64"), "DOUBLE"),
        **dict.fromkeys(("BOOL", "LOGICAL"), "BOOLEAN"),
    }
)
