"""Convert CatBoost's binary format to JSON, with CatBoost itself in a child process."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from sqlml.child_process import Child, ChildEnded, ChildFailed
from sqlml.errors import ArtifactError, MissingDependencyError, UnsupportedModelError

MAGIC = b"CBM1"

LEAF_NUMBERS = "leaf_numbers"


def convert_to_json(content: bytes) -> bytes:
    try:
        with Child(f"{__name__}:run_conversion", content) as child:
            return child.first
    except ChildEnded as end:
        raise ArtifactError(
            f"a process in which CatBoost reads this file {end}; the file is damaged or hostile"
        ) from None
    except ChildFailed as failure:
        if failure.name in ("ImportError", "ModuleNotFoundError"):
            raise MissingDependencyError(
                "this file is in CatBoost's binary format, which CatBoost itself reads: "
                "pip install 'sqlml[catboost]'"
            ) from None
        if match := re.search(r"with (text|embedding) features only", failure.message):
            raise UnsupportedModelError(
                f"CatBoost's {match[1]} features are not supported"
            ) from None
        raise ArtifactError(
            f"CatBoost cannot read this file, or write it as JSON ({failure.message}); where it "
            "was trained, write save_model('model.json', format='json', pool=train_pool)"
        ) from None


def run_conversion(content: bytes) -> Generator[bytes, bytes, None]:
    """Yield the model as a JSON document; this runs in the child process."""
    import catboost

    with tempfile.TemporaryDirectory() as folder:
        binary_path, json_path = Path(folder) / "model.cbm", Path(folder) / "model.json"
        binary_path.write_bytes(content)
        model = catboost.CatBoost()
        model.load_model(str(binary_path))
        model.save_model(str(json_path), format="json")
        yield add_leaf_numbers(model, json_path.read_bytes())


def add_leaf_numbers(model: Any, document: bytes) -> bytes:
    """Add the numbers of the leaves to a model's JSON document, as the key LEAF_NUMBERS.

    The document lists the leaves of a tree from left to right. Only in trees that are not symmetric
    may CatBoost number the leaves differently.
    """
    if model._object._is_oblivious():
        return document
    numbers = [
        _list_leaf_numbers(model._get_tree_step_nodes(tree), model._get_tree_node_to_leaf(tree))
        for tree in range(model.tree_count_)
    ]
    return b'{"%s":%s,' % (LEAF_NUMBERS.encode(), json.dumps(numbers).encode()) + document[1:]


def _list_leaf_numbers(steps: Sequence[tuple[int, int]], leaf_of: Sequence[int]) -> list[int]:
    """List the numbers of a tree's leaves from left to right.

    The children of node i are i plus its two steps. A step of 0 leads to the leaf of node i itself.
    """
    numbers = list[int]()
    stack = [(0, steps[0] == (0, 0))]
    while stack:
        node, is_leaf = stack.pop()
        if is_leaf:
            numbers.append(int(leaf_of[node]))
            continue
        for step in reversed(steps[node]):
            child = node + step
            stack.append((child, step == 0 or steps[child] == (0, 0)))
    return numbers
