"""An autoencoder equals one that a loop of torch trains."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sqlml.errors import ConfigError
from sqlml.training.estimators.autoencoder import Autoencoder
from sqlml.training.estimators.dnn import Epochs

RNG = np.random.default_rng(3)
X = (RNG.normal(size=(300, 2)) @ RNG.normal(size=(2, 6))).astype(np.float32)
OPTIONS: dict[str, Any] = {
    "hidden_units": (8, 2, 8),
    "activation": "tanh",
    "lr": 0.01,
    "batch_size": 32,
    "l1_reg_activation": 0.01,
    "random_state": 7,
}


def test_an_autoencoder_equals_a_loop_of_torch() -> None:
    model = Autoencoder(**OPTIONS, max_epochs=3).fit(X)
    torch.manual_seed(7)
    encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    decoder = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 6))
    adam = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    rows = torch.from_numpy(X)
    for _ in range(3):
        for (batch,) in DataLoader(TensorDataset(rows), batch_size=32, shuffle=True):
            adam.zero_grad()
            latent = encoder(batch)
            loss = nn.functional.mse_loss(decoder(latent), batch) + 0.01 * latent.abs().mean()
            loss.backward()
            adam.step()
    with torch.no_grad():
        latent = encoder(rows)
        restored = decoder(latent)
    assert np.allclose(model.transform(X), latent.numpy(), rtol=0, atol=1e-6)
    assert np.allclose(model.inverse_transform(model.transform(X)), restored, rtol=0, atol=1e-6)
    errors = (restored - rows).square().mean(dim=1).numpy()
    assert np.allclose(model.score_samples(X), -errors, rtol=1e-5, atol=1e-6)


def test_rows_of_two_dimensions_are_restored() -> None:
    losses: list[float] = []
    epochs = Epochs(patience=5, on_round=lambda loss, eval_loss: losses.append(loss))
    options = {**OPTIONS, "l1_reg_activation": 0.0, "activation": "relu", "max_epochs": 150}
    model = Autoencoder(**options).fit(X[:200], held_out=(X[200:], None, None), epochs=epochs)
    assert -model.score_samples(X).mean() < 0.1 * X.var() and losses[-1] < losses[0]
    same = pickle.loads(pickle.dumps(model))
    assert np.array_equal(same.transform(csr_array(X)), model.transform(X))
    assert clone(model).get_params() == model.get_params()
    one_column = Autoencoder(hidden_units=(1,), max_epochs=2).fit(X[:, :1])
    assert one_column.transform(X[:5, :1]).shape == (5, 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hidden_units": (8, 2)}, "an odd number of widths"),
        ({"hidden_units": ()}, "an odd number of widths"),
        ({"l1_reg_activation": -1.0}, "l1_reg_activation must be a number of at least 0"),
        ({"activation": "crelu"}, "activation must be one of elu"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Autoencoder(**options).fit(X)
