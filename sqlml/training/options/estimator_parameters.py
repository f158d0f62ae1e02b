"""`checked_parameters`: the parameters of a library's estimator, as the library knows them."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType, UnionType
from typing import Any

from sqlml.errors import ConfigError
from sqlml.parsing.statement_parts import option_text
from sqlml.parsing.statements import Call
from sqlml.suggestions import closest
from sqlml.training.model_types import Trainer

# `Searched`: the values among which a parameter is searched for: a range, or a list of them.


WIDE = 10
"""A range of numbers whose ends differ by so many times is searched by their logarithm."""


@dataclass(frozen=True, slots=True)
class Range:
    """hparam_range(low, high): both ends are among the values; of integers only integers are."""

    low: int | float
    high: int | float

    @property
    def is_wide(self) -> bool:
        """Whether the logarithm is searched."""
        return self.low > 0 and self.high / self.low >= WIDE


@dataclass(frozen=True, slots=True)
class Candidates:
    """hparam_candidates([..])."""

    values: tuple[Any, ...]


Searched = Range | Candidates


def searched(name: str, call: Call) -> Searched:
    """What an option's call says.

    Raises:
        ConfigError: it is another function, or has other arguments.
    """
    given = call.arguments
    if call.name == "hparam_range":
        numbers = [n for n in given if isinstance(n, int | float) and not isinstance(n, bool)]
        if len(given) == len(numbers) == 2 and numbers[0] < numbers[1]:
            return Range(numbers[0], numbers[1])
        raise ConfigError(f"option {name}: write hparam_range(low, high) of two numbers in order")
    if call.name == "hparam_candidates":
        if len(given) == 1 and isinstance(given[0], tuple) and given[0]:
            return Candidates(given[0])
        raise ConfigError(f"option {name}: write hparam_candidates([..]) of one value or more")
    raise ConfigError(
        f"option {name}: unknown function {call.name}; functions: hparam_range, hparam_candidates"
    )


# `monotone`: constraints on how a prediction may move with a feature.
#
# A statement gives them in the order of the query's features, `[1, 0, -1]` or `'(1, 0, -1)'`, or
# by their names, `{'age': 1}`. Estimators number the columns that they get, in another order.


NAMES = ("monotone_constraints", "monotone_constraint", "monotonic_cst", "mc")
"""What the libraries call them."""

Constraints = tuple[int, ...] | tuple[tuple[str, int], ...]
"""1 for a feature with which predictions may only rise, -1 only fall, 0 neither: of all features in
the order of the query, or of some by name."""

_DIRECTIONS = (-1, 0, 1)


def constraints(option: str, value: Any) -> Constraints:
    """The constraints that a statement gives.

    Args:
        option: as it is called there.

    >>> constraints("monotone_constraints", "(1, 0)"), constraints("m", [["age", -1]])
    ((1, 0), (('age', -1),))

    Raises:
        ConfigError: these are none.
    """
    given: Any = value
    if isinstance(value, str) and re.fullmatch(r"\s*\(?[\s\d,+-]*\)?\s*", value):
        given = [int(number) for number in re.findall(r"[+-]?\d+", value)]
    if isinstance(given, list | tuple) and given:
        if all(type(v) is int and v in _DIRECTIONS for v in given):
            return tuple(given)
        pairs = [tuple(v) for v in given if isinstance(v, list | tuple) and len(v) == 2]
        if len(pairs) == len(given) and all(
            isinstance(name, str) and type(v) is int and v in _DIRECTIONS for name, v in pairs
        ):
            return tuple(pairs)
    raise ConfigError(
        f"option {option} must be -1, 0 or 1 for each feature, such as [1, 0, -1], or by name, "
        f"such as {{'age': 1}}, not {option_text(value)}"
    )


def ordered(
    parameters: Mapping[str, Any],
    library: str,
    query: Sequence[str],
    columns: Sequence[str | None],
    numbers: Collection[str],
) -> dict[str, Any]:
    """The parameters of an estimator, with constraints in the order of its columns.

    Args:
        query: the features in the order of the query. columns: of which feature each column is;
            None: of one that takes no constraint. numbers: those features that are numbers.

    Raises:
        ConfigError: there are more or fewer constraints than features, or one is of another column
            or of a category.
    """
    made = dict(parameters)
    for option in NAMES:
        if made.get(option) is None:
            continue
        named = _named(option, made[option], query, numbers)
        found = [0 if name is None else named.get(name, 0) for name in columns]
        # a list that CatBoost is given is not the one it has, and scikit-learn would not clone it
        text = f"({','.join(map(str, found))})"
        made[option] = text if library in ("xgboost", "catboost") else found
    return made


def _named(
    option: str, given: Constraints, query: Sequence[str], numbers: Collection[str]
) -> dict[str, int]:
    """Feature -> its constraint."""
    by_place = [one for one in given if not isinstance(one, tuple)]
    if by_place and len(by_place) != len(query):
        raise ConfigError(
            f"option {option} has {len(by_place)} values, and the model has {len(query)} "
            f"features: {', '.join(query)}"
        )
    named = dict(one for one in given if isinstance(one, tuple))
    named |= dict(zip(query, by_place, strict=False))
    for name, direction in named.items():
        if name not in query:
            near = closest(name, query)
            hint = f"did you mean {near!r}?" if near else f"features: {', '.join(query)}"
            raise ConfigError(f"option {option}: the model has no feature {name!r}; {hint}")
        if direction and name not in numbers:
            raise ConfigError(
                f"option {option}: column {name!r} is a category, with which predictions neither "
                "rise nor fall; write 0"
            )
    return named


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "xgboost": _names(
            "base_score booster colsample_bylevel colsample_bynode colsample_bytree device "
            "eval_metric gamma grow_policy importance_type interaction_constraints learning_rate "
            "max_bin max_cat_threshold max_cat_to_onehot max_delta_step max_depth max_leaves "
            "min_child_weight monotone_constraints multi_strategy n_estimators n_jobs "
            "num_parallel_tree objective reg_alpha reg_lambda sampling_method scale_pos_weight "
            "subsample tree_method validate_parameters"
        ),
        # The names are LightGBM's first ones; all others in its own table mean the same.
        "lightgbm": _names(
            "alpha auc_mu_weights bagging_by_query bagging_fraction bagging_freq bagging_seed "
            "bin_construct_sample_cnt boost_from_average boosting cat_l2 cat_smooth "
            "cegb_penalty_feature_coupled cegb_penalty_feature_lazy cegb_penalty_split "
            "cegb_tradeoff data_random_seed data_sample_strategy deterministic device_type "
            "drop_rate drop_seed early_stopping_min_delta enable_bundle eval_at extra_seed "
            "extra_trees fair_c feature_contri feature_fraction feature_fraction_bynode "
            "feature_fraction_seed feature_pre_filter first_metric_only force_col_wise "
            "force_row_wise gpu_device_id gpu_platform_id gpu_use_dp histogram_pool_size "
            "importance_type interaction_constraints is_enable_sparse is_unbalance label_gain "
            "lambda_l1 lambda_l2 lambdarank_norm lambdarank_position_bias_regularization "
            "lambdarank_truncation_level learning_rate linear_lambda linear_tree max_bin "
            "max_bin_by_feature max_cat_threshold max_cat_to_onehot max_delta_step max_depth "
            "max_drop metric min_data_in_bin min_data_in_leaf min_data_per_group "
            "min_gain_to_split min_sum_hessian_in_leaf monotone_constraints "
            "monotone_constraints_method monotone_penalty multi_error_top_k "
            "neg_bagging_fraction num_grad_quant_bins num_iterations num_leaves num_threads "
            "objective objective_seed other_rate path_smooth poisson_max_delta_step "
            "pos_bagging_fraction quant_train_renew_leaf reg_sqrt scale_pos_weight sigmoid "
            "skip_drop stochastic_rounding top_rate tweedie_variance_power uniform_drop "
            "use_quantized_grad xgboost_dart_mode"
        ),
        "catboost": _names(
            "allow_const_label approx_on_full_history bagging_temperature best_model_min_trees "
            "boost_from_average boosting_type bootstrap_type border_count colsample_bylevel "
            "combinations_ctr counter_calc_method ctr_description ctr_history_unit "
            "ctr_leaf_count_limit ctr_target_border_count custom_loss custom_metric "
            "data_partition depth dev_efb_max_buckets dev_score_calc_obj_block_size devices "
            "diffusion_temperature eta eval_metric feature_border_type "
            "final_ctr_computation_mode first_feature_use_penalties fold_len_multiplier "
            "fold_permutation_block gpu_cat_features_storage gpu_ram_part grow_policy has_time "
            "iterations l2_leaf_reg langevin leaf_estimation_backtracking "
            "leaf_estimation_iterations leaf_estimation_method learning_rate loss_function "
            "max_bin max_ctr_complexity max_depth max_leaves metric_period min_child_samples "
            "min_data_in_leaf model_shrink_mode model_shrink_rate model_size_reg "
            "monotone_constraints mvs_reg n_estimators num_boost_round num_leaves num_trees "
            "objective od_pval od_type od_wait one_hot_max_size penalties_coefficient "
            "per_feature_ctr per_float_feature_quantization per_object_feature_penalties "
            "pinned_memory_size posterior_sampling random_score_type random_strength reg_lambda "
            "rsm sampling_frequency sampling_unit scale_pos_weight score_function simple_ctr "
            "sparse_features_conflict_fraction store_all_simple_ctr subsample target_border "
            "task_type thread_count use_best_model used_ram_limit"
        ),
        "sklearn": _names(
            "C algorithm bootstrap ccp_alpha contamination copy copy_X copy_x criterion dual "
            "fit_intercept init interaction_cst intercept_scaling iterated_power l1_ratio "
            "l2_regularization learning_rate loss max_bins max_depth max_features max_iter "
            "max_leaf_nodes max_samples min_impurity_decrease min_samples_leaf "
            "min_samples_split min_weight_fraction_leaf monotonic_cst n_clusters n_components "
            "n_estimators n_init n_iter_no_change n_jobs n_oversamples oob_score penalty "
            "positive power_iteration_normalizer quantile scoring solver svd_solver tol whiten "
            # linear_reg with l1_reg or l2_reg is Ridge, Lasso or ElasticNet, which have these.
            "alpha selection precompute"
        ),
        "torch": _names(
            "activation batch_size dropout hidden_units lr max_epochs memory optimizer weight_decay"
        ),
    }
)
"""Package -> the parameters that a statement may set.

A definition may come from a stranger's database, and libraries have parameters that read and write
files, open sockets, or run code. So one that is not listed is refused, also one that a later
version of a library adds. What the statement says elsewhere (label, seed, early_stopping_rounds,
class_weights), or the rows say, is not listed either.
"""

OF_XGBOOST = _names(
    "updater max_cached_hist_node seed_per_iteration "
    "rate_drop one_drop skip_drop sample_type normalize_type "
    "feature_selector top_k "
    "tweedie_variance_power quantile_alpha expectile_alpha huber_slope "
    "lambdarank_num_pair_per_sample lambdarank_pair_method lambdarank_normalization "
    "lambdarank_score_normalization lambdarank_unbiased lambdarank_bias_norm "
    "ndcg_exp_gain"
)
"""XGBoost's parameters of boosters, linear models and objectives, which its estimators take without
naming them."""

_WORD_OF_LIGHTGBM = re.compile(r"[\w.,:;@+\-()\[\]]*")
"""Texts that LightGBM reads as one value: it puts all parameters into one text with spaces between
them, in which another text could set parameters that are not allowed."""


@lru_cache(maxsize=64)
def parameter_names(trainer: Trainer) -> frozenset[str]:
    """Return the names of the parameters that a statement may set."""
    try:
        kind = trainer.estimator_class()
    except ImportError:
        return frozenset()
    allowed = ALLOWED[trainer.package]
    if trainer.package == "lightgbm":
        return frozenset(n for n, first in _lightgbm_names().items() if first in allowed)
    names = set(inspect.signature(kind.__init__).parameters)
    names |= set(getattr(kind(), "get_params", dict)())
    return frozenset(names & allowed) | (OF_XGBOOST if trainer.package == "xgboost" else set())


@lru_cache(maxsize=64)
def parameter_aliases(trainer: Trainer) -> Mapping[str, str]:
    """Return other names of parameters by the library's own table, name -> the estimator's name.

    LightGBM would ignore a name of which the estimator sets another one to its default.
    """
    if trainer.package != "lightgbm":
        return MappingProxyType({})
    first_names = _lightgbm_names()
    own = inspect.signature(trainer.estimator_class().__init__).parameters
    of_estimator = {first_names[name]: name for name in own if name in first_names}
    return MappingProxyType({n: of_estimator.get(f, f) for n, f in first_names.items()})


@lru_cache(maxsize=1)
def _lightgbm_names() -> Mapping[str, str]:
    """Return all names of LightGBM's parameters -> its first names."""
    from lightgbm.basic import _ConfigAliases  # its table of names has no public door

    table = _ConfigAliases._get_all_param_aliases()
    names = {alias: first for first, aliases in table.items() for alias in (first, *aliases)}
    return MappingProxyType({"importance_type": "importance_type", **names})


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
    if name in NAMES:
        return constraints(written, value)
    if name == "hidden_units" and type(value) is int:
        value = (value,)
    if isinstance(value, str):
        value = _word(trainer, name, value, written)
    value = _typed(name, value, _types(trainer).get(name), written)
    if name in COUNTS:
        _check_count(name, value, written)
    if trainer.package == "lightgbm":
        _check_words(value, written)
    return value


def _check_words(value: Any, written: str) -> None:
    """Refuse texts that LightGBM would read as several parameters.

    Raises:
        ConfigError: there is one.
    """
    if isinstance(value, list | tuple):
        for item in value:
            _check_words(item, written)
    elif isinstance(value, str) and not _WORD_OF_LIGHTGBM.fullmatch(value):
        raise ConfigError(
            f"option {written} must be a word of LightGBM's without spaces, not "
            f"{option_text(value)}"
        )


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
