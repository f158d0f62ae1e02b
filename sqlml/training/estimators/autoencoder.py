"""An autoencoder of torch as a scikit-learn transformer.

Stored models name this class by its path, so it must not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin
from torch import nn
from torch.utils.data import Dataset

from sqlml.errors import ConfigError
from sqlml.training.estimators.dnn import (
    ALL_EPOCHS,
    DNN,
    Epochs,
    MultilayerPerceptron,
    Net,
    to_tensor,
)
from sqlml.types import Array


class AutoencoderNetwork(nn.Module):
    """Layers that reduce rows to the width of the middle layer, and layers that restore them.

    The middle layer, whose results are the latent columns, and the last layer are linear.
    """

    def __init__(
        self, n_inputs: int, hidden_units: Sequence[int], activation: str, dropout: float
    ) -> None:
        super().__init__()
        middle = len(hidden_units) // 2
        latent, options = hidden_units[middle], (activation, dropout)
        self.encoder = MultilayerPerceptron(n_inputs, latent, hidden_units[:middle], *options)
        self.decoder = MultilayerPerceptron(latent, n_inputs, hidden_units[middle + 1 :], *options)

    def forward(self, X: Any) -> Any:
        """Return the reconstruction (n, inputs) of X, and for training also the latent columns."""
        latent = self.encoder(X)
        restored = self.decoder(latent)
        return (restored, latent) if self.training else restored


class _Net(Net):
    """A network whose loss includes the mean absolute value of the latent columns."""

    def __init__(self, *args: Any, latent_weight: float = 0.0, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self.latent_weight = latent_weight

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Any:
        if not isinstance(y_pred, tuple):
            return self.criterion_(y_pred, y_true)
        restored, latent = y_pred
        return self.criterion_(restored, y_true) + self.latent_weight * latent.abs().mean()


class _SameRows(Dataset[Any]):
    """A torch dataset whose targets are the features."""

    def __init__(self, X: Any) -> None:
        self.X = X

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def __getitem__(self, indices: Any) -> Any:
        rows = to_tensor(self.X[indices])
        return rows, rows


class Autoencoder(TransformerMixin, DNN):  # type: ignore[misc]
    """A neural network that compresses rows to the width of its middle layer, and restores them.

    hidden_units: an odd number of widths. l1_reg_activation: the penalty on the mean absolute value
    of the latent columns. The other parameters are those of DNNRegressor.
    """

    MODULE = AutoencoderNetwork
    NET = _Net

    def __init__(
        self,
        hidden_units: Sequence[int] = (32, 16, 4, 16, 32),
        activation: str = "relu",
        dropout: float = 0.0,
        optimizer: str = "adam",
        lr: float = 0.001,
        weight_decay: float = 0.0,
        l1_reg_activation: float = 0.0,
        batch_size: int = 256,
        max_epochs: int = 20,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            *(hidden_units, activation, dropout, optimizer, lr, weight_decay),
            batch_size=batch_size,
            max_epochs=max_epochs,
            random_state=random_state,
        )
        self.l1_reg_activation = l1_reg_activation

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if len(self.hidden_units) % 2 == 0:
            raise ConfigError(
                "option hidden_units of an autoencoder must list an odd number of widths, of which "
                f"the middle one is that of the latent columns, not {list(self.hidden_units)!r}"
            )
        if self.l1_reg_activation < 0:
            raise ConfigError("option l1_reg_activation must be a number of at least 0")

    def _list_module_arguments(self, n_inputs: int, n_outputs: int) -> dict[str, Any]:
        names = ("activation", "dropout")
        sizes = {"n_inputs": n_inputs, "hidden_units": tuple(self.hidden_units)}
        return {**sizes, **{name: getattr(self, name) for name in names}}

    def _list_net_arguments(self) -> dict[str, Any]:
        return {"latent_weight": self.l1_reg_activation}

    def fit(
        self,
        X: Any,
        y: None = None,
        sample_weight: None = None,
        held_out: tuple[Any, Any, Any] | None = None,
        epochs: Epochs = ALL_EPOCHS,
    ) -> Self:
        """Fit to rows X (n, k). `held_out` starts with the held-out rows for early stopping."""
        held_out_rows = [] if held_out is None else [_SameRows(held_out[0])]
        self._fit([_SameRows(X), *held_out_rows], X.shape[1], nn.MSELoss, epochs)
        return self

    def transform(self, X: Any) -> Array:
        """Return the latent columns as float32 (n, latent)."""
        return np.asarray(self._compute_scores(X, self.module_.encoder).numpy())

    def inverse_transform(self, X: Any) -> Array:
        """Restore rows from latent columns, as float32 (n, k)."""
        return np.asarray(self._compute_scores(X, self.module_.decoder).numpy())

    def score_samples(self, X: Any) -> Array:
        """Return the negative mean squared error of each row's reconstruction, (n,)."""
        return np.asarray(self._compute_scores(X, self._compute_errors).numpy())

    def _compute_errors(self, rows: Any) -> Any:
        return -(self.module_(rows) - rows).square().mean(dim=1)
