"""Exact contributions of the inputs to values that are sums of trees or of linear terms.

Each column of a value gets a block of P + 1 numbers: the contributions of the P inputs, and the
expected value if no input is known. Sums and multiples of values with contributions also have
contributions, so the walk goes from an output down to tree ensembles and weighted sums. With a
background, the expected value is the mean over the background rows. Without a background, trees use
covers, and the contributions to a weighted sum are weight times value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.explaining.owners import NONE, find_input_sets, find_owners
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import STATISTICS, Ensemble
from sqlml.limits import MAX_ROW_VALUES
from sqlml.types import FLOATS, Array

Background = Mapping[str, Array] | None
"""Background rows by input, or None; contributions are relative to these rows."""


class AdditiveContributions:
    """Computes contributions to the nodes of `program`, which are `values` in `builder`.

    `lacks_cover` is set if trees have no covers, and `is_too_wide` if a value has too many columns.
    """

    def __init__(
        self, program: Program, builder: Builder, values: list[Value], background: Background = None
    ) -> None:
        self._program, self._builder, self._values = program, builder, values
        self._background = background
        self._owners = find_owners(program)
        self._num_players = max(len(program.inputs), 1)
        self._contributions: dict[int, Value | None] = {}
        self.lacks_cover = self.is_too_wide = False

    @property
    def block(self) -> int:
        return self._num_players + 1

    def get_contributions(self, i: int) -> Value | None:
        """Return the contributions to node i, (n, width * block), or None if not additive."""
        if i not in self._contributions:
            self._contributions[i] = self._compute_contributions(i)
        return self._contributions[i]

    def _compute_contributions(self, i: int) -> Value | None:
        node = self._program.nodes[i]
        if not node.type.rowwise or node.type.dtype not in FLOATS or len(node.type.shape) != 2:
            return None
        if self._exceeds_limit(node.type.width * self.block, MAX_ROW_VALUES):
            return None
        contributions = _RULES[node.op](self, node) if node.op in _RULES else None
        if contributions is None and node.op != "tree_ensemble":
            return self._assign_to_owners(i)
        return contributions

    def explain_output(self, i: int) -> Value | None:
        """Return the contributions to node i, or None; without a background, it must be a sum."""
        rule = _RULES.get(self._program.nodes[i].op)
        has_rule = rule is not None and rule(self, self._program.nodes[i]) is not None
        return self.get_contributions(i) if has_rule or self._background is not None else None

    def _assign_to_owners(self, i: int) -> Value | None:
        """Assign each column to its only input; return None if one depends on several inputs."""
        owner, width = self._owners[i], self._program.nodes[i].type.width
        if (owner < 0).any() or self._program.nodes[i].type.sparse:
            return None
        if self._exceeds_limit(width * width * self.block, _MAX_WEIGHTS):
            return None
        weights = np.zeros((width, width, self.block))
        weights[np.arange(width), np.arange(width), owner] = 1
        flat_weights, bias = weights.reshape(width, -1), np.zeros(width * self.block)
        contributions = self._append_linear(self._values[i], flat_weights, bias)
        return self._subtract_background_mean(contributions)

    def _subtract_background_mean(self, blocks: Value) -> Value:
        """Move the mean contributions over the background rows to the expected value."""
        if self._background is None:
            return blocks
        mean = self._score_background(blocks).mean(axis=0).reshape(-1, self.block)
        mean[:, -1] = -mean[:, :-1].sum(axis=1)
        return self._builder.op("sub", blocks, mean.ravel())

    def _score_background(self, value: Value) -> Array:
        assert self._background is not None
        program = self._builder.build({"value": value}, order=tuple(self._program.inputs))
        return reference.run(program, self._background)["value"]

    def _exceeds_limit(self, size: int, limit: int) -> bool:
        self.is_too_wide = self.is_too_wide or size > limit
        return size > limit

    def _append_linear(self, x: Value, weights: Array, bias: Array) -> Value:
        return self._builder.linear(self._builder.cast(x, "float64"), weights, bias)

    def explain_columns(self, i: int, columns: Array) -> Value | None:
        """Return the contributions to `columns` of node i, or None if unknown."""
        node = self._program.nodes[i]
        if node.op == "tree_ensemble" and not node.attrs["target"].any():
            attrs = dict(node.attrs)
            attrs["leaf_values"] = np.ascontiguousarray(node.attrs["leaf_values"][:, columns])
            attrs["base"] = np.ascontiguousarray(node.attrs["base"][columns])
            return self.explain_trees(node.inputs[0], attrs)
        scaling = self._match_constant_factor(node) if node.op in ("mul", "div") else None
        if scaling is None:
            blocks = self.get_contributions(i)
            return None if blocks is None else self._select_columns(blocks, columns)
        value_index, factors = scaling
        blocks = self.explain_columns(value_index, columns)
        return None if blocks is None else self._scale_blocks(node.op, blocks, factors[columns])

    def _select_columns(self, blocks: Value, columns: Array) -> Value:
        starts = columns.astype(np.int64)[:, None] * self.block
        return self._builder.op("select", blocks, indices=(starts + np.arange(self.block)).ravel())

    def explain_trees(self, source: int, attrs: Mapping[str, Any]) -> Value | None:
        """Return the contributions to trees that read node `source`, or None if unknown."""
        if "cover" not in attrs and self._background is None:
            self.lacks_cover = True
            return None
        used_columns = np.unique(attrs["feature"]).astype(np.int64)
        owners, shared_sets = self._owners[source][used_columns], list[frozenset[int]]()
        if (owners < NONE).any():
            if self._background is not None:
                # Background values replace one input at a time, which combined inputs do not allow.
                return None
            input_sets = find_input_sets(self._program, self._owners, source)
            sets = [input_sets[k] for k in used_columns.tolist()]
            resolved_sets = [inputs for inputs in sets if inputs is not None]
            if len(resolved_sets) < len(sets):
                return None
            # Inputs that share columns form an additional player and divide the contribution.
            shared_sets = list(dict.fromkeys(inputs for inputs in resolved_sets if len(inputs) > 1))
            extra_players = {inputs: self._num_players + k for k, inputs in enumerate(shared_sets)}
            players = [extra_players.get(s, max(s, default=NONE)) for s in resolved_sets]
            owners = np.array(players, np.int32)
        if not used_columns.size:
            used_columns, owners = np.zeros(1, np.int64), np.zeros(1, np.int32)
        x = self._builder.op("select", self._values[source], indices=used_columns)
        new_attrs = {name: value for name, value in attrs.items() if name not in _UNUSED_STATISTICS}
        new_attrs["feature"] = np.searchsorted(used_columns, attrs["feature"]).astype(np.int32)
        player = np.maximum(owners, 0).astype(np.int32)
        if self._exceeds_limit(min(used_columns.size, Ensemble.of(attrs).depth), _MAX_PATH_COLUMNS):
            return None
        if self._background is not None:
            background = new_attrs["background"] = self._score_background(x)
            if background.shape[0] * new_attrs["feature"].size > _MAX_NODE_ROWS:
                raise ConfigError(
                    f"{background.shape[0]:,} background rows are too many for "
                    f"{new_attrs['feature'].size:,} nodes of trees; take a smaller sample"
                )
        new_attrs |= {"player": player, "players": self._num_players + len(shared_sets)}
        contributions = self._builder.op("tree_contributions", x, **new_attrs)
        return self._divide_shared(contributions, shared_sets) if shared_sets else contributions

    def _divide_shared(self, blocks: Value, shared_sets: list[frozenset[int]]) -> Value | None:
        extended_size = self.block + len(shared_sets)
        share_matrix = np.zeros((extended_size, self.block))
        share_matrix[: self._num_players, : self._num_players] = np.eye(self._num_players)
        share_matrix[-1, -1] = 1
        for k, inputs in enumerate(shared_sets):
            share_matrix[self._num_players + k, sorted(inputs)] = 1 / len(inputs)
        num_outputs = blocks.type.width // extended_size
        if self._exceeds_limit(num_outputs * num_outputs * share_matrix.size, _MAX_WEIGHTS):
            return None
        weights = np.kron(np.eye(num_outputs), share_matrix)
        return self._append_linear(blocks, weights, np.zeros(num_outputs * self.block))

    def explain_linear(self, node: Node) -> Value | None:
        """Return the contributions to a weighted sum of sums or of columns with one owner."""
        weights: Array = np.asarray(node.attrs["weights"], np.float64)
        source, (num_columns, num_outputs) = node.inputs[0], weights.shape
        owner = self._owners[source]
        bias = np.zeros((num_outputs, self.block))
        bias[:, -1] = np.asarray(node.attrs["bias"], np.float64)
        if (owner < NONE).any():
            blocks = self.get_contributions(source)
            if blocks is None or self._exceeds_limit(blocks.type.width * bias.size, _MAX_WEIGHTS):
                return None
            return self._append_linear(blocks, np.kron(weights, np.eye(self.block)), bias.ravel())
        if 0 < owner.size == np.unique(owner).size:
            terms = self._multiply_terms(self._values[source], owner, weights, bias)
            return self._subtract_background_mean(terms)
        if self._exceeds_limit(weights.size * self.block, _MAX_WEIGHTS):
            return None
        positions = np.where(owner == NONE, self._num_players, owner)
        column_weights = np.zeros((num_columns, num_outputs, self.block))
        column_weights[np.arange(num_columns), :, positions] = weights
        flat_weights = column_weights.reshape(num_columns, -1)
        contributions = self._append_linear(self._values[source], flat_weights, bias.ravel())
        return self._subtract_background_mean(contributions)

    def _multiply_terms(self, x: Value, owner: Array, weights: Array, bias: Array) -> Value:
        """Multiply terms by weights, because a matrix of weights would be mostly zeros."""
        num_outputs = bias.shape[0]
        column_indices = np.zeros(self.block, np.int64)
        player_weights = np.zeros((self.block, num_outputs))
        positions = np.where(owner == NONE, self._num_players, owner)
        column_indices[positions], player_weights[positions] = np.arange(owner.size), weights
        indices = np.tile(column_indices, num_outputs)
        terms = self._builder.op("select", self._builder.cast(x, "float64"), indices=indices)
        products = self._builder.op("mul", terms, player_weights.T.ravel())
        return self._builder.op("add", products, bias.ravel())

    def explain_addition(self, node: Node) -> Value | None:
        left, right = (self._explain_operand(j, node.type.width) for j in node.inputs)
        return None if left is None or right is None else self._builder.op(node.op, left, right)

    def _explain_operand(self, j: int, width: int) -> Value | Array | None:
        """Return the contributions to operand j, which are 0 for a constant, or None if unknown."""
        node = self._program.nodes[j]
        if node.op != "constant":
            return self.get_contributions(j) if node.type.width == width else None
        value = np.asarray(node.attrs["value"], np.float64)
        if value.size not in (1, width):
            return None
        blocks = np.zeros((width, self.block))
        blocks[:, -1] = value.ravel()
        return blocks.ravel()

    def explain_scaling(self, node: Node) -> Value | None:
        scaling = self._match_constant_factor(node)
        if scaling is None:
            return None
        blocks = self.get_contributions(scaling[0])
        return None if blocks is None else self._scale_blocks(node.op, blocks, scaling[1])

    def _match_constant_factor(self, node: Node) -> tuple[int, Array] | None:
        """Return the node that `node` scales and a constant per column, or None if not scaled."""
        is_constant = [self._program.nodes[j].op == "constant" for j in node.inputs]
        if sum(is_constant) != 1 or (node.op == "div" and is_constant[0]):
            return None
        factor_index, value_index = (node.inputs[is_constant.index(flag)] for flag in (True, False))
        factors = np.asarray(self._program.nodes[factor_index].attrs["value"], np.float64).ravel()
        width = node.type.width
        if self._program.nodes[value_index].type.width != width or factors.size not in (1, width):
            return None
        return value_index, np.broadcast_to(factors, width)

    def _scale_blocks(self, op: str, blocks: Value, factors: Array) -> Value:
        return self._builder.op(op, blocks, np.repeat(factors, self.block))

    def explain_negation(self, node: Node) -> Value | None:
        blocks = self.get_contributions(node.inputs[0])
        return None if blocks is None else self._builder.op("neg", blocks)

    def explain_selection(self, node: Node) -> Value | None:
        blocks = self.get_contributions(node.inputs[0])
        return None if blocks is None else self._select_columns(blocks, node.attrs["indices"])

    def explain_concatenation(self, node: Node) -> Value | None:
        contributions = map(self.get_contributions, node.inputs)
        known = [blocks for blocks in contributions if blocks is not None]
        return self._builder.op("concat", *known) if len(known) == len(node.inputs) else None

    def explain_column_sum(self, node: Node) -> Value | None:
        source_type = self._program.nodes[node.inputs[0]].type
        if len(source_type.shape) != 2 or node.attrs["axis"] != 1:
            return None
        blocks = self.get_contributions(node.inputs[0])
        if blocks is None or self._exceeds_limit(blocks.type.width * self.block, _MAX_WEIGHTS):
            return None
        ones = np.tile(np.eye(self.block), (source_type.width, 1))
        return self._append_linear(blocks, ones, np.zeros(self.block))


_UNUSED_STATISTICS = frozenset(STATISTICS) - {"cover", "leaf_cover"}
"""Tree statistics that contributions do not need. Some have a number per input column, and would
not fit the contributions node, which keeps only tested columns."""

_MAX_WEIGHTS, _MAX_NODE_ROWS = 1 << 24, 1 << 26
"""Maximum size of a weight matrix, and maximum of background rows times tree nodes."""

_MAX_PATH_COLUMNS = 1024
"""Maximum number of columns that the tests of a path may read."""

_RULES: Mapping[str, Callable[[AdditiveContributions, Node], Value | None]] = {
    "tree_ensemble": lambda self, node: self.explain_trees(node.inputs[0], node.attrs),
    "linear": AdditiveContributions.explain_linear,
    "add": AdditiveContributions.explain_addition,
    "sub": AdditiveContributions.explain_addition,
    "mul": AdditiveContributions.explain_scaling,
    "div": AdditiveContributions.explain_scaling,
    "neg": AdditiveContributions.explain_negation,
    "select": AdditiveContributions.explain_selection,
    "concat": AdditiveContributions.explain_concatenation,
    "sum": AdditiveContributions.explain_column_sum,
    "require_finite": lambda self, node: self.get_contributions(node.inputs[0]),
    "cast": lambda self, node: self.get_contributions(node.inputs[0]),
}
"""Map an operator to the method that returns the contributions to the result."""
