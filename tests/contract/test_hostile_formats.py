"""Hostile files of any format: nested without end, of another format, or full of huge claims."""

from __future__ import annotations

import onnx
import pytest

from sqlml.errors import (
    ArtifactError,
    ModelError,
)
from sqlml.importers.file_formats import read_artifact
from tests.support import hostile, small_files
from tests.support.hostile import refused


@pytest.mark.parametrize(
    "text",
    [b"[" * 10**6, b'{"a":' * 10**6, b'{"learner": ' + b"[" * 10**5, b"{" * 10**5],
    ids=["lists", "objects", "inner", "braces"],
)
@pytest.mark.parametrize("format", ["XGBOOST", "CATBOOST"])
def test_json_that_is_nested_without_end(format: str, text: bytes) -> None:
    refused(text, format)


def test_onnx_tree_nodes_in_circles_and_huge_claims() -> None:
    content = small_files.onnx_files()[1]
    for name, value in {
        "nodes_truenodeids": 0,
        "nodes_falsenodeids": 10**9,
        "nodes_featureids": 10**9,
        "nodes_treeids": 2**62,
        "class_ids": 10**9,
        "class_treeids": -5,
    }.items():
        proto = onnx.ModelProto.FromString(content)
        (trees,) = [n for n in proto.graph.node if n.op_type == "TreeEnsembleClassifier"]
        (attribute,) = [a for a in trees.attribute if a.name == name]
        attribute.ints[0] = value
        refused(proto.SerializeToString(), "ONNX")


def test_a_file_of_another_format_says_so() -> None:
    for name in ("xgboost-json", "lightgbm", "catboost", "onnx", "skops", "torch", "program"):
        files, _, own = hostile.FORMATS[name]
        for other in ("XGBOOST", "LIGHTGBM", "CATBOOST", "ONNX", "SKOPS", "TORCH", "SQLML"):
            if other != own:
                with pytest.raises((ArtifactError, ModelError), match="file: "):
                    read_artifact(files()[0], format=other, path="file", allow_pickle=False)
