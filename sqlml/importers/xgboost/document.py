"""Read XGBoost's model document, check it, and convert it to arrays.

JSON files, UBJSON files and Booster.save_raw contain the same document.
Source: XGBoost doc/model.schema, src/learner.cc, src/tree/tree_model.cc.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.frame import to_category_array
from sqlml.importers.untrusted_documents import MAX_FEATURES, MAX_OUTPUTS, check_count
from sqlml.importers.xgboost.forest import Forest, read_forest
from sqlml.ir.damaged_file import report_damage
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class StoredNames:
    """The offsets and bytes of non-ASCII category names, as a model stores them.

    Up to 3.2, XGBoost counts characters instead of bytes in pandas frames, so names are split in
    the wrong places and the last bytes are lost (npstr_to_arrow_strarr; fixed by
    https://github.com/dmlc/xgboost/pull/12371). Names from frames of other libraries are stored
    correctly, but the model does not name the library.
    """

    offsets: tuple[int, ...]
    content: bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sort_keys(self) -> list[bytes]:
        """Return a sort key per name, because XGBoost sorts names by signed bytes."""
        signed = self.content.translate(bytes(byte ^ 0x80 for byte in range(256)))
        return [signed[start:end] for start, end in pairwise(self.offsets)]

    def match_names(self, names: Sequence[str]) -> Array | None:
        """Return `names` in the order of the model, or None if the model has different names.

        The model has the order of `names`, or the sorted order of pandas categories.
        """
        for candidate in (list(names), sorted(names)):
            content = "".join(candidate).encode()
            byte_offsets = np.cumsum([0, *(len(name.encode()) for name in candidate)]).tolist()
            character_offsets = np.cumsum([0, *map(len, candidate)]).tolist()
            offsets = list(self.offsets)
            is_correct = offsets == byte_offsets and self.content == content
            is_misread = offsets == character_offsets and self.content == content[: offsets[-1]]
            if is_correct or is_misread:
                return to_category_array(candidate, "")
        return None


@dataclass(frozen=True, slots=True, eq=False)
class XGBoostModel:
    """The parts of an XGBoost model that affect predictions.

    Attributes:
        categories: the categories of each feature (objects or float64), `StoredNames` if XGBoost
            may have split the names in the wrong places, or None if the feature is a number.
        base_score: float32 (K,) for K outputs (classes or `targets`), on the scale of predictions.
        estimates_base_score: whether the first round of training estimates base_score.
        attributes: strings that the user or an estimator attached to the Booster.
        forest: the trees, or None for gblinear.
        weights: for gblinear, float32 (features + 1, K) with the biases last; otherwise None.
    """

    written_by: str
    objective: str
    features: int
    targets: int
    names: tuple[str, ...] | None
    categories: tuple[Array | StoredNames | None, ...]
    base_score: Array
    estimates_base_score: bool
    rounds: int
    attributes: Mapping[str, str]
    forest: Forest | None
    weights: Array | None

    @property
    def outputs(self) -> int:
        """K, the number of margins per row."""
        return int(self.base_score.size)

    @property
    def estimator_type(self) -> str | None:
        """The type of the estimator that saved the file, or None if a Booster saved the file."""
        try:
            estimator_type = json.loads(self.attributes["scikit_learn"])["_estimator_type"]
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        return estimator_type if isinstance(estimator_type, str) else None

    @property
    def best_iteration(self) -> int | None:
        """The iteration with the best score, or None if training had no early stopping."""
        try:
            return int(self.attributes["best_iteration"])
        except (KeyError, TypeError, ValueError):
            return None


def read_document(document: Any) -> XGBoostModel:
    """Check and convert a parsed JSON or UBJSON document."""
    # Numbers beyond float32 become infinite, as in XGBoost.
    advice = "save it again with save_model"
    with report_damage("the XGBoost model", advice), np.errstate(all="ignore"):
        return _convert_document(document)


def _convert_document(document: Any) -> XGBoostModel:
    if not isinstance(document, Mapping) or not isinstance(document.get("learner"), Mapping):
        raise ArtifactError("this is not an XGBoost model: it has no 'learner'")
    learner = document["learner"]
    params = learner["learner_model_param"]
    num_features = check_count(params["num_feature"], MAX_FEATURES, "XGBoost", "features")
    num_classes = check_count(params.get("num_class", 0), MAX_OUTPUTS, "XGBoost", "classes")
    num_targets = check_count(params.get("num_target", 1), MAX_OUTPUTS, "XGBoost", "targets")
    if num_classes > 1 and num_targets > 1:
        raise UnsupportedModelError(
            f"this XGBoost model has {num_classes} classes for each of {num_targets} targets, "
            "which is not supported; train one model per target"
        )
    num_outputs = max(num_classes, num_targets, 1)
    names = _read_names(learner.get("feature_names"), num_features)
    booster = learner["gradient_booster"]
    booster_type = booster["name"]
    forest: Forest | None = None
    weights: Array | None = None
    categories: tuple[Array | StoredNames | None, ...] = (None,) * num_features
    if booster_type == "gblinear":
        weights = np.asarray(booster["model"]["weights"], np.float32)
        weights = weights.reshape(num_features + 1, num_outputs)
        if not np.isfinite(weights).all():
            raise ArtifactError("a weight of the XGBoost model is not finite")
        rounds = int(booster["model"].get("boosted_rounds", 1))
    elif booster_type in ("gbtree", "dart"):
        gbtree = booster["gbtree"]["model"] if booster_type == "dart" else booster["model"]
        tree_weights = booster["weight_drop"] if booster_type == "dart" else None
        forest = read_forest(gbtree, tree_weights, num_features, num_outputs)
        rounds = forest.iteration_starts.size - 1
        categories = _read_categories(gbtree.get("cats"), num_features, names)
    else:
        raise UnsupportedModelError(f"XGBoost booster {booster_type!r} is not supported")
    _check_counts(learner, num_features, num_classes)
    return XGBoostModel(
        written_by=_read_version(document),
        objective=str(learner["objective"]["name"]),
        features=num_features,
        targets=max(num_targets, 1),
        names=names,
        categories=categories,
        base_score=_read_base_score(params["base_score"], num_outputs),
        estimates_base_score=bool(int(params.get("boost_from_average", 0))),
        rounds=rounds,
        attributes={str(k): str(v) for k, v in dict(learner.get("attributes") or {}).items()},
        forest=forest,
        weights=weights,
    )


def _check_counts(learner: Mapping[str, Any], num_features: int, num_classes: int) -> None:
    feature_types = learner.get("feature_types")
    if feature_types is not None and len(feature_types) not in (0, num_features):
        count = len(feature_types)
        raise ArtifactError(f"the XGBoost model has {count} types for {num_features} features")
    softmax_param = learner["objective"].get("softmax_multiclass_param")
    if softmax_param is not None and int(softmax_param["num_class"]) != num_classes:
        raise ArtifactError("the objective of the XGBoost model has a different number of classes")


def _read_version(document: Mapping[str, Any]) -> str:
    version = document.get("version", [])
    is_list = isinstance(version, list | np.ndarray) and len(version) in (0, 3)
    if not is_list or not all(float(v).is_integer() and v >= 0 for v in version):
        raise ArtifactError("the XGBoost model's version is not three numbers")
    return f"xgboost {'.'.join(str(int(v)) for v in version)}".strip()


def _read_names(names: Any, num_features: int) -> tuple[str, ...] | None:
    if names is None or not len(names):
        return None
    if len(names) != num_features:
        raise ArtifactError(f"the XGBoost model has {len(names)} names for {num_features} features")
    return tuple(str(name) for name in names)


def _read_base_score(stored: Any, num_outputs: int) -> Array:
    """Read the base scores: a number such as "5E-1", or since XGBoost 3.0, a list."""
    values = json.loads(stored) if isinstance(stored, str) else stored
    values = values if isinstance(values, list) else [values]
    scores = np.array([float(v) for v in values], np.float32)
    if not np.isfinite(scores).all():
        raise ArtifactError("a base score of the XGBoost model is not finite")
    if scores.size == 1:
        scores = np.repeat(scores, num_outputs)
    if scores.size != num_outputs:
        raise UnsupportedModelError(
            f"this XGBoost model has {scores.size} base scores for {num_outputs} outputs: save it "
            "again with save_model"
        )
    return scores


def _read_categories(
    cats: Any, num_features: int, names: Sequence[str] | None
) -> tuple[Array | StoredNames | None, ...]:
    encodings = list(cats["enc"]) if cats else []
    if not encodings:
        return (None,) * num_features
    if len(encodings) != num_features:
        raise ArtifactError(f"categories of {len(encodings)} columns for {num_features} features")
    column_names = [names[i] if names else f"x{i}" for i in range(num_features)]
    categories = list(map(_read_column_categories, encodings, column_names))
    _check_order(cats, categories)
    return tuple(categories)


def _read_column_categories(encoding: Mapping[str, Any], column: str) -> Array | StoredNames | None:
    values = np.asarray(encoding["values"])
    if "offsets" not in encoding:
        return to_category_array(values.tolist(), column) if values.size else None
    offsets = np.asarray(encoding["offsets"], np.int64).tolist()
    if len(offsets) < 2:
        return None
    # The document has the bytes of all strings as a list of signed integers.
    content = (values.astype(np.int64) & 0xFF).astype(np.uint8).tobytes()
    if offsets != sorted(offsets) or offsets[0] < 0 or offsets[-1] > len(content):
        raise ArtifactError(f"the categories of column {column!r} are damaged")
    if not content.isascii():
        return StoredNames(tuple(offsets), content)
    strings = [content[start:end].decode() for start, end in pairwise(offsets)]
    return to_category_array(strings, column)


def _check_order(cats: Any, categories: Sequence[Array | StoredNames | None]) -> None:
    """Check the offsets and the order of the categories, which XGBoost does not check."""
    sizes = [0 if values is None else len(values) for values in categories]
    present = [values for values in categories if values is not None]
    sort_keys = [v.sort_keys() if isinstance(v, StoredNames) else v.tolist() for v in present]
    order = [sorted(range(len(keys)), key=keys.__getitem__) for keys in sort_keys]
    if any(len(set(keys)) < len(keys) for keys in sort_keys):
        raise ArtifactError("a column of the XGBoost model has a category twice")
    stated_offsets = np.asarray(cats["feature_segments"]).tolist()
    stated_order = np.asarray(cats["sorted_idx"]).tolist()
    offsets = np.cumsum([0, *sizes]).tolist()
    if stated_offsets != offsets or stated_order != list(chain.from_iterable(order)):
        raise ArtifactError("the categories of the XGBoost model are not in their stated order")
