"""`feature_facts`: what a Program by itself says of the values that its features had in training.

That is what its steps learned of them: the categories of encoders, the means and deviations of a
StandardScaler, the least and greatest numbers that LightGBM writes down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.explaining.explained import LINKS, explained_output
from sqlml.explaining.owners import owners
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """Of one input; None is not known.

    Attributes:
        feature: its name.
        kind: "number", "string" or another kind of a feature.
        categories: how many an encoder knows.
    """

    feature: str
    kind: str
    least: float | None = None
    most: float | None = None
    mean: float | None = None
    stddev: float | None = None
    categories: int | None = None


def feature_facts(program: Program) -> list[FeatureFacts]:
    """One for each input, in their order."""
    kinds = {feature.name: feature.kind for feature in program.features}
    made = [FeatureFacts(name, kinds.get(name, "number")) for name in program.inputs]
    owner = owners(program)
    for node in program.nodes:
        for name, values, columns in _told(program, node):
            for column, value in zip(columns, values, strict=True):
                k = int(owner[column[0]][column[1]])
                if k >= 0 and getattr(made[k], name) is None:
                    made[k] = replace(made[k], **{name: value})
    return made


Told = list[tuple[str, Sequence[Any], Sequence[tuple[int, int]]]]
"""Facts by name: the values, and the node and column that each is about."""


def _told(program: Program, node: Node) -> Told:
    """What a node says of the columns that it reads, where these are as they came."""
    if node.op == "encode":
        return [("categories", [len(node.attrs["categories"])], [(node.inputs[0], 0)])]
    if node.op in ("sub", "div"):
        return _of_scaler(program, node)
    if node.op == "tree_ensemble":
        ensemble, read = Ensemble.of(node.attrs), node.inputs[0]
        if ensemble.input_least is None or not _is_plain(program, read):
            return []
        columns = [(read, j) for j in range(len(ensemble.input_least))]
        bounds = (("least", ensemble.input_least), ("most", ensemble.input_most))
        return [(name, _numbers(found), columns) for name, found in bounds if found is not None]
    return []


def _of_scaler(program: Program, node: Node) -> Told:
    """The means that a StandardScaler takes away, or the deviations that it divides by."""
    read, constant = (program.nodes[k] for k in node.inputs)
    at = node.inputs[0]
    if node.op == "div" and read.op == "sub":
        at = read.inputs[0]
    source = program.nodes[at]
    scales = source.op == "require_finite" and source.attrs["step"] == "StandardScaler"
    if not scales or constant.op != "constant" or not _is_plain(program, at):
        return []
    values = np.ravel(constant.attrs["value"])
    name = "mean" if node.op == "sub" else "stddev"
    return [(name, _numbers(values), [(at, j) for j in range(len(values))])]


def _is_plain(program: Program, at: int) -> bool:
    """Whether a node has the features as they came, but for checks and filled gaps."""
    node = program.nodes[at]
    if node.op == "input":
        return True
    through = node.op in ("require_finite", "impute", "concat", "select", "cast")
    return through and all(_is_plain(program, k) for k in node.inputs)


def _numbers(values: Array) -> list[float | None]:
    """Numbers, with None for NaN."""
    return [None if np.isnan(v) else float(v) for v in values]


# `importances`: what a model by itself says of how much it uses each input.
#
# The library's own numbers, where the Program has what they are made of: splits, gains and covers
# of trees (XGBoost's `get_score`, LightGBM's `feature_importance`, scikit-learn's
# `feature_importances_`). What belongs to one input is added up: the columns of its categories,
# say.


@dataclass(frozen=True, slots=True)
class Importance:
    """Of one input: how many tests of trees read it, and what these improved and covered together.

    `own` is the library's `feature_importances_` (of LightGBM by splits), for a model that is no
    pipeline. It is None, and so are `gain` and `cover`, where
    the Program does not have what it is made of.
    """

    feature: str
    own: float | None
    splits: int
    gain: float | None
    cover: float | None


def importances(program: Program, source: str) -> list[Importance] | None:
    """One for each input, in their order; None for a model without trees whose columns are made of
    one input each.

    Args:
        source: the class of the fitted object.
    """
    found = list(_forests(program))
    if not found:
        return None
    players = len(program.inputs)
    splits = np.zeros(players)
    gain: Array | None = np.zeros(players)
    cover: Array | None = np.zeros(players)
    for e, owner in found:
        reads = owner[e.feature]
        if (reads < 0).any():
            return None
        splits += np.bincount(reads, minlength=players)
        gain = _added(gain, reads, e.gain)
        cover = _added(cover, reads, e.cover)
    own = _own(program, source, found, splits, gain)
    return [
        Importance(
            name,
            None if own is None else float(own[k]),
            int(splits[k]),
            None if gain is None else float(gain[k]),
            None if cover is None else float(cover[k]),
        )
        for k, name in enumerate(program.inputs)
    ]


def _own(
    program: Program,
    source: str,
    found: list[tuple[Ensemble, Array]],
    splits: Array,
    gain: Array | None,
) -> Array | None:
    """The library's `feature_importances_`, (inputs,)."""
    if source.startswith("lightgbm."):
        return splits
    if gain is None or len(found) != 1:
        return None
    if source.startswith("xgboost."):  # the mean gain of a split
        return _shares(np.divide(gain, splits, out=np.zeros(gain.size), where=splits > 0))
    if not source.startswith(("sklearn.ensemble.", "sklearn.tree.")) or "hist_gradient" in source:
        return None
    ((e, owner),) = found
    assert e.gain is not None
    each = np.zeros((e.trees, gain.size))
    np.add.at(each, (e.node_roots(), owner[e.feature]), e.gain.astype(np.float64))
    if "GradientBoosting" in source:  # `_gb.py`: shares of the whole decrease
        if e.cover is not None:
            roots = e.roots >= 0
            each[roots] /= e.cover[e.roots[roots], None]
        return _shares(each.sum(axis=0))
    kept = each[each.sum(axis=1) > 0]  # `_forest.py`: the mean of the trees' shares
    return _shares(np.mean([_shares(tree) for tree in kept], axis=0)) if len(kept) else each.sum(0)


def _shares(numbers: Array) -> Array:
    total = numbers.sum()
    return numbers / total if total > 0 else numbers


def _added(total: Array | None, owner: Array, numbers: Array | None) -> Array | None:
    if total is None or numbers is None:
        return None
    return total + np.bincount(owner, numbers.astype(np.float64), minlength=total.size)


def _forests(program: Program) -> Iterator[tuple[Ensemble, Array]]:
    """The sums of trees, with the owner of each of their columns."""
    known = owners(program)
    for node in program.nodes:
        if node.op == "tree_ensemble":
            yield Ensemble.of(node.attrs), known[node.inputs[0]]


# `weights`: the coefficients of a linear model, each with the column that it belongs to.


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of one column for one output.

    `column` is what a step before has made of the input: the category of a one-hot column, the
    word of a text, `MISSING` of an indicator of missing values, or its number among the input's
    columns without such a name; None where only one has none, as of a number itself. The intercept
    belongs to no feature.
    """

    feature: str | None
    column: str | None
    output: int
    weight: float


def weights(program: Program) -> list[Weight] | None:
    """The weights of the sum that the model's score is, or rises with; None if it is none, or its
    columns are not made of one input each."""
    owner = owners(program)
    inputs = list(program.inputs)
    node = _last_sum(program)
    if node is not None and not (owner[node.inputs[0]] < 0).any():
        own = owner[node.inputs[0]]
        names = column_names(program, node.inputs[0])
        unnamed = np.array([name is None for name in names], bool)
        counts = np.bincount(own[unnamed], minlength=len(inputs))
        made = []
        for output in range(node.attrs["weights"].shape[1]):
            made.append(Weight(None, None, output, float(node.attrs["bias"][output])))
            for j, weight in enumerate(node.attrs["weights"][:, output].tolist()):
                column = names[j]
                if column is None and counts[own[j]] > 1:
                    column = str(int((unnamed[:j] & (own[:j] == own[j])).sum()) + 1)
                made.append(Weight(inputs[own[j]], column, output, float(weight)))
        return made
    return None


def _last_sum(program: Program) -> Node | None:
    """The weighted sum that the explained output is, but for links and casts."""
    name = explained_output(program)
    at = None if name is None else program.outputs[name]
    while at is not None:
        node = program.nodes[at]
        if node.op == "linear":
            return node
        rows = [j for j in node.inputs if program.nodes[j].type.rowwise]
        followed = node.op in (*LINKS, "cast", "select") and len(rows) == 1
        at = rows[0] if followed else None
    return None


MISSING = "missing"
"""The name of a column that is 1 where the input has no value."""


def column_names(program: Program, i: int) -> list[str | None]:
    """Return what each column of node i stands for, such as a category or a word; None where it has
    no name."""
    node = program.nodes[i]
    if node.op == "concat":
        return [name for j in node.inputs for name in column_names(program, j)]
    if node.op == "select":
        inner = column_names(program, node.inputs[0])
        return [inner[int(k)] for k in node.attrs["indices"]]
    if node.op == "one_hot":
        return _categories(program, node)
    if node.op in ("count_tokens", "has_items"):
        return list(_words(node))
    width = node.type.width
    if node.op == "isnan":
        return [MISSING] * width
    if len(node.inputs) and program.nodes[node.inputs[0]].type.rowwise:
        below = program.nodes[node.inputs[0]].type
        if below.width == width and below.shape == node.type.shape:
            return column_names(program, node.inputs[0])
    return [None] * width


def _categories(program: Program, node: Node) -> list[str | None]:
    """The categories of a one-hot encoding, from the encoder below it; NULL if it has a column."""
    below, width = program.nodes[node.inputs[0]], node.type.width
    while below.op not in ("encode", "input") and below.inputs:
        below = program.nodes[below.inputs[0]]
    if below.op != "encode":
        return [None] * width
    made: list[str | None] = [str(value) for value in below.attrs["categories"].tolist()]
    if below.attrs["missing"] == len(made):
        made.append("NULL")
    return made if len(made) == width else [None] * width


def _words(node: Node) -> list[str | None]:
    """The words of a vocabulary, by their columns."""
    words: Array = node.attrs["words"]
    text = words.tobytes() if words.dtype == np.uint8 else None
    ends = node.attrs["ends"]
    if text is None or ends.size != node.type.width:
        return [None] * node.type.width
    starts = [0, *ends.tolist()[:-1]]
    return [
        text[a:b].decode("utf-8", "replace") for a, b in zip(starts, ends.tolist(), strict=True)
    ]


# `tree_nodes`: the nodes of one tree of a model, as a table.


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node: number 0 is the root, and a leaf has `values` in place of a test.

    Attributes:
        output: the first of the outputs that the tree adds to.
        feature: the input that is tested. column: what of it, as `weights.Weight` has it.
        operator: "<", "<=" or "in". threshold of the first two; categories of the last: codes.
        yes, no, missing: the numbers of the nodes for rows that pass, that do not, and that have no
            value.
        cover, gain: what the source says, as `Ensemble` has it.
    """

    node: int
    depth: int
    output: int
    feature: str | None = None
    column: str | None = None
    operator: str | None = None
    threshold: float | None = None
    categories: tuple[str, ...] | None = None
    yes: int | None = None
    no: int | None = None
    missing: int | None = None
    cover: float | None = None
    gain: float | None = None
    values: tuple[float, ...] | None = None


def trees_of(program: Program) -> int:
    """How many trees a model has."""
    return sum(Ensemble.of(n.attrs).trees for n in program.nodes if n.op == "tree_ensemble")


def tree_nodes(program: Program, tree: int) -> list[TreeNode]:
    """The nodes of a tree, by its number from 0 among all trees of the model, level by level."""
    for node in program.nodes:
        if node.op != "tree_ensemble":
            continue
        e = Ensemble.of(node.attrs)
        if tree < e.trees:
            return _nodes(program, node.inputs[0], e, tree)
        tree -= e.trees
    return []


def _nodes(program: Program, x: int, e: Ensemble, tree: int) -> list[TreeNode]:
    """The nodes of a tree whose rows are node x of the Program."""
    owner, names = owners(program)[x], column_names(program, x)
    inputs, made = list(program.inputs), list[TreeNode]()
    waiting, numbers = [(int(e.roots[tree]), 0)], {int(e.roots[tree]): 0}
    for at, depth in waiting:
        own: dict[str, Any] = {"depth": depth, "output": int(e.target[tree])}
        if at < 0:
            values = tuple(e.leaf_values[~at].astype(np.float64).tolist())
            cover = None if e.leaf_cover is None else float(e.leaf_cover[~at])
            made.append(TreeNode(numbers[at], cover=cover, values=values, **own))
            continue
        for child in (int(e.left[at]), int(e.right[at])):
            numbers[child] = len(numbers)
            waiting.append((child, depth + 1))
        k, is_set = int(e.feature[at]), e.categorical is not None and bool(e.categorical[at])
        yes, no = numbers[int(e.left[at])], numbers[int(e.right[at])]
        test = TreeNode(
            numbers[at],
            feature=inputs[owner[k]] if owner[k] >= 0 else None,
            column=names[k],
            operator="in" if is_set else "<" if e.compare == "lt" else "<=",
            threshold=None if is_set else float(e.threshold[at]),
            categories=_members(e, at) if is_set else None,
            yes=yes,
            no=no,
            missing=yes if e.default_left[at] else no,
            cover=None if e.cover is None else float(e.cover[at]),
            gain=None if e.gain is None else float(e.gain[at]),
            **own,
        )
        made.append(test)
    return made


def _members(e: Ensemble, at: int) -> tuple[str, ...]:
    """The codes of a node's set."""
    if e.set_offsets is None or e.set_words is None:
        return ()
    words = e.set_words[e.set_offsets[at] : e.set_offsets[at + 1]]
    codes = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    return tuple(map(str, codes.tolist()))
