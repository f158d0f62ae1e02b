"""The parameters of estimators that a statement may set, with checks of types and values."""

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


@dataclass(frozen=True, slots=True)
class Range:
    """The inclusive range `hparam_range(low, high)`; with integer ends, all values are integers."""

    low: int | float
    high: int | float

    @property
    def is_wide(self) -> bool:
        """True if the range is searched on a logarithmic scale."""
        return self.low > 0 and self.high / self.low >= 10


@dataclass(frozen=True, slots=True)
class Candidates:
    """The values in `hparam_candidates([...])`, from which a search chooses."""

    values: tuple[Any, ...]


SearchSpace = Range | Candidates


def parse_space(name: str, call: Call) -> SearchSpace:
    arguments = call.arguments
    if call.name == "hparam_range":
        numbers = [n for n in arguments if isinstance(n, int | float) and not isinstance(n, bool)]
        if len(arguments) == len(numbers) == 2 and numbers[0] < numbers[1]:
            return Range(numbers[0], numbers[1])
        raise ConfigError(f"option {name}: write hparam_range(low, high) with two numbers in order")
    if call.name == "hparam_candidates":
        if len(arguments) == 1 and isinstance(arguments[0], tuple) and arguments[0]:
            return Candidates(arguments[0])
        raise ConfigError(f"option {name}: write hparam_candidates([...]) with one value or more")
    raise ConfigError(
        f"option {name}: unknown function {call.name}; functions: hparam_range, hparam_candidates"
    )


MONOTONE_OPTIONS = ("monotone_constraints", "monotone_constraint", "monotonic_cst", "mc")

Constraints = tuple[int, ...] | tuple[tuple[str, int], ...]
"""Directions, in order or keyed by feature: 1 for predictions that may only rise, -1, or 0."""

_DIRECTIONS = (-1, 0, 1)


def parse_constraints(option: str, value: Any) -> Constraints:
    """Parse the monotone constraints of a statement, such as [1, 0], '(1, 0)' or {'age': 1}.

    >>> parse_constraints("monotone_constraints", "(1, 0)"), parse_constraints("m", [["age", -1]])
    ((1, 0), (('age', -1),))
    """
    constraints: Any = value
    if isinstance(value, str) and re.fullmatch(r"\s*\(?[\s\d,+-]*\)?\s*", value):
        constraints = [int(number) for number in re.findall(r"[+-]?\d+", value)]
    if isinstance(constraints, list | tuple) and constraints:
        if all(type(v) is int and v in _DIRECTIONS for v in constraints):
            return tuple(constraints)
        pairs = [tuple(v) for v in constraints if isinstance(v, list | tuple) and len(v) == 2]
        are_valid = (isinstance(n, str) and type(v) is int and v in _DIRECTIONS for n, v in pairs)
        if len(pairs) == len(constraints) and all(are_valid):
            return tuple(pairs)
    raise ConfigError(
        f"option {option} must be -1, 0 or 1 for each feature, such as [1, 0, -1], or by name, "
        f"such as {{'age': 1}}, not {option_text(value)}"
    )


def order_constraints(
    parameters: Mapping[str, Any],
    library: str,
    query_columns: Sequence[str],
    estimator_columns: Sequence[str | None],
    numeric_columns: Collection[str],
) -> dict[str, Any]:
    """Reorder the monotone constraints in `parameters` from query to estimator columns.

    `query_columns` are the features in the order of the query. `estimator_columns` lists the
    numeric feature in each column that the estimator reads, or None for an unconstrained column.
    """
    ordered_parameters = dict(parameters)
    for option in MONOTONE_OPTIONS:
        constraints = ordered_parameters.get(option)
        if constraints is None:
            continue
        directions = _map_constraints(option, constraints, query_columns, numeric_columns)
        by_column = [0 if name is None else directions.get(name, 0) for name in estimator_columns]
        # CatBoost copies a list, and scikit-learn's clone rejects copied parameters.
        text = f"({','.join(map(str, by_column))})"
        ordered_parameters[option] = text if library in ("xgboost", "catboost") else by_column
    return ordered_parameters


def _map_constraints(
    option: str,
    constraints: Constraints,
    query_columns: Sequence[str],
    numeric_columns: Collection[str],
) -> dict[str, int]:
    unnamed = [constraint for constraint in constraints if not isinstance(constraint, tuple)]
    if unnamed and len(unnamed) != len(query_columns):
        features = f"{len(query_columns)} features: {', '.join(query_columns)}"
        message = f"option {option} has {len(unnamed)} values, and the model has {features}"
        raise ConfigError(message)
    directions = dict(constraint for constraint in constraints if isinstance(constraint, tuple))
    directions |= dict(zip(query_columns, unnamed, strict=False))
    for name, direction in directions.items():
        if name not in query_columns:
            suggestion = closest(name, query_columns)
            hint = f"did you mean {suggestion!r}?"
            if not suggestion:
                hint = f"features: {', '.join(query_columns)}"
            raise ConfigError(f"option {option}: the model has no feature {name!r}; {hint}")
        if direction and name not in numeric_columns:
            raise ConfigError(
                f"option {option}: column {name!r} is a category, which has no order for "
                "predictions to follow; write 0"
            )
    return directions


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED: Mapping[str, frozenset[str]] = {
    "xgboost": _split_names(
        "base_score booster colsample_bylevel colsample_bynode colsample_bytree device "
        "eval_metric gamma grow_policy importance_type interaction_constraints learning_rate "
        "max_bin max_cat_threshold max_cat_to_onehot max_delta_step max_depth max_leaves "
        "min_child_weight monotone_constraints multi_strategy n_estimators n_jobs "
        "num_parallel_tree objective reg_alpha reg_lambda sampling_method scale_pos_weight "
        "subsample tree_method validate_parameters"
    ),
    # These are LightGBM's primary names; `map_parameter_aliases` maps all others to them.
    "lightgbm": _split_names(
        "alpha auc_mu_weights bagging_by_query bagging_fraction bagging_freq bagging_seed "
        "bin_construct_sample_cnt boost_from_average boosting cat_l2 cat_smooth "
        "cegb_penalty_feature_coupled cegb_penalty_feature_lazy cegb_penalty_split cegb_tradeoff "
        "data_random_seed data_sample_strategy deterministic device_type drop_rate drop_seed "
        "early_stopping_min_delta enable_bundle eval_at extra_seed extra_trees fair_c "
        "feature_contri feature_fraction feature_fraction_bynode feature_fraction_seed "
        "feature_pre_filter first_metric_only force_col_wise force_row_wise gpu_device_id "
        "gpu_platform_id gpu_use_dp histogram_pool_size importance_type interaction_constraints "
        "is_enable_sparse is_unbalance label_gain lambda_l1 lambda_l2 lambdarank_norm "
        "lambdarank_position_bias_regularization lambdarank_truncation_level learning_rate "
        "linear_lambda linear_tree max_bin max_bin_by_feature max_cat_threshold max_cat_to_onehot "
        "max_delta_step max_depth max_drop metric min_data_in_bin min_data_in_leaf "
        "min_data_per_group min_gain_to_split min_sum_hessian_in_leaf monotone_constraints "
        "monotone_constraints_method monotone_penalty multi_error_top_k neg_bagging_fraction "
        "num_grad_quant_bins num_iterations num_leaves num_threads objective objective_seed "
        "other_rate path_smooth poisson_max_delta_step pos_bagging_fraction quant_train_renew_leaf "
        "reg_sqrt scale_pos_weight sigmoid skip_drop stochastic_rounding top_rate "
        "tweedie_variance_power uniform_drop use_quantized_grad xgboost_dart_mode"
    ),
    "catboost": _split_names(
        "allow_const_label approx_on_full_history bagging_temperature best_model_min_trees "
        "boost_from_average boosting_type bootstrap_type border_count colsample_bylevel "
        "combinations_ctr counter_calc_method ctr_description ctr_history_unit "
        "ctr_leaf_count_limit ctr_target_border_count custom_loss custom_metric data_partition "
        "depth dev_efb_max_buckets dev_score_calc_obj_block_size devices diffusion_temperature eta "
        "eval_metric feature_border_type final_ctr_computation_mode first_feature_use_penalties "
        "fold_len_multiplier fold_permutation_block gpu_cat_features_storage gpu_ram_part "
        "grow_policy has_time iterations l2_leaf_reg langevin leaf_estimation_backtracking "
        "leaf_estimation_iterations leaf_estimation_method learning_rate loss_function max_bin "
        "max_ctr_complexity max_depth max_leaves metric_period min_child_samples min_data_in_leaf "
        "model_shrink_mode model_shrink_rate model_size_reg monotone_constraints mvs_reg "
        "n_estimators num_boost_round num_leaves num_trees objective od_pval od_type od_wait "
        "one_hot_max_size penalties_coefficient per_feature_ctr per_float_feature_quantization "
        "per_object_feature_penalties pinned_memory_size posterior_sampling random_score_type "
        "random_strength reg_lambda rsm sampling_frequency sampling_unit scale_pos_weight "
        "score_function simple_ctr sparse_features_conflict_fraction store_all_simple_ctr "
        "subsample target_border task_type thread_count use_best_model used_ram_limit"
    ),
    "sklearn": _split_names(
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
    "torch": _split_names(
        "activation batch_size dropout hidden_units l1_reg_activation lr max_epochs memory "
        "optimizer weight_decay"
    ),
}
"""Maps each package to the parameters that a statement may set.

A definition may come from an untrusted database, and libraries have parameters that read and write
files, open sockets, or run code. A parameter that is not listed is therefore rejected, even if a
later version of a library adds it. Parameters that follow from other options (label, seed,
early_stopping_rounds, class_weights) or from the rows are not listed either.
"""

XGBOOST_EXTRAS = _split_names(
    "updater max_cached_hist_node seed_per_iteration rate_drop one_drop skip_drop sample_type "
    "normalize_type feature_selector top_k tweedie_variance_power quantile_alpha expectile_alpha "
    "huber_slope lambdarank_num_pair_per_sample lambdarank_pair_method lambdarank_normalization "
    "lambdarank_score_normalization lambdarank_unbiased lambdarank_bias_norm ndcg_exp_gain"
)
"""Parameters that XGBoost's estimators accept without declaring them."""

_LIGHTGBM_WORD = re.compile(r"[\w.,:;@+\-()\[\]]*")
"""Strings that LightGBM reads as one value, although it joins all parameters into one string."""


@lru_cache(maxsize=64)
def list_parameter_names(trainer: Trainer) -> frozenset[str]:
    try:
        cls = trainer.estimator_class()
    except ImportError:
        return frozenset()
    allowed = ALLOWED[trainer.package]
    if trainer.package == "lightgbm":
        return frozenset(n for n, primary in _read_lightgbm_names().items() if primary in allowed)
    names = set(inspect.signature(cls.__init__).parameters)
    names |= set(getattr(cls(), "get_params", dict)())
    return frozenset(names & allowed) | (XGBOOST_EXTRAS if trainer.package == "xgboost" else set())


@lru_cache(maxsize=64)
def map_parameter_aliases(trainer: Trainer) -> Mapping[str, str]:
    """Map the library's alternative parameter names to the estimator's names.

    LightGBM would ignore a name if the estimator set the same parameter under another name.
    """
    if trainer.package != "lightgbm":
        return MappingProxyType({})
    primary_names = _read_lightgbm_names()
    declared = inspect.signature(trainer.estimator_class().__init__).parameters
    declared_names = {primary_names[name]: name for name in declared if name in primary_names}
    return MappingProxyType({alias: declared_names.get(f, f) for alias, f in primary_names.items()})


@lru_cache(maxsize=1)
def _read_lightgbm_names() -> Mapping[str, str]:
    from lightgbm.basic import _ConfigAliases  # The table of names has no public interface.

    table = _ConfigAliases._get_all_param_aliases()
    names = {alias: primary for primary, aliases in table.items() for alias in (primary, *aliases)}
    return MappingProxyType({"importance_type": "importance_type", **names})


def check_parameters(
    trainer: Trainer, params: Mapping[str, Any], spellings: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Convert parameters to the estimator's types; errors show the names in `spellings`."""
    return {n: _check_parameter(trainer, n, v, spellings.get(n, n)) for n, v in params.items()}


def check_space(trainer: Trainer, name: str, space: SearchSpace, spelling: str) -> SearchSpace:
    if isinstance(space, Candidates):
        return Candidates(tuple(_check_parameter(trainer, name, v, spelling) for v in space.values))
    parameter_type = _read_parameter_types(trainer).get(name)
    if parameter_type not in (None, int, float):
        advice = "search for it with hparam_candidates([...])"
        raise ConfigError(f"option {spelling} must be {_TYPE_NAMES[parameter_type]}: {advice}")
    if parameter_type is not None:
        bounds = (space.low, space.high)
        return Range(*(_check_parameter(trainer, name, bound, spelling) for bound in bounds))
    if name in COUNT_PARAMETERS:
        _check_count(name, space.low, spelling)
    return space


def _check_parameter(trainer: Trainer, name: str, value: Any, spelling: str) -> Any:
    if value is None:
        return value
    if name in MONOTONE_OPTIONS:
        return parse_constraints(spelling, value)
    if name == "hidden_units" and type(value) is int:
        value = (value,)
    elif isinstance(value, str):
        value = _normalize_word(trainer, name, value, spelling)
    value = _convert_type(value, _read_parameter_types(trainer).get(name), spelling)
    if name in COUNT_PARAMETERS:
        _check_count(name, value, spelling)
    if trainer.package == "lightgbm":
        _check_words(value, spelling)
    return value


def _check_words(value: Any, spelling: str) -> None:
    if isinstance(value, list | tuple):
        for element in value:
            _check_words(element, spelling)
    elif isinstance(value, str) and not _LIGHTGBM_WORD.fullmatch(value):
        text = option_text(value)
        raise ConfigError(
            f"option {spelling} must be a word of LightGBM's without spaces, not {text}"
        )


def _convert_type(value: Any, parameter_type: type | None, spelling: str) -> Any:
    if parameter_type is None:
        return list(value) if isinstance(value, tuple) else value
    if parameter_type is float and type(value) in (int, float):
        return float(value)
    if parameter_type is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is not parameter_type:
        expected = _TYPE_NAMES[parameter_type]
        raise ConfigError(f"option {spelling} must be {expected}, not {option_text(value)}")
    return value


COUNT_PARAMETERS = frozenset(
    "n_estimators iterations max_iter max_epochs n_components num_parallel_tree n_clusters "
    "batch_size".split()
)
"""Parameters that count something, and must be at least 1."""


def _check_count(name: str, value: Any, spelling: str) -> None:
    """Reject a count below 1, with which some libraries would train an empty model."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if spelling == "pca_explained_variance_ratio":
        if not 0 < value < 1:
            raise ConfigError(f"option {spelling} must be above 0 and below 1, not {value}")
    elif value < 1 and (name != "n_components" or type(value) is int or value <= 0):
        raise ConfigError(f"option {spelling} must be at least 1, not {value}")


def _normalize_word(trainer: Trainer, name: str, value: str, spelling: str) -> str:
    """Convert a keyword, such as BigQuery's 'DART' or 'RELU', to the library's spelling."""
    if trainer.path.endswith(".KMeans") and name == "init":
        if value.lower() == "custom":
            advice = "k-means cannot start from rows of your choice; write 'kmeans++' or 'random'"
            raise ConfigError(f"option {spelling}: {advice}")
        value = "k-means++" if value.lower() == "kmeans++" else value
    allowed = _find_allowed_words(trainer, name)
    for word in allowed:
        if word.lower() == value.lower():
            return word
    if allowed:
        names = ", ".join(sorted(allowed))
        raise ConfigError(f"option {spelling} must be one of {names}, not {option_text(value)}")
    is_upper = trainer.package in ("xgboost", "lightgbm") and value.isupper()
    return value.lower() if is_upper else value


def _find_allowed_words(trainer: Trainer, name: str) -> list[str]:
    """Return the keywords that a parameter accepts, or [] if they are unlimited or unknown."""
    if trainer.package not in ("sklearn", "torch"):
        return []
    cls = trainer.estimator_class()
    if trainer.package == "torch":
        return list(cls.WORDS.get(name, ()))
    constraints = getattr(cls, "_parameter_constraints", {}).get(name)
    if not isinstance(constraints, list) or str in constraints:
        return []
    words = [word for constraint in constraints for word in getattr(constraint, "options", ())]
    return [word for word in words if isinstance(word, str)]


_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


@lru_cache(maxsize=64)
def _read_parameter_types(trainer: Trainer) -> Mapping[str, type]:
    """Map parameters to their type; omit those with several types, which the estimator checks."""
    cls = trainer.estimator_class()
    if trainer.package == "sklearn":
        return _read_constraint_types(getattr(cls, "_parameter_constraints", {}))
    types: dict[str, type] = {}
    for base in reversed(cls.__mro__):
        try:
            hints = typing.get_type_hints(base.__init__)
        except (NameError, TypeError, AttributeError):
            continue
        for name, hint in hints.items():
            is_union = typing.get_origin(hint) in (typing.Union, UnionType)
            classes = set(typing.get_args(hint) if is_union else (hint,)) - {type(None)}
            if len(classes) == 1 and classes <= _TYPE_NAMES.keys():
                types[name] = classes.pop()
    return types


def _read_constraint_types(constraints: Mapping[str, Any]) -> Mapping[str, type]:
    import numbers

    by_class: dict[Any, type] = {numbers.Integral: int, numbers.Real: float}
    types: dict[str, type] = {}
    for name, allowed in constraints.items():
        if not isinstance(allowed, list):
            continue
        parameter_types = {by_class.get(getattr(c, "type", None)) for c in allowed if c is not None}
        parameter_types |= {bool for constraint in allowed if constraint == "boolean"}
        if len(parameter_types) == 1 and None not in parameter_types:
            types[name] = typing.cast(type, parameter_types.pop())
    return types
