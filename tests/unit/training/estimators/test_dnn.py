"""Networks equal those that a loop of torch trains; sublinear memory changes no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sqlml.errors import ConfigError
from sqlml.training.estimators.dnn import (
    DNNClassifier,
    DNNLinearCombinedClassifier,
    DNNLinearCombinedRegressor,
    DNNRegressor,
    Epochs,
    MultilayerPerceptron,
)

RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 5)).astype(np.float32)
PLACES = (X[:, 0] * X[:, 1] > 0).astype(np.int64) + (X[:, 2] > 1)
NAMES = np.array(["a", "b", "c"], object)[PLACES]


def by_hand(y: Any, loss: Any, outputs: int, epochs: int) -> nn.Module:
    """A loop as torch's own tutorial has it."""
    torch.manual_seed(7)
    hidden = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Dropout(0.1))
    second = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Dropout(0.1))
    net = nn.Sequential(hidden, second, nn.Linear(8, outputs))
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    for _ in range(epochs):
        for inputs, targets in loader:
            adam.zero_grad()
            loss(net(inputs).squeeze(-1), targets).backward()
            adam.step()
    return net.eval()


OPTIONS: dict[str, Any] = {
    "hidden_units": (16, 8),
    "activation": "tanh",
    "dropout": 0.1,
    "lr": 0.01,
    "batch_size": 32,
    "max_epochs": 4,
    "random_state": 7,
}


def test_a_network_equals_a_loop_of_torch() -> None:
    made = DNNClassifier(**OPTIONS).fit(X, NAMES)
    hand = by_hand(PLACES, nn.CrossEntropyLoss(), 3, 4)
    with torch.no_grad():
        known = torch.softmax(hand(torch.from_numpy(X)), -1).numpy()
    np.testing.assert_array_equal(made.predict_proba(X), known)
    assert made.predict(X).tolist() == np.array(["a", "b", "c"])[known.argmax(1)].tolist()
    two = DNNClassifier(**OPTIONS).fit(X, PLACES > 0)
    hand = by_hand((PLACES > 0).astype(np.float32), nn.BCEWithLogitsLoss(), 1, 4)
    with torch.no_grad():
        known = torch.sigmoid(hand(torch.from_numpy(X))).numpy()[:, 0]
    np.testing.assert_array_equal(two.predict_proba(X)[:, 1], known)
    y = X[:, 0] * 100 + 1000
    number = DNNRegressor(**OPTIONS).fit(X, y)
    wide = y.astype(np.float64)
    hand = by_hand(((wide - wide.mean()) / wide.std()).astype(np.float32), nn.MSELoss(), 1, 4)
    with torch.no_grad():
        known = hand(torch.from_numpy(X)).numpy()[:, 0] * wide.std() + wide.mean()
    np.testing.assert_allclose(number.predict(X), known, rtol=1e-6)


def test_training_leaves_the_users_random_numbers_and_takes_sparse_rows() -> None:
    torch.manual_seed(1)
    known = torch.rand(1)
    torch.manual_seed(1)
    made = DNNClassifier(**OPTIONS).fit(csr_array(X), PLACES)
    assert torch.equal(torch.rand(1), known)
    plain = DNNClassifier(**OPTIONS).fit(X, PLACES)
    np.testing.assert_array_equal(made.predict_proba(csr_array(X)), plain.predict_proba(X))


def test_weights_count_as_repeated_rows_do() -> None:
    whole = {**OPTIONS, "batch_size": 600, "dropout": 0.0, "optimizer": "sgd"}
    doubled = np.arange(300) % 3 == 0
    twice = np.concatenate([X, X[doubled]]), np.concatenate([PLACES, PLACES[doubled]])
    made = DNNClassifier(**whole).fit(X, PLACES, 1.0 + doubled)
    known = DNNClassifier(**whole).fit(*twice)
    np.testing.assert_allclose(made.predict_proba(X), known.predict_proba(X), rtol=1e-4)


def test_the_best_epoch_on_the_rows_held_out_is_taken() -> None:
    told: list[Any] = []
    options = {**OPTIONS, "lr": 0.1, "max_epochs": 60}
    held_out = X[200:], PLACES[200:], None
    epochs = Epochs(patience=3, on_round=lambda *both: told.append(both))
    made = DNNClassifier(**options).fit(X[:200], PLACES[:200], None, held_out, epochs)
    losses = [loss for _, loss in told]
    best = int(np.argmin(losses))
    assert len(told) == best + 4 < 60
    proba = made.predict_proba(X[200:])
    loss = -np.log(proba[np.arange(100), PLACES[200:]]).mean()
    assert np.isclose(loss, losses[best], rtol=1e-4)


def test_a_ctrl_c_ends_training() -> None:
    def told(loss: float, _: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DNNClassifier(**OPTIONS).fit(X, PLACES, epochs=Epochs(on_round=told))


def test_a_loss_without_bounds_is_told() -> None:
    options = {**OPTIONS, "activation": "relu", "optimizer": "sgd", "lr": 1e9}
    with pytest.raises(ConfigError, match="smaller learn_rate than 1000000000.0"):
        DNNRegressor(**options).fit(X, X[:, 0])


def measure_memory(memory: str) -> tuple[float, list[Any], int]:
    """A step's loss and gradients, and the most bytes of activations that were kept for them."""
    torch.manual_seed(0)
    net = MultilayerPerceptron(64, 1, [64] * 64, "relu", 0.1, memory)
    weights = {p.data_ptr() for p in net.parameters()}
    alive: dict[int, int] = {}
    most = 0

    class Kept:
        """A tensor that the way back needs."""

        def __init__(self, tensor: Any) -> None:
            nonlocal most
            self.tensor, self.place = tensor, tensor.untyped_storage().data_ptr()
            if self.place not in weights:
                alive[self.place] = tensor.untyped_storage().nbytes()
            most = max(most, sum(alive.values()))

        def __del__(self) -> None:
            alive.pop(self.place, None)

    rows = torch.randn(4096, 64)
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda made: made.tensor):
        loss = net(rows).square().mean()
        loss.backward()
    return loss.item(), [p.grad for p in net.parameters()], most


def test_sublinear_memory_keeps_a_third_of_64_layers_and_changes_no_number() -> None:
    loss, gradients, whole = measure_memory("all")
    same, others, part = measure_memory("sublinear")
    assert same == loss
    assert all(torch.equal(a, b) for a, b in zip(gradients, others, strict=True))
    assert whole > 64 * 4096 * 64 * 4
    assert part <= whole / 3
    options = {**OPTIONS, "hidden_units": (16,) * 5}
    made = [
        DNNClassifier(**options, memory=memory).fit(X, PLACES) for memory in ("all", "sublinear")
    ]
    np.testing.assert_array_equal(*(m.predict_proba(X) for m in made))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hidden_units": [0]}, "hidden_units must be a list of widths"),
        ({"activation": "foo"}, "activation must be one of elu, gelu, relu"),
        ({"optimizer": "foo"}, "optimizer must be one of adagrad, adam"),
        ({"memory": "foo"}, "memory must be one of all, sublinear"),
        ({"dropout": 1.0}, "dropout must be >= 0 and < 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_parameters_are_checked(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DNNClassifier(**options).fit(X, PLACES)


def test_a_wide_and_deep_network_adds_a_linear_model() -> None:
    options = {**OPTIONS, "max_epochs": 60, "dropout": 0.0}
    model = DNNLinearCombinedRegressor(**options).fit(X, 100 + 30 * X[:, 0])
    wide, deep = model.module_.wide, model.module_.deep
    with torch.no_grad():
        scores = deep(torch.from_numpy(X)) + torch.from_numpy(X) @ wide.weight.T
    assert np.array_equal(model.predict(X), scores[:, 0].numpy())
    assert np.abs(model.predict(X) - (100 + 30 * X[:, 0])).mean() < 1
    classifier = DNNLinearCombinedClassifier(**options).fit(X, NAMES)
    assert (classifier.predict(X) == NAMES).mean() > 0.8
