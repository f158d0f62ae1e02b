"""Strategy `fused` of the torch backend: a whole tree_ensemble as one Triton kernel, on a GPU."""

from sqlml.backends.torch.fused.forest import bind, unavailable

__all__ = ["bind", "unavailable"]
