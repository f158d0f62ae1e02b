"""`LightGBMModel`: LightGBM's text format, checked and in arrays.

Booster.model_to_string and save_model write it. Source: LightGBM src/boosting/gbdt_model_text.cpp
and src/io/tree.cpp. Each tree of n leaves has n - 1 inner nodes; a child c is inner node c, or
leaf ~c when negative.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.limits import MAX_FEATURES, MAX_OUTPUTS, bounded
from sqlml.ir.reading import reading
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class LinearLeaves:
    """What linear_tree=True keeps of each of the L leaves of all trees.

    A leaf says const + the sum of its terms, weight times feature. const float64 (L,); begin
    int64 (L+1,): where the terms of each leaf begin in feature int64 and weights float64.
    """

    const: Array
    begin: Array
    feature: Array
    weights: Array


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The trees behind each other.

    leaves int64 (T,): leaves per tree. Inner nodes: feature int32, threshold float64, decision
    int32 (bit 0 categorical, bit 1 NaN goes left, bits 2-3 missing type), left and right int32,
    numbered within their tree. value float64: leaves. `sets` maps an inner node's place to the
    categories that go left. `linear` is None where no leaf has a model of its own.
    """

    leaves: Array
    feature: Array
    threshold: Array
    decision: Array
    left: Array
    right: Array
    value: Array
    sets: Mapping[int, Array]
    linear: LinearLeaves | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LightGBMModel:
    """What predictions of a LightGBM model depend on.

    `objective` is the name and its options, e.g. ("binary", "sigmoid:1"), empty for a custom one.
    `categories` are the lists of pandas_categorical in the order of the training frame's category
    columns, and `categorical` the numbers of the features that were trained as categories.
    """

    written_by: str
    objective: tuple[str, ...]
    outputs: int
    features: int
    names: tuple[str, ...]
    infos: tuple[str, ...]
    average: bool
    nodes: Nodes
    categorical: tuple[int, ...]
    categories: tuple[tuple[Any, ...], ...]


_INTEGERS = ("left_child", "right_child", "split_feature", "decision_type")
_FLOATS = ("threshold", "leaf_value")
_TEXTS = (
    "Tree",
    "num_leaves",
    "is_linear",
    "cat_boundaries",
    "cat_threshold",
    "leaf_const",
    "num_features",
    "leaf_features",
    "leaf_coeff",
)
"""What is read of a tree; the rest of it are statistics of training."""
_END = "end of trees"


def read_text(content: str) -> LightGBMModel:
    """Parse a model's text; see `read_lines`."""
    return read_lines(_lines(content))


def read_lines(lines: Iterable[str]) -> LightGBMModel:
    """Parse the lines of a model's text, of which one tree at a time is held.

    Raises:
        ArtifactError: damaged, cut off, or not a model of LightGBM.
    """
    with reading("the LightGBM model", "save it again with save_model"):
        return _read(line.rstrip("\r\n") for line in lines)


def _lines(content: str) -> Iterator[str]:
    start = 0
    while (end := content.find("\n", start)) >= 0:
        yield content[start:end]
        start = end + 1
    yield content[start:]


def _read(lines: Iterator[str]) -> LightGBMModel:
    if next(lines, "") != "tree":
        raise ArtifactError("this is not a LightGBM model: its first line is not 'tree'")
    header: dict[str, str] = {}
    trees: list[dict[str, Any]] = []
    current = header
    for line in chain(lines, [None]):
        if line is None:
            raise ArtifactError(f"the LightGBM model is cut off: it has no {_END!r}")
        if line == _END or line.startswith("Tree="):
            if current is not header:
                trees.append(_tree(current, lines))
            if line == _END:
                break
            current = {}
        key, _, value = line.partition("=")
        if key and (current is header or key in _INTEGERS or key in _FLOATS or key in _TEXTS):
            current[key] = value
    last = bounded(header["max_feature_idx"], MAX_FEATURES - 1, "LightGBM", "features")
    features = last + 1
    iteration = header["num_tree_per_iteration"]
    outputs = bounded(iteration, MAX_OUTPUTS, "LightGBM", "trees per iteration")
    if "tree_sizes" in header and len(header["tree_sizes"].split()) != len(trees):
        raise ArtifactError("the LightGBM model has more or fewer trees than it says")
    if outputs < 1 or len(trees) % outputs:
        raise ArtifactError(f"{len(trees)} trees do not make iterations of {outputs}")
    if [int(tree["Tree"]) for tree in trees] != list(range(len(trees))):
        raise ArtifactError("the trees of the LightGBM model are not in order")
    names = tuple(header["feature_names"].split(" "))
    infos = tuple(header["feature_infos"].split(" "))
    if len(names) != features or len(infos) != features:
        raise ArtifactError(f"the LightGBM model does not name its {features} features")
    rest = list(lines)
    return LightGBMModel(
        written_by=f"lightgbm (format {header.get('version', 'unknown')})",
        objective=tuple(header.get("objective", "").split()),
        outputs=outputs,
        features=features,
        names=names,
        infos=infos,
        average="average_output" in header,
        nodes=_nodes(trees, features),
        categorical=_categorical(rest, infos),
        categories=_pandas_categorical(rest),
    )


def _tree(pairs: Mapping[str, str], rest: Iterator[str]) -> dict[str, Any]:
    """A tree's lines with its numbers as arrays; `rest` are the lines behind it."""
    try:
        return {
            **pairs,
            **{key: _integers(pairs[key]) for key in _INTEGERS if key in pairs},
            **{key: np.array(pairs[key].split(), np.float64) for key in _FLOATS if key in pairs},
        }
    except (ValueError, OverflowError):
        if _END not in rest:
            raise ArtifactError(f"the LightGBM model is cut off: it has no {_END!r}") from None
        raise


def _integers(text: str) -> Array:
    return np.array(list(map(int, text.split())), np.int32)


def _nodes(trees: Sequence[dict[str, Any]], features: int) -> Nodes:
    leaves = np.array([int(tree["num_leaves"]) for tree in trees], np.int64)
    if (leaves < 1).any():
        raise ArtifactError("a tree of the LightGBM model has no leaves")
    counts = leaves.tolist()

    linear = _linear(trees, counts, features)

    def joined(name: str, leaf: bool = False) -> Array:
        parts = [np.zeros(0, np.float64 if name in _FLOATS else np.int32)]
        for tree, n in zip(trees, counts, strict=True):
            wanted = n if leaf else n - 1
            # A tree of one leaf has no entries for inner nodes, or empty ones.
            part = tree.pop(name) if wanted else parts[0]
            if len(part) != wanted:
                raise ArtifactError(f"a tree has {len(part)} entries of {name}, not {wanted}")
            parts.append(part)
        return np.concatenate(parts)

    left, right = joined("left_child"), joined("right_child")
    size = np.repeat(leaves.astype(np.int32), leaves - 1)
    for child in (left, right):
        if ((child >= size - 1) | (~child >= size)).any():
            raise ArtifactError("a child number of the LightGBM model is out of range")
    del size
    feature = joined("split_feature")
    if feature.size and (feature.min() < 0 or feature.max() >= features):
        raise ArtifactError(f"a tree of the LightGBM model reads beyond its {features} features")
    threshold, decision = joined("threshold"), joined("decision_type")
    if np.isnan(threshold).any():
        raise ArtifactError("a threshold of the LightGBM model is NaN")
    return Nodes(
        leaves=leaves,
        feature=feature,
        threshold=threshold,
        decision=decision,
        left=left,
        right=right,
        value=joined("leaf_value", leaf=True),
        sets=_sets(trees, leaves, threshold, decision),
        linear=linear,
    )


def _linear(
    trees: Sequence[Mapping[str, Any]], counts: Sequence[int], features: int
) -> LinearLeaves | None:
    """The models in the leaves; those of a plain tree are its constants."""
    if not any(int(tree.get("is_linear", "0")) for tree in trees):
        return None
    const: list[float] = []
    terms, feature, weights = [], [], []
    for tree, leaves in zip(trees, counts, strict=True):
        plain = not int(tree.get("is_linear", "0"))
        own = (
            tree["leaf_value"].tolist() if plain else [float(v) for v in tree["leaf_const"].split()]
        )
        sizes = [0] * leaves if plain else [int(v) for v in tree["num_features"].split()]
        if len(own) != leaves or len(sizes) != leaves or min(sizes) < 0:
            raise ArtifactError("the linear models in the leaves do not fit the tree")
        read = [] if plain else [int(v) for v in tree["leaf_features"].split()]
        factors = [] if plain else [float(v) for v in tree["leaf_coeff"].split()]
        if not len(read) == len(factors) == sum(sizes):
            raise ArtifactError("a linear model in a leaf has more or fewer terms than it says")
        if read and not 0 <= min(read) <= max(read) < features:
            raise ArtifactError(
                f"a leaf of the LightGBM model reads beyond its {features} features"
            )
        const += own
        terms += sizes
        feature += read
        weights += factors
    return LinearLeaves(
        np.array(const, np.float64),
        np.cumsum([0, *terms]),
        np.array(feature, np.int64),
        np.array(weights, np.float64),
    )


def _sets(
    trees: Sequence[Mapping[str, Any]], leaves: Array, threshold: Array, decision: Array
) -> dict[int, Array]:
    """Inner node -> categories that go left; the threshold is the number of the node's bit set."""
    sets: dict[int, Array] = {}
    starts = np.cumsum(leaves - 1) - (leaves - 1)
    categorical = np.flatnonzero(decision & 1)
    owners = np.searchsorted(starts, categorical, side="right") - 1
    tables: dict[int, tuple[list[int], Array]] = {}
    for node, owner in zip(categorical.tolist(), owners.tolist(), strict=True):
        if owner not in tables:
            tree = trees[owner]
            words = np.array([int(w) for w in tree["cat_threshold"].split()], np.uint32)
            tables[owner] = [int(b) for b in tree["cat_boundaries"].split()], words
        bounds, words = tables[owner]
        number = int(threshold[node])
        if not 0 <= number < len(bounds) - 1:
            raise ArtifactError("a categorical node of the LightGBM model has no set")
        begin, end = bounds[number], bounds[number + 1]
        if not 0 <= begin <= end <= words.size:
            raise ArtifactError("the category sets of the LightGBM model are damaged")
        octets = words[begin:end].astype("<u4").view(np.uint8)
        sets[node] = np.flatnonzero(np.unpackbits(octets, bitorder="little"))
    return sets


def _categorical(rest: Sequence[str], infos: Sequence[str]) -> tuple[int, ...]:
    """Features trained as categories: the parameter says them; older files only show values,
    "-1:0:2" for categories and "[0:1]" for numbers."""
    prefix = "[categorical_feature: "
    for line in rest:
        if line.startswith(prefix) and line.endswith("]"):
            parts = [p for p in line[len(prefix) : -1].split(",") if p]
            if all(p.isdecimal() for p in parts):
                return tuple(sorted({int(p) for p in parts if int(p) < len(infos)}))
    return tuple(i for i, info in enumerate(infos) if info != "none" and info[:1] != "[")


def _pandas_categorical(rest: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
    prefix = "pandas_categorical:"
    for line in reversed(rest):
        if line.startswith(prefix):
            lists = json.loads(line[len(prefix) :])
            if lists is None:
                return ()
            if not isinstance(lists, list) or not all(isinstance(c, list) for c in lists):
                raise ArtifactError("pandas_categorical of the LightGBM model is damaged")
            return tuple(tuple(c) for c in lists)
    return ()
