"""`without_foreign`, `check_known`: options that a model of this type and library does not have.

Each error says what to write instead: the library or the type of model that has the option, the
nearest name, or why BigQuery's option has no meaning here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sqlml.errors import ConfigError
from sqlml.suggestions import closest
from sqlml.training.model_types import MODEL_TYPES, Trainer
from sqlml.training.options.estimator_parameters import parameter_names
from sqlml.training.options.own_options import ALIASES, OWN, Options


@dataclass(frozen=True, slots=True)
class Foreign:
    """An option of BigQuery's that says here what is so anyhow, or nothing.

    reason: why, and what to do. accepted: its values that say what is so.
    """

    reason: str
    accepted: tuple[str, ...] = ()


_STEPS = Foreign("the solver chooses its own steps; leave it out")
_LINEAR = MappingProxyType(
    {
        "optimize_strategy": Foreign(
            "scikit-learn's solvers find the optimum in their own way; leave it out, or write "
            "'auto_strategy'",
            ("auto_strategy",),
        ),
        "learn_rate": _STEPS,
        "learn_rate_strategy": _STEPS,
        "ls_init_learn_rate": _STEPS,
    }
)
_KMEANS = MappingProxyType(
    {
        "distance_type": Foreign(
            "k-means measures Euclidean distances; for cosine distances, divide each row by its "
            "length in the query and set standardize = false",
            ("euclidean",),
        ),
        "kmeans_init_col": Foreign(
            "k-means cannot start from rows of your choice; set kmeans_init_method to 'kmeans++' "
            "or 'random'"
        ),
    }
)
FOREIGN: Mapping[str, Mapping[str, Foreign]] = MappingProxyType(
    {"linear_reg": _LINEAR, "logistic_reg": _LINEAR, "kmeans": _KMEANS}
)
"""Model type -> its options in BigQuery that do nothing here."""

_ONE_STEP = (
    "linear_reg models are solved in one step unless l1_reg or l2_reg is above 0; leave it out"
)


def without_foreign(options: Options, model_type: str) -> Options:
    """The options without those that say what is so anyhow.

    Raises:
        ConfigError: one says something else.
    """
    known = FOREIGN.get(model_type, {})
    for name, value in options.values.items():
        if name not in known:
            continue
        if not isinstance(value, str) or value.lower() not in known[name].accepted:
            raise ConfigError(f"option {options.written[name]}: {known[name].reason}")
    return options.without(known)


def check_known(
    parameters: Options, model_type: str, library: str, trainer: Trainer, kept: Collection[str]
) -> None:
    """Refuse parameters that the estimator does not have.

    Args:
        kept: names of options that are kept with any model.

    Raises:
        ConfigError: there is one.
    """
    names = parameter_names(trainer)
    for name in parameters.values:
        if name in names:
            continue
        written = parameters.written[name]
        if trainer.path.endswith(".LinearRegression") and name == "max_iter":
            raise ConfigError(f"option {written}: {_ONE_STEP}")
        owners = list(_owners(written))
        libraries = [library for other, library in owners if other == model_type]
        if libraries and library not in libraries:
            choice = " or ".join(f"'{one}'" for one in libraries)
            raise ConfigError(
                f"option {written} belongs to {model_type} models by {' and '.join(libraries)}, "
                f"not to those by {library}; set library = {choice}"
            )
        families = list(dict.fromkeys(_family(other) for other, _ in owners))
        if families and not libraries:
            raise ConfigError(
                f"option {written} belongs to {_listed(families)} models, not to {model_type} "
                f"models by {library}"
            )
        have = {*OWN, *ALIASES, *kept, *trainer.names, *names} - {written}
        near = closest(written, sorted(have))
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(f"unknown option {written!r} of {model_type} models by {library}{hint}")


def _owners(name: str) -> Iterator[tuple[str, str]]:
    """The model types and libraries that have an option of this name."""
    for model_type, kind in MODEL_TYPES.items():
        for library, trainer in kind.trainers.items():
            known = name in trainer.names or name in FOREIGN.get(model_type, {})
            if known or name in parameter_names(trainer):
                yield model_type, library


def _family(model_type: str) -> str:
    """boosted_tree of boosted_tree_classifier."""
    for suffix in ("_classifier", "_regressor", "_ranker"):
        model_type = model_type.removesuffix(suffix)
    return model_type


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
