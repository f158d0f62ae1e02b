"""Which function imports which class of scikit-learn, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.sklearn import (
    compose,
    dummy,
    forest,
    gradient_boosting,
    hist_gradient_boosting,
    impute,
    linear,
    one_hot,
    ordinal,
    scale,
)

Recurse = Callable[[Any, Frame], Frame | Outputs]

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "sklearn.dummy.DummyClassifier": dummy.dummy_classifier,
        "sklearn.dummy.DummyRegressor": dummy.dummy_regressor,
        "sklearn.ensemble._forest.ExtraTreesClassifier": forest.forest_classifier,
        "sklearn.ensemble._forest.ExtraTreesRegressor": forest.forest_regressor,
        "sklearn.ensemble._forest.RandomForestClassifier": forest.forest_classifier,
        "sklearn.ensemble._forest.RandomForestRegressor": forest.forest_regressor,
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting"
        ".HistGradientBoostingClassifier": (
            hist_gradient_boosting.hist_gradient_boosting_classifier
        ),
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting"
        ".HistGradientBoostingRegressor": hist_gradient_boosting.hist_gradient_boosting_regressor,
        "sklearn.impute._base.SimpleImputer": impute.simple_imputer,
        "sklearn.linear_model._base.LinearRegression": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.ElasticNet": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.ElasticNetCV": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.Lasso": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.LassoCV": linear.linear_regressor,
        "sklearn.linear_model._glm.glm.GammaRegressor": linear.log_link_regressor,
        "sklearn.linear_model._glm.glm.PoissonRegressor": linear.log_link_regressor,
        "sklearn.linear_model._glm.glm.TweedieRegressor": linear.log_link_regressor,
        "sklearn.linear_model._huber.HuberRegressor": linear.linear_regressor,
        "sklearn.linear_model._logistic.LogisticRegression": linear.logistic_regression,
        "sklearn.linear_model._logistic.LogisticRegressionCV": linear.logistic_regression,
        "sklearn.linear_model._perceptron.Perceptron": linear.linear_classifier,
        "sklearn.linear_model._ridge.Ridge": linear.linear_regressor,
        "sklearn.linear_model._ridge.RidgeCV": linear.linear_regressor,
        "sklearn.linear_model._ridge.RidgeClassifier": linear.linear_classifier,
        "sklearn.linear_model._ridge.RidgeClassifierCV": linear.linear_classifier,
        "sklearn.linear_model._stochastic_gradient.SGDClassifier": linear.sgd_classifier,
        "sklearn.linear_model._stochastic_gradient.SGDRegressor": linear.linear_regressor,
        "sklearn.preprocessing._data.MaxAbsScaler": scale.max_abs_scaler,
        "sklearn.preprocessing._data.MinMaxScaler": scale.min_max_scaler,
        "sklearn.preprocessing._data.RobustScaler": scale.robust_scaler,
        "sklearn.preprocessing._data.StandardScaler": scale.standard_scaler,
        "sklearn.preprocessing._encoders.OneHotEncoder": one_hot.one_hot_encoder,
        "sklearn.preprocessing._encoders.OrdinalEncoder": ordinal.ordinal_encoder,
        "sklearn.preprocessing._function_transformer.FunctionTransformer": (
            compose.function_transformer
        ),
        "sklearn.svm._classes.LinearSVC": linear.linear_classifier,
        "sklearn.svm._classes.LinearSVR": linear.linear_regressor,
        "sklearn.tree._classes.DecisionTreeClassifier": forest.tree_classifier,
        "sklearn.tree._classes.DecisionTreeRegressor": forest.tree_regressor,
        "sklearn.tree._classes.ExtraTreeClassifier": forest.tree_classifier,
        "sklearn.tree._classes.ExtraTreeRegressor": forest.tree_regressor,
    }
)

COMPOSITES: Mapping[str, Callable[[Any, Frame, Recurse], Frame | Outputs]] = MappingProxyType(
    {
        "sklearn.compose._column_transformer.ColumnTransformer": compose.column_transformer,
        "sklearn.ensemble._gb.GradientBoostingClassifier": (
            gradient_boosting.gradient_boosting_classifier
        ),
        "sklearn.ensemble._gb.GradientBoostingRegressor": (
            gradient_boosting.gradient_boosting_regressor
        ),
        "sklearn.frozen._frozen.FrozenEstimator": compose.frozen_estimator,
        "sklearn.model_selection._search.GridSearchCV": compose.best_estimator,
        "sklearn.model_selection._search.RandomizedSearchCV": compose.best_estimator,
        "sklearn.model_selection._search_successive_halving.HalvingGridSearchCV": (
            compose.best_estimator
        ),
        "sklearn.model_selection._search_successive_halving.HalvingRandomSearchCV": (
            compose.best_estimator
        ),
        "sklearn.pipeline.FeatureUnion": compose.feature_union,
        "sklearn.pipeline.Pipeline": compose.pipeline,
    }
)

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {
        path: compose.composite_schema
        for path, importer in COMPOSITES.items()
        if importer in (compose.pipeline, compose.feature_union, compose.best_estimator)
    }
)
"""Composites that ask their parts for the columns."""
