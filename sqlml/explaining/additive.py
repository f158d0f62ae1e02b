"""`Additive`: values of a Program as sums of what each input contributes, where they are such sums.

Blocks of P + 1 numbers stand for each column of a value: the contributions of the P inputs, and
what the value is expected to be of a row of which nothing is known. Sums and multiples of values
that have contributions have them too, so the walk goes from a value down to the sums of trees and
the weighted sums that it is made of.

With background rows, what is expected is the mean over these. Without any, trees know how many
training rows reached each node, but a weighted sum says nothing of the rows that it was fitted on:
its contributions are weight times value, against a row of zeros, which a scaled column is where it
is at its mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.explaining.owners import NONE, owners, sharing
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import STATISTICS, Ensemble
from sqlml.limits import MAX_ROW_VALUES
from sqlml.types import FLOATS, Array

_UNCHANGED = ("require_finite", "cast")
"""Operators that hand on the numbers that they are given."""


class Additive:
    """The contributions of values of `program`, built into `builder`, which holds its nodes.

    Args:
        values: the values of the nodes there.
        background: rows that others are compared with, as the inputs of `program`, by name.

    Attributes:
        lacks_cover: a sum of trees was met whose source did not say how many rows reached a node.
        is_too_wide: a sum was met that has more columns than contributions are computed for.
    """

    def __init__(
        self,
        program: Program,
        builder: Builder,
        values: list[Value],
        background: Mapping[str, Array] | None = None,
    ) -> None:
        self._program, self._b, self._values = program, builder, values
        self._background = background
        self._owners = owners(program)
        self._players = max(len(program.inputs), 1)
        self._known: dict[int, Value | None] = {}
        self.lacks_cover = False
        self.is_too_wide = False

    @property
    def block(self) -> int:
        """Numbers of a block."""
        return self._players + 1

    def of(self, i: int) -> Value | None:
        """The contributions to node i, (n, width * block) float64; None if the node is not a sum of
        trees or of linear terms."""
        if i not in self._known:
            self._known[i] = self._of(i)
        return self._known[i]

    def _of(self, i: int) -> Value | None:
        node = self._program.nodes[i]
        if not node.type.rowwise or node.type.dtype not in FLOATS or len(node.type.shape) != 2:
            return None
        if self._exceeds(node.type.width * self.block, MAX_ROW_VALUES):
            return None
        made = _RULES[node.op](self, node) if node.op in _RULES else None
        return self._single_inputs(i) if made is None and node.op != "tree_ensemble" else made

    def whole(self, i: int) -> Value | None:
        """`of` a value that is explained as a whole. Without a background nobody knows what is
        expected of one that is no sum, though it be made of one input."""
        rule = _RULES.get(self._program.nodes[i].op)
        known = rule is not None and rule(self, self._program.nodes[i]) is not None
        return self.of(i) if known or self._background is not None else None

    def _single_inputs(self, i: int) -> Value | None:
        """A value each of whose columns is made of one input: all of it is that one's."""
        owner, width = self._owners[i], self._program.nodes[i].type.width
        if (owner < 0).any() or self._program.nodes[i].type.sparse:
            return None
        if self._exceeds(width * width * self.block, _MOST_WEIGHTS):
            return None
        weights = np.zeros((width, width, self.block))
        weights[np.arange(width), np.arange(width), owner] = 1
        made = self._linear(
            self._values[i], weights.reshape(width, -1), np.zeros(width * self.block)
        )
        return self._against(made)

    def _against(self, blocks: Value) -> Value:
        """Blocks of which each input's contribution is its own term, against the background."""
        if self._background is None:
            return blocks
        mean = self._on_background(blocks).mean(axis=0).reshape(-1, self.block)
        mean[:, -1] = -mean[:, :-1].sum(axis=1)
        return self._b.op("sub", blocks, mean.ravel())

    def _on_background(self, value: Value) -> Array:
        """What a value is on the background rows."""
        assert self._background is not None
        program = self._b.build({"value": value}, order=tuple(self._program.inputs))
        return reference.run(program, self._background)["value"]

    def _exceeds(self, size: int, most: int) -> bool:
        """Whether contributions would take more than `most` of something, which is noted."""
        self.is_too_wide = self.is_too_wide or size > most
        return size > most

    def _linear(self, x: Value, weights: Array, bias: Array) -> Value:
        cast = x if x.type.dtype == "float64" else self._b.op("cast", x, dtype="float64")
        return self._b.op("linear", cast, weights=weights, bias=bias)

    def columns(self, i: int, chosen: Array) -> Value | None:
        """The contributions to some columns of node i alone."""
        node = self._program.nodes[i]
        if node.op == "tree_ensemble" and not node.attrs["target"].any():
            some = dict(node.attrs)
            some["leaf_values"] = np.ascontiguousarray(node.attrs["leaf_values"][:, chosen])
            some["base"] = np.ascontiguousarray(node.attrs["base"][chosen])
            return self._trees(node.inputs[0], some)
        if node.op in ("mul", "div") and (found := self._multiple(node)) is not None:
            value, by = found
            inner = self.columns(value, chosen)
            return None if inner is None else self._times(node.op, inner, by[chosen])
        inner = self.of(i)
        return None if inner is None else self._picked(inner, chosen)

    def _picked(self, blocks: Value, chosen: Array) -> Value:
        first = chosen.astype(np.int64)[:, None] * self.block
        return self._b.op("select", blocks, indices=(first + np.arange(self.block)).ravel())

    def trees(self, node: Node) -> Value | None:
        """A sum of trees, each column of whose rows is made of one input."""
        return self._trees(node.inputs[0], node.attrs)

    def _trees(self, below: int, given: Mapping[str, Any]) -> Value | None:
        if "cover" not in given and self._background is None:
            self.lacks_cover = True
            return None
        used = np.unique(given["feature"]).astype(np.int64)
        owner, shared = self._owners[below][used], list[frozenset[int]]()
        if (owner < NONE).any():
            if self._background is not None:
                return None  # each input is replaced by itself there, and a combination by none
            found = sharing(self._program, self._owners, below)
            sets = [found[k] for k in used.tolist()]
            whole = [one for one in sets if one is not None]
            if len(whole) < len(sets):
                return None
            # Columns of several inputs join as one more player, whose share these divide.
            shared = list(dict.fromkeys(one for one in whole if len(one) > 1))
            more = {one: self._players + k for k, one in enumerate(shared)}
            players = [more[one] if one in more else max(one, default=NONE) for one in whole]
            owner = np.array(players, np.int32)
        if not used.size:
            used = np.zeros(1, np.int64)
            owner = np.zeros(1, np.int32)
        x = self._b.op("select", self._values[below], indices=used)
        attrs = {name: value for name, value in given.items() if name not in _UNREAD}
        attrs["feature"] = np.searchsorted(used, given["feature"]).astype(np.int32)
        player = np.maximum(owner, 0).astype(np.int32)
        if self._exceeds(min(used.size, Ensemble.of(given).depth), _MOST_ON_PATH):
            return None
        if self._background is not None:
            attrs["background"] = self._on_background(x)
            if attrs["background"].shape[0] * attrs["feature"].size > _MOST_SIDES:
                raise ConfigError(
                    f"{attrs['background'].shape[0]:,} background rows are too many for "
                    f"{attrs['feature'].size:,} nodes of trees; take a smaller sample"
                )
        count = self._players + len(shared)
        made = self._b.op("tree_contributions", x, **attrs, player=player, players=count)
        return self._divided(made, shared) if shared else made

    def _divided(self, blocks: Value, shared: list[frozenset[int]]) -> Value | None:
        """Blocks in which each input gets its equal part of what it contributes with others."""
        wide = self.block + len(shared)
        parts = np.zeros((wide, self.block))
        parts[: self._players, : self._players] = np.eye(self._players)
        parts[-1, -1] = 1
        for k, together in enumerate(shared):
            parts[self._players + k, sorted(together)] = 1 / len(together)
        outputs = blocks.type.width // wide
        if self._exceeds(outputs * outputs * parts.size, _MOST_WEIGHTS):
            return None
        weights = np.kron(np.eye(outputs), parts)
        return self._linear(blocks, weights, np.zeros(outputs * self.block))

    def weighted(self, node: Node) -> Value | None:
        """A weighted sum, of columns of one input each, or of values that are additive."""
        weights: Array = np.asarray(node.attrs["weights"], np.float64)
        bias: Array = np.asarray(node.attrs["bias"], np.float64)
        below, outputs = node.inputs[0], weights.shape[1]
        owner = self._owners[below]
        start = np.zeros((outputs, self.block))
        start[:, -1] = bias
        if (owner >= NONE).all():
            if 0 < owner.size == np.unique(owner).size:
                return self._against(self._terms(self._values[below], owner, weights, start))
            if self._exceeds(weights.size * self.block, _MOST_WEIGHTS):
                return None
            places = np.where(owner == NONE, self._players, owner)
            spread = np.zeros((weights.shape[0], outputs, self.block))
            spread[np.arange(weights.shape[0]), :, places] = weights
            x = self._values[below]
            made = self._linear(x, spread.reshape(weights.shape[0], -1), start.ravel())
            return self._against(made)
        inner = self.of(below)
        if inner is None or self._exceeds(inner.type.width * start.size, _MOST_WEIGHTS):
            return None
        return self._linear(inner, np.kron(weights, np.eye(self.block)), start.ravel())

    def _terms(self, x: Value, owner: Array, weights: Array, start: Array) -> Value:
        """Return the blocks of weighted sums of columns of one input each, no two of the same: far
        less work than a matrix of weights, most of which would be 0."""
        column, by_column = np.zeros(self.block, np.int64), np.zeros((self.block, start.shape[0]))
        places = np.where(owner == NONE, self._players, owner)
        column[places], by_column[places] = np.arange(owner.size), weights
        cast = x if x.type.dtype == "float64" else self._b.op("cast", x, dtype="float64")
        spread = self._b.op("select", cast, indices=np.tile(column, start.shape[0]))
        terms = self._b.op("mul", spread, by_column.T.ravel())
        return self._b.op("add", terms, start.ravel())

    def added(self, node: Node) -> Value | None:
        """A sum or difference, of additive values or of one and a constant."""
        parts = [self._part(j, node.type.width) for j in node.inputs]
        if parts[0] is None or parts[1] is None:
            return None
        return self._b.op(node.op, parts[0], parts[1])

    def _part(self, j: int, width: int) -> Value | Array | None:
        """The blocks of an operand; of a constant, expectations."""
        node = self._program.nodes[j]
        if node.op != "constant":
            return self.of(j) if node.type.width == width else None
        value = np.asarray(node.attrs["value"], np.float64)
        if value.size not in (1, width):
            return None
        blocks = np.zeros((width, self.block))
        blocks[:, -1] = value.ravel()
        return blocks.ravel()

    def scaled(self, node: Node) -> Value | None:
        """A multiple, by constants, of an additive value."""
        found = self._multiple(node)
        inner = None if found is None else self.of(found[0])
        return None if inner is None or found is None else self._times(node.op, inner, found[1])

    def _multiple(self, node: Node) -> tuple[int, Array] | None:
        """Of a product or quotient the node that is multiplied, and by what each of its columns."""
        kinds = [self._program.nodes[j].op == "constant" for j in node.inputs]
        if sum(kinds) != 1 or (node.op == "div" and kinds[0]):
            return None
        factor, value = (node.inputs[k] for k in (kinds.index(True), kinds.index(False)))
        by = np.asarray(self._program.nodes[factor].attrs["value"], np.float64).ravel()
        width = node.type.width
        if self._program.nodes[value].type.width != width or by.size not in (1, width):
            return None
        return value, np.broadcast_to(by, width)

    def _times(self, op: str, blocks: Value, by: Array) -> Value:
        return self._b.op(op, blocks, np.repeat(by, self.block))

    def unchanged(self, node: Node) -> Value | None:
        """The contributions to the input of a node that passes its input on unchanged."""
        return self.of(node.inputs[0])

    def negated(self, node: Node) -> Value | None:
        """The opposite of an additive value."""
        inner = self.of(node.inputs[0])
        return None if inner is None else self._b.op("neg", inner)

    def selected(self, node: Node) -> Value | None:
        """Some columns of an additive value."""
        inner = self.of(node.inputs[0])
        return None if inner is None else self._picked(inner, node.attrs["indices"])

    def beside(self, node: Node) -> Value | None:
        """Additive values side by side."""
        parts = [self.of(j) for j in node.inputs]
        whole = [part for part in parts if part is not None]
        return self._b.op("concat", *whole) if len(whole) == len(parts) else None

    def summed(self, node: Node) -> Value | None:
        """The sum of the columns of an additive value."""
        below = self._program.nodes[node.inputs[0]].type
        inner = (
            self.of(node.inputs[0]) if len(below.shape) == 2 and node.attrs["axis"] == 1 else None
        )
        if inner is None or self._exceeds(inner.type.width * self.block, _MOST_WEIGHTS):
            return None
        once = np.tile(np.eye(self.block), (below.width, 1))
        return self._linear(inner, once, np.zeros(self.block))


_UNREAD = frozenset(STATISTICS) - {"cover", "leaf_cover"}
"""Statistics of trees that contributions do not read; some have one number per column of the rows,
of which only those that the trees test remain here."""

_MOST_WEIGHTS = 1 << 24
"""Weights that a layer of contributions may have."""

_MOST_SIDES = 1 << 26
"""Nodes times background rows, at most."""

_MOST_ON_PATH = 1024
"""Columns that the tests of one path may read."""

_RULES: Mapping[str, Callable[[Additive, Node], Value | None]] = {
    "tree_ensemble": Additive.trees,
    "linear": Additive.weighted,
    "add": Additive.added,
    "sub": Additive.added,
    "mul": Additive.scaled,
    "div": Additive.scaled,
    "neg": Additive.negated,
    "select": Additive.selected,
    "concat": Additive.beside,
    "sum": Additive.summed,
    **dict.fromkeys(_UNCHANGED, Additive.unchanged),
}
"""Operator -> the contributions of its result."""
