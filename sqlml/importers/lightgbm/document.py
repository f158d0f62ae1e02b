"""Read LightGBM's text format, check it, and convert it to arrays.

Booster.model_to_string and save_model write this format. Source: LightGBM
src/boosting/gbdt_model_text.cpp and src/io/tree.cpp. A tree of n leaves has n - 1 inner nodes. The
child c is the inner node c, or if negative, the leaf ~c.
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
    """The linear models in the leaves of all trees (linear_tree=True).

    A leaf predicts a constant plus a sum of terms. Each term is a weight times a feature. The terms
    of leaf i are at `begin[i]:begin[i + 1]` in `feature` and `weights`.
    """

    const: Array
    begin: Array
    feature: Array
    weights: Array


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The nodes of T trees, as concatenated arrays.

    Attributes:
        leaf_counts: the number of leaves of each tree, int64 (T,).
        feature, threshold: int32 and float64, one per inner node.
        decision: int32, one per inner node. Bit 0: the split is categorical; bit 1: NaN goes left;
            bits 2 and 3: the missing type.
        left, right: the children of inner nodes, int32, numbered within a tree.
        value: float64, one per leaf.
        sets: maps the index of an inner node to the categories that go left.
        linear: the linear models of the leaves, or None if no leaf has a linear model.
        count, leaf_count, gain: training statistics, float64; None if the text lacks them.
    """

    leaf_counts: Array
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
    """The parts of a LightGBM model that affect predictions.

    Attributes:
        objective: the name and options, for example ("binary", "sigmoid:1"); empty if custom.
        outputs: the number of scores per row, which is also the number of trees per iteration.
        feature_infos: the range or the categories of each feature in training, as in the file.
        is_average: whether predictions are the mean of the trees (boosting=rf).
        categorical: the indices of the features that were trained as categories.
        categories: the lists of pandas_categorical, in the order of the frame's category columns.
    """

    written_by: str
    objective: tuple[str, ...]
    outputs: int
    features: int
    names: tuple[str, ...]
    feature_infos: tuple[str, ...]
    is_average: bool
    nodes: Nodes
    categorical: tuple[int, ...]
    categories: tuple[tuple[Any, ...], ...]


_INTEGER_KEYS = ("left_child", "right_child", "split_feature", "decision_type")
_FLOAT_KEYS = ("threshold", "leaf_value")
_STATISTIC_KEYS = ("internal_count", "leaf_count", "split_gain")
"""Keys of statistics that only explanations use."""
_STRING_KEYS = (
    "Tree num_leaves num_cat is_linear cat_boundaries cat_threshold leaf_const num_features "
    "leaf_features leaf_coeff"
).split()
"""Keys of a tree with values that remain strings at first."""
_INNER_STATISTICS = ("split_gain", "internal_value", "internal_weight", "internal_count")
_LEAF_STATISTICS = ("leaf_weight", "leaf_count", "leaf_parent")
"""Statistics of inner nodes and of leaves; LightGBM does not check the number of entries."""
_READ_KEYS = (*_INTEGER_KEYS, *_FLOAT_KEYS, *_STRING_KEYS)
_KNOWN_KEYS = frozenset((*_READ_KEYS, *_INNER_STATISTICS, *_LEAF_STATISTICS, "shrinkage"))
_END_LINE = "end of trees"
_OLD_END_LINE = "feature importances:"
"""The line after the trees of LightGBM 2.0 to 2.2, which did not write `end of trees`."""


def read_text(content: str) -> LightGBMModel:
    return read_lines(_split_lines(content))


def read_lines(lines: Iterable[str]) -> LightGBMModel:
    """Parse and check the lines of a model; only the text of one tree is in memory at a time."""
    with report_damage("the LightGBM model", "save it again with save_model"):
        return _parse_model(line.rstrip("\r\n") for line in lines)


def _split_lines(content: str) -> Iterator[str]:
    start = 0
    while (end := content.find("\n", start)) >= 0:
        yield content[start:end]
        start = end + 1
    yield content[start:]


def _parse_model(lines: Iterator[str]) -> LightGBMModel:
    header, trees = _read_header_and_trees(lines)
    max_index = check_count(header["max_feature_idx"], MAX_FEATURES - 1, "LightGBM", "features")
    num_features = max_index + 1
    objective = tuple(header.get("objective", "").split())
    num_outputs = _read_outputs(header, objective)
    num_trees = len(trees)
    if num_outputs < 1 or num_trees % num_outputs:
        raise ArtifactError(f"{num_trees} trees cannot form iterations of {num_outputs} trees each")
    if [int(tree["Tree"]) for tree in trees] != list(range(num_trees)):
        raise ArtifactError("the trees of the LightGBM model are not in order")
    names = tuple(header["feature_names"].split(" "))
    feature_infos = tuple(header["feature_infos"].split(" "))
    if len(names) != num_features or len(feature_infos) != num_features:
        raise ArtifactError(f"the LightGBM model does not name its {num_features} features")
    trailing_lines = list(lines)
    _check_parameters(trailing_lines)
    return LightGBMModel(
        written_by=f"lightgbm (format {header.get('version', 'unknown')})",
        objective=objective,
        outputs=num_outputs,
        features=num_features,
        names=names,
        feature_infos=feature_infos,
        is_average="average_output" in header,
        nodes=_join_trees(trees, num_features),
        categorical=_read_categorical(trailing_lines, feature_infos),
        categories=_read_pandas_categorical(trailing_lines),
    )


def _read_header_and_trees(lines: Iterator[str]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the header and the trees; check that each tree has the stated size in bytes."""
    if next(lines, "") != "tree":
        raise ArtifactError("this is not a LightGBM model: its first line is not 'tree'")
    header: dict[str, str] = {}
    trees: list[dict[str, Any]] = []
    sizes: list[int] = []
    section = header
    for line in chain(lines, [None]):
        if line is None:
            raise _make_truncation_error()
        is_old_end = line == _OLD_END_LINE and section is not header
        if line == _END_LINE or is_old_end or line.startswith("Tree="):
            if section is not header:
                trees.append(_read_tree(section, lines))
            if is_old_end:
                sizes[-1] -= 1  # the blank line before the end is not part of the tree
            if line == _END_LINE or is_old_end:
                break
            section = {}
            sizes.append(0)
        key, equals, value = line.partition("=")
        if section is not header:
            sizes[-1] += len(line) + 1
            _check_line(line, key, value, section)
        if key in section and equals:
            raise ArtifactError(f"the LightGBM model repeats {key!r}")
        section[key] = value
    stated_sizes = header.get("tree_sizes")
    if stated_sizes is not None and stated_sizes.split() != [str(size) for size in sizes]:
        raise ArtifactError("the trees of the LightGBM model do not have their stated sizes")
    return header, trees


def _make_truncation_error() -> ArtifactError:
    return ArtifactError(f"the LightGBM model is truncated: it has no {_END_LINE!r}")


def _read_outputs(header: Mapping[str, str], objective: tuple[str, ...]) -> int:
    """Return the number of trees per iteration; reject a different number of classes."""
    stated_count = header["num_tree_per_iteration"]
    num_outputs = check_count(stated_count, MAX_OUTPUTS, "LightGBM", "trees per iteration")
    num_classes = check_count(header["num_class"], MAX_OUTPUTS, "LightGBM", "classes")
    if "objective" in header and not objective:
        raise ArtifactError("the objective of the LightGBM model has no name")
    class_options = {option for option in objective if option.startswith("num_class:")}
    if num_classes != num_outputs or class_options - {f"num_class:{num_outputs}"}:
        raise ArtifactError(
            f"the LightGBM model has {num_outputs} trees per iteration, which does not match its "
            "number of classes"
        )
    return num_outputs


def _check_line(line: str, key: str, value: str, tree: Mapping[str, str]) -> None:
    """Check a line of a tree; `tree` has the earlier lines. Only blank lines follow blank lines."""
    if not line:
        return
    # Python accepts numbers that LightGBM rejects: underscores, and digits outside ASCII.
    is_foreign = "_" in value or not value.isascii()
    if "" in tree or key not in _KNOWN_KEYS or "=" not in line or is_foreign:
        raise ArtifactError(f"{line[:40]!r} is not a line of a LightGBM tree")


def _read_tree(entries: Mapping[str, str], remaining_lines: Iterator[str]) -> dict[str, Any]:
    """Parse the entries of a tree; if an entry is invalid, report truncation or the entry."""
    try:
        float(entries.get("shrinkage", 1))
        num_leaves = int(entries["num_leaves"])
        counts = dict.fromkeys(_INNER_STATISTICS, num_leaves - 1)
        counts |= dict.fromkeys(_LEAF_STATISTICS, num_leaves)
        for name, count in counts.items() if num_leaves > 1 else ():
            if name in entries and not _looks_like_numbers(entries[name], count):
                raise ArtifactError(f"a LightGBM tree does not have {count} entries of {name}")
        tree: dict[str, Any] = {key: entries[key] for key in entries if key in _STRING_KEYS}
        for key in entries.keys() & _INTEGER_KEYS:
            tree[key] = np.array(list(map(int, entries[key].split())), np.int32)
        for key in entries.keys() & (*_FLOAT_KEYS, *_STATISTIC_KEYS):
            tree[key] = np.array(entries[key].split(), np.float64)
        return tree
    except (KeyError, ValueError, OverflowError):
        if _END_LINE not in remaining_lines:
            raise _make_truncation_error() from None
        raise


def _looks_like_numbers(text: str, count: int) -> bool:
    """Return whether `text` looks like `count` numbers; for speed, only check the characters."""
    letters = text.encode().translate(None, b"0123456789-+.e ")
    return text.count(" ") + 1 == count and not letters.translate(None, b"infaINFA")


def _join_trees(trees: Sequence[dict[str, Any]], num_features: int) -> Nodes:
    """Concatenate and check the arrays of all trees, which are removed to save memory."""
    leaf_counts = np.array([int(tree["num_leaves"]) for tree in trees], np.int64)
    if (leaf_counts < 1).any():
        raise ArtifactError("a tree of the LightGBM model has no leaves")
    linear = _read_linear_leaves(trees, leaf_counts.tolist(), num_features)
    join = partial(_pop_and_join, trees, leaf_counts.tolist())
    join_statistic = partial(_join_statistic, trees, leaf_counts.tolist())
    left, right = join("left_child"), join("right_child")
    tree_size = np.repeat(leaf_counts.astype(np.int32), leaf_counts - 1)
    for child in (left, right):
        if ((child >= tree_size - 1) | (~child >= tree_size)).any():
            raise ArtifactError("a child index of the LightGBM model is out of range")
    del tree_size
    feature = join("split_feature")
    if feature.size and (feature.min() < 0 or feature.max() >= num_features):
        reason = f"a tree of the LightGBM model reads beyond its {num_features} features"
        raise ArtifactError(reason)
    threshold, decision = join("threshold"), join("decision_type")
    if np.isnan(threshold).any():
        raise ArtifactError("a threshold of the LightGBM model is NaN")
    if ((decision < 0) | (decision > 15)).any():
        raise ArtifactError("a node of the LightGBM model has an unknown decision type")
    return Nodes(
        leaf_counts=leaf_counts,
        feature=feature,
        threshold=threshold,
        decision=decision,
        left=left,
        right=right,
        value=join("leaf_value", per_leaf=True),
        sets=_read_category_sets(trees, leaf_counts, threshold, decision),
        linear=linear,
        count=join_statistic("internal_count"),
        leaf_count=join_statistic("leaf_count", per_leaf=True),
        gain=join_statistic("split_gain"),
    )


def _pop_and_join(
    trees: Sequence[dict[str, Any]], leaf_counts: Sequence[int], name: str, per_leaf: bool = False
) -> Array:
    """Remove the array `name` from all trees, and return the concatenation.

    Each array must have an entry per inner node, or if `per_leaf` is true, an entry per leaf.
    """
    arrays = [np.zeros(0, np.int32 if name in _INTEGER_KEYS else np.float64)]
    for tree, num_leaves in zip(trees, leaf_counts, strict=True):
        size = num_leaves if per_leaf else num_leaves - 1
        # In a tree of one leaf, the entries of inner nodes are missing or empty.
        entries = tree.pop(name) if size else arrays[0]
        if len(entries) != size:
            raise ArtifactError(f"a tree has {len(entries)} entries of {name}, not {size}")
        arrays.append(entries)
    return np.concatenate(arrays)


def _join_statistic(
    trees: Sequence[dict[str, Any]], leaf_counts: Sequence[int], name: str, per_leaf: bool = False
) -> Array | None:
    """Return the concatenated statistic, or None if missing in a tree with several leaves."""
    for tree, num_leaves in zip(trees, leaf_counts, strict=True):
        if num_leaves == 1 and per_leaf:
            tree[name] = np.ones(1)
        elif num_leaves > 1 and name not in tree:
            return None
    return _pop_and_join(trees, leaf_counts, name, per_leaf)


def _read_linear_leaves(
    trees: Sequence[Mapping[str, Any]], leaf_counts: Sequence[int], num_features: int
) -> LinearLeaves | None:
    """Read the linear models of the leaves, or return None if no tree has any.

    In a tree without linear models, the constant of a leaf is its value, and it has no terms.
    """
    if not any(int(tree.get("is_linear", "0")) for tree in trees):
        return None
    all_constants: list[float] = []
    all_term_counts, all_features, all_weights = [], [], []
    for tree, num_leaves in zip(trees, leaf_counts, strict=True):
        if int(tree.get("is_linear", "0")):
            constants = list(map(float, tree["leaf_const"].split()))
            term_counts = list(map(int, tree["num_features"].split()))
            leaf_features = list(map(int, tree["leaf_features"].split()))
            leaf_weights = list(map(float, tree["leaf_coeff"].split()))
        else:
            constants, term_counts = tree["leaf_value"].tolist(), [0] * num_leaves
            leaf_features, leaf_weights = [], []
        if len(constants) != num_leaves or len(term_counts) != num_leaves or min(term_counts) < 0:
            raise ArtifactError("the linear models in the leaves do not fit the tree")
        if not len(leaf_features) == len(leaf_weights) == sum(term_counts):
            raise ArtifactError("a linear model in a leaf has more or fewer terms than stated")
        if leaf_features and not 0 <= min(leaf_features) <= max(leaf_features) < num_features:
            raise ArtifactError(f"a LightGBM leaf reads beyond its {num_features} features")
        all_constants += constants
        all_term_counts += term_counts
        all_features += leaf_features
        all_weights += leaf_weights
    if not all(map(_is_readable, chain(all_constants, all_weights))):
        raise ArtifactError("a number in a leaf of the LightGBM model is not a normal float64")
    return LinearLeaves(
        np.array(all_constants, np.float64),
        np.cumsum([0, *all_term_counts]),
        np.array(all_features, np.int64),
        np.array(all_weights, np.float64),
    )


def _is_readable(number: float) -> bool:
    """Return whether LightGBM can parse `number`: subnormal and infinite numbers are unreadable."""
    return number == 0 or _MIN_NORMAL <= abs(number) < float("inf")


_MIN_NORMAL = float(np.finfo(np.float64).tiny)


def _read_category_sets(
    trees: Sequence[Mapping[str, Any]], leaf_counts: Array, threshold: Array, decision: Array
) -> dict[int, Array]:
    """Map each categorical inner node to the categories that go left.

    A tree stores bit sets. The threshold of a categorical node is the index of a bit set.
    """
    sets: dict[int, Array] = {}
    first_nodes = np.cumsum(leaf_counts - 1) - (leaf_counts - 1)
    categorical_nodes = np.flatnonzero(decision & 1)
    tree_indices = np.searchsorted(first_nodes, categorical_nodes, side="right") - 1
    bit_sets = {i: _read_bit_sets(tree) for i, tree in enumerate(trees) if int(tree["num_cat"])}
    for node, tree_index in zip(categorical_nodes.tolist(), tree_indices.tolist(), strict=True):
        offsets, words = bit_sets.get(tree_index, ([], _NO_BIT_SETS))
        set_index = int(threshold[node])
        if not 0 <= set_index < len(offsets) - 1 or set_index != threshold[node]:
            raise ArtifactError("a categorical node of the LightGBM model has no set")
        set_words = words[offsets[set_index] : offsets[set_index + 1]].astype("<u4")
        sets[node] = np.flatnonzero(np.unpackbits(set_words.view(np.uint8), bitorder="little"))
    return sets


def _check_parameters(trailing_lines: Sequence[str]) -> None:
    """Check, like LightGBM, that each line between the parameter markers is "[name: value]"."""
    markers = ["parameters:", "end of parameters"]
    present_markers = [line for line in trailing_lines if line in markers]
    if not present_markers:
        return
    if present_markers != markers:
        raise ArtifactError("parameters of the LightGBM model do not begin and end exactly once")
    start, stop = map(trailing_lines.index, markers)
    if not all(map(_PARAMETER.fullmatch, filter(None, trailing_lines[start + 1 : stop]))):
        raise ArtifactError("a parameter of the LightGBM model is malformed")


_PARAMETER = re.compile(r"\[[^:\[\]]+: .*\]")

_NO_BIT_SETS = np.zeros(0, np.uint32)


def _read_bit_sets(tree: Mapping[str, Any]) -> tuple[list[int], Array]:
    offsets = list(map(int, tree["cat_boundaries"].split()))
    words = np.array(list(map(int, tree["cat_threshold"].split())), np.uint32)
    has_stated_size = len(offsets) == int(tree["num_cat"]) + 1 and offsets[-1] == words.size
    if not has_stated_size or [offsets[0], *sorted(offsets)] != [0, *offsets]:
        raise ArtifactError("the category sets of the LightGBM model are damaged")
    return offsets, words


def _read_categorical(trailing_lines: Sequence[str], infos: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the categorical features, as listed in categorical_feature.

    Without a valid list, return the features with an entry in `infos` other than a range or "none".
    """
    prefix = "[categorical_feature: "
    for line in trailing_lines:
        if line.startswith(prefix) and line.endswith("]"):
            columns = [text for text in line[len(prefix) : -1].split(",") if text]
            if all(text.isdecimal() for text in columns):
                return tuple(sorted({int(text) for text in columns if int(text) < len(infos)}))
    return tuple(i for i, info in enumerate(infos) if info != "none" and info[:1] != "[")


def parse_ranges(feature_infos: Sequence[str]) -> tuple[Array, Array]:
    """Return the minima and the maxima of the features in training.

    Features without a range, such as categorical features, have NaN.

    >>> [bound.tolist() for bound in parse_ranges(["[-1.5:2]", "none", "0:3:1"])]
    [[-1.5, nan, nan], [2.0, nan, nan]]
    """
    matches = [_RANGE.fullmatch(info) for info in feature_infos]
    ranges = [(np.nan, np.nan) if m is None else (float(m[1]), float(m[2])) for m in matches]
    minima, maxima = np.array(ranges, np.float64).reshape(-1, 2).T.copy()
    return minima, maxima


_NUMBER_PATTERN = r"([-+]?\d{1,30}(?:\.\d{1,30})?(?:e[-+]?\d{1,2})?)"
_RANGE = re.compile(rf"\[{_NUMBER_PATTERN}:{_NUMBER_PATTERN}\]", re.IGNORECASE)


def _read_pandas_categorical(trailing_lines: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
    prefix = "pandas_categorical:"
    for line in reversed(trailing_lines):
        if line.startswith(prefix):
            lists = json.loads(line[len(prefix) :])
            if lists is None:
                return ()
            if not isinstance(lists, list) or not all(isinstance(item, list) for item in lists):
                raise ArtifactError("pandas_categorical of the LightGBM model is damaged")
            return tuple(map(tuple, lists))
    return ()
