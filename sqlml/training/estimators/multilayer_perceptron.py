"""`MultilayerPerceptron`: the torch module of deep neural networks.

With `memory="sublinear"` training keeps the activations at about sqrt(n) of n hidden layers, and
computes those between them again (Chen et al., "Training Deep Nets with Sublinear Memory Cost").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

ACTIVATIONS: Mapping[str, type[nn.Module]] = MappingProxyType(
    {
        "elu": nn.ELU,
        "gelu": nn.GELU,
        "relu": nn.ReLU,
        "relu6": nn.ReLU6,
        "selu": nn.SELU,
        "sigmoid": nn.Sigmoid,
        "silu": nn.SiLU,
        "tanh": nn.Tanh,
    }
)
"""Name -> the function behind a hidden layer."""


class MultilayerPerceptron(nn.Module):
    """Hidden layers of products, an activation and dropout each, and a layer of outputs.

    Args:
        inputs: columns. outputs: numbers it makes of a row. hidden_units: widths of the hidden
            layers. activation: a name of ACTIVATIONS. dropout: the share of a hidden layer's
            numbers that a step of training leaves out. memory: "all" activations are kept in
            training, or "sublinear".
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden_units: Sequence[int],
        activation: str = "relu",
        dropout: float = 0.0,
        memory: str = "all",
    ) -> None:
        super().__init__()
        hidden = []
        for width in hidden_units:
            parts = [nn.Linear(inputs, width), ACTIVATIONS[activation]()]
            hidden.append(nn.Sequential(*parts, *([nn.Dropout(dropout)] if dropout else [])))
            inputs = width
        self.hidden = nn.Sequential(*hidden)
        self.last = nn.Linear(inputs, outputs)
        self.memory = memory

    def forward(self, X: Any, weight: Any = None) -> Any:
        """(n, inputs) numbers -> (n, outputs); `weight` is for the loss alone."""
        made = X.to(self.last.weight.dtype)
        if self.training and self.memory == "sublinear" and len(self.hidden) > 1:
            segments = math.isqrt(len(self.hidden) - 1) + 1
            kept: Any = checkpoint_sequential  # untyped
            made = kept(self.hidden, segments, made, use_reentrant=False)
        else:
            made = self.hidden(made)
        return self.last(made)
