"""From Program to Program: each pass a file, `order` their order, `lower` the way to tensors."""

from sqlml.passes.order import MODEL_PASSES, only, run

__all__ = ["MODEL_PASSES", "only", "run"]
