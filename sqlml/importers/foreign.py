"""`check_model`: whether a Program that came as a file is a model that can be run.

`try_foreign` tries the whole ONNX graphs and torch modules in it.

Each runs in a process of its own first, as that of an ONNX file or a torch archive does: native
code that a hostile graph crashes or hangs, or whose memory it fills, ends a child.
"""

from __future__ import annotations

from sqlml.errors import MissingDependencyError, UnsupportedModelError
from sqlml.importers.onnx.whole import try_graphs
from sqlml.importers.torch.trial import check_rows_elsewhere
from sqlml.ir.ops import NEVER_STORED
from sqlml.ir.program import Program
from sqlml.ir.spec import OUTPUTS


def check_model(program: Program) -> None:
    """Check that a Program reads columns and gives what a model gives, and try what is foreign.

    Raises:
        UnsupportedModelError: it is a part of a model, or something foreign in it cannot be run.
        SqlmlError: what scoring raises.
    """
    made = [node.op for node in program.nodes if node.op in NEVER_STORED]
    if made:
        raise UnsupportedModelError(f"operator {made[0]} belongs to a query, and to no model")
    wide = [n for n in program.inputs if program.input_type(n).width != 1]
    other = [n for n in program.outputs if n not in OUTPUTS]
    if wide or other:
        what = f"input {wide[0]!r} is a matrix" if wide else f"output {other[0]!r} has no function"
        raise UnsupportedModelError(f"this Program is a part of a model: its {what}")
    try_foreign(program)


def try_foreign(program: Program) -> None:
    """Try what other runtimes are to run; what is not installed here is not tried.

    Raises:
        UnsupportedModelError: one crashes its runtime, mixes rows, fills the memory, or makes
            something else than the Program says.
        SqlmlError: what scoring raises.
    """
    try_graphs(program)
    for node in program.nodes:
        if node.op == "torch_module":
            try:
                check_rows_elsewhere(node.attrs["archive"].tobytes(), node.attrs)
            except MissingDependencyError:
                return
