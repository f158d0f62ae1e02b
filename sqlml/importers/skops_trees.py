"""`load`: what `skops.io.loads` does, and a look at each tree before scikit-learn allocates it.

skops checks types, not contents, and scikit-learn's Tree believes what it is told: it reads class
counts past the end of their array, and the length of an array that has none. A forged file would
end the process.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError


def load(content: bytes, trusted: Sequence[str]) -> Any:
    """The object in a skops file whose types are all in `trusted`.

    Raises:
        ArtifactError: a tree that does not fit itself.
        Exception: whatever the classes in the file raise when they are made of wrong parts.
    """
    from skops.io._audit import audit_tree, get_tree
    from skops.io._utils import read_schema

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        schema, context = read_schema(archive)
        root = get_tree(schema, context, trusted=list(trusted))
        audit_tree(root, trusted=list(trusted))
        for node in _nodes(root):
            made_by = getattr(node, "constructor", None)
            if getattr(made_by, "class_name", None) == "Tree":
                _check(node.args.construct(), node.attrs.construct())
        return root.construct()


def _nodes(root: Any) -> Iterator[Any]:
    """skops' nodes, each once: they may refer to each other in circles."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend(node.values())
        elif isinstance(node, list | tuple):
            waiting.extend(node)
        elif hasattr(node, "children") and id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend(node.children.values())
            waiting.append(getattr(node, "cached", None))


def _check(arguments: Any, state: Any) -> None:
    """The arguments of Tree(n_features, n_classes, n_outputs), and of its __setstate__(dict)."""
    if isinstance(arguments, tuple) and len(arguments) == 3 and isinstance(state, dict):
        features, classes, outputs = arguments
        nodes, values = state.get("nodes"), state.get("values")
        numbers = (features, outputs, state.get("max_depth"), state.get("node_count"))
        if (
            all(type(n) is int or isinstance(n, np.integer) for n in numbers)
            and isinstance(classes, np.ndarray)
            and isinstance(nodes, np.ndarray)
            and isinstance(values, np.ndarray)
            and classes.shape == (int(outputs),)
            and nodes.shape == (int(state["node_count"]),)
            and nodes.dtype.names is not None
            and values.ndim == 3
        ):
            return
    raise ArtifactError("a tree in the skops file is inconsistent; the file is damaged")
