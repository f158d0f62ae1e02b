"""`monotone`: constraints on how a prediction may move with a feature.

A statement gives them in the order of the query's features, `[1, 0, -1]` or `'(1, 0, -1)'`, or by
their names, `{'age': 1}`. Estimators number the columns that they get, in another order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlml.errors import ConfigError
from sqlml.parsing.option_text import option_text
from sqlml.suggestions import closest

NAMES = ("monotone_constraints", "monotone_constraint", "monotonic_cst", "mc")
"""What the libraries call them."""

Constraints = tuple[int, ...] | tuple[tuple[str, int], ...]
"""1 for a feature with which predictions may only rise, -1 only fall, 0 neither: of all features in
the order of the query, or of some by name."""

_DIRECTIONS = (-1, 0, 1)


def constraints(option: str, value: Any) -> Constraints:
    """The constraints that a statement gives.

    Args:
        option: as it is called there.

    >>> constraints("monotone_constraints", "(1, 0)"), constraints("m", [["age", -1]])
    ((1, 0), (('age', -1),))

    Raises:
        ConfigError: these are none.
    """
    given: Any = value
    if isinstance(value, str) and re.fullmatch(r"\s*\(?[\s\d,+-]*\)?\s*", value):
        given = [int(number) for number in re.findall(r"[+-]?\d+", value)]
    if isinstance(given, list | tuple) and given:
        if all(type(v) is int and v in _DIRECTIONS for v in given):
            return tuple(given)
        pairs = [tuple(v) for v in given if isinstance(v, list | tuple) and len(v) == 2]
        if len(pairs) == len(given) and all(
            isinstance(name, str) and type(v) is int and v in _DIRECTIONS for name, v in pairs
        ):
            return tuple(pairs)
    raise ConfigError(
        f"option {option} must be -1, 0 or 1 for each feature, such as [1, 0, -1], or by name, "
        f"such as {{'age': 1}}, not {option_text(value)}"
    )


def ordered(
    parameters: Mapping[str, Any],
    library: str,
    query: Sequence[str],
    columns: Sequence[str | None],
    numbers: Collection[str],
) -> dict[str, Any]:
    """The parameters of an estimator, with constraints in the order of its columns.

    Args:
        query: the features in the order of the query. columns: of which feature each column is;
            None: of one that takes no constraint. numbers: those features that are numbers.

    Raises:
        ConfigError: there are more or fewer constraints than features, or one is of another column
            or of a category.
    """
    made = dict(parameters)
    for option in NAMES:
        if made.get(option) is None:
            continue
        named = _named(option, made[option], query, numbers)
        found = [0 if name is None else named.get(name, 0) for name in columns]
        # a list that CatBoost is given is not the one it has, and scikit-learn would not clone it
        text = f"({','.join(map(str, found))})"
        made[option] = text if library in ("xgboost", "catboost") else found
    return made


def _named(
    option: str, given: Constraints, query: Sequence[str], numbers: Collection[str]
) -> dict[str, int]:
    """Feature -> its constraint."""
    by_place = [one for one in given if not isinstance(one, tuple)]
    if by_place and len(by_place) != len(query):
        raise ConfigError(
            f"option {option} has {len(by_place)} values, and the model has {len(query)} "
            f"features: {', '.join(query)}"
        )
    named = dict(one for one in given if isinstance(one, tuple))
    named |= dict(zip(query, by_place, strict=False))
    for name, direction in named.items():
        if name not in query:
            near = closest(name, query)
            hint = f"did you mean {near!r}?" if near else f"features: {', '.join(query)}"
            raise ConfigError(f"option {option}: the model has no feature {name!r}; {hint}")
        if direction and name not in numbers:
            raise ConfigError(
                f"option {option}: column {name!r} is a category, with which predictions neither "
                "rise nor fall; write 0"
            )
    return named
