"""Passes: rewrites from a Program to an equivalent Program.

`run` applies `MODEL_PASSES` to a model once its outputs are chosen, and verifies the result.
`split.split` then divides a Program into encoders that run as SQL and a core that runs as a
kernel, and `lower.lower` writes the core as tensor operators for torch and onnxruntime.

Read first:

* `order.py`: the passes in their order.
* `fold_layout.py`: a small pass, and the helpers that others use.
* `lower.py` and `tree_strategies.py`: the lowering to tensors, with GEMM, TT and PTT for trees.

Nearly every pass is a rule for `ir.builder.rewrite`. All are exact, except `fold_scaling`, whose
docstring bounds its rounding. To add a pass, write a module with a function from Program to
Program, name it in `order.MODEL_PASSES` or `order.TENSOR_PASSES`, and add a golden rewrite to
`tests/unit/passes/test_golden.py`.
"""

from sqlml.passes.order import MODEL_PASSES, run, select_outputs

__all__ = ["MODEL_PASSES", "run", "select_outputs"]
