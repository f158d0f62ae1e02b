"""`LightGBMModel`: LightGBM's text format, checked and in arrays.

Booster.model_to_string and save_model write it. Source: LightGBM src/boosting/gbdt_model_text.cpp
and src/io/tree.cpp. Each tree of n leaves has n - 1 inner nodes; a child c is inner node c, or
leaf ~c when negative.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.types import Array

MAX_FEATURES = 1_000_000
MAX_CLASSES = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The trees behind each other.

    leaves int64 (T,): leaves per tree. Inner nodes: feature int64, threshold float64, decision
    int64 (bit 0 categorical, bit 1 NaN goes left, bits 2-3 missing type), left and right int64,
    numbered within their tree. value float64: leaves. `sets` maps an inner node's place to the
    categories that go left.
    """

    leaves: Array
    feature: Array
    threshold: Array
    decision: Array
    left: Array
    right: Array
    value: Array
    sets: Mapping[int, Array]


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


def read_text(content: str) -> LightGBMModel:
    """Parse a model's text.

    Raises:
        ArtifactError: damaged, cut off, or not a model of LightGBM.
        UnsupportedModelError: linear trees.
    """
    try:
        return _read(content)
    except (ArtifactError, UnsupportedModelError):
        raise
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ArtifactError(
            f"the LightGBM model is damaged ({type(error).__name__}: {error}); save it again with "
            "save_model"
        ) from None


def _read(content: str) -> LightGBMModel:
    lines = [line.rstrip("\r") for line in content.split("\n")]
    if lines[0] != "tree":
        raise ArtifactError("this is not a LightGBM model: its first line is not 'tree'")
    if "end of trees" not in lines:
        raise ArtifactError("the LightGBM model is cut off: it has no 'end of trees'")
    end = lines.index("end of trees")
    starts = [i for i, line in enumerate(lines[:end]) if line.startswith("Tree=")]
    header = _pairs(lines[1 : starts[0] if starts else end])
    trees = [_pairs(lines[a:z]) for a, z in zip(starts, [*starts[1:], end], strict=True)]
    features = _bounded(header["max_feature_idx"], MAX_FEATURES - 1, "features") + 1
    outputs = _bounded(header["num_tree_per_iteration"], MAX_CLASSES, "trees per iteration")
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
    rest = lines[end + 1 :]
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


def _pairs(lines: Sequence[str]) -> dict[str, str]:
    """key=value lines; a line without "=" is a flag."""
    pairs: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition("=")
        if key:
            pairs[key] = value
    return pairs


def _bounded(text: str, most: int, what: str) -> int:
    number = int(text)
    if not 0 <= number <= most:
        raise ArtifactError(f"the LightGBM model claims {number} {what}; the limit is {most}")
    return number


def _nodes(trees: Sequence[Mapping[str, str]], features: int) -> Nodes:
    if any(int(tree.get("is_linear", "0")) for tree in trees):
        raise UnsupportedModelError(
            "LightGBM trees with linear leaves are not covered; train with linear_tree=False"
        )
    leaves = np.array([int(tree["num_leaves"]) for tree in trees], np.int64)
    if (leaves < 1).any():
        raise ArtifactError("a tree of the LightGBM model has no leaves")
    counts = leaves.tolist()

    def joined(name: str, convert: type[int] | type[float], leaf: bool = False) -> Array:
        parts = []
        for tree, n in zip(trees, counts, strict=True):
            wanted = n if leaf else n - 1
            # A tree of one leaf has no entries for inner nodes, or empty ones.
            part = tree[name].split() if wanted else []
            if len(part) != wanted:
                raise ArtifactError(f"a tree has {len(part)} entries of {name}, not {wanted}")
            parts.append(part)
        flat = map(convert, chain.from_iterable(parts))
        return np.array(list(flat), np.int64 if convert is int else np.float64)

    left, right = joined("left_child", int), joined("right_child", int)
    size = np.repeat(leaves, leaves - 1)
    for child in (left, right):
        if ((child >= size - 1) | (~child >= size)).any():
            raise ArtifactError("a child number of the LightGBM model is out of range")
    feature = joined("split_feature", int)
    if feature.size and (feature.min() < 0 or feature.max() >= features):
        raise ArtifactError(f"a tree of the LightGBM model reads beyond its {features} features")
    threshold, decision = joined("threshold", float), joined("decision_type", int)
    if np.isnan(threshold).any():
        raise ArtifactError("a threshold of the LightGBM model is NaN")
    return Nodes(
        leaves=leaves,
        feature=feature,
        threshold=threshold,
        decision=decision,
        left=left,
        right=right,
        value=joined("leaf_value", float, leaf=True),
        sets=_sets(trees, leaves, threshold, decision),
    )


def _sets(
    trees: Sequence[Mapping[str, str]], leaves: Array, threshold: Array, decision: Array
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
