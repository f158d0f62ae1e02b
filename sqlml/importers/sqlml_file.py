"""sqlml's own model files: a Program, and a description of the model in the header."""

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

MAX_STORED_FEATURES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class StoredModel:
    """A model from a file that sqlml wrote.

    `program`, `features`, `source` and `library` are those of `registry.Imported`. `small_models`
    maps "cascade" or "top_k" to a Program and a JSON string of facts. The facts and `options` are
    unchecked.
    """

    program: Program
    features: tuple[Feature, ...]
    source: str
    library: str
    options: Mapping[str, Any] = field(default_factory=dict)
    small_models: Mapping[str, tuple[Program, str]] = field(default_factory=dict)


def read_stored(content: bytes) -> Program | StoredModel:
    program = store.loads(content)
    description = store.read_description(content)
    if description is None:
        return program
    try:
        return _read_description(program, description)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"the columns in the header of the model file are damaged ({error}); export it again"
        ) from error


def build_description(
    features: tuple[Feature, ...],
    source: str,
    library: str,
    options: Mapping[str, Any],
    small_models: Mapping[str, tuple[Program, str]] = MappingProxyType({}),
) -> dict[str, Any]:
    stored_models = {}
    for purpose, (small_program, facts) in small_models.items():
        encoded = base64.b64encode(store.dumps(small_program)).decode()
        stored_models[purpose] = {"program": encoded, "facts": facts}
    return {
        "features": [[f.name, f.stored_kind] for f in features],
        "source": source,
        "library": library,
        "options": dict(options),
        **({"small_models": stored_models} if stored_models else {}),
    }


def _read_description(program: Program, description: Mapping[str, Any]) -> StoredModel:
    features = _read_features(program, description["features"])
    source, library = description["source"], description["library"]
    if not (isinstance(source, str) and isinstance(library, str)):
        raise TypeError("the source is not a string")
    (source + library).encode()
    options = description.get("options", {})
    if not isinstance(options, dict):
        raise TypeError("the options are not an object")
    small_models = {}
    for purpose, stored in description.get("small_models", {}).items():
        if not isinstance(stored["facts"], str):
            raise TypeError("the facts about a small model are not a string")
        small_program = store.loads(base64.b64decode(stored["program"], validate=True))
        small_models[purpose] = small_program, stored["facts"]
    return StoredModel(program, features, source, library, options, small_models)


def _read_features(program: Program, stored_features: Any) -> tuple[Feature, ...]:
    features = []
    if len(stored_features) > MAX_STORED_FEATURES:
        raise ValueError(f"more than {MAX_STORED_FEATURES:,} features")
    for name, kind in stored_features:
        if not isinstance(name, str) or kind not in (*get_args(Kind), "boolean"):
            raise ValueError(f"a feature {name!r} of kind {kind!r}")
        name.encode()
        features.append(Feature.from_stored_kind(name, kind))
    if len({fold(f.name) for f in features}) != len(features):
        raise ValueError("two features have the same name")
    kind_by_name = {f.name: f.kind for f in features}
    for feature in program.features:
        if kind_by_name.pop(feature.name, None) != feature.kind:
            raise ValueError(f"the program reads {feature.name!r} differently")
    if any(kind != "any" for kind in kind_by_name.values()):
        raise ValueError("the program does not read all features")
    return tuple(features)
