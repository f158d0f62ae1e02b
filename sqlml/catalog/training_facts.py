"""`TrainingFacts`: how a version was trained, as the catalog keeps it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlml.errors import ArtifactError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """The definition of a version that was trained, and what was measured meanwhile.

    Attributes:
        model_type, library: what was trained by what; `model_type` is the class of an estimator
            that Python gave.
        query: the rows, as the statement has it, with the values of its parameters.
        options: as the statement has them, under sqlml's own names.
        transform: the items of TRANSFORM (..), or None.
        split: method, fraction and column of the rows held out. seed: of all that is random.
        rows, held_out: numbers of rows.
        metrics: on the rows held out, or, without any, on the others.
        loss: what the losses of `rounds` are, as the library calls it.
        rounds: iteration, loss, eval_loss and seconds of each.
        features: statistics of each column that is learned from.
        trials: number, parameters (JSON), objective, status and seconds of each, and whether it is
            the one whose parameters the model has.
        pipeline: the fitted object as it prints itself.
        notices: what the user was told.
        versions: of the libraries. seconds: all took.
    """

    model_type: str
    library: str
    query: str
    options: Mapping[str, Any]
    transform: tuple[str, ...] | None
    split: Mapping[str, Any]
    seed: int
    rows: int
    held_out: int
    metrics: Mapping[str, float | None]
    loss: str
    rounds: tuple[tuple[Any, ...], ...]
    features: tuple[Mapping[str, Any], ...]
    trials: tuple[tuple[Any, ...], ...]
    pipeline: str
    notices: tuple[str, ...]
    versions: Mapping[str, str]
    seconds: float

    @property
    def label(self) -> str | None:
        """The column that was to be predicted; a statement may write it as a list of one."""
        told = self.options.get("label")
        (label,) = told if isinstance(told, list | tuple) and len(told) == 1 else (told,)
        return label if isinstance(label, str) else None


def dumps(facts: TrainingFacts) -> str:
    """As the catalog keeps it."""
    return json.dumps(asdict(facts))


def loads(text: Any, name: str) -> TrainingFacts:
    """What `dumps` wrote of the training of a model.

    Raises:
        ArtifactError: it is damaged, or somebody else wrote it.
    """
    try:
        told = json.loads(text)
        made = {f.name: _checked(f.name, str(f.type), told) for f in fields(TrainingFacts)}
        _check_rows("rounds", made["rounds"], _ROUND)
        _check_rows("trials", made["trials"], _TRIAL)
        features = [[feature.get(key) for key in _FEATURE] for feature in made["features"]]
        _check_rows("features", features, tuple(_FEATURE.values()))
        for feature in made["features"]:
            kind = (int, float) if feature["distinct"] is None else (str,)
            _check_rows("values", feature.get("values", ()), (kind, (int,)))
        return TrainingFacts(**made)
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise ArtifactError(
            f"what the catalog says of the training of model {name!r} is damaged ({error}); train "
            "it again"
        ) from None


_NUMBER = (int, float, type(None))
_ROUND = ((int,), _NUMBER, _NUMBER, _NUMBER)
_TRIAL = ((int,), (str,), _NUMBER, (str,), _NUMBER, (bool,))
_FEATURE: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "type"), (str,)),
    **dict.fromkeys(("min", "max", "mean", "stddev"), _NUMBER),
    **dict.fromkeys(("distinct", "nulls", "others", "rows"), (int, type(None))),
}
"""The types of what a row of each table has."""


def _check_rows(
    name: str, rows: Sequence[Sequence[Any]], kinds: Sequence[tuple[type, ...]]
) -> None:
    for row in rows:
        right = len(row) == len(kinds) and all(map(isinstance, row, kinds))
        if not right or any(isinstance(v, float) and not math.isfinite(v) for v in row):
            raise TypeError(f"{name} cannot hold {str(row)[:80]!r}")


def _checked(name: str, kind: str, told: Any) -> Any:
    """A field of its type, a list as a tuple."""
    value = told[name]
    if kind.startswith("tuple") and isinstance(value, list):
        value = tuple(tuple(item) if isinstance(item, list) else item for item in value)
    if not isinstance(value, _CLASSES[kind]) or isinstance(value, bool):
        raise TypeError(f"{name} cannot be {str(value)[:80]!r}")
    inside = _INSIDE.get(kind)
    if inside is not None and isinstance(value, dict | tuple):
        items = value.values() if isinstance(value, dict) else value
        wrong = next((item for item in items if not isinstance(item, inside)), None)
        if wrong is not None:
            raise TypeError(f"{name} cannot hold {str(wrong)[:80]!r}")
    return value


_CLASSES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "Mapping[str, Any]": (dict,),
    "Mapping[str, str]": (dict,),
    "Mapping[str, float | None]": (dict,),
    "tuple[str, ...]": (tuple,),
    "tuple[str, ...] | None": (tuple, type(None)),
    "tuple[tuple[Any, ...], ...]": (tuple,),
    "tuple[Mapping[str, Any], ...]": (tuple,),
}
"""The type of a field as it is written -> what its value may be."""

_INSIDE: Mapping[str, tuple[type, ...]] = {
    "Mapping[str, str]": (str,),
    "Mapping[str, float | None]": (float, int, type(None)),
    "tuple[str, ...]": (str,),
    "tuple[str, ...] | None": (str,),
    "tuple[tuple[Any, ...], ...]": (tuple,),
    "tuple[Mapping[str, Any], ...]": (dict,),
}
"""The type of a field -> what the items of its value may be."""
