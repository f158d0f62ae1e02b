"""The constructor parameters that sqlml knows, per class of scikit-learn.

A parameter that is not listed here came with another version of scikit-learn, and may change what
the model computes; so such a model is refused (see `fitted.check`) until somebody has looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "sklearn.pipeline.Pipeline": "memory steps transform_input verbose",
        "sklearn.pipeline.FeatureUnion": (
            "n_jobs transformer_list transformer_weights verbose verbose_feature_names_out"
        ),
        "sklearn.compose._column_transformer.ColumnTransformer": (
            "force_int_remainder_cols n_jobs remainder sparse_threshold transformer_weights "
            "transformers verbose verbose_feature_names_out"
        ),
        "sklearn.preprocessing._function_transformer.FunctionTransformer": (
            "accept_sparse check_inverse feature_names_out func inv_kw_args inverse_func "
            "kw_args validate"
        ),
        "sklearn.preprocessing._data.StandardScaler": "copy with_mean with_std",
        "sklearn.preprocessing._data.MinMaxScaler": "clip copy feature_range",
        "sklearn.preprocessing._data.MaxAbsScaler": "clip copy",
        "sklearn.preprocessing._data.RobustScaler": (
            "copy quantile_range unit_variance with_centering with_scaling"
        ),
        "sklearn.impute._base.SimpleImputer": (
            "add_indicator copy fill_value keep_empty_features missing_values strategy"
        ),
        "sklearn.preprocessing._encoders.OneHotEncoder": (
            "categories drop dtype feature_name_combiner handle_unknown max_categories "
            "min_frequency sparse_output"
        ),
        "sklearn.preprocessing._encoders.OrdinalEncoder": (
            "categories dtype encoded_missing_value handle_unknown max_categories min_frequency "
            "unknown_value"
        ),
        "sklearn.linear_model._logistic.LogisticRegression": (
            "C class_weight dual fit_intercept intercept_scaling l1_ratio max_iter multi_class "
            "n_jobs penalty random_state solver tol verbose warm_start"
        ),
        "sklearn.linear_model._logistic.LogisticRegressionCV": (
            "Cs class_weight cv dual fit_intercept intercept_scaling l1_ratios max_iter "
            "multi_class n_jobs penalty random_state refit scoring solver tol "
            "use_legacy_attributes verbose"
        ),
        "sklearn.linear_model._base.LinearRegression": "copy_X fit_intercept n_jobs positive tol",
        "sklearn.linear_model._ridge.Ridge": (
            "alpha copy_X fit_intercept max_iter positive random_state solver tol"
        ),
        "sklearn.linear_model._ridge.RidgeCV": (
            "alpha_per_target alphas cv fit_intercept gcv_mode scoring store_cv_results "
            "store_cv_values"
        ),
        "sklearn.linear_model._coordinate_descent.Lasso": (
            "alpha copy_X fit_intercept max_iter positive precompute random_state selection tol "
            "warm_start"
        ),
        "sklearn.linear_model._coordinate_descent.LassoCV": (
            "alphas copy_X cv eps fit_intercept max_iter n_alphas n_jobs positive precompute "
            "random_state selection tol verbose"
        ),
        "sklearn.linear_model._coordinate_descent.ElasticNet": (
            "alpha copy_X fit_intercept l1_ratio max_iter positive precompute random_state "
            "selection tol warm_start"
        ),
        "sklearn.linear_model._coordinate_descent.ElasticNetCV": (
            "alphas copy_X cv eps fit_intercept l1_ratio max_iter n_alphas n_jobs positive "
            "precompute random_state selection tol verbose"
        ),
        "sklearn.linear_model._ridge.RidgeClassifier": (
            "alpha class_weight copy_X fit_intercept max_iter positive random_state solver tol"
        ),
        "sklearn.linear_model._ridge.RidgeClassifierCV": (
            "alphas class_weight cv fit_intercept scoring store_cv_results store_cv_values"
        ),
        "sklearn.linear_model._stochastic_gradient.SGDClassifier": (
            "alpha average class_weight early_stopping epsilon eta0 fit_intercept l1_ratio "
            "learning_rate loss max_iter n_iter_no_change n_jobs penalty power_t random_state "
            "shuffle tol validation_fraction verbose warm_start"
        ),
        "sklearn.linear_model._stochastic_gradient.SGDRegressor": (
            "alpha average early_stopping epsilon eta0 fit_intercept l1_ratio learning_rate "
            "loss max_iter n_iter_no_change penalty power_t random_state shuffle tol "
            "validation_fraction verbose warm_start"
        ),
        "sklearn.linear_model._perceptron.Perceptron": (
            "alpha class_weight early_stopping eta0 fit_intercept l1_ratio max_iter "
            "n_iter_no_change n_jobs penalty random_state shuffle tol validation_fraction "
            "verbose warm_start"
        ),
        "sklearn.svm._classes.LinearSVC": (
            "C class_weight dual fit_intercept intercept_scaling loss max_iter multi_class "
            "penalty random_state tol verbose"
        ),
        "sklearn.svm._classes.LinearSVR": (
            "C dual epsilon fit_intercept intercept_scaling loss max_iter random_state tol verbose"
        ),
        "sklearn.linear_model._glm.glm.PoissonRegressor": (
            "alpha fit_intercept max_iter solver tol verbose warm_start"
        ),
        "sklearn.linear_model._glm.glm.GammaRegressor": (
            "alpha fit_intercept max_iter solver tol verbose warm_start"
        ),
        "sklearn.linear_model._glm.glm.TweedieRegressor": (
            "alpha fit_intercept link max_iter power solver tol verbose warm_start"
        ),
        "sklearn.linear_model._huber.HuberRegressor": (
            "alpha epsilon fit_intercept max_iter tol warm_start"
        ),
        "sklearn.tree._classes.DecisionTreeClassifier": (
            "ccp_alpha class_weight criterion max_depth max_features max_leaf_nodes "
            "min_impurity_decrease min_samples_leaf min_samples_split min_weight_fraction_leaf "
            "monotonic_cst random_state splitter"
        ),
        "sklearn.tree._classes.DecisionTreeRegressor": (
            "ccp_alpha criterion max_depth max_features max_leaf_nodes min_impurity_decrease "
            "min_samples_leaf min_samples_split min_weight_fraction_leaf monotonic_cst "
            "random_state splitter"
        ),
        "sklearn.tree._classes.ExtraTreeClassifier": (
            "ccp_alpha class_weight criterion max_depth max_features max_leaf_nodes "
            "min_impurity_decrease min_samples_leaf min_samples_split min_weight_fraction_leaf "
            "monotonic_cst random_state splitter"
        ),
        "sklearn.tree._classes.ExtraTreeRegressor": (
            "ccp_alpha criterion max_depth max_features max_leaf_nodes min_impurity_decrease "
            "min_samples_leaf min_samples_split min_weight_fraction_leaf monotonic_cst "
            "random_state splitter"
        ),
        "sklearn.ensemble._forest.RandomForestClassifier": (
            "bootstrap ccp_alpha class_weight criterion max_depth max_features max_leaf_nodes "
            "max_samples min_impurity_decrease min_samples_leaf min_samples_split "
            "min_weight_fraction_leaf monotonic_cst n_estimators n_jobs oob_score random_state "
            "verbose warm_start"
        ),
        "sklearn.ensemble._forest.RandomForestRegressor": (
            "bootstrap ccp_alpha criterion max_depth max_features max_leaf_nodes max_samples "
            "min_impurity_decrease min_samples_leaf min_samples_split min_weight_fraction_leaf "
            "monotonic_cst n_estimators n_jobs oob_score random_state verbose warm_start"
        ),
        "sklearn.ensemble._forest.ExtraTreesClassifier": (
            "bootstrap ccp_alpha class_weight criterion max_depth max_features max_leaf_nodes "
            "max_samples min_impurity_decrease min_samples_leaf min_samples_split "
            "min_weight_fraction_leaf monotonic_cst n_estimators n_jobs oob_score random_state "
            "verbose warm_start"
        ),
        "sklearn.ensemble._forest.ExtraTreesRegressor": (
            "bootstrap ccp_alpha criterion max_depth max_features max_leaf_nodes max_samples "
            "min_impurity_decrease min_samples_leaf min_samples_split min_weight_fraction_leaf "
            "monotonic_cst n_estimators n_jobs oob_score random_state verbose warm_start"
        ),
        "sklearn.ensemble._gb.GradientBoostingClassifier": (
            "ccp_alpha criterion init learning_rate loss max_depth max_features max_leaf_nodes "
            "min_impurity_decrease min_samples_leaf min_samples_split min_weight_fraction_leaf "
            "n_estimators n_iter_no_change random_state subsample tol validation_fraction "
            "verbose warm_start"
        ),
        "sklearn.ensemble._gb.GradientBoostingRegressor": (
            "alpha ccp_alpha criterion init learning_rate loss max_depth max_features "
            "max_leaf_nodes min_impurity_decrease min_samples_leaf min_samples_split "
            "min_weight_fraction_leaf n_estimators n_iter_no_change random_state subsample tol "
            "validation_fraction verbose warm_start"
        ),
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting"
        ".HistGradientBoostingClassifier": (
            "categorical_features class_weight early_stopping interaction_cst l2_regularization "
            "learning_rate loss max_bins max_depth max_features max_iter max_leaf_nodes "
            "min_samples_leaf monotonic_cst n_iter_no_change random_state scoring tol "
            "validation_fraction verbose warm_start"
        ),
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting"
        ".HistGradientBoostingRegressor": (
            "categorical_features early_stopping interaction_cst l2_regularization "
            "learning_rate loss max_bins max_depth max_features max_iter max_leaf_nodes "
            "min_samples_leaf monotonic_cst n_iter_no_change quantile random_state scoring tol "
            "validation_fraction verbose warm_start"
        ),
        "sklearn.dummy.DummyClassifier": "constant random_state strategy",
        "sklearn.dummy.DummyRegressor": "constant quantile strategy",
        "sklearn.model_selection._search.GridSearchCV": (
            "cv error_score estimator n_jobs param_grid pre_dispatch refit return_train_score "
            "scoring verbose"
        ),
        "sklearn.model_selection._search.RandomizedSearchCV": (
            "cv error_score estimator n_iter n_jobs param_distributions pre_dispatch "
            "random_state refit return_train_score scoring verbose"
        ),
        "sklearn.model_selection._search_successive_halving.HalvingGridSearchCV": (
            "aggressive_elimination cv error_score estimator factor max_resources min_resources "
            "n_jobs param_grid random_state refit resource return_train_score scoring verbose"
        ),
        "sklearn.model_selection._search_successive_halving.HalvingRandomSearchCV": (
            "aggressive_elimination cv error_score estimator factor max_resources min_resources "
            "n_candidates n_jobs param_distributions random_state refit resource "
            "return_train_score scoring verbose"
        ),
        "sklearn.frozen._frozen.FrozenEstimator": "estimator",
    }
)
"""Class path -> the names of its parameters, separated by blanks."""
