"""`XGBoostModel`: XGBoost's model document, checked and in arrays.

The document is one and the same in JSON files, in UBJSON files and from Booster.save_raw.
Source: XGBoost doc/model.schema, src/learner.cc, src/tree/tree_model.cc.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.frame import category_array
from sqlml.importers.untrusted_documents import MAX_FEATURES, MAX_OUTPUTS, bounded
from sqlml.importers.xgboost.forest import Forest, read_forest
from sqlml.ir.damaged_file import reading
from sqlml.types import Array

# `loads`: a reader of UBJSON, the binary form of XGBoost's model documents.
#
# The input is not trusted: nesting is bounded, and a length is compared with the bytes that are
# left before memory is taken for it. Format: https://ubjson.org, draft 12.


MAX_DEPTH = 64

Hook = Callable[[dict[str, Any]], Any]

_SCALARS = {
    b"i": struct.Struct(">b"),
    b"U": struct.Struct(">B"),
    b"I": struct.Struct(">h"),
    b"l": struct.Struct(">i"),
    b"L": struct.Struct(">q"),
    b"d": struct.Struct(">f"),
    b"D": struct.Struct(">d"),
}
_LENGTHS = frozenset((b"i", b"U", b"I", b"l", b"L"))
_ARRAYS: Mapping[bytes, np.dtype[Any]] = {
    b"i": np.dtype(">i1"),
    b"U": np.dtype(">u1"),
    b"I": np.dtype(">i2"),
    b"l": np.dtype(">i4"),
    b"L": np.dtype(">i8"),
    b"d": np.dtype(">f4"),
    b"D": np.dtype(">f8"),
}
_LITERALS = {b"Z": None, b"T": True, b"F": False}


def loads(content: bytes | bytearray, hook: Hook | None = None) -> Any:
    """The value in `content`; typed arrays become numpy arrays of the machine's byte order.

    Each object goes through `hook` as soon as it is read, so that what it leaves out is not held.

    >>> loads(b"{U" + b"\\x01" + b"a" + b"[$U#U\\x02" + b"\\x05\\x06" + b"}")
    {'a': array([5, 6], dtype=uint8)}

    Raises:
        ArtifactError: `content` is cut off, too deeply nested or no UBJSON.
    """
    reader = _Reader(content, hook)
    value = reader.value(reader.take(1), 0)
    if reader.at != len(content):
        raise reader.error("bytes after its end")
    return value


class _Reader:
    """A place in the content; every method reads on from there."""

    def __init__(self, content: bytes | bytearray, hook: Hook | None) -> None:
        self.content = content
        self.hook = hook
        self.at = 0

    def error(self, what: str) -> ArtifactError:
        return ArtifactError(f"the UBJSON document is damaged at byte {self.at}: {what}")

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.content):
            raise self.error(f"{size} bytes wanted, {len(self.content) - self.at} are left")
        chunk = bytes(self.content[self.at : end])
        self.at = end
        return chunk

    def peek(self) -> bytes:
        return bytes(self.content[self.at : self.at + 1])

    def length(self) -> int:
        marker = self.take(1)
        if marker not in _LENGTHS:
            raise self.error(f"a length cannot be {marker!r}")
        size = self.scalar(marker)
        if not isinstance(size, int) or not 0 <= size <= len(self.content) - self.at:
            raise self.error(f"length {size} reaches beyond the end")
        return size

    def scalar(self, marker: bytes) -> int | float:
        form = _SCALARS[marker]
        value: int | float = form.unpack(self.take(form.size))[0]
        return value

    def text(self) -> str:
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None

    def value(self, marker: bytes, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH}")
        if marker in _SCALARS:
            return self.scalar(marker)
        if marker in _LITERALS:
            return _LITERALS[marker]
        if marker == b"S":
            return self.text()
        if marker == b"C":
            return self.take(1).decode("latin-1")
        if marker == b"[":
            return self.array(depth)
        if marker == b"{":
            items = self.object(depth)
            return items if self.hook is None else self.hook(items)
        raise self.error(f"unknown marker {marker!r}")

    def array(self, depth: int) -> list[Any] | Array:
        if self.peek() == b"$":
            self.take(1)
            return self.typed_array(self.take(1))
        if self.peek() == b"#":
            self.take(1)
            return [self.value(self.take(1), depth + 1) for _ in range(self.length())]
        items = []
        while (marker := self.take(1)) != b"]":
            items.append(self.value(marker, depth + 1))
        return items

    def typed_array(self, kind: bytes) -> Array:
        dtype = _ARRAYS.get(kind)
        if dtype is None or self.take(1) != b"#":
            raise self.error(f"an array of {kind!r} is not something that XGBoost writes")
        chunk = self.take(self.length() * dtype.itemsize)
        return np.frombuffer(chunk, dtype).astype(dtype.newbyteorder("="))

    def object(self, depth: int) -> dict[str, Any]:
        if self.peek() == b"$":
            raise self.error("an object of one type is not something that XGBoost writes")
        items: dict[str, Any] = {}
        if self.peek() == b"#":
            self.take(1)
            for _ in range(self.length()):
                key = self.text()
                items[key] = self.value(self.take(1), depth + 1)
            return items
        while self.peek() != b"}":
            key = self.text()
            items[key] = self.value(self.take(1), depth + 1)
        self.take(1)
        return items


@dataclass(frozen=True, slots=True)
class StoredNames:
    """The names of categories outside ASCII as a model stores them: where each ends, and bytes.

    Until 3.2, XGBoost's reader of pandas frames counts characters where it should count bytes, so
    names are cut in the wrong places, and the last bytes are lost (npstr_to_arrow_strarr; mended by
    https://github.com/dmlc/xgboost/pull/12371). Frames of others are stored as they should be, and
    nothing in the model tells these apart.
    """

    offsets: tuple[int, ...]
    joined: bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sort_keys(self) -> list[bytes]:
        """Return what sorts as the names do in XGBoost, which compares signed bytes."""
        signed = self.joined.translate(bytes(byte ^ 0x80 for byte in range(256)))
        return [signed[a:z] for a, z in zip(self.offsets, self.offsets[1:], strict=False)]

    def of(self, names: Sequence[str]) -> Array | None:
        """Return the names in the order of the model; None if it does not store them.

        The order is that of the user, or that in which pandas sorts categories.
        """
        for ordered in (list(names), sorted(names)):
            whole = "".join(ordered).encode()
            of_bytes = np.cumsum([0, *(len(name.encode()) for name in ordered)]).tolist()
            of_characters = np.cumsum([0, *map(len, ordered)]).tolist()
            offsets = list(self.offsets)
            is_whole = offsets == of_bytes and self.joined == whole
            if is_whole or (offsets == of_characters and self.joined == whole[: offsets[-1]]):
                return category_array(ordered, "")
        return None


@dataclass(frozen=True, slots=True, eq=False)
class XGBoostModel:
    """What predictions of an XGBoost model depend on.

    The K outputs are classes, or `targets`. base_score float32 (K,) in the space of predictions;
    `categories` has one array per feature (objects or float64), `StoredNames` if XGBoost may have
    cut them, or None if the feature is a number; `weights` of gblinear are float32 (features + 1,
    K), the biases last. Exactly one of `forest` and `weights` is set. `estimated` says that
    training was to estimate base_score, `rounds` how many rounds there were.
    """

    written_by: str
    objective: str
    features: int
    targets: int
    names: tuple[str, ...] | None
    categories: tuple[Array | StoredNames | None, ...]
    base_score: Array
    estimated: bool
    rounds: int
    attributes: Mapping[str, str]
    forest: Forest | None
    weights: Array | None

    @property
    def outputs(self) -> int:
        """Number K of margins per row."""
        return int(self.base_score.size)

    @property
    def estimator(self) -> str | None:
        """What save_model of an estimator notes: "classifier", "regressor" or "ranker"."""
        try:
            about = json.loads(self.attributes["scikit_learn"])
            kind = about["_estimator_type"]
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        return kind if isinstance(kind, str) else None

    @property
    def best_iteration(self) -> int | None:
        """The iteration at which early stopping found the best score."""
        try:
            return int(self.attributes["best_iteration"])
        except (KeyError, TypeError, ValueError):
            return None


def read_document(document: Any) -> XGBoostModel:
    """Check a parsed JSON or UBJSON document.

    Raises:
        ArtifactError: damaged, or not a model of XGBoost.
        UnsupportedModelError: a booster that we do not know.
    """
    with reading("the XGBoost model", "save it again with save_model"):
        with np.errstate(all="ignore"):  # numbers beyond float32 are infinite in XGBoost too
            return _read(document)


def _read(document: Any) -> XGBoostModel:
    if not isinstance(document, Mapping) or not isinstance(document.get("learner"), Mapping):
        raise ArtifactError("this is not an XGBoost model: it has no 'learner'")
    learner = document["learner"]
    params = learner["learner_model_param"]
    features = bounded(params["num_feature"], MAX_FEATURES, "XGBoost", "features")
    classes = bounded(params.get("num_class", 0), MAX_OUTPUTS, "XGBoost", "classes")
    targets = bounded(params.get("num_target", 1), MAX_OUTPUTS, "XGBoost", "targets")
    if classes > 1 and targets > 1:
        raise UnsupportedModelError(
            f"this XGBoost model has {classes} classes for each of {targets} targets, which is "
            "not covered: train one model per target"
        )
    outputs = max(classes, targets, 1)
    names = _names(learner.get("feature_names"), features)
    booster = learner["gradient_booster"]
    kind = booster["name"]
    forest: Forest | None = None
    weights: Array | None = None
    categories: tuple[Array | StoredNames | None, ...] = (None,) * features
    if kind == "gblinear":
        weights = np.asarray(booster["model"]["weights"], np.float32)
        weights = weights.reshape(features + 1, outputs)
        if not np.isfinite(weights).all():
            raise ArtifactError("a weight of the XGBoost model is not finite")
        rounds = int(booster["model"].get("boosted_rounds", 1))
    elif kind in ("gbtree", "dart"):
        trees = booster["gbtree"]["model"] if kind == "dart" else booster["model"]
        drop = booster["weight_drop"] if kind == "dart" else None
        forest = read_forest(trees, drop, features, outputs)
        rounds = forest.indptr.size - 1
        categories = _categories(trees.get("cats"), features, names)
    else:
        raise UnsupportedModelError(f"XGBoost booster {kind!r} is not covered")
    types = learner.get("feature_types")
    if types is not None and len(types) not in (0, features):
        raise ArtifactError(f"the XGBoost model has {len(types)} types for {features} features")
    about = learner["objective"].get("softmax_multiclass_param")
    if about is not None and int(about["num_class"]) != classes:
        raise ArtifactError("the objective of the XGBoost model has a different number of classes")
    version = document.get("version", [])
    numbered = isinstance(version, list | np.ndarray) and len(version) in (0, 3)
    if not numbered or not all(float(v).is_integer() and v >= 0 for v in version):
        raise ArtifactError("the XGBoost model's version is not three numbers")
    return XGBoostModel(
        written_by=f"xgboost {'.'.join(str(int(v)) for v in version)}".strip(),
        objective=str(learner["objective"]["name"]),
        features=features,
        targets=max(targets, 1),
        names=names,
        categories=categories,
        base_score=_base_score(params["base_score"], outputs),
        estimated=bool(int(params.get("boost_from_average", 0))),
        rounds=rounds,
        attributes=MappingProxyType(
            {str(k): str(v) for k, v in dict(learner.get("attributes") or {}).items()}
        ),
        forest=forest,
        weights=weights,
    )


def _names(given: Any, features: int) -> tuple[str, ...] | None:
    if given is None or not len(given):
        return None
    names = tuple(str(n) for n in given)
    if len(names) != features:
        raise ArtifactError(f"the XGBoost model has {len(names)} names for {features} features")
    return names


def _base_score(text: Any, outputs: int) -> Array:
    """A scalar as text up to 3.0 ("5E-1"), a JSON vector as text since ("[5E-1]")."""
    values = json.loads(text) if isinstance(text, str) else text
    if not isinstance(values, list):
        values = [values]
    base = np.array([float(v) for v in values], np.float32)
    if not np.isfinite(base).all():
        raise ArtifactError("a base score of the XGBoost model is not finite")
    if base.size == 1:
        base = np.repeat(base, outputs)
    if base.size != outputs:
        raise UnsupportedModelError(
            f"this XGBoost model has {base.size} base scores for {outputs} outputs: save it again "
            "with save_model"
        )
    return base


def _categories(
    cats: Any, features: int, names: Sequence[str] | None
) -> tuple[Array | StoredNames | None, ...]:
    """Return the categories of a data frame, which XGBoost keeps since 3.1."""
    encodings = list(cats["enc"]) if cats else []
    if not encodings:
        return (None,) * features
    if len(encodings) != features:
        raise ArtifactError(f"categories of {len(encodings)} columns for {features} features")
    found: list[Array | StoredNames | None] = []
    for i, encoding in enumerate(encodings):
        column = names[i] if names else f"x{i}"
        values = np.asarray(encoding["values"])
        if "offsets" not in encoding:
            found.append(category_array(values.tolist(), column) if values.size else None)
            continue
        offsets = np.asarray(encoding["offsets"], np.int64).tolist()
        if len(offsets) < 2:
            found.append(None)
            continue
        # The bytes of the strings are written as signed integers.
        joined = (values.astype(np.int64) & 0xFF).astype(np.uint8).tobytes()
        if offsets != sorted(offsets) or offsets[0] < 0 or offsets[-1] > len(joined):
            raise ArtifactError(f"the categories of column {column!r} are damaged")
        if not joined.isascii():
            found.append(StoredNames(tuple(offsets), joined))
            continue
        strings = [joined[a:z].decode() for a, z in zip(offsets, offsets[1:], strict=False)]
        found.append(category_array(strings, column))
    _check_order(cats, found)
    return tuple(found)


def _check_order(cats: Any, found: Sequence[Array | StoredNames | None]) -> None:
    """Check what XGBoost relies on: where categories begin, and how they sort.

    Raises:
        ArtifactError: they are not as stated.
    """
    sizes = [0 if values is None else len(values) for values in found]
    listed: list[list[Any]] = [
        values.sort_keys() if isinstance(values, StoredNames) else values.tolist()
        for values in found
        if values is not None
    ]
    order = [sorted(range(len(values)), key=values.__getitem__) for values in listed]
    if any(len(set(values)) < len(values) for values in listed):
        raise ArtifactError("a column of the XGBoost model has a category twice")
    begins = np.asarray(cats["feature_segments"]).tolist()
    told = np.asarray(cats["sorted_idx"]).tolist()
    if begins != np.cumsum([0, *sizes]).tolist() or told != [i for part in order for i in part]:
        raise ArtifactError("the categories of the XGBoost model are not in their stated order")
