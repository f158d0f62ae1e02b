"""`Transform`: how a model's features are made of the columns that a call brings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlml.catalog.row_expressions import Read, RowExpression, checked
from sqlml.errors import ArtifactError
from sqlml.types import Feature

TRANSFORM = "transform"
"""Under this name it is kept with the options: `Transform.to_json`."""


@dataclass(frozen=True, slots=True)
class Transform:
    """TRANSFORM (..), or what training made of dates, nested values and texts.

    columns: those that the model reads, in the order of the training query. made: feature -> the
    expression that makes it; the others are columns themselves.
    """

    columns: tuple[str, ...]
    made: Mapping[str, RowExpression]

    def inputs(self, features: Collection[Feature]) -> tuple[Feature, ...]:
        """The columns as features: those that expressions read may be of any type."""
        plain = {f.name: f for f in features if f.name not in self.made}
        return tuple(plain.get(name) or Feature(name, "any") for name in self.columns)

    def reads(self, features: Collection[str]) -> frozenset[str]:
        """The columns that some of the features need."""
        found: set[str] = set()
        for name in features:
            made = self.made.get(name)
            found.update({name} if made is None else made.columns)
        return frozenset(found)

    def sql(self, feature: str, columns: Mapping[str, str]) -> str:
        """The expression that makes a feature, or the column that it is.

        Args:
            columns: column -> the SQL that reads it.
        """
        made = self.made.get(feature)
        return columns[feature] if made is None else made.of(columns)

    def summary(self) -> str:
        """Return which features it makes, as messages say after the name of a model."""
        names = [name if len(name) <= 40 else f"{name[:37]}..." for name in list(self.made)[:3]]
        more = f" and {len(self.made) - 3:,} more" if len(self.made) > 3 else ""
        features = "feature" if len(self.made) == 1 else "features"
        return (
            f"makes the {features} {', '.join(names)}{more} of columns when it scores, for a "
            "TRANSFORM or for dates, texts or nested values"
        )

    def to_json(self) -> Any:
        """As the catalog keeps it."""
        made = {name: [e.sql, list(e.columns), e.type] for name, e in self.made.items()}
        return {"columns": list(self.columns), "made": made}


def transform_of(read: Read, told: Any, name: str) -> Transform | None:
    """What `to_json` made, checked by the engine's parser; None for nothing.

    Args:
        name: of the model, for messages.

    Raises:
        ArtifactError: somebody else wrote it.
    """
    if told is None:
        return None
    try:
        columns = tuple(told["columns"])
        made = {}
        for feature, (sql, reads, kind) in told["made"].items():
            expression = RowExpression(sql, tuple(reads), kind)
            _check_texts(sql, kind, feature, *expression.columns)
            if not set(expression.columns) <= set(columns):
                raise ValueError(f"{feature!r} reads other columns")
            made[feature] = checked(read, expression)
        _check_texts(*columns)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ArtifactError(
            f"what the catalog says of the columns of model {name!r} is damaged ({error}); train "
            "it again"
        ) from None
    return Transform(columns, made)


def _check_texts(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{value!r:.80} is not a string")
