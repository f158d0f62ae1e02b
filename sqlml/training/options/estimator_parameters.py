"""`checked_parameters`: the parameters of a library's estimator, as the library knows them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType, UnionType
from typing import Any

from sqlml.errors import ConfigError
from sqlml.parsing.option_text import option_text
from sqlml.training.model_types import Trainer
from sqlml.training.options import monotone
from sqlml.training.options.searched_values import Candidates, Range, Searched

REFUSED = frozenset(
    # files, other machines, and code: a definition may come from a stranger's database
    "callback callbacks config data input_model output_model output_result valid machines "
    "machine_list_filename num_machines local_listen_port time_out forcedsplits_filename "
    "forcedbins_filename parser_config_file save_binary snapshot_freq save_snapshot snapshot_file "
    "snapshot_interval train_dir input_borders output_borders allow_writing_files convert_model "
    "convert_model_language task name "
    # what the statement says elsewhere, or the rows
    "random_state random_seed seed class_weight class_weights auto_class_weights class_names "
    "classes_count num_class cat_features categorical_feature categorical_features "
    "categorical_column text_features embedding_features feature_types feature_weights "
    "label_column weight_column group_column ignore_column ignored_features header "
    "early_stopping_rounds early_stopping_round early_stopping warm_start eval_fraction "
    "validation_fraction missing nan_mode zero_as_missing use_missing "
    "enable_categorical verbose verbosity silent logging_level".split()
)
"""Parameters that no statement may set."""

OF_XGBOOST = frozenset(
    "updater max_cached_hist_node seed_per_iteration "
    "rate_drop one_drop skip_drop sample_type normalize_type "
    "feature_selector top_k "
    "tweedie_variance_power quantile_alpha expectile_alpha huber_slope "
    "lambdarank_num_pair_per_sample lambdarank_pair_method lambdarank_normalization "
    "lambdarank_score_normalization lambdarank_unbiased lambdarank_bias_norm "
    "ndcg_exp_gain".split()
)
"""XGBoost's parameters of boosters, linear models and objectives, which its estimators take without
naming them."""


@lru_cache(maxsize=64)
def parameter_names(trainer: Trainer) -> frozenset[str]:
    """The names of the parameters that a statement may set."""
    try:
        kind = trainer.estimator_class()
    except ImportError:
        return frozenset()
    names = set(inspect.signature(kind.__init__).parameters) - {"self", "kwargs"}
    names |= set(getattr(kind(), "get_params", dict)())
    if trainer.package == "lightgbm":
        names |= _of_lightgbm()
    if trainer.package == "xgboost":
        names |= OF_XGBOOST
    return frozenset(names - REFUSED)


def _of_lightgbm() -> set[str]:
    """LightGBM's parameters by all of their names."""
    from lightgbm.basic import _ConfigAliases  # its table of names has no public door

    known = _ConfigAliases._get_all_param_aliases()
    return {*known, *(alias for others in known.values() for alias in others)}


def checked_parameters(
    trainer: Trainer, given: Mapping[str, Any], written: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The parameters with their values as the estimator takes them.

    Args:
        written: name of a parameter -> what the statement calls it, for errors.

    Raises:
        ConfigError: a value of another type, or one that it cannot have.
    """
    return {n: _checked(trainer, n, v, written.get(n, n)) for n, v in given.items()}


def checked_search(trainer: Trainer, name: str, searched: Searched, written: str) -> Searched:
    """The values among which a parameter is searched for, as the estimator takes them.

    Raises:
        ConfigError: as `checked_parameters`.
    """
    if isinstance(searched, Candidates):
        return Candidates(tuple(_checked(trainer, name, v, written) for v in searched.values))
    kind = _types(trainer).get(name)
    if kind not in (None, int, float):
        raise ConfigError(
            f"option {written} must be {_WORDS[kind]}: search for it with hparam_candidates([..])"
        )
    low, high = searched.low, searched.high
    if kind is not None:
        low = _checked(trainer, name, low, written)
        high = _checked(trainer, name, high, written)
    elif name in COUNTS:
        _check_count(name, low, written)
    return Range(low, high)


def _checked(trainer: Trainer, name: str, value: Any, written: str) -> Any:
    if value is None:
        return value
    if name in monotone.NAMES:
        return monotone.constraints(written, value)
    if name == "hidden_units" and type(value) is int:
        value = (value,)
    if isinstance(value, str):
        value = _word(trainer, name, value, written)
    value = _typed(name, value, _types(trainer).get(name), written)
    if name in COUNTS:
        _check_count(name, value, written)
    return value


def _typed(name: str, value: Any, kind: type | None, written: str) -> Any:
    if kind is None:
        return list(value) if isinstance(value, tuple) else value
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is not kind:
        raise ConfigError(f"option {written} must be {_WORDS[kind]}, not {option_text(value)}")
    return value


COUNTS = frozenset(
    "n_estimators iterations max_iter max_epochs n_components num_parallel_tree n_clusters "
    "batch_size".split()
)
"""Parameters that count something of which there must be one at least."""


def _check_count(name: str, value: Any, written: str) -> None:
    """Refuse a count of none, of which some libraries would make an empty model.

    Raises:
        ConfigError: it is one.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if written == "pca_explained_variance_ratio":
        if not 0 < value < 1:
            raise ConfigError(f"option {written} must be above 0 and below 1, not {value}")
    elif value < 1 and (name != "n_components" or type(value) is int or value <= 0):
        raise ConfigError(f"option {written} must be at least 1, not {value}")


def _word(trainer: Trainer, name: str, value: str, written: str) -> str:
    """A word as the library spells it: BigQuery writes 'DART', 'RELU', 'FULL' ..

    Raises:
        ConfigError: the library has no such word.
    """
    if trainer.path.endswith(".KMeans") and name == "init":
        if value.lower() == "custom":
            raise ConfigError(
                f"option {written}: k-means cannot start from rows of your choice; write "
                "'kmeans++' or 'random'"
            )
        value = "k-means++" if value.lower() == "kmeans++" else value
    known = _known_words(trainer, name)
    found = next((word for word in known if word.lower() == value.lower()), None)
    if known and found is None:
        listed = ", ".join(sorted(known))
        raise ConfigError(f"option {written} must be one of {listed}, not {option_text(value)}")
    if found is not None:
        return found
    upper = trainer.package in ("xgboost", "lightgbm") and value.isupper()
    return value.lower() if upper else value


def _known_words(trainer: Trainer, name: str) -> list[str]:
    """The words that a parameter may have; none if it may have others, or nobody knows."""
    if trainer.package not in ("sklearn", "torch"):
        return []
    kind = trainer.estimator_class()
    if trainer.package == "torch":
        return list(kind.WORDS.get(name, ()))
    allowed = getattr(kind, "_parameter_constraints", {}).get(name)
    if not isinstance(allowed, list) or str in allowed:
        return []
    words = [word for one in allowed for word in getattr(one, "options", ())]
    return [word for word in words if isinstance(word, str)]


_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


@lru_cache(maxsize=64)
def _types(trainer: Trainer) -> Mapping[str, type]:
    """The types that the estimator's annotations or constraints state for its parameters.

    Those with several are left out: the estimator itself checks them.
    """
    kind = trainer.estimator_class()
    if trainer.package == "sklearn":
        return _of_constraints(getattr(kind, "_parameter_constraints", {}))
    made: dict[str, type] = {}
    for base in reversed(kind.__mro__):
        try:
            hints = typing.get_type_hints(base.__init__)
        except (NameError, TypeError, AttributeError):
            continue
        for name, hint in hints.items():
            union = typing.get_origin(hint) in (typing.Union, UnionType)
            plain = set(typing.get_args(hint) if union else (hint,)) - {type(None)}
            if len(plain) == 1 and plain <= _WORDS.keys():
                made[name] = plain.pop()
    return made


def _of_constraints(constraints: Mapping[str, Any]) -> Mapping[str, type]:
    import numbers

    by_class: dict[Any, type] = {numbers.Integral: int, numbers.Real: float}
    made: dict[str, type] = {}
    for name, allowed in constraints.items():
        if not isinstance(allowed, list):
            continue
        kinds = {by_class.get(getattr(one, "type", None)) for one in allowed if one is not None}
        kinds |= {bool for one in allowed if one == "boolean"}
        if len(kinds) == 1 and None not in kinds:
            made[name] = typing.cast(type, kinds.pop())
    return made
