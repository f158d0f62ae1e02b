"""`CatBoostModel`: CatBoost's JSON document, checked and in arrays.

CatBoost.save_model(.., format="json") writes it. Source: CatBoost
catboost/libs/model/model_export/json_model_helpers.cpp.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, ProgramError, UnsupportedModelError
from sqlml.importers.catboost.columns import Columns
from sqlml.importers.catboost.document_numbers import MOST_WHOLE
from sqlml.importers.catboost.forest import read_forest
from sqlml.importers.catboost.hash_table import HashTable
from sqlml.importers.catboost.statistics import (
    MEANS,
    Lookup,
    Statistic,
    check_told_apart,
    lookups,
)
from sqlml.importers.claimed_sizes import MAX_FEATURES, MAX_OUTPUTS
from sqlml.ir.damaged_file import reading
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class CatBoostModel:
    """What predictions of a CatBoost model depend on.

    `trees` start from zeros: raw values are `scale * sum + bias`, bias float64 (K,). `loss` is the
    loss function's name without its parameters. `categorical` has, for each categorical column
    that a split tests, the 32-bit hashes of the values tested, int64. `lookups` make the columns
    that trees read behind those of the table. `texts` has the texts of hashes, where the file says
    them. `classes` are the names of the classes (None for a model that has none), and output k
    means class `class_of[k]`. `threshold` is the probability above which a row is of the second
    class of two.
    """

    written_by: str
    loss: str
    features: int
    names: tuple[str, ...] | None
    trees: Ensemble
    scale: float
    bias: Array
    categorical: Mapping[int, Array]
    lookups: tuple[Lookup, ...]
    texts: Mapping[int, str]
    classes: tuple[Any, ...] | None
    class_of: tuple[int, ...]
    threshold: float | None

    @property
    def outputs(self) -> int:
        """Number K of raw values per row."""
        return int(self.bias.size)


def read_document(document: Any, *, is_file: bool = False) -> CatBoostModel:
    """Check a parsed JSON document, of which each object went through `forest.compact`.

    Args:
        is_file: there is nothing but this document, which CatBoost itself would read.

    Raises:
        ArtifactError: damaged, or not a model of CatBoost.
        UnsupportedModelError: it needs texts or embeddings, or CatBoost misreads it.
    """
    with reading("the CatBoost model", "save it again with save_model(.., format='json')"):
        with np.errstate(all="ignore"):  # a border beyond float32 is infinite in CatBoost too
            return _read(document, is_file)


def _read(document: Any, is_file: bool) -> CatBoostModel:
    if not isinstance(document, Mapping) or not {"oblivious_trees", "trees"} & set(document):
        raise ArtifactError("this is not a CatBoost model: it has no trees")
    info = document["features_info"]
    for kind in ("text", "embedding"):
        if info.get(f"{kind}_features"):
            raise UnsupportedModelError(f"CatBoost's {kind} features are not covered")
    columns = Columns.read(info, MAX_FEATURES)
    try:
        trees, outputs = read_forest(document, columns)
        trees, found = _looked_up(trees, columns, document.get("ctr_data"), is_file)
    except ProgramError as error:
        raise ArtifactError(f"the CatBoost model is damaged: {error}") from error
    scale, bias = _scale_and_bias(document.get("scale_and_bias", (1.0, [])), outputs)
    if bias.size > MAX_OUTPUTS:
        raise ArtifactError(f"the CatBoost model claims {bias.size} outputs")
    about = document.get("model_info") or {}
    if found:
        check_told_apart(about.get("params"))
    for text in about.values():
        _check_nesting(text)
    classes, class_of = _classes(about.get("class_params"), bias.size)
    loss = about.get("params", {}).get("loss_function", {}).get("type", "")
    if not isinstance(loss, str):
        raise ArtifactError("the CatBoost model's loss function has no name")
    return CatBoostModel(
        written_by=_version(about.get("catboost_version_info")),
        loss=loss,
        features=columns.count,
        names=columns.names,
        trees=trees,
        scale=scale,
        bias=bias,
        categorical=columns.tested_values(),
        lookups=found,
        texts=columns.texts,
        classes=classes,
        class_of=class_of,
        threshold=_threshold(about.get("binclass_probability_threshold")),
    )


def _looked_up(
    trees: Ensemble, columns: Columns, data: Any, is_file: bool
) -> tuple[Ensemble, tuple[Lookup, ...]]:
    """The trees, and the look-ups of the statistics that they test, in the order of the columns."""
    used = np.unique(trees.feature)
    numbers = (used[used >= columns.count] - columns.count).tolist()
    if is_file:
        _check_whole_sums([columns.statistics[n] for n in numbers], data)
    found, column = lookups(columns.statistics, numbers, data or {})
    moved = np.arange(columns.count + len(columns.statistics), dtype=np.int32)
    for number, place in column.items():
        moved[columns.count + number] = columns.count + place
    return replace(trees, feature=moved[trees.feature]), found


def _check_whole_sums(statistics: Sequence[Statistic], data: Any) -> None:
    for table in {s.table for s in statistics if s.kind in MEANS}:
        counted = data[table]["hash_map"]
        if isinstance(counted, HashTable) and (counted.numbers % 1 != 0).any():
            raise UnsupportedModelError(
                "CatBoost reads the sums of a mean target value in this JSON file as whole "
                "numbers, so it does not predict what the trained model does; save that as "
                "model.cbm"
            )


def _scale_and_bias(given: Any, outputs: int | None) -> tuple[float, Array]:
    scale, biases = given
    listed = biases if isinstance(biases, list) else [biases]
    for number in (scale, *listed):
        if type(number) is not float and (type(number) is not int or abs(number) > MOST_WHOLE):
            raise ArtifactError("scale or bias of the CatBoost model is not a number")
    if biases is not listed and biases != 0:  # CatBoost reads a list, and takes this for none
        raise ArtifactError("the bias of the CatBoost model is not a list")
    bias = np.array(listed, np.float64)
    wanted = bias.size if outputs is None else outputs
    if not bias.size or (bias.size == 1 and bias[0] == 0):
        bias = np.zeros(wanted)
    if bias.size != wanted or not bias.size:
        raise ArtifactError(f"{bias.size} biases for {wanted} outputs")
    scale = float(scale)
    if not (math.isfinite(scale) and np.isfinite(bias).all()):
        raise ArtifactError("scale or bias of the CatBoost model is not finite")
    return scale, bias


def _classes(given: Any, outputs: int) -> tuple[tuple[Any, ...] | None, tuple[int, ...]]:
    """Names of the classes in the order of the model, and the class of each output."""
    if not given:
        return None, ()
    names: Sequence[Any] = given.get("class_names") or list(range(max(2, outputs)))
    kind = given.get("class_label_type", "String")
    convert = {"Integer": int, "Float": float, "String": str, "Boolean": bool}.get(kind)
    if convert is None:
        raise ArtifactError(f"the CatBoost model has labels of an unknown type {kind!r}")
    allowed = (int, float) if convert is float else convert
    if not all(isinstance(n, allowed) and (convert is bool) == (type(n) is bool) for n in names):
        raise ArtifactError(f"the class names of the CatBoost model are not of type {kind}")
    classes = tuple(convert(n) for n in names)
    if convert is bool and classes != (False, True):  # CatBoost takes them for that
        raise ArtifactError("the boolean classes of the CatBoost model are not false and true")
    numbers = given.get("class_to_label") or range(len(classes) if outputs == 1 else outputs)
    if any(type(n) is int and not 0 <= n < len(classes) for n in numbers):
        raise ArtifactError("a class of the CatBoost model has no name")
    if given.get("classes_count", 0) not in (0, len(classes)):  # CatBoost writes 0
        raise ArtifactError(
            "the number of classes of the CatBoost model does not match their names"
        )
    if outputs == 1:
        class_of = tuple(int(n) for n in numbers)
    else:
        class_of = _class_of(numbers, outputs, len(classes))
    if len(set(classes)) != len(classes) or len(classes) < outputs:
        raise ArtifactError(f"{len(classes)} class names of the CatBoost model do not fit it")
    return classes, class_of


def _class_of(numbers: Sequence[Any], outputs: int, classes: int) -> tuple[int, ...]:
    """The class of each output: its number among the names, which older files write as a float."""
    fine = len(set(numbers)) == len(numbers) == outputs and all(
        type(n) in (int, float) and 0 <= n < classes and n == int(n) for n in numbers
    )
    if not fine:
        raise ArtifactError(
            "the CatBoost model does not say which class each of its outputs is; load it with "
            "CatBoost and save it again"
        )
    return tuple(map(int, numbers))


def _threshold(given: Any) -> float | None:
    if given is None:
        return None
    value = float(given)
    if not 0 < value < 1:
        raise ArtifactError(
            f"the probability threshold {value} of the CatBoost model must lie between 0 and 1"
        )
    return value


def _check_nesting(text: Any) -> None:
    """CatBoost reads some texts as JSON again, and as deep as they go."""
    if isinstance(text, str) and text.count("[") + text.count("{") > _DEEP:
        try:
            json.loads(text)
        except RecursionError:
            raise ArtifactError("a JSON text of the CatBoost model is nested too deeply") from None
        except ValueError:
            pass  # then CatBoost does not read on either


_DEEP = 500


def _version(given: Any) -> str:
    """ "catboost 1.2.10" out of the note that CatBoost leaves about its build."""
    for line in str(given or "").splitlines():
        before, found, tag = line.partition("tags/v")
        if found and before.strip() == "Branch:":
            return f"catboost {tag.strip()}"
    return "catboost"
