"""`checked_parameters`: the parameters of a library's estimator, as the library knows them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlml.errors import ConfigError
from sqlml.training.model_types import Trainer

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


def checked_parameters(trainer: Trainer, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with their values as the estimator takes them.

    Raises:
        ConfigError: a value of another type.
    """
    types = _types(trainer)
    made = {name: _checked(name, value, types.get(name)) for name, value in given.items()}
    if trainer.package == "xgboost":  # BigQuery writes 'DART', 'HIST' ..
        made |= {n: v.lower() for n, v in made.items() if isinstance(v, str) and v.isupper()}
    return made


def _checked(name: str, value: Any, kind: type | None) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if kind is None or value is None:
        return value
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is not kind:
        raise ConfigError(f"option {name} must be {_WORDS[kind]}, not {value!r}")
    return value


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
            plain = {t for t in (typing.get_args(hint) or (hint,)) if t is not type(None)}
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
