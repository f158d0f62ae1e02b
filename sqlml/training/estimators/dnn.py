"""Deep neural networks as scikit-learn estimators: a multilayer perceptron of torch, trained by
torch's skorch wrapper.

Stored models name these classes by their path, so they must not move.
"""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from skorch import NeuralNet
from skorch.callbacks import Callback
from skorch.helper import predefined_split
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from sqlml.errors import ConfigError
from sqlml.types import Array

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}

OPTIMIZERS: Mapping[str, Any] = {
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}

MEMORY = ("all", "sublinear")
"""Values of the option `memory`: store the activations of all n layers, or of about sqrt(n)."""

OnRound = Callable[[float, float | None], None]
"""A function that is called after each epoch with the losses on fitted and held-out rows."""

_SCORED_ROWS = 65_536


class MultilayerPerceptron(nn.Module):
    """Hidden layers, each with an activation and dropout, and an output layer.

    With the memory "sublinear", training stores the activations of about sqrt(n) of n hidden layers
    and recomputes the others (Chen et al., "Training Deep Nets with Sublinear Memory Cost").
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        hidden_units: Sequence[int],
        activation: str = "relu",
        dropout: float = 0.0,
        memory: str = "all",
    ) -> None:
        super().__init__()
        hidden = []
        for width in hidden_units:
            layers = [nn.Linear(n_inputs, width), ACTIVATIONS[activation]()]
            hidden.append(nn.Sequential(*layers, *([nn.Dropout(dropout)] if dropout else [])))
            n_inputs = width
        self.hidden = nn.Sequential(*hidden)
        self.last = nn.Linear(n_inputs, n_outputs)
        self.memory = memory

    def forward(self, X: Any, weight: Any = None) -> Any:
        """Return (n, outputs) for X (n, inputs); `weight` is only used by the loss."""
        values = X.to(self.last.weight.dtype)
        if self.training and self.memory == "sublinear" and len(self.hidden) > 1:
            segments = math.isqrt(len(self.hidden) - 1) + 1
            checkpoint: Any = checkpoint_sequential  # The function has no type annotations.
            values = checkpoint(self.hidden, segments, values, use_reentrant=False)
        else:
            values = self.hidden(values)
        return self.last(values)

    def rescale(self, spread: float, mean: float) -> None:
        """Convert standardized results to results with a standard deviation and a mean."""
        with torch.no_grad():
            self.last.weight.mul_(spread)
            self.last.bias.mul_(spread).add_(mean)


class WideAndDeepNetwork(nn.Module):
    """The sum of a multilayer perceptron and a linear model of the same inputs.

    See Cheng et al., "Wide & Deep Learning for Recommender Systems" (2016).
    """

    def __init__(self, n_inputs: int, n_outputs: int, **arguments: Any) -> None:
        super().__init__()
        self.deep = MultilayerPerceptron(n_inputs, n_outputs, **arguments)
        self.wide = nn.Linear(n_inputs, n_outputs, bias=False)

    def forward(self, X: Any, weight: Any = None) -> Any:
        """Return (n, outputs) for X (n, inputs)."""
        return self.deep(X) + self.wide(X.to(self.wide.weight.dtype))

    def rescale(self, spread: float, mean: float) -> None:
        """See `MultilayerPerceptron.rescale`."""
        self.deep.rescale(spread, mean)
        with torch.no_grad():
            self.wide.weight.mul_(spread)


class _Rows(Dataset[Any]):
    """A torch dataset that maps row indices to a batch of float32 features and targets."""

    def __init__(self, X: Any, y: Array, weight: Array | None) -> None:
        self.X = X
        self.y = torch.from_numpy(np.ascontiguousarray(y))
        self.weight = None if weight is None else torch.from_numpy(weight.astype(np.float32))

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, indices: Any) -> Any:
        X, y = to_tensor(self.X[indices]), self.y[indices]
        return (X if self.weight is None else {"X": X, "weight": self.weight[indices]}), y


def to_tensor(X: Any) -> Any:
    dense = X.toarray() if issparse(X) else np.asarray(X)
    return torch.from_numpy(np.ascontiguousarray(dense, np.float32))


def _make_loader(dataset: Any, batch_size: int, shuffle: bool = False) -> Any:
    sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    return DataLoader(dataset, sampler=BatchSampler(sampler, batch_size, False), batch_size=None)


class Net(NeuralNet):  # type: ignore[misc]
    """A skorch network that weights the loss of each row by the row's weight."""

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Any:
        predictions = y_pred.squeeze(-1) if y_pred.shape[-1] == 1 else y_pred
        if not isinstance(X, dict):
            return self.criterion_(predictions, y_true)
        losses = type(self.criterion_)(reduction="none")(predictions, y_true)
        return (losses * X["weight"]).sum() / X["weight"].sum()


class _StopTraining(Exception):
    """Raised when the losses no longer improve."""


class _RoundCallback(Callback):  # type: ignore[misc]
    """A callback that reports the losses of each epoch, and saves the module of the best epoch.

    skorch's EarlyStopping raises KeyboardInterrupt, like a user's Ctrl-C.
    """

    def __init__(self, epochs: Epochs, stops_early: bool) -> None:
        self.on_round = epochs.on_round
        self.patience = epochs.patience if stops_early else None
        self.epochs_before = 0
        self.best: tuple[float, int, Any] | None = None

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        epoch = self.epochs_before + len(net.history)
        losses = net.history[-1]
        if not np.isfinite(losses["train_loss"]):
            advice = f"train with a smaller learn_rate than {net.lr}"
            raise ConfigError(f"the loss of epoch {epoch} is not finite; {advice}")
        loss = losses.get("valid_loss")
        if self.on_round is not None:
            self.on_round(float(losses["train_loss"]), None if loss is None else float(loss))
        if loss is None or self.patience is None:
            return
        if self.best is None or loss < self.best[0]:
            self.best = float(loss), epoch, copy.deepcopy(net.module_.state_dict())
        elif epoch - self.best[1] >= self.patience:
            raise _StopTraining


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a training that may be interrupted between segments.

    number: the number of the segment, which seeds the random draws. count: the number of epochs.
    state: the estimator's `state_` after the previous segment, or None for the first segment.
    """

    number: int
    count: int
    state: bytes | None


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs of a training.

    patience: the number of epochs without improvement on the held-out rows after which the best
    epoch is restored. segment: the epochs to fit, or None for all epochs.
    """

    patience: int | None = None
    on_round: OnRound | None = None
    segment: Segment | None = None


ALL_EPOCHS = Epochs()


class DNN(BaseEstimator):  # type: ignore[misc]
    """The base class of the networks' estimators.

    hidden_units: widths of the hidden layers. activation, optimizer: names in ACTIVATIONS and
    OPTIMIZERS. dropout, memory: as in MultilayerPerceptron. lr: the learning rate. weight_decay:
    the penalty on squared weights. batch_size: the number of rows in a step. max_epochs: the number
    of passes over all rows. random_state: the seed of the initial weights, the order of rows, and
    dropout. module_: the trained module, of the class MODULE.
    """

    MODULE: ClassVar[type[nn.Module]] = MultilayerPerceptron
    NET: ClassVar[type[Net]] = Net

    WORDS: ClassVar[Mapping[str, Collection[str]]] = MappingProxyType(
        {"activation": ACTIVATIONS.keys(), "optimizer": OPTIMIZERS.keys(), "memory": MEMORY}
    )
    """Maps parameters to their allowed values."""

    def __init__(
        self,
        hidden_units: Sequence[int] = (64, 32),
        activation: str = "relu",
        dropout: float = 0.0,
        optimizer: str = "adam",
        lr: float = 0.001,
        weight_decay: float = 0.0,
        batch_size: int = 256,
        max_epochs: int = 20,
        memory: str = "all",
        random_state: int = 0,
    ) -> None:
        self.hidden_units = hidden_units
        self.activation = activation
        self.dropout = dropout
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.memory = memory
        self.random_state = random_state

    def _list_module_arguments(self, n_inputs: int, n_outputs: int) -> dict[str, Any]:
        names = ("activation", "dropout", "memory")
        sizes = {"n_inputs": n_inputs, "n_outputs": n_outputs}
        hidden_units = {"hidden_units": tuple(self.hidden_units)}
        return {**sizes, **hidden_units, **{name: getattr(self, name) for name in names}}

    def _list_net_arguments(self) -> dict[str, Any]:
        return {}

    def _check_parameters(self) -> None:
        for name, words in self.WORDS.items():
            value = getattr(self, name)
            if value not in words:
                raise ConfigError(f"option {name} must be one of {', '.join(words)}, not {value!r}")
        widths = list(self.hidden_units)
        if not all(type(w) is int and 0 < w <= 1 << 16 for w in widths) or len(widths) > 1024:
            raise ConfigError(
                f"option hidden_units must be a list of widths such as [64, 32], not {widths!r}"
            )
        for name in ("batch_size", "max_epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"option {name} must be at least 1, not {getattr(self, name)!r}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"option dropout must be >= 0 and < 1, not {self.dropout!r}")

    def _fit(
        self, datasets: Sequence[Dataset[Any]], n_outputs: int, criterion: Any, epochs: Epochs
    ) -> None:
        """Train on the first dataset, and stop early by the second dataset if there is one."""
        self._check_parameters()
        segment = epochs.segment
        dataset: Any
        dataset, *held_out = datasets
        module_arguments = self._list_module_arguments(dataset.X.shape[1], n_outputs)
        callback = _RoundCallback(epochs, stops_early=bool(held_out))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state)
            net = self.NET(
                self.MODULE,
                **{f"module__{name}": value for name, value in module_arguments.items()},
                **self._list_net_arguments(),
                criterion=criterion,
                optimizer=OPTIMIZERS[self.optimizer],
                optimizer__weight_decay=self.weight_decay,
                lr=self.lr,
                batch_size=self.batch_size,
                max_epochs=self.max_epochs,
                iterator_train=_make_loader,
                iterator_train__shuffle=True,
                iterator_valid=_make_loader,
                train_split=predefined_split(held_out[0]) if held_out else None,
                callbacks=[("rounds", callback)],
                callbacks__print_log=None,
                verbose=0,
            )
            net.initialize()
            net.notify("on_train_begin", X=dataset, y=None)
            if segment is not None:
                torch.manual_seed(self.random_state + segment.number)
                if segment.state is not None:
                    state = torch.load(io.BytesIO(segment.state), weights_only=True)
                    net.module_.load_state_dict(state["module"])
                    net.optimizer_.load_state_dict(state["optimizer"])
                    callback.epochs_before, callback.best = state["epochs"], state["best"]
            with suppress(_StopTraining):  # Unlike fit, fit_loop does not catch Ctrl-C.
                net.fit_loop(dataset, epochs=self.max_epochs if segment is None else segment.count)
        if segment is not None:
            state = {
                "module": net.module_.state_dict(),
                "optimizer": net.optimizer_.state_dict(),
                "epochs": callback.epochs_before + len(net.history),
                "best": callback.best,
            }
            buffer = io.BytesIO()
            torch.save(state, buffer)
            self.state_ = buffer.getvalue()
        if callback.best is not None:
            net.module_.load_state_dict(callback.best[2])
        self.module_ = copy.deepcopy(net.module_).eval()
        self.n_features_in_ = dataset.X.shape[1]

    def _compute_scores(self, X: Any, compute: Callable[[Any], Any] | None = None) -> Any:
        """Compute the results of the module, or of `compute`, batch by batch."""
        compute = compute or self.module_
        with torch.inference_mode():
            starts = range(0, max(X.shape[0], 1), _SCORED_ROWS)
            return torch.cat([compute(to_tensor(X[i : i + _SCORED_ROWS])) for i in starts])


class DNNClassifier(ClassifierMixin, DNN):  # type: ignore[misc]
    """A deep neural network that predicts classes, trained with cross-entropy.

    Attributes:
        classes_: (k,) the classes.
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        held_out: tuple[Any, Any, Any] | None = None,
        epochs: Epochs = ALL_EPOCHS,
    ) -> Self:
        """Fit to rows X (n, k) with classes y (n,) and weights (n,).

        `held_out` is a tuple of held-out rows, classes and weights for early stopping.
        """
        self.classes_: Array = np.unique(np.asarray(y))
        is_binary = len(self.classes_) == 2

        def make_rows(X: Any, y: Any, weight: Any) -> _Rows:
            codes = np.searchsorted(self.classes_, np.asarray(y))
            return _Rows(X, codes.astype(np.float32 if is_binary else np.int64), weight)

        datasets = [make_rows(X, y, sample_weight), *([make_rows(*held_out)] if held_out else [])]
        criterion = nn.BCEWithLogitsLoss if is_binary else nn.CrossEntropyLoss
        self._fit(datasets, 1 if is_binary else len(self.classes_), criterion, epochs)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities as float32 (n, k)."""
        scores = self._compute_scores(X)
        if scores.shape[1] > 1:
            return np.asarray(torch.softmax(scores, -1).numpy())
        positive = torch.sigmoid(scores)
        return np.asarray(torch.cat([1 - positive, positive], 1).numpy())

    def predict(self, X: Any) -> Array:
        """Predict the most probable class of each row, (n,); in a tie, the first class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class DNNRegressor(RegressorMixin, DNN):  # type: ignore[misc]
    """A deep neural network that predicts numbers, trained with squared error.

    It learns the standardized label, so its losses are in standardized units. After training, the
    last layer is rescaled to the units of the label.
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        held_out: tuple[Any, Any, Any] | None = None,
        epochs: Epochs = ALL_EPOCHS,
    ) -> Self:
        """Fit to rows X (n, k) with numbers y (n,); see `DNNClassifier.fit`."""
        targets = np.asarray(y, np.float64)
        mean = float(np.average(targets, weights=sample_weight))
        spread = float(np.sqrt(np.average((targets - mean) ** 2, weights=sample_weight))) or 1.0

        def make_rows(X: Any, y: Any, weight: Any) -> _Rows:
            scaled = (np.asarray(y, np.float64) - mean) / spread
            return _Rows(X, scaled.astype(np.float32), weight)

        held_out_rows = [make_rows(*held_out)] if held_out else []
        datasets = [make_rows(X, targets, sample_weight), *held_out_rows]
        self._fit(datasets, 1, nn.MSELoss, epochs)
        self.module_.rescale(spread, mean)
        return self

    def predict(self, X: Any) -> Array:
        """Return predictions as float32 (n,)."""
        return np.asarray(self._compute_scores(X)[:, 0].numpy())


class DNNLinearCombinedClassifier(DNNClassifier):
    """A DNNClassifier that adds a linear model of its inputs to the network."""

    MODULE = WideAndDeepNetwork


class DNNLinearCombinedRegressor(DNNRegressor):
    """A DNNRegressor that adds a linear model of its inputs to the network."""

    MODULE = WideAndDeepNetwork
