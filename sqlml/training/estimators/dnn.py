"""`DNNClassifier` and `DNNRegressor`: deep neural networks as estimators, trained by skorch."""

from __future__ import annotations

import copy
import io
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
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from sqlml.errors import ConfigError
from sqlml.training.estimators.multilayer_perceptron import ACTIVATIONS, MultilayerPerceptron
from sqlml.types import Array

OPTIMIZERS: Mapping[str, Any] = MappingProxyType(
    {
        "adagrad": torch.optim.Adagrad,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "rmsprop": torch.optim.RMSprop,
        "sgd": torch.optim.SGD,
    }
)
"""Name -> the class of torch."""

MEMORY = ("all", "sublinear")
"""Which activations training keeps."""

OnRound = Callable[[float, float | None], None]
"""Called after each epoch with the losses of the rows fitted to and of those held out."""

_PREDICTED = 65_536
"""Rows that are scored at a time."""


class _Rows(Dataset[Any]):
    """Rows as torch reads them: a list of places -> float32 numbers and targets of a batch."""

    def __init__(self, X: Any, y: Array, weight: Array | None) -> None:
        self.X = X
        self.y = torch.from_numpy(np.ascontiguousarray(y))
        self.weight = None if weight is None else torch.from_numpy(weight.astype(np.float32))

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, places: Any) -> Any:
        X = _tensor(self.X[places])
        return (X if self.weight is None else {"X": X, "weight": self.weight[places]}), self.y[
            places
        ]


def _tensor(X: Any) -> Any:
    """Rows as a tensor of float32 numbers."""
    dense = X.toarray() if issparse(X) else np.asarray(X)
    return torch.from_numpy(np.ascontiguousarray(dense, np.float32))


def _batches(dataset: Any, batch_size: int, shuffle: bool = False) -> Any:
    """A DataLoader that fetches a batch at once."""
    order = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    return DataLoader(dataset, sampler=BatchSampler(order, batch_size, False), batch_size=None)


class _Net(NeuralNet):  # type: ignore[misc]
    """A net whose loss is the mean by the weights of the rows."""

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Any:
        """The loss of a batch."""
        made = y_pred.squeeze(-1) if y_pred.shape[-1] == 1 else y_pred
        if not isinstance(X, dict):
            return self.criterion_(made, y_true)
        losses = type(self.criterion_)(reduction="none")(made, y_true)
        return (losses * X["weight"]).sum() / X["weight"].sum()


class _Stop(Exception):
    """The losses have stopped improving."""


class _Rounds(Callback):  # type: ignore[misc]
    """Tells each epoch's losses, and keeps the module of the best one.

    skorch's own EarlyStopping raises KeyboardInterrupt, which a user's Ctrl-C cannot be told from.
    """

    def __init__(self, told: OnRound | None, patience: int | None) -> None:
        self.told = told
        self.patience = patience
        self.before = 0
        self.best: tuple[float, int, Any] | None = None

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """An epoch has ended.

        Raises:
            _Stop: `patience` epochs have brought no gain.
            ConfigError: the weights have grown beyond all bounds.
        """
        epoch, last = self.before + len(net.history), net.history[-1]
        if not np.isfinite(last["train_loss"]):
            raise ConfigError(
                f"the loss of epoch {epoch} is not finite; train with a smaller learn_rate "
                f"than {net.lr}"
            )
        loss = last.get("valid_loss")
        if self.told is not None:
            self.told(float(last["train_loss"]), None if loss is None else float(loss))
        if loss is None or self.patience is None:
            return
        if self.best is None or loss < self.best[0]:
            self.best = float(loss), epoch, copy.deepcopy(net.module_.state_dict())
        elif epoch - self.best[1] >= self.patience:
            raise _Stop


@dataclass(frozen=True, slots=True)
class Epochs:
    """Some epochs of a training that may be interrupted between them.

    number: of this part of the training; it decides what is drawn at random. count: of epochs.
    state: `state_` of the estimator after the part before; None for the first.
    """

    number: int
    count: int
    state: bytes | None


class _DNN(BaseEstimator):  # type: ignore[misc]
    """What both networks have.

    Args:
        hidden_units: widths of the hidden layers. activation: the function behind each, see
            ACTIVATIONS. dropout: the share of a hidden layer's numbers that a step leaves out.
        optimizer: see OPTIMIZERS. lr: its step. weight_decay: its penalty on squared weights.
        batch_size: rows of a step. max_epochs: passes over all rows. memory: see
            MultilayerPerceptron. random_state: decides the first weights, the order and dropout.

    Attributes:
        module_: the trained MultilayerPerceptron.
    """

    WORDS: ClassVar[Mapping[str, Collection[str]]] = MappingProxyType(
        {"activation": ACTIVATIONS.keys(), "optimizer": OPTIMIZERS.keys(), "memory": MEMORY}
    )
    """Parameter -> the words that it may have."""

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

    def _check(self) -> None:
        """Refuse parameters that torch would not, or not by name.

        Raises:
            ConfigError: one has a value that it cannot have.
        """
        for name, known in self.WORDS.items():
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(f"option {name} must be one of {', '.join(known)}, not {value!r}")
        widths = list(self.hidden_units)
        if not all(type(w) is int and 0 < w <= 1 << 16 for w in widths) or len(widths) > 1024:
            raise ConfigError(
                f"option hidden_units must be a list of widths such as [64, 32], not {widths!r}"
            )
        for name in ("batch_size", "max_epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"option {name} must be at least 1, not {getattr(self, name)!r}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"option dropout must be from 0 to below 1, not {self.dropout!r}")

    def _fit(
        self,
        parts: Sequence[_Rows],
        outputs: int,
        criterion: Any,
        patience: int | None,
        told: OnRound | None,
        epochs: Epochs | None,
    ) -> None:
        self._check()
        data, *held_out = parts
        rounds = _Rounds(told, patience if held_out else None)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state)
            net = _Net(
                MultilayerPerceptron,
                module__inputs=data.X.shape[1],
                module__outputs=outputs,
                module__hidden_units=tuple(self.hidden_units),
                module__activation=self.activation,
                module__dropout=self.dropout,
                module__memory=self.memory,
                criterion=criterion,
                optimizer=OPTIMIZERS[self.optimizer],
                optimizer__weight_decay=self.weight_decay,
                lr=self.lr,
                batch_size=self.batch_size,
                max_epochs=self.max_epochs,
                iterator_train=_batches,
                iterator_train__shuffle=True,
                iterator_valid=_batches,
                train_split=predefined_split(held_out[0]) if held_out else None,
                callbacks=[("rounds", rounds)],
                callbacks__print_log=None,
                verbose=0,
            )
            net.initialize()
            net.notify("on_train_begin", X=data, y=None)
            if epochs is not None:
                torch.manual_seed(self.random_state + epochs.number)
                if epochs.state is not None:
                    state = torch.load(io.BytesIO(epochs.state), weights_only=True)
                    net.module_.load_state_dict(state["module"])
                    net.optimizer_.load_state_dict(state["optimizer"])
                    rounds.before, rounds.best = state["epochs"], state["best"]
            with suppress(_Stop):  # unlike fit, fit_loop lets Ctrl-C through
                net.fit_loop(data, epochs=self.max_epochs if epochs is None else epochs.count)
        if epochs is not None:
            self.state_ = _bytes(
                module=net.module_.state_dict(),
                optimizer=net.optimizer_.state_dict(),
                epochs=rounds.before + len(net.history),
                best=rounds.best,
            )
        if rounds.best is not None:
            net.module_.load_state_dict(rounds.best[2])
        self.module_ = copy.deepcopy(net.module_).eval()
        self.n_features_in_ = data.X.shape[1]

    def _scores(self, X: Any) -> Any:
        """(n, outputs) what the network returns, a tensor."""
        with torch.inference_mode():
            count = X.shape[0]
            parts = [
                self.module_(_tensor(X[row : row + _PREDICTED]))
                for row in range(0, max(count, 1), _PREDICTED)
            ]
            return torch.cat(parts)


def _bytes(**state: Any) -> bytes:
    content = io.BytesIO()
    torch.save(state, content)
    return content.getvalue()


class DNNClassifier(ClassifierMixin, _DNN):  # type: ignore[misc]
    """A deep neural network that tells classes: by cross-entropy.

    Attributes:
        classes_: (k,) the classes.
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        held_out: tuple[Any, Any, Any] | None = None,
        patience: int | None = None,
        told: OnRound | None = None,
        epochs: Epochs | None = None,
    ) -> Self:
        """Fit to rows X (n, k) with classes y (n,).

        Args:
            held_out: rows, classes and weights that early stopping looks at. patience: epochs
                without a gain on them after which the best one is taken. told: see OnRound.
            epochs: only these, of a training in parts.

        Raises:
            ConfigError: a parameter has a value that it cannot have.
        """
        self.classes_ = np.unique(np.asarray(y))
        two = len(self.classes_) == 2

        def rows(X: Any, y: Any, weight: Any) -> _Rows:
            codes = np.searchsorted(self.classes_, np.asarray(y))
            return _Rows(X, codes.astype(np.float32 if two else np.int64), weight)

        parts = [rows(X, y, sample_weight), *([rows(*held_out)] if held_out else [])]
        criterion = nn.BCEWithLogitsLoss if two else nn.CrossEntropyLoss
        self._fit(parts, 1 if two else len(self.classes_), criterion, patience, told, epochs)
        return self

    def predict_proba(self, X: Any) -> Array:
        """(n, k) probabilities of the classes, float32."""
        scores = self._scores(X)
        if scores.shape[1] > 1:
            made: Array = torch.softmax(scores, -1).numpy()
            return made
        second = torch.sigmoid(scores)
        both: Array = torch.cat([1 - second, second], 1).numpy()
        return both

    def predict(self, X: Any) -> Array:
        """(n,) the class with the largest probability, the first of equal ones."""
        made: Array = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return made


class DNNRegressor(RegressorMixin, _DNN):  # type: ignore[misc]
    """A deep neural network that tells numbers: by squared error.

    It learns the label standardised, less its mean and divided by its standard deviation; its
    losses are in these units. After training, the last layer returns the label's own units.
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        held_out: tuple[Any, Any, Any] | None = None,
        patience: int | None = None,
        told: OnRound | None = None,
        epochs: Epochs | None = None,
    ) -> Self:
        """Fit to rows X (n, k) with numbers y (n,); see DNNClassifier.fit.

        Raises:
            ConfigError: a parameter has a value that it cannot have.
        """
        targets = np.asarray(y, np.float64)
        mean = float(np.average(targets, weights=sample_weight))
        spread = float(np.sqrt(np.average((targets - mean) ** 2, weights=sample_weight))) or 1.0

        def rows(X: Any, y: Any, weight: Any) -> _Rows:
            scaled = (np.asarray(y, np.float64) - mean) / spread
            return _Rows(X, scaled.astype(np.float32), weight)

        parts = [rows(X, targets, sample_weight), *([rows(*held_out)] if held_out else [])]
        self._fit(parts, 1, nn.MSELoss, patience, told, epochs)
        last = self.module_.last
        with torch.no_grad():
            last.weight.mul_(spread)
            last.bias.mul_(spread).add_(mean)
        return self

    def predict(self, X: Any) -> Array:
        """(n,) numbers, float32."""
        made: Array = self._scores(X)[:, 0].numpy()
        return made
