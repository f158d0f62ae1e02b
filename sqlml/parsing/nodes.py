"""Tree nodes for statements that sqlglot has no node for."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp


class ModelName(exp.Expression):
    """MODEL m, as the first argument of a call; `this` is the text that names the model."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Kept(exp.Expression):
    """A statement in another: of PREPARE name AS .. and EXPLAIN .. (`kind`)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class Piped(exp.Expression, exp.Query):
    """Spark's query |> step |> step."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True, "with_": False}


class Step(exp.Expression):
    """One step of a pipe: its keyword, what it holds, and the name that `AS` gives."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False, "alias": False}


class OtherType(exp.Expression):
    """CREATE TYPE name AS ENUM (query)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}
