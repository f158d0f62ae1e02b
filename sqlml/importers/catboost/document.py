"""Read CatBoost's JSON document, check it, and convert it to arrays.

CatBoost.save_model(..., format="json") writes the document. Source: CatBoost
catboost/libs/model/model_export/json_model_helpers.cpp.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, ProgramError, UnsupportedModelError
from sqlml.importers.catboost import features
from sqlml.importers.catboost.features import (
    Columns,
    HashTable,
    Statistic,
    StatisticTable,
    read_floats,
)
from sqlml.importers.catboost.forest import read_forest
from sqlml.importers.untrusted_documents import MAX_FEATURES, MAX_OUTPUTS
from sqlml.ir.damaged_file import report_damage
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


def compact(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert lists of leaves and hash tables in `obj` to arrays in place, to save memory.

    The JSON parser calls this function for each object. `read_document` rejects the lists that
    could not be converted.
    """
    for name in ("leaf_values", "leaf_weights", "hash_map"):
        if isinstance(values := obj.get(name), list):
            with suppress(ArtifactError, TypeError, ValueError, OverflowError):
                if name == "hash_map":
                    obj[name] = HashTable.read(values, obj.get("hash_stride"))
                else:
                    obj[name] = read_floats(values)
    return obj


@dataclass(frozen=True, slots=True, eq=False)
class CatBoostModel:
    """The parts of a CatBoost model that affect predictions.

    Attributes:
        features: the number of columns of the table.
        trees: an Ensemble with base 0.
        scale, bias: raw values are `scale * sum + bias`, with bias float64 (K,).
        categorical: maps each categorical column to the 32-bit hashes that splits test, int64.
        lookups: the statistics, which trees read as columns after the columns of the table.
        category_names: maps hashes to categories; a file may lack some of the names.
        class_of: the index in `classes` of each output's class.
        threshold: the probability above which a row belongs to the second of two classes.
    """

    written_by: str
    loss: str
    features: int
    names: tuple[str, ...] | None
    trees: Ensemble
    scale: float
    bias: Array
    categorical: Mapping[int, Array]
    lookups: tuple[StatisticTable, ...]
    category_names: Mapping[int, str]
    classes: tuple[Any, ...] | None
    class_of: tuple[int, ...]
    threshold: float | None

    @property
    def outputs(self) -> int:
        """K, the number of raw values per row."""
        return int(self.bias.size)


def read_document(document: Any, *, is_file: bool = False) -> CatBoostModel:
    """Check and convert a JSON document that was parsed with the hook `compact`.

    If `is_file` is true, reject documents that CatBoost reads incorrectly.
    """
    advice = "save it again with save_model(..., format='json')"
    # Borders beyond float32 become infinite, as in CatBoost.
    with report_damage("the CatBoost model", advice), np.errstate(all="ignore"):
        return _convert_document(document, is_file)


def _convert_document(document: Any, is_file: bool) -> CatBoostModel:
    if not isinstance(document, Mapping) or not {"oblivious_trees", "trees"} & set(document):
        raise ArtifactError("this is not a CatBoost model: it has no trees")
    features_info = document["features_info"]
    for feature_type in ("text", "embedding"):
        if features_info.get(f"{feature_type}_features"):
            raise UnsupportedModelError(f"CatBoost's {feature_type} features are not supported")
    columns = Columns.read(features_info, MAX_FEATURES)
    try:
        trees, num_outputs = read_forest(document, columns)
        trees, lookups = _attach_lookups(trees, columns, document.get("ctr_data"), is_file)
    except ProgramError as error:
        raise ArtifactError(f"the CatBoost model is damaged: {error}") from error
    scale, bias = _read_scale_and_bias(document.get("scale_and_bias", (1.0, [])), num_outputs)
    if bias.size > MAX_OUTPUTS:
        raise ArtifactError(f"the CatBoost model claims {bias.size} outputs")
    model_info = document.get("model_info") or {}
    if lookups:
        features.check_distinct_tables(model_info.get("params"))
    for info_value in model_info.values():
        _check_nesting(info_value)
    classes, class_of = _read_classes(model_info.get("class_params"), bias.size)
    loss = model_info.get("params", {}).get("loss_function", "")
    if isinstance(loss, Mapping):
        loss = loss.get("type", "")
    if not isinstance(loss, str):
        raise ArtifactError("the CatBoost model's loss function has no name")
    return CatBoostModel(
        written_by=_read_version(model_info.get("catboost_version_info")),
        loss=loss,
        features=columns.count,
        names=columns.names,
        trees=trees,
        scale=scale,
        bias=bias,
        categorical=columns.find_tested_values(),
        lookups=lookups,
        category_names=columns.category_names,
        classes=classes,
        class_of=class_of,
        threshold=_read_threshold(model_info.get("binclass_probability_threshold")),
    )


def _attach_lookups(
    trees: Ensemble, columns: Columns, ctr_data: Any, is_file: bool
) -> tuple[Ensemble, tuple[StatisticTable, ...]]:
    """Build the look-ups of the statistics that `trees` read; renumber these columns in `trees`."""
    statistics = columns.statistics
    used_columns = np.unique(trees.feature)
    used_indices = (used_columns[used_columns >= columns.count] - columns.count).tolist()
    if is_file:
        _reject_fractional_sums([statistics[i] for i in used_indices], ctr_data)
    lookups, new_indices = features.build_lookups(statistics, used_indices, ctr_data or {})
    new_columns = np.arange(columns.count + len(statistics), dtype=np.int32)
    for old_index, new_index in new_indices.items():
        new_columns[columns.count + old_index] = columns.count + new_index
    return replace(trees, feature=new_columns[trees.feature]), lookups


def _reject_fractional_sums(statistics: Sequence[Statistic], ctr_data: Any) -> None:
    for table_name in {s.table for s in statistics if s.kind in features.MEANS}:
        hash_table = ctr_data[table_name]["hash_map"]
        if isinstance(hash_table, HashTable) and (hash_table.counts % 1 != 0).any():
            raise UnsupportedModelError(
                "CatBoost reads the sums of a mean target value in this JSON file as whole "
                "numbers, so it does not predict what the trained model does; save the model as "
                "model.cbm"
            )


def _read_scale_and_bias(scale_and_bias: Any, num_outputs: int | None) -> tuple[float, Array]:
    scale, biases = scale_and_bias
    bias_list = biases if isinstance(biases, list) else [biases]
    for number in (scale, *bias_list):
        is_exact_integer = type(number) is int and abs(number) <= features.MAX_EXACT_INTEGER
        if type(number) is not float and not is_exact_integer:
            raise ArtifactError("scale or bias of the CatBoost model is not a number")
    if biases is not bias_list and biases != 0:  # CatBoost ignores a bias that is not in a list.
        raise ArtifactError("the bias of the CatBoost model is not a list")
    bias = np.array(bias_list, np.float64)
    size = bias.size if num_outputs is None else num_outputs
    if not bias.size or (bias.size == 1 and bias[0] == 0):
        bias = np.zeros(size)
    if bias.size != size or not bias.size:
        raise ArtifactError(f"{bias.size} biases for {size} outputs")
    scale = float(scale)
    if not (math.isfinite(scale) and np.isfinite(bias).all()):
        raise ArtifactError("scale or bias of the CatBoost model is not finite")
    return scale, bias


def _read_classes(params: Any, num_outputs: int) -> tuple[tuple[Any, ...] | None, tuple[int, ...]]:
    """Return the class names in file order (or None), and the class index of each output."""
    if not params:
        return None, ()
    names: Sequence[Any] = params.get("class_names") or list(range(max(2, num_outputs)))
    label_type = params.get("class_label_type", "String")
    convert = {"Integer": int, "Float": float, "String": str, "Boolean": bool}.get(label_type)
    if convert is None:
        raise ArtifactError(f"the CatBoost model has labels of an unknown type {label_type!r}")
    allowed_types = (int, float) if convert is float else (convert,)
    are_booleans = convert is bool
    if not all(isinstance(n, allowed_types) and isinstance(n, bool) == are_booleans for n in names):
        raise ArtifactError(f"the class names of the CatBoost model are not of type {label_type}")
    classes = tuple(map(convert, names))
    if are_booleans and classes != (False, True):  # CatBoost assumes this order.
        raise ArtifactError("the boolean classes of the CatBoost model are not false and true")
    num_classes = len(classes)
    num_indices = num_classes if num_outputs == 1 else num_outputs
    indices = params.get("class_to_label") or range(num_indices)
    if any(type(n) is int and not 0 <= n < num_classes for n in indices):
        raise ArtifactError("a class of the CatBoost model has no name")
    if params.get("classes_count", 0) not in (0, num_classes):  # CatBoost writes 0.
        raise ArtifactError("the CatBoost model names more or fewer classes than it states")
    if num_outputs != 1:
        _check_class_indices(indices, num_outputs, num_classes)
    class_of = tuple(map(int, indices))
    if len(set(classes)) != num_classes or num_classes < num_outputs:
        raise ArtifactError(
            f"{num_classes} class names of the CatBoost model do not match its outputs"
        )
    return classes, class_of


def _check_class_indices(indices: Sequence[Any], num_outputs: int, num_classes: int) -> None:
    # Older files store indices as floats.
    is_valid = len(set(indices)) == len(indices) == num_outputs and all(
        type(n) in (int, float) and 0 <= n < num_classes and n == int(n) for n in indices
    )
    if not is_valid:
        raise ArtifactError(
            "the CatBoost model does not say which class each of its outputs is; load it with "
            "CatBoost and save it again"
        )


def _read_threshold(value: Any) -> float | None:
    threshold = None if value is None else float(value)
    if threshold is not None and not 0 < threshold < 1:
        raise ArtifactError(f"the CatBoost model's probability threshold is {threshold}")
    return threshold


def _check_nesting(value: Any) -> None:
    """Reject a string of deeply nested JSON, because CatBoost parses JSON without a depth limit."""
    if isinstance(value, str) and value.count("[") + value.count("{") > 500:
        try:
            with suppress(ValueError):  # CatBoost also stops at invalid JSON.
                json.loads(value)
        except RecursionError:
            raise ArtifactError(
                "a JSON string of the CatBoost model is nested too deeply"
            ) from None


def _read_version(build_info: Any) -> str:
    for line in str(build_info or "").splitlines():
        label, separator, tag = line.partition("tags/v")
        if separator and label.strip() == "Branch:":
            return f"catboost {tag.strip()}"
    return "catboost"
