"""LightGBM's text format, checked and turned into arrays.

Booster.model_to_string and save_model write it. Source: LightGBM src/boosting/gbdt_model_text.cpp
and src/io/tree.cpp. Each tree of n leaves has n - 1 inner nodes; a child c is inner node c, or
leaf ~c when negative.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.untrusted_documents import MAX_FEATURES, MAX_OUTPUTS, check_count
from sqlml.ir.damaged_file import report_damage
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class LinearLeaves:
    """The linear models in the L leaves of all trees (linear_tree=True).

    A leaf predicts const, float64 (L,), plus the sum of its terms, weights * feature. `begin`,
    int64 (L+1,), has the index of each leaf's first term in feature, int64, and weights, float64.
    """

    const: Array
    begin: Array
    feature: Array
    weights: Array


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The arrays of T trees, concatenated.

    Attributes:
        leaves: the number of leaves of each tree, int64 (T,).
        feature, threshold: int32 and float64, of inner nodes, like the next three.
        decision: int32; bit 0: categorical, bit 1: NaN goes left, bits 2 and 3: missing type.
        left, right: children, int32, numbered within their tree.
        value: float64, of leaves.
        sets: the categories that go left, by the number of the inner node.
        linear: None if no leaf has a linear model.
        count, leaf_count, gain: statistics of training, float64; None if the text lacks them.
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
    count: Array | None = None
    leaf_count: Array | None = None
    gain: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LightGBMModel:
    """The parts of a LightGBM model that predictions depend on.

    Attributes:
        objective: its name and options, for example ("binary", "sigmoid:1"); empty if custom.
        outputs: the number of trees per iteration.
        infos: the values of each feature in training, as text.
        average: predictions are the mean of the trees (boosting=rf).
        categorical: the numbers of the features that were trained as categories.
        categories: the lists of pandas_categorical, in the order of the frame's category columns.
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
_STATISTICS = ("internal_count", "leaf_count", "split_gain")
"""Numbers that explanations read, and predictions do not."""
_TEXTS = (
    "Tree num_leaves num_cat is_linear cat_boundaries cat_threshold leaf_const num_features "
    "leaf_features leaf_coeff"
).split()
"""The other keys of a tree that are read, as text."""
_INNER_STATISTICS = ("split_gain", "internal_value", "internal_weight", "internal_count")
_LEAF_STATISTICS = ("leaf_weight", "leaf_count", "leaf_parent")
"""Statistics with an entry per inner node and per leaf, which LightGBM reads without a check."""
_KEYS = frozenset(
    (*_INTEGERS, *_FLOATS, *_TEXTS, *_INNER_STATISTICS, *_LEAF_STATISTICS, "shrinkage")
)
_END = "end of trees"
_OLD_END = "feature importances:"
"""The line after the trees of LightGBM 2.0 to 2.2, which did not write `end of trees`."""


def read_text(content: str) -> LightGBMModel:
    return read_lines(_split_lines(content))


def read_lines(lines: Iterable[str]) -> LightGBMModel:
    """Parse and check the lines of a model, holding the text of one tree at a time."""
    with report_damage("the LightGBM model", "save it again with save_model"):
        return _read(line.rstrip("\r\n") for line in lines)


def _split_lines(content: str) -> Iterator[str]:
    start = 0
    while (end := content.find("\n", start)) >= 0:
        yield content[start:end]
        start = end + 1
    yield content[start:]


def _read(lines: Iterator[str]) -> LightGBMModel:
    header, trees = _read_header_and_trees(lines)
    last = check_count(header["max_feature_idx"], MAX_FEATURES - 1, "LightGBM", "features")
    features = last + 1
    objective = tuple(header.get("objective", "").split())
    outputs = _read_outputs(header, objective)
    if outputs < 1 or len(trees) % outputs:
        raise ArtifactError(f"{len(trees)} trees do not form iterations of {outputs}")
    if [int(tree["Tree"]) for tree in trees] != list(range(len(trees))):
        raise ArtifactError("the trees of the LightGBM model are not in order")
    names = tuple(header["feature_names"].split(" "))
    infos = tuple(header["feature_infos"].split(" "))
    if len(names) != features or len(infos) != features:
        raise ArtifactError(f"the LightGBM model does not name its {features} features")
    rest = list(lines)
    _check_parameters(rest)
    return LightGBMModel(
        written_by=f"lightgbm (format {header.get('version', 'unknown')})",
        objective=objective,
        outputs=outputs,
        features=features,
        names=names,
        infos=infos,
        average="average_output" in header,
        nodes=_join_trees(trees, features),
        categorical=_read_categorical(rest, infos),
        categories=_read_pandas_categorical(rest),
    )


def _read_header_and_trees(lines: Iterator[str]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Read up to the end of the trees, and check their stated sizes in bytes."""
    if next(lines, "") != "tree":
        raise ArtifactError("this is not a LightGBM model: its first line is not 'tree'")
    header: dict[str, str] = {}
    trees: list[dict[str, Any]] = []
    sizes: list[int] = []
    current = header
    for line in chain(lines, [None]):
        if line is None:
            raise ArtifactError(f"the LightGBM model is cut off: it has no {_END!r}")
        is_old_end = line == _OLD_END and current is not header
        if line == _END or is_old_end or line.startswith("Tree="):
            if current is not header:
                trees.append(_read_tree(current, lines))
            if is_old_end:
                sizes[-1] -= 1  # a blank line precedes it
            if line == _END or is_old_end:
                break
            current = {}
            sizes.append(0)
        key, equals, value = line.partition("=")
        if current is not header:
            sizes[-1] += len(line) + 1
            _check_line(line, key, value, current)
        if key in current and equals:
            raise ArtifactError(f"the LightGBM model repeats {key!r}")
        current[key] = value
    stated = header.get("tree_sizes")
    if stated is not None and stated.split() != [str(size) for size in sizes]:
        raise ArtifactError("the trees of the LightGBM model do not have their stated sizes")
    return header, trees


def _read_outputs(header: Mapping[str, str], objective: tuple[str, ...]) -> int:
    """Return the number of trees per iteration, which must be the number of classes."""
    iteration = header["num_tree_per_iteration"]
    outputs = check_count(iteration, MAX_OUTPUTS, "LightGBM", "trees per iteration")
    classes = check_count(header["num_class"], MAX_OUTPUTS, "LightGBM", "classes")
    if "objective" in header and not objective:
        raise ArtifactError("the objective of the LightGBM model has no name")
    if classes != outputs or any(
        option.startswith("num_class:") and option != f"num_class:{outputs}" for option in objective
    ):
        raise ArtifactError(
            f"the LightGBM model has {outputs} trees per iteration, which does not match its "
            "number of classes"
        )
    return outputs


def _check_line(line: str, key: str, value: str, tree: Mapping[str, str]) -> None:
    """Check a line of a tree, which LightGBM reads up to the first blank line."""
    if not line:
        return
    # Python parses more texts as numbers than LightGBM does.
    is_foreign = "_" in value or not value.isascii()
    if "" in tree or key not in _KEYS or "=" not in line or is_foreign:
        raise ArtifactError(f"{line[:40]!r} is not a line of a LightGBM tree")


def _read_tree(pairs: Mapping[str, str], rest: Iterator[str]) -> dict[str, Any]:
    """Return the entries of a tree, numbers as arrays; `rest` are the lines after it."""
    try:
        float(pairs.get("shrinkage", 1))
        leaves = int(pairs["num_leaves"])
        for count, names in ((leaves - 1, _INNER_STATISTICS), (leaves, _LEAF_STATISTICS)):
            for name in names if leaves > 1 else ():
                if name in pairs and not _looks_like_numbers(pairs[name], count):
                    raise ArtifactError(f"a LightGBM tree does not have {count} entries of {name}")
        return {
            **{key: pairs[key] for key in _TEXTS if key in pairs},
            **{key: _parse_integers(pairs[key]) for key in _INTEGERS if key in pairs},
            **{
                key: np.array(pairs[key].split(), np.float64)
                for key in (*_FLOATS, *_STATISTICS)
                if key in pairs
            },
        }
    except (KeyError, ValueError, OverflowError):
        if _END not in rest:
            raise ArtifactError(f"the LightGBM model is cut off: it has no {_END!r}") from None
        raise


def _looks_like_numbers(text: str, count: int) -> bool:
    """Return whether a text looks like `count` numbers, without parsing them."""
    others = text.encode().translate(None, b"0123456789-+.e ")
    return text.count(" ") + 1 == count and not others.translate(None, b"infaINFA")


def _parse_integers(text: str) -> Array:
    return np.array(list(map(int, text.split())), np.int32)


def _join_trees(trees: Sequence[dict[str, Any]], features: int) -> Nodes:
    leaves = np.array([int(tree["num_leaves"]) for tree in trees], np.int64)
    if (leaves < 1).any():
        raise ArtifactError("a tree of the LightGBM model has no leaves")
    counts = leaves.tolist()
    linear = _read_linear_leaves(trees, counts, features)
    join = partial(_join, trees, counts)
    join_statistic = partial(_join_statistic, trees, counts)
    left, right = join("left_child"), join("right_child")
    size = np.repeat(leaves.astype(np.int32), leaves - 1)
    for child in (left, right):
        if ((child >= size - 1) | (~child >= size)).any():
            raise ArtifactError("a child number of the LightGBM model is out of range")
    del size
    feature = join("split_feature")
    if feature.size and (feature.min() < 0 or feature.max() >= features):
        raise ArtifactError(f"a tree of the LightGBM model reads beyond its {features} features")
    threshold, decision = join("threshold"), join("decision_type")
    if np.isnan(threshold).any():
        raise ArtifactError("a threshold of the LightGBM model is NaN")
    if ((decision < 0) | (decision > 15)).any():
        raise ArtifactError("a node of the LightGBM model has an unknown decision type")
    return Nodes(
        leaves=leaves,
        feature=feature,
        threshold=threshold,
        decision=decision,
        left=left,
        right=right,
        value=join("leaf_value", leaf=True),
        sets=_read_sets(trees, leaves, threshold, decision),
        linear=linear,
        count=join_statistic("internal_count"),
        leaf_count=join_statistic("leaf_count", leaf=True),
        gain=join_statistic("split_gain"),
    )


def _join(
    trees: Sequence[dict[str, Any]], counts: Sequence[int], name: str, leaf: bool = False
) -> Array:
    """Remove the array `name` of inner nodes or leaves from all trees and concatenate it."""
    arrays = [np.zeros(0, np.int32 if name in _INTEGERS else np.float64)]
    for tree, leaves in zip(trees, counts, strict=True):
        size = leaves if leaf else leaves - 1
        # A tree of one leaf has no entries for inner nodes, or empty ones.
        array = tree.pop(name) if size else arrays[0]
        if len(array) != size:
            raise ArtifactError(f"a tree has {len(array)} entries of {name}, not {size}")
        arrays.append(array)
    return np.concatenate(arrays)


def _join_statistic(
    trees: Sequence[dict[str, Any]], counts: Sequence[int], name: str, leaf: bool = False
) -> Array | None:
    """Join an array that may be missing; trees of one leaf do not always have it."""
    has_all = all(name in tree for tree, n in zip(trees, counts, strict=True) if n > 1)
    for tree, leaves in zip(trees, counts, strict=True):
        if leaves == 1 and leaf:
            tree[name] = np.ones(1)
    return _join(trees, counts, name, leaf) if has_all else None


def _read_linear_leaves(
    trees: Sequence[Mapping[str, Any]], counts: Sequence[int], features: int
) -> LinearLeaves | None:
    """Read the models in the leaves; plain trees have their constants only."""
    if not any(int(tree.get("is_linear", "0")) for tree in trees):
        return None
    const: list[float] = []
    terms, feature, weights = [], [], []
    for tree, leaves in zip(trees, counts, strict=True):
        if int(tree.get("is_linear", "0")):
            constants = [float(v) for v in tree["leaf_const"].split()]
            sizes = [int(v) for v in tree["num_features"].split()]
            read = [int(v) for v in tree["leaf_features"].split()]
            factors = [float(v) for v in tree["leaf_coeff"].split()]
        else:
            constants, sizes, read, factors = tree["leaf_value"].tolist(), [0] * leaves, [], []
        if len(constants) != leaves or len(sizes) != leaves or min(sizes) < 0:
            raise ArtifactError("the linear models in the leaves do not fit the tree")
        if not len(read) == len(factors) == sum(sizes):
            raise ArtifactError("a linear model in a leaf has more or fewer terms than stated")
        if read and not 0 <= min(read) <= max(read) < features:
            raise ArtifactError(f"a LightGBM leaf reads beyond its {features} features")
        const += constants
        terms += sizes
        feature += read
        weights += factors
    if not all(map(_is_readable, chain(const, weights))):
        raise ArtifactError("a number in a leaf of the LightGBM model is not a normal float64")
    return LinearLeaves(
        np.array(const, np.float64),
        np.cumsum([0, *terms]),
        np.array(feature, np.int64),
        np.array(weights, np.float64),
    )


def _is_readable(number: float) -> bool:
    """Return whether LightGBM can read a number of a linear model; others end the process."""
    return number == 0 or _LEAST <= abs(number) < float("inf")


_LEAST = float(np.finfo(np.float64).tiny)


def _read_sets(
    trees: Sequence[Mapping[str, Any]], leaves: Array, threshold: Array, decision: Array
) -> dict[int, Array]:
    """Return the categories that go left, by inner node; thresholds are numbers of bit sets."""
    sets: dict[int, Array] = {}
    starts = np.cumsum(leaves - 1) - (leaves - 1)
    categorical = np.flatnonzero(decision & 1)
    owners = np.searchsorted(starts, categorical, side="right") - 1
    tables = {i: _read_bit_sets(tree) for i, tree in enumerate(trees) if int(tree["num_cat"])}
    for node, owner in zip(categorical.tolist(), owners.tolist(), strict=True):
        bounds, words = tables.get(owner, ([], _NO_WORDS))
        number = int(threshold[node])
        if not 0 <= number < len(bounds) - 1 or number != threshold[node]:
            raise ArtifactError("a categorical node of the LightGBM model has no set")
        begin, end = bounds[number], bounds[number + 1]
        octets = words[begin:end].astype("<u4").view(np.uint8)
        sets[node] = np.flatnonzero(np.unpackbits(octets, bitorder="little"))
    return sets


def _check_parameters(rest: Sequence[str]) -> None:
    """Check the parameters: LightGBM expects a colon in each line between the two marks."""
    begin, end = "parameters:", "end of parameters"
    if begin not in rest and end not in rest:
        return
    if rest.count(begin) != 1 or rest.count(end) != 1 or rest.index(end) < rest.index(begin):
        raise ArtifactError("parameters of the LightGBM model do not begin and end exactly once")
    parameters = (line for line in rest[rest.index(begin) + 1 : rest.index(end)] if line)
    if not all(map(_PARAMETER.fullmatch, parameters)):
        raise ArtifactError("a parameter of the LightGBM model is malformed")


_PARAMETER = re.compile(r"\[[^:\[\]]+: .*\]")

_NO_WORDS = np.zeros(0, np.uint32)


def _read_bit_sets(tree: Mapping[str, Any]) -> tuple[list[int], Array]:
    bounds = [int(b) for b in tree["cat_boundaries"].split()]
    words = np.array([int(w) for w in tree["cat_threshold"].split()], np.uint32)
    fits = len(bounds) == int(tree["num_cat"]) + 1 and bounds[-1] == words.size
    if not fits or [bounds[0], *sorted(bounds)] != [0, *bounds]:
        raise ArtifactError("the category sets of the LightGBM model are damaged")
    return bounds, words


def _read_categorical(rest: Sequence[str], infos: Sequence[str]) -> tuple[int, ...]:
    """Return the categorical features: those of a parameter, or else those without a range."""
    prefix = "[categorical_feature: "
    for line in rest:
        if line.startswith(prefix) and line.endswith("]"):
            numbers = [n for n in line[len(prefix) : -1].split(",") if n]
            if all(n.isdecimal() for n in numbers):
                return tuple(sorted({int(n) for n in numbers if int(n) < len(infos)}))
    return tuple(i for i, info in enumerate(infos) if info != "none" and info[:1] != "[")


def parse_ranges(infos: Sequence[str]) -> tuple[Array, Array]:
    """Return the smallest and the largest value of each feature in training, float64 (n,) each.

    They are NaN for categories, and for features without a range.

    >>> [bound.tolist() for bound in parse_ranges(["[-1.5:2]", "none", "0:3:1"])]
    [[-1.5, nan, nan], [2.0, nan, nan]]
    """
    matches = [_RANGE.fullmatch(info) for info in infos]
    bounds = [(np.nan, np.nan) if m is None else (float(m[1]), float(m[2])) for m in matches]
    least, most = np.array(bounds, np.float64).reshape(-1, 2).T.copy()
    return least, most


_PLAIN = r"([-+]?\d{1,30}(?:\.\d{1,30})?(?:e[-+]?\d{1,2})?)"
_RANGE = re.compile(rf"\[{_PLAIN}:{_PLAIN}\]", re.IGNORECASE)


def _read_pandas_categorical(rest: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
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
