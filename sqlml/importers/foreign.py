"""`try_foreign`: the whole ONNX graphs and torch modules of a Program that came as a file, tried.

Each runs in a process of its own first, as that of an ONNX file or a torch archive does: native
code that a hostile graph crashes or hangs, or whose memory it fills, ends a child.
"""

from __future__ import annotations

from sqlml.errors import MissingDependencyError
from sqlml.importers.onnx.whole import try_graphs
from sqlml.importers.torch.trial import check_rows_elsewhere
from sqlml.ir.program import Program


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
