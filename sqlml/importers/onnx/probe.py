"""Try an ONNX model in a process of its own: what its outputs are, and whether rows stay apart.

onnxruntime is native code, and a hostile graph may crash it, hang it or fill the memory. The child
imports numpy and onnxruntime, and onnx where that is at hand.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

from sqlml.child_process import Child, Ended, Failed

ROWS = 5

WORDS = ("", "a", "one", "Two words", "3")
"""What columns of strings hold."""


def probe(model: bytes, inputs: dict[str, tuple[str, tuple[int, ...]]], outputs: list[str]) -> Any:
    """Run `model` on a few rows.

    Args:
        inputs: name -> (numpy dtype or "string", shape after the rows).

    Returns:
        {"outputs": {name: [dtype, width]}} or {"error": why it cannot be used}.
    """
    request = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    try:
        with Child(f"{__name__}:tried", request, model) as child:
            return json.loads(child.first)
    except Ended as how:
        return {"error": f"a process that tries it {how}"}
    except Failed as failed:
        return {"error": failed.message}


def tried(request: bytes, model: bytes) -> Generator[bytes, bytes, None]:
    """Run in the child: the one answer that it gives, as JSON."""
    yield json.dumps(_answer(json.loads(request), model)).encode()


def _lenient(model: bytes) -> bytes:
    """`model` with encoders that take any category; rows and widths stay what they are."""
    try:
        import onnx
    except ModuleNotFoundError:
        return model
    proto = onnx.ModelProto.FromString(model)
    for node in proto.graph.node:
        if node.op_type == "OneHotEncoder":
            for attribute in node.attribute:
                if attribute.name == "zeros":
                    attribute.i = 1
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _answer(request: Any, model: bytes) -> dict[str, Any]:
    import numpy as np

    try:
        import onnxruntime
    except ModuleNotFoundError:
        return {"missing": True}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    names = request["outputs"]
    errors = []
    # A graph may look values up in a table, where random ones are lost.
    for scale, change in ((1.0, None), (0.0, None), (1.0, _lenient)):
        content = model if change is None else change(model)
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(0)
        feed = {
            name: (
                rng.choice(np.array(WORDS, object), (ROWS, *shape))
                if dtype == "string"
                else (rng.normal(0, 2, (ROWS, *shape)) * scale).astype(dtype)
            )
            for name, (dtype, shape) in request["inputs"].items()
        }
        try:
            whole = session.run(names, feed)
            break
        except Exception as error:  # onnxruntime's exceptions have no common base
            errors.append(str(error))
    else:
        return {"error": errors[0]}
    found = {}
    for name, made in zip(names, whole, strict=True):
        if not isinstance(made, np.ndarray) or made.shape[:1] != (ROWS,):
            return {"error": f"output {name!r} does not have one entry per row"}
        found[name] = [made.dtype.name, int(made.size // ROWS)]
    for i in range(ROWS):
        alone = session.run(names, {n: x[i : i + 1] for n, x in feed.items()})
        for name, part, made in zip(names, alone, whole, strict=True):
            there, here = made[i : i + 1], np.asarray(part)
            same = here.shape == there.shape and (
                np.allclose(here, there, rtol=1e-3, atol=1e-4, equal_nan=True)
                if there.dtype.kind == "f"
                else np.array_equal(here, there)
            )
            if not same:
                return {"error": f"output {name!r} of a row depends on the other rows"}
    return {"outputs": found}
