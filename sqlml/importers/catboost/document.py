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
from sqlml.importers.catboost.columns import (
    MEANS,
    MOST_WHOLE,
    Columns,
    HashTable,
    Lookup,
    Split,
    Statistic,
    check_told_apart,
    floats,
    lookups,
)
from sqlml.importers.untrusted_documents import MAX_FEATURES, MAX_OUTPUTS
from sqlml.ir.damaged_file import reading
from sqlml.ir.trees import BATCH, Collector, Ensemble, RawTrees
from sqlml.types import Array

# CatBoost's trees, symmetric or not, as the RawTrees of an Ensemble.
#
# A float split is true for `x > border` in float32, a one-hot split where the hash of a category
# equals the split's value. The IR asks `x <= border`, so "false" is left there; of a category it
# asks whether its code is in a set, so "true" is left.
#
# NaN counts as -inf (nan_value_treatment AsFalse) or +inf (AsTrue) in a column that had NaN in
# training; in others every comparison with it is false (catboost/libs/model/cpu/quantization.h).


MAX_DEPTH = 30


class _Nodes:
    """Nodes of some trees, which go on to `collector` before they are many."""

    def __init__(self) -> None:
        self.collector = Collector(np.dtype(np.float64))
        self.trees = 0
        self._clear()

    def _clear(self) -> None:
        self.roots: list[int] = []
        self.parts: dict[str, list[Array]] = {}
        self.sets: dict[int, Array] = {}
        self.size = 0

    def append(self, sets: Mapping[int, int], **arrays: Array) -> None:
        """A tree whose first node is its root, with child numbers of its own; `sets` maps a
        node to the code that goes left."""
        self.trees += 1
        self.roots.append(self.size)
        for name, array in arrays.items():
            shift = self.size if name in ("left", "right") else 0
            self.parts.setdefault(name, []).append(array + shift if shift else array)
        for node, code in sets.items():
            self.sets[self.size + node] = np.array([code], np.int64)
        self.size += arrays["feature"].size
        if self.size >= BATCH:
            self._flush()

    def _flush(self) -> None:
        joined = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        roots, sets = np.array(self.roots, np.int64), self.sets or None
        self._clear()
        self.collector.add(RawTrees(roots, **joined, sets=sets))

    def ensemble(self, outputs: int) -> Ensemble:
        """All trees, from zeros."""
        if self.size:
            self._flush()
        if not self.trees:
            empty, none = np.zeros(0, np.int32), np.zeros(0, bool)
            nothing = np.zeros((0, outputs))
            self.collector.add(
                RawTrees(empty, empty, np.zeros(0, np.float32), empty, empty, none, none, nothing)
            )
        target = np.zeros(self.trees, np.int32)
        return self.collector.ensemble(target=target, base=np.zeros(outputs), compare="le")


def compact(entry: dict[str, Any]) -> dict[str, Any]:
    """Take an object of a JSON document as it is parsed: the leaves of a tree, and the entries of a
    table of hashes, as arrays.

    So they never stand in memory as Python numbers all at once. Values that make no array stay,
    for the readers to refuse.
    """
    for name in ("leaf_values", "leaf_weights"):
        values = entry.get(name)
        if isinstance(values, list):
            try:
                entry[name] = floats(values)
            except (ArtifactError, TypeError, ValueError, OverflowError):
                pass
    if isinstance(entry.get("hash_map"), list):
        try:
            entry["hash_map"] = HashTable.read(entry["hash_map"], entry.get("hash_stride"))
        except (ArtifactError, TypeError, ValueError, OverflowError):
            pass
    return entry


def read_forest(document: Mapping[str, Any], columns: Columns) -> tuple[Ensemble, int | None]:
    """The trees from zeros, and how many values a leaf has; None if there are no trees.

    Raises:
        ArtifactError: the trees do not fit together.
        UnsupportedModelError: an unknown kind of split.
    """
    nodes = _Nodes()
    outputs: int | None = None
    symmetric = "oblivious_trees" in document
    for tree in document["oblivious_trees" if symmetric else "trees"] or []:
        width = _symmetric(tree, columns, nodes) if symmetric else _any(tree, columns, nodes)
        if outputs not in (None, width):
            raise ArtifactError("the trees of the CatBoost model have leaves of different widths")
        outputs = width
    return nodes.ensemble(outputs or 1), outputs


def _symmetric(tree: Mapping[str, Any], columns: Columns, nodes: _Nodes) -> int:
    """A tree with one split a level; bit d of a leaf's number is the outcome of split d."""
    splits = [columns.split(s) for s in tree["splits"] or []]
    depth = len(splits)
    values = floats(tree["leaf_values"])
    leaves = 1 << min(depth, MAX_DEPTH)
    if depth > MAX_DEPTH or not values.size or values.size % leaves:
        raise ArtifactError(f"{values.size} leaf values of a CatBoost tree with {depth} splits")
    inner = leaves - 1
    total = inner + leaves
    # As a heap: the last split is the root's, so that leaves come in the order of their numbers.
    levels = [splits[depth - 1 - level] for level in range(depth)]
    repeats = [1 << level for level in range(depth)]
    feature, border = np.zeros(total, np.int32), np.zeros(total, np.float32)
    falls_left, false_is_left = np.zeros(total, bool), np.ones(total, bool)
    sets: dict[int, int] = {}
    for split, repeat in zip(levels, repeats, strict=True):
        at = slice(repeat - 1, 2 * repeat - 1)
        feature[at], border[at] = split.feature, split.border
        falls_left[at] = not split.nan_is_true
        if split.code is not None:
            false_is_left[at] = falls_left[at] = False
            sets.update(dict.fromkeys(range(repeat - 1, 2 * repeat - 1), split.code))
    heap = np.arange(total, dtype=np.int32)
    false, true = 2 * heap + 1, 2 * heap + 2
    cover = np.full(total, np.nan)
    weights = _weights(tree.get("leaf_weights"), leaves)
    for level in reversed(range(depth + 1)):
        cover[(1 << level) - 1 : (2 << level) - 1] = weights
        weights = weights.reshape(-1, 2).sum(axis=1) if level else weights
    value = np.zeros((total, values.size // leaves))
    value[inner:] = values.reshape(leaves, -1)
    nodes.append(
        sets,
        feature=feature,
        threshold=border,
        left=np.where(false_is_left, false, true),
        right=np.where(false_is_left, true, false),
        leaf=heap >= inner,
        default_left=falls_left,
        value=value,
        cover=cover,
    )
    return value.shape[1]


def _weights(given: Any, leaves: int) -> Array:
    """The weights of the training rows in the leaves of a tree; NaN where it does not say them."""
    fits = isinstance(given, np.ndarray) and given.shape == (leaves,)
    return given if fits else np.full(leaves, np.nan)


def _any(tree: Mapping[str, Any], columns: Columns, nodes: _Nodes) -> int:
    """A tree of nested nodes: {"split", "left", "right"} or {"value"}; left is false."""
    splits: list[Split | None] = []
    left: list[int] = []
    right: list[int] = []
    values: list[Array | None] = []
    weights: list[float] = []
    sets: dict[int, int] = {}
    waiting: list[tuple[Any, list[int] | None, int]] = [(tree, None, 0)]
    while waiting:
        node, children, parent = waiting.pop()
        number = len(splits)
        if children is not None:
            children[parent] = number
        left.append(0)
        right.append(0)
        weight = node.get("weight")
        weights.append(float(weight) if isinstance(weight, int | float) else np.nan)
        if "value" in node:
            value = node["value"]
            splits.append(None)
            values.append(floats(value if isinstance(value, list) else [value]))
            continue
        split = columns.split(node["split"])
        splits.append(split)
        values.append(None)
        false, true = left, right
        if split.code is not None:
            sets[number] = split.code
            false, true = right, left
        waiting.append((node["left"], false, number))
        waiting.append((node["right"], true, number))
    widths = {v.size for v in values if v is not None}
    width = widths.pop()
    if widths or not width:
        raise ArtifactError("the leaves of a CatBoost tree differ in width")
    value = np.zeros((len(splits), width))
    for row, leaf_value in zip(value, values, strict=True):
        if leaf_value is not None:
            row[:] = leaf_value
    for i in reversed(range(len(splits))):  # a child's number is above its parent's
        if splits[i] is not None:
            weights[i] = weights[left[i]] + weights[right[i]]
    nodes.append(
        sets,
        feature=np.array([0 if s is None else s.feature for s in splits], np.int32),
        threshold=np.array([0 if s is None else s.border for s in splits], np.float32),
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        leaf=np.array([s is None for s in splits], bool),
        default_left=np.array(
            [s is not None and s.code is None and not s.nan_is_true for s in splits], bool
        ),
        value=value,
        cover=np.array(weights),
    )
    return width


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
