"""`LightGBMModel`: LightGBM's text format, checked and in arrays.

Booster.model_to_string and save_model write it. Source: LightGBM src/boosting/gbdt_model_text.cpp
and src/io/tree.cpp. Each tree of n leaves has n - 1 inner nodes; a child c is inner node c, or
leaf ~c when negative.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.untrusted_documents import MAX_FEATURES, MAX_OUTPUTS, bounded
from sqlml.ir.damaged_file import reading
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
    """The trees, concatenated.

    leaves int64 (T,): leaves per tree. Inner nodes: feature int32, threshold float64, decision
    int32 (bit 0 categorical, bit 1 NaN goes left, bits 2-3 missing type), left and right int32,
    numbered within their tree. value float64: leaves. `sets` maps an inner node's place to the
    categories that go left. `linear` is None if no leaf has its own model. count and leaf_count
    float64, the training rows at inner nodes and leaves, and gain float64 of inner nodes, are None
    where the text lacks them.
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
_STATISTICS = ("internal_count", "leaf_count", "split_gain")
"""Numbers that explanations are made of, and no prediction."""
_TEXTS = (
    "Tree",
    "num_leaves",
    "num_cat",
    "is_linear",
    "cat_boundaries",
    "cat_threshold",
    "leaf_const",
    "num_features",
    "leaf_features",
    "leaf_coeff",
)
"""The other keys that are read of a tree."""
_OF_INNER = ("split_gain", "internal_value", "internal_weight", "internal_count")
_OF_LEAVES = ("leaf_weight", "leaf_count", "leaf_parent")
"""Statistics, with an entry for each inner node and each leaf: LightGBM reads as many."""
_LINES = frozenset((*_INTEGERS, *_FLOATS, *_TEXTS, *_OF_INNER, *_OF_LEAVES, "shrinkage"))
_END = "end of trees"
_OLD_END = "feature importances:"
"""The line behind the trees of LightGBM 2.0 to 2.2, which wrote no `end of trees`."""


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
    sizes: list[int] = []
    current = header
    for line in chain(lines, [None]):
        if line is None:
            raise ArtifactError(f"the LightGBM model is cut off: it has no {_END!r}")
        is_old_end = line == _OLD_END and current is not header
        if line == _END or is_old_end or line.startswith("Tree="):
            if current is not header:
                trees.append(_tree(current, lines))
            if is_old_end:
                sizes[-1] -= 1  # a blank line stands before it
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
    told = header.get("tree_sizes")
    if told is not None and told.split() != [str(size) for size in sizes]:
        raise ArtifactError("the trees of the LightGBM model do not have their stated sizes")
    last = bounded(header["max_feature_idx"], MAX_FEATURES - 1, "LightGBM", "features")
    features = last + 1
    iteration = header["num_tree_per_iteration"]
    outputs = bounded(iteration, MAX_OUTPUTS, "LightGBM", "trees per iteration")
    classes = bounded(header["num_class"], MAX_OUTPUTS, "LightGBM", "classes")
    objective = tuple(header.get("objective", "").split())
    if "objective" in header and not objective:
        raise ArtifactError("the objective of the LightGBM model has no name")
    if classes != outputs or any(
        word.startswith("num_class:") and word != f"num_class:{outputs}" for word in objective
    ):
        raise ArtifactError(
            f"the LightGBM model has {outputs} trees per iteration, which does not match its "
            "number of classes"
        )
    if outputs < 1 or len(trees) % outputs:
        raise ArtifactError(f"{len(trees)} trees do not make iterations of {outputs}")
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
        nodes=_nodes(trees, features),
        categorical=_categorical(rest, infos),
        categories=_pandas_categorical(rest),
    )


def _check_line(line: str, key: str, value: str, tree: Mapping[str, str]) -> None:
    """A line of a tree, as LightGBM writes them; it reads to the first blank one."""
    if not line:
        return
    # Python reads more as a number than LightGBM does.
    foreign = "_" in value or not value.isascii()
    if "" in tree or key not in _LINES or "=" not in line or foreign:
        raise ArtifactError(f"{line[:40]!r} is not a line of a LightGBM tree")


def _tree(pairs: Mapping[str, str], rest: Iterator[str]) -> dict[str, Any]:
    """A tree's lines with its numbers as arrays; `rest` are the lines after it."""
    try:
        float(pairs.get("shrinkage", 1))
        leaves = int(pairs["num_leaves"])
        for wanted, names in ((leaves - 1, _OF_INNER), (leaves, _OF_LEAVES)):
            for name in names if leaves > 1 else ():
                if name in pairs and not _numbers(pairs[name], wanted):
                    raise ArtifactError(
                        f"a tree of the LightGBM model does not have {wanted} entries of {name}"
                    )
        return {
            **{key: pairs[key] for key in _TEXTS if key in pairs},
            **{key: _integers(pairs[key]) for key in _INTEGERS if key in pairs},
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


def _numbers(text: str, wanted: int) -> bool:
    """Whether a text looks like so many numbers, without parsing them."""
    odd = text.encode().translate(None, b"0123456789-+.e ")
    return text.count(" ") + 1 == wanted and not odd.translate(None, b"infaINFA")


def _integers(text: str) -> Array:
    return np.array(list(map(int, text.split())), np.int32)


def _nodes(trees: Sequence[dict[str, Any]], features: int) -> Nodes:
    leaves = np.array([int(tree["num_leaves"]) for tree in trees], np.int64)
    if (leaves < 1).any():
        raise ArtifactError("a tree of the LightGBM model has no leaves")
    counts = leaves.tolist()

    linear = _linear(trees, counts, features)

    def joined(name: str, leaf: bool = False) -> Array:
        parts = [np.zeros(0, np.int32 if name in _INTEGERS else np.float64)]
        for tree, n in zip(trees, counts, strict=True):
            wanted = n if leaf else n - 1
            # A tree of one leaf has no entries for inner nodes, or empty ones.
            part = tree.pop(name) if wanted else parts[0]
            if len(part) != wanted:
                raise ArtifactError(f"a tree has {len(part)} entries of {name}, not {wanted}")
            parts.append(part)
        return np.concatenate(parts)

    def statistic(name: str, leaf: bool = False) -> Array | None:
        there = all(name in tree for tree, n in zip(trees, counts, strict=True) if n > 1)
        for tree, n in zip(trees, counts, strict=True):
            if n == 1 and leaf:  # a tree of one leaf does not always say it, and needs no cover
                tree[name] = np.ones(1)
        return joined(name, leaf) if there else None

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
    if ((decision < 0) | (decision > 15)).any():
        raise ArtifactError("a node of the LightGBM model has an unknown decision type")
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
        count=statistic("internal_count"),
        leaf_count=statistic("leaf_count", leaf=True),
        gain=statistic("split_gain"),
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
            raise ArtifactError("a linear model in a leaf has more or fewer terms than stated")
        if read and not 0 <= min(read) <= max(read) < features:
            raise ArtifactError(
                f"a leaf of the LightGBM model reads beyond its {features} features"
            )
        const += own
        terms += sizes
        feature += read
        weights += factors
    if not all(map(_fits, chain(const, weights))):
        raise ArtifactError("a number in a leaf of the LightGBM model is not a normal float64")
    return LinearLeaves(
        np.array(const, np.float64),
        np.cumsum([0, *terms]),
        np.array(feature, np.int64),
        np.array(weights, np.float64),
    )


def _fits(number: float) -> bool:
    """Whether LightGBM's reader of linear models takes it: others end the process."""
    return number == 0 or _LEAST <= abs(number) < float("inf")


_LEAST = float(np.finfo(np.float64).tiny)


def _sets(
    trees: Sequence[Mapping[str, Any]], leaves: Array, threshold: Array, decision: Array
) -> dict[int, Array]:
    """Inner node -> categories that go left; the threshold is the number of the node's bit set."""
    sets: dict[int, Array] = {}
    starts = np.cumsum(leaves - 1) - (leaves - 1)
    categorical = np.flatnonzero(decision & 1)
    owners = np.searchsorted(starts, categorical, side="right") - 1
    tables = {i: _bit_sets(tree) for i, tree in enumerate(trees) if int(tree["num_cat"])}
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
    """LightGBM takes each line between the two for a parameter, with a colon in it."""
    begin, end = "parameters:", "end of parameters"
    if begin not in rest and end not in rest:
        return
    if rest.count(begin) != 1 or rest.count(end) != 1 or rest.index(end) < rest.index(begin):
        raise ArtifactError(
            "the parameters of the LightGBM model do not begin and end exactly once"
        )
    odd = (line for line in rest[rest.index(begin) + 1 : rest.index(end)] if line)
    if not all(map(_PARAMETER.fullmatch, odd)):
        raise ArtifactError("a parameter of the LightGBM model is malformed")


_PARAMETER = re.compile(r"\[[^:\[\]]+: .*\]")

_NO_WORDS = np.zeros(0, np.uint32)


def _bit_sets(tree: Mapping[str, Any]) -> tuple[list[int], Array]:
    """Where the sets of a tree begin and end, and their words."""
    bounds = [int(b) for b in tree["cat_boundaries"].split()]
    words = np.array([int(w) for w in tree["cat_threshold"].split()], np.uint32)
    if (
        len(bounds) != int(tree["num_cat"]) + 1
        or [bounds[0], *sorted(bounds)] != [0, *bounds]
        or bounds[-1] != words.size
    ):
        raise ArtifactError("the category sets of the LightGBM model are damaged")
    return bounds, words


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


def ranges(infos: Sequence[str]) -> tuple[Array, Array]:
    """The least and the greatest number that features had in training, float64 (n,) each; NaN for
    categories, and where the file does not say it.

    >>> [bound.tolist() for bound in ranges(["[-1.5:2]", "none", "0:3:1"])]
    [[-1.5, nan, nan], [2.0, nan, nan]]
    """
    found = [_RANGE.fullmatch(info) for info in infos]
    least, most = (
        np.array([np.nan if m is None else float(m[k]) for m in found], np.float64) for k in (1, 2)
    )
    return least, most


_PLAIN = r"([-+]?\d{1,30}(?:\.\d{1,30})?(?:e[-+]?\d{1,2})?)"
_RANGE = re.compile(rf"\[{_PLAIN}:{_PLAIN}\]", re.IGNORECASE)


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
