"""`Program`: the immutable, content-hashed DAG that every model is imported into."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.ir.trees import Ensemble
from sqlml.types import Feature, Labels, TensorType, feature_kind

Attrs = Mapping[str, Any]
"""Attributes of an operator: str, int, float, bool, tuple or array, as `ops.TABLE` declares."""


def freeze(attrs: Mapping[str, Any]) -> Attrs:
    """Return a read-only view of `attrs`, with contiguous read-only arrays."""
    frozen: dict[str, Any] = {}
    for key, value in attrs.items():
        if isinstance(value, np.ndarray):
            array = np.ascontiguousarray(value)
            if array is value and value.flags.writeable:
                array = value.copy()
            array.setflags(write=False)
            frozen[key] = array
        elif isinstance(value, list):
            frozen[key] = tuple(value)
        else:
            frozen[key] = value
    return MappingProxyType(frozen)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An operator of `ops.OPS` with input nodes, attributes and a result type."""

    op: str
    inputs: tuple[int, ...]
    attrs: Attrs
    type: TensorType


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A DAG in topological order, with named inputs and outputs.

    `nodes[i].inputs` are indices below `i`. `inputs` and `outputs` map names to node indices; an
    input is a node of op `input`. The outputs of a model are among `label` (the class index or the
    regression value), `proba` (n, classes), `score` (decision function), `samples` (score_samples)
    and `transform` (n, width). `labels` has one set of classes per target, and is empty for a
    regressor or a transformer. A model of T targets has a `label` of T columns, and a `proba` with
    the probabilities of all targets' classes side by side. If `has_one_probability_per_target`,
    `proba` has only the second class of each binary target.
    """

    nodes: tuple[Node, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    labels: tuple[Labels, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # Read-only mappings cannot be pickled, so they are pickled as plain dictionaries.
        nodes = tuple((n.op, n.inputs, dict(n.attrs), n.type) for n in self.nodes)
        return (_restore_program, (nodes, dict(self.inputs), dict(self.outputs), self.labels))

    def __str__(self) -> str:
        return render(self)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(names) for names in (self.inputs, self.outputs))
        return f"<Program of {len(self.nodes)} nodes: {textwrap.shorten(inputs, 72)} -> {outputs}>"

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def find_needed_nodes(self, targets: Iterable[int]) -> list[int]:
        """Return the indices of `targets` and of all nodes that they depend on, ascending."""
        needed = set(targets)
        for i in range(max(needed, default=-1), -1, -1):
            if i in needed:
                needed.update(self.nodes[i].inputs)
        return sorted(needed)

    def output_type(self, name: str) -> TensorType:
        return self.nodes[self.outputs[name]].type

    def input_type(self, name: str) -> TensorType:
        return self.nodes[self.inputs[name]].type

    @property
    def target_count(self) -> int:
        """The number of values per row in the output `label`, or 0 for a transformer."""
        return self.output_type("label").width if "label" in self.outputs else len(self.labels)

    @property
    def has_one_probability_per_target(self) -> bool:
        """True if the output `proba` has one column per target instead of one per class."""
        num_targets, num_classes = len(self.labels), sum(map(len, self.labels))
        has_several_targets = num_targets > 1 and "proba" in self.outputs
        return has_several_targets and self.output_type("proba").width == num_targets != num_classes

    @property
    def features(self) -> tuple[Feature, ...]:
        """The inputs as features: a name and a kind, such as numbers, strings, dates or lists."""
        nodes = [self.nodes[i] for i in self.inputs.values()]
        kinds = [node.attrs.get("kind") or feature_kind(node.type.dtype) for node in nodes]
        return tuple(map(Feature, self.inputs, kinds))

    @cached_property
    def hash(self) -> str:
        """The sha256 of all nodes, inputs, outputs and labels, as 64 hexadecimal digits."""
        digest = hashlib.sha256()

        def update_digest(value: object) -> None:
            if isinstance(value, np.ndarray):
                digest.update(f"array {value.dtype} {value.shape};".encode())
                if value.dtype == object:
                    for item in value.ravel():
                        update_digest(item)
                else:
                    digest.update(np.ascontiguousarray(value).data)
            elif isinstance(value, tuple):
                digest.update(f"tuple {len(value)};".encode())
                for item in value:
                    update_digest(item)
            else:
                text = repr(value).encode("utf-8", "surrogatepass")
                digest.update(f"{type(value).__name__} {len(text)} ".encode() + text + b";")

        for node in self.nodes:
            update_digest((node.op, node.inputs, node.type.dtype, node.type.shape))
            for key in sorted(node.attrs):
                update_digest(key)
                update_digest(node.attrs[key])
        update_digest(tuple(self.inputs.items()))
        update_digest(tuple(self.outputs.items()))
        label_keys = ((s.kind, *s.values, *filter(None, [s.sql_type])) for s in self.labels)
        update_digest(tuple(label_keys))
        return digest.hexdigest()

    @property
    def nbytes(self) -> int:
        values = (value for node in self.nodes for value in node.attrs.values())
        return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def _restore_program(
    nodes: Any, inputs: dict[str, int], outputs: dict[str, int], labels: tuple[Labels, ...]
) -> Program:
    frozen_nodes = tuple(Node(op, reads, freeze(attrs), type) for op, reads, attrs, type in nodes)
    return Program(frozen_nodes, MappingProxyType(inputs), MappingProxyType(outputs), labels)


MAX_PRINTED_NODES, MAX_PRINTED_TARGETS, MAX_PRINTED_CHARACTERS = 6, 4, 80
"""Limits of printed Programs: nodes per ensemble, targets, and characters per attribute."""


def render(program: Program) -> str:
    """Return one line per node: index, type, operator, inputs and abbreviated attributes.

    >>> from sqlml.ir.builder import Builder
    >>> b = Builder()
    >>> print(render(b.build({"label": b.op("neg", b.input("x", "float64"))})))
    %0 float64[n,1] = input name='x'
    %1 float64[n,1] = neg %0
    return label=%1
    """
    lines = []
    for i, node in enumerate(program.nodes):
        args = [f"%{j}" for j in node.inputs]
        hidden = {"dtype", "width"} if node.op == "input" else set()
        if node.op in ("tree_ensemble", "tree_contributions"):
            hidden = Ensemble.__dataclass_fields__.keys() & node.attrs.keys()
            args.append(_summarize_trees(Ensemble.of({k: node.attrs[k] for k in hidden})))
        args += [f"{k}={_abbreviate(value)}" for k, value in node.attrs.items() if k not in hidden]
        lines.append(" ".join([f"%{i} {node.type!r} =", node.op, *args]))
    return_clause = " ".join(f"{name}=%{i}" for name, i in program.outputs.items())
    if program.labels:
        label_sets = [_abbreviate(labels.values) for labels in program.labels[:MAX_PRINTED_TARGETS]]
        if len(program.labels) > MAX_PRINTED_TARGETS:
            label_sets.append(f"... {len(program.labels)} targets")
        return_clause += f" labels={'; '.join(label_sets)}"
    return "\n".join([*lines, f"return {return_clause}"])


def _summarize_trees(ensemble: Ensemble) -> str:
    categorical_note = " categorical" if ensemble.has_categories else ""
    has_few_nodes = 0 < ensemble.nodes <= MAX_PRINTED_NODES
    threshold_note = f" threshold={_abbreviate(ensemble.threshold)}" if has_few_nodes else ""
    directions = {"left" if left else "right" for left in np.unique(ensemble.default_left)}
    missing_note = f" missing={'/'.join(sorted(directions))}" if directions else ""
    recorded = [name for name in ("cover", "gain") if getattr(ensemble, name) is not None]
    statistics_note = f" statistics={'/'.join(recorded)}" if recorded else ""
    return (
        f"trees={ensemble.trees} nodes={ensemble.nodes} depth={ensemble.depth}"
        f" compare={ensemble.compare}{missing_note}"
        f" values={ensemble.leaf_values.dtype}x{ensemble.leaf_values.shape[1]}"
        f"{categorical_note}{threshold_note}{statistics_note}"
    )


def _abbreviate(value: Any, limit: int = 6) -> str:
    if isinstance(value, np.ndarray):
        text = repr(value.tolist()) if value.size <= limit else ""
        if text and len(text) <= MAX_PRINTED_CHARACTERS:
            return text
        dtype = "string" if value.dtype == object else value.dtype
        return f"{dtype}{list(value.shape)}"
    if isinstance(value, tuple):
        max_characters = MAX_PRINTED_CHARACTERS // (limit if len(value) > 1 else 1)
        items = [_short_repr(item, max_characters) for item in value[:limit]]
        ellipsis = [f"... {len(value)}"] if len(value) > limit else []
        return f"({', '.join([*items, *ellipsis])}{',' if len(value) == 1 else ''})"
    return _short_repr(value, MAX_PRINTED_CHARACTERS)


def _short_repr(value: Any, max_characters: int) -> str:
    if isinstance(value, str) and len(value) > max_characters:
        return f"{value[:max_characters]!r}..."
    return repr(value)
