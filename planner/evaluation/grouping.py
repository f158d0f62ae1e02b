"""`Grouping`: by what the rows of an evaluation are told apart: the user's columns, and targets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grouping:
    """The keys of groups: columns of the SQL that evaluates, by the names that users see.

    Attributes:
        keys: our own names, `g0`, `g1`, ..; `t`, the number of a target, where there are several.
        names: what users call them, quoted.
    """

    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> str:
        """The keys as first items of a SELECT: `g0, g1, `."""
        return "".join(f"{key}, " for key in self.keys)

    @property
    def group_by(self) -> str:
        """GROUP BY the keys; nothing without keys."""
        return f"GROUP BY {', '.join(self.keys)}" if self.keys else ""

    def group_of(self, table: str) -> str:
        """GROUP BY the keys of one of two joined tables."""
        keys = ", ".join(f"{table}.{key}" for key in self.keys)
        return f"GROUP BY {keys}" if keys else ""

    def grouped_by(self, *others: str) -> str:
        """GROUP BY the keys and other columns."""
        return f"GROUP BY {', '.join([*self.keys, *others])}"

    @property
    def partition_by(self) -> str:
        """PARTITION BY the keys; nothing without keys."""
        return f"PARTITION BY {', '.join(self.keys)}" if self.keys else ""

    def join(self, left: str, right: str, how: str = "JOIN") -> str:
        """`right` joined to `left` by the keys, of which NULL is one like others."""
        if not self.keys:
            return f"{left} CROSS JOIN {right}"
        same = (f"{left}.{key} IS NOT DISTINCT FROM {right}.{key}" for key in self.keys)
        return f"{left} {how} {right} ON {' AND '.join(same)}"

    def of(self, table: str) -> str:
        """The keys of one of two joined tables: `a.g0, `."""
        return "".join(f"{table}.{key}, " for key in self.keys)

    @property
    def has_rows(self) -> str:
        """A condition on a row of the answer, which raises an error if nothing could be evaluated;
        with keys there is simply no group, and no error."""
        if self.keys:
            return "n >= 0"
        message = "no row has a label and a prediction: there is nothing to evaluate"
        return f"CASE WHEN n > 0 THEN true ELSE CAST(error('{message}') AS BOOLEAN) END"

    def named(self) -> str:
        """The keys under the names that users know: `g0 AS "region", `."""
        pairs = zip(self.keys, self.names, strict=True)
        return "".join(f"{key} AS {name}, " for key, name in pairs)
