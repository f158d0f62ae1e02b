"""`StoredModel`: what a file in sqlml's own format says about a model besides its Program."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, get_args

from sqlml.errors import ArtifactError
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.types import Feature, Kind, fold

MOST_FEATURES = 1 << 20
"""Columns that a model file may say that its training table had."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredModel:
    """A Program with the table that it reads, and its source.

    `features` has every column of the training table in order, as `Imported` has it. `options` are
    those of the model, and not checked. `small_models` are those that stand before it, by kind,
    each with what is known of it as text, not checked either.
    """

    program: Program
    features: tuple[Feature, ...]
    source: str
    library: str
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    small_models: Mapping[str, tuple[Program, str]] = field(
        default_factory=lambda: MappingProxyType({})
    )


def read_stored(content: bytes) -> Program | StoredModel:
    """The model in a file; only the Program if the file holds nothing else.

    Raises:
        ArtifactError: it is damaged, hostile, or of a later version.
    """
    program = store.loads(content)
    about = store.read_about(content)
    if about is None:
        return program
    try:
        return _stored(program, about)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"the columns in the header of the model file are damaged ({error}); export it again"
        ) from error


def about(
    features: tuple[Feature, ...],
    source: str,
    library: str,
    options: Mapping[str, Any],
    small_models: Mapping[str, tuple[Program, str]] = MappingProxyType({}),
) -> dict[str, Any]:
    """What `read_stored` reads back."""
    held = {
        kind: {"program": base64.b64encode(store.dumps(small)).decode(), "facts": facts}
        for kind, (small, facts) in small_models.items()
    }
    return {
        "features": [[f.name, f.kind] for f in features],
        "source": source,
        "library": library,
        "options": dict(options),
        **({"small_models": held} if held else {}),
    }


def _stored(program: Program, told: Mapping[str, Any]) -> StoredModel:
    features = []
    if len(told["features"]) > MOST_FEATURES:
        raise ValueError(f"more than {MOST_FEATURES:,} features")
    for name, kind in told["features"]:
        if not isinstance(name, str) or kind not in get_args(Kind):
            raise ValueError(f"a feature {name!r} of kind {kind!r}")
        name.encode()
        features.append(Feature(name, kind))
    names = [fold(f.name) for f in features]
    if len(set(names)) != len(names):
        raise ValueError("two features have the same name")
    kinds = {f.name: f.kind for f in features}
    for feature in program.features:
        if kinds.pop(feature.name, None) != feature.kind:
            raise ValueError(f"the program reads {feature.name!r} differently")
    if any(kind != "any" for kind in kinds.values()):
        raise ValueError("the program does not read all features")
    source, library = told["source"], told["library"]
    if not (isinstance(source, str) and isinstance(library, str)):
        raise TypeError("the source is not text")
    (source + library).encode()
    options = told.get("options", {})
    if not isinstance(options, dict):
        raise TypeError("the options are not an object")
    held = {}
    for kind, one in told.get("small_models", {}).items():
        if not isinstance(one["facts"], str):
            raise TypeError("what is known of a small model is not text")
        held[kind] = store.loads(base64.b64decode(one["program"], validate=True)), one["facts"]
    return StoredModel(program, tuple(features), source, library, MappingProxyType(options), held)
