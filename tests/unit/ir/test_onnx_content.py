"""What an ONNX model that is stored may not have, wherever in the model it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.ir.onnx_content import MESSAGES, check_content

Change = Callable[[Any], None]


def plain() -> Any:
    """A model of one operator and one weight."""
    made = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])],
        [numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


def elsewhere(tensor: Any) -> Any:
    """Let a tensor name a file as the place of its numbers."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "secret.bin"
    return tensor


def outside() -> Any:
    return elsewhere(numpy_helper.from_array(np.ones(2, np.float32), "t"))


def with_attribute(proto: Any, **attribute: Any) -> None:
    node = proto.graph.node.add(op_type="Constant", output=["c"])
    made = node.attribute.add(name="value")
    for name, value in attribute.items():
        field = getattr(made, name)
        (field.add() if hasattr(field, "add") else field).CopyFrom(value)


def branch(depth: int = 0) -> Any:
    """A graph with a weight in another file, in as many branches of branches."""
    made = onnx.GraphProto(name="b")
    if not depth:
        made.initializer.append(outside())
    else:
        node = made.node.add(op_type="If", output=["z"])
        node.attribute.add(name="then_branch").g.CopyFrom(branch(depth - 1))
    return made


def sparse() -> Any:
    return onnx.SparseTensorProto(values=outside(), dims=[2])


def training(proto: Any) -> None:
    proto.training_info.add().algorithm.CopyFrom(branch())


EXTERNAL: dict[str, Change] = {
    "a weight": lambda p: elsewhere(p.graph.initializer[0]) and None,
    "an attribute": lambda p: with_attribute(p, t=outside()),
    "a list of tensors": lambda p: with_attribute(p, tensors=outside()),
    "a branch": lambda p: with_attribute(p, g=branch()),
    "a list of branches": lambda p: with_attribute(p, graphs=branch()),
    "a branch of branches": lambda p: with_attribute(p, g=branch(5)),
    "a sparse attribute": lambda p: with_attribute(p, sparse_tensor=sparse()),
    "a list of sparse attributes": lambda p: with_attribute(p, sparse_tensors=sparse()),
    "training": training,
    "the location alone": lambda p: setattr(
        p.graph.initializer[0], "data_location", TensorProto.EXTERNAL
    ),
    "the entries alone": lambda p: (
        p.graph.initializer[0].external_data.add(key="location") and None
    ),
}


@pytest.mark.parametrize("change", EXTERNAL.values(), ids=EXTERNAL.keys())
def test_numbers_in_other_files_are_refused_everywhere(change: Change) -> None:
    proto = plain()
    check_content(proto.SerializeToString())
    change(proto)
    with pytest.raises(UnsupportedModelError, match="weights in other files"):
        check_content(proto.SerializeToString())


OTHERS: dict[str, tuple[Change, str]] = {
    "a function": (lambda p: p.functions.add(name="f") and None, "its own functions"),
    "sparse weights": (lambda p: p.graph.sparse_initializer.add(dims=[2]) and None, "sparse"),
    "a loop": (lambda p: p.graph.node.add(op_type="Loop") and None, "Loop"),
    "a domain": (lambda p: p.graph.node.add(op_type="Relu", domain="com.acme") and None, "acme"),
    "a domain in a branch": (
        lambda p: with_attribute(
            p, g=onnx.GraphProto(node=[onnx.NodeProto(op_type="EPContext", domain="com.microsoft")])
        ),
        "domain 'com.microsoft'",
    ),
    "its own format": (lambda p: setattr(p, "producer_name", "ORTM"), "own format"),
}


@pytest.mark.parametrize(("change", "message"), OTHERS.values(), ids=OTHERS.keys())
def test_what_may_not_run_is_refused_everywhere(change: Change, message: str) -> None:
    proto = plain()
    change(proto)
    with pytest.raises(UnsupportedModelError, match=message):
        check_content(proto.SerializeToString())


def test_a_second_graph_is_read_with_the_first() -> None:
    """A message that comes twice is one message with the fields of both."""
    other = onnx.ModelProto()
    other.graph.CopyFrom(branch())
    with pytest.raises(UnsupportedModelError, match="weights in other files"):
        check_content(plain().SerializeToString() + other.SerializeToString())


def test_graphs_nested_too_deeply_are_refused() -> None:
    proto = plain()
    with_attribute(proto, g=branch(20))
    with pytest.raises(ArtifactError, match="nested too deeply"):
        check_content(proto.SerializeToString())


def test_a_damaged_model_is_an_error_of_ours() -> None:
    content = plain().SerializeToString()
    for cut in range(1, len(content)):
        try:
            check_content(content[:cut])
        except ArtifactError as error:
            assert "damaged or truncated" in str(error)
    for damaged in (b"\x0b", b"\x08" + b"\xff" * 11, b"\x3a\xff\xff\xff\xff\x0f"):
        with pytest.raises(ArtifactError, match="damaged or truncated"):
            check_content(damaged)


def test_each_field_that_leads_to_tensors_is_followed() -> None:
    """The table agrees with the definition of the format, as the package onnx has it."""
    known = {"TensorProto": True}

    def leads_to_tensors(message: Any) -> bool:
        if message.name not in known:
            known[message.name] = False  # until one of its fields says otherwise
            known[message.name] = any(
                field.message_type is not None and leads_to_tensors(field.message_type)
                for field in message.fields
            )
        return known[message.name]

    messages = onnx.ModelProto.DESCRIPTOR.file.message_types_by_name
    assert leads_to_tensors(messages["ModelProto"])
    for name, fields in MESSAGES.items():
        if name == "TensorProto":
            continue
        expected = {
            field.number: field.message_type.name
            for field in messages[name].fields
            if field.message_type is not None and leads_to_tensors(field.message_type)
        }
        assert dict(fields) == expected, name
