"""Which function imports which class of scikit-learn, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Recurse, Schema
from sqlml.importers.sklearn import (
    covariance,
    discriminant_analysis,
    dummy,
    feature_selection,
    isotonic,
    label_propagation,
    mixture,
    naive_bayes,
    neural_network,
    svm,
)
from sqlml.importers.sklearn.cluster import feature_agglomeration, nearest_cluster
from sqlml.importers.sklearn.decomposition import projections
from sqlml.importers.sklearn.ensemble import (
    adaboost,
    bagging,
    forest,
    gradient_boosting,
    hist_gradient_boosting,
    isolation_forest,
    random_trees_embedding,
    stacking,
    voting,
)
from sqlml.importers.sklearn.feature_extraction import dict_vectorizer, items, text
from sqlml.importers.sklearn.gaussian_process import models
from sqlml.importers.sklearn.impute import indicator, iterative, knn, simple
from sqlml.importers.sklearn.kernels import approximation, kernel_estimators
from sqlml.importers.sklearn.linear_model import linear
from sqlml.importers.sklearn.meta import (
    calibration,
    compose,
    encoded_target,
    multiclass,
    multioutput,
    target_transform,
    thresholds,
)
from sqlml.importers.sklearn.neighbors import kernel_density, nearest_centroid, neighbors
from sqlml.importers.sklearn.preprocessing import (
    discretize,
    encoders,
    function_transformer,
    labels,
    polynomial,
    power,
    quantile,
    scale,
    spline,
)

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "sklearn.cluster._affinity_propagation.AffinityPropagation": nearest_cluster.nearest_centre,
        "sklearn.cluster._agglomerative.FeatureAgglomeration": (
            feature_agglomeration.feature_agglomeration
        ),
        "sklearn.cluster._birch.Birch": nearest_cluster.birch,
        "sklearn.cluster._bisect_k_means.BisectingKMeans": nearest_cluster.bisecting_k_means,
        "sklearn.cluster._kmeans.KMeans": nearest_cluster.k_means,
        "sklearn.cluster._kmeans.MiniBatchKMeans": nearest_cluster.k_means,
        "sklearn.cluster._mean_shift.MeanShift": nearest_cluster.nearest_centre,
        "sklearn.covariance._elliptic_envelope.EllipticEnvelope": covariance.elliptic_envelope,
        "sklearn.cross_decomposition._pls.CCA": projections.pls,
        "sklearn.cross_decomposition._pls.PLSCanonical": projections.pls,
        "sklearn.cross_decomposition._pls.PLSRegression": projections.pls,
        "sklearn.cross_decomposition._pls.PLSSVD": projections.pls_svd,
        "sklearn.decomposition._dict_learning.DictionaryLearning": projections.sparse_coding,
        "sklearn.decomposition._dict_learning.MiniBatchDictionaryLearning": (
            projections.sparse_coding
        ),
        "sklearn.decomposition._dict_learning.SparseCoder": projections.sparse_coding,
        "sklearn.decomposition._factor_analysis.FactorAnalysis": projections.factor_analysis,
        "sklearn.decomposition._fastica.FastICA": projections.fast_ica,
        "sklearn.decomposition._incremental_pca.IncrementalPCA": projections.pca,
        "sklearn.decomposition._kernel_pca.KernelPCA": kernel_estimators.kernel_pca,
        "sklearn.decomposition._pca.PCA": projections.pca,
        "sklearn.decomposition._sparse_pca.MiniBatchSparsePCA": projections.sparse_pca,
        "sklearn.decomposition._sparse_pca.SparsePCA": projections.sparse_pca,
        "sklearn.decomposition._truncated_svd.TruncatedSVD": projections.projection,
        "sklearn.discriminant_analysis.LinearDiscriminantAnalysis": (
            discriminant_analysis.linear_discriminant
        ),
        "sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis": (
            discriminant_analysis.quadratic_discriminant
        ),
        "sklearn.dummy.DummyClassifier": dummy.dummy_classifier,
        "sklearn.dummy.DummyRegressor": dummy.dummy_regressor,
        "sklearn.ensemble._forest.ExtraTreesClassifier": forest.forest_classifier,
        "sklearn.ensemble._forest.ExtraTreesRegressor": forest.forest_regressor,
        "sklearn.ensemble._forest.RandomForestClassifier": forest.forest_classifier,
        "sklearn.ensemble._forest.RandomForestRegressor": forest.forest_regressor,
        "sklearn.ensemble._forest.RandomTreesEmbedding": (
            random_trees_embedding.random_trees_embedding
        ),
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting"
        ".HistGradientBoostingClassifier": (
            hist_gradient_boosting.hist_gradient_boosting_classifier
        ),
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting"
        ".HistGradientBoostingRegressor": hist_gradient_boosting.hist_gradient_boosting_regressor,
        "sklearn.ensemble._iforest.IsolationForest": isolation_forest.isolation_forest,
        "sklearn.feature_extraction._dict_vectorizer.DictVectorizer": (
            dict_vectorizer.dict_vectorizer
        ),
        "sklearn.feature_extraction._hash.FeatureHasher": items.feature_hasher,
        "sklearn.feature_extraction.text.CountVectorizer": text.count_vectorizer,
        "sklearn.feature_extraction.text.HashingVectorizer": text.hashing_vectorizer,
        "sklearn.feature_extraction.text.TfidfTransformer": text.tfidf_transformer,
        "sklearn.feature_extraction.text.TfidfVectorizer": text.tfidf_vectorizer,
        "sklearn.feature_selection._from_model.SelectFromModel": feature_selection.from_model,
        "sklearn.feature_selection._sequential.SequentialFeatureSelector": (
            feature_selection.selector
        ),
        "sklearn.feature_selection._univariate_selection.GenericUnivariateSelect": (
            feature_selection.selector
        ),
        "sklearn.feature_selection._univariate_selection.SelectFdr": feature_selection.selector,
        "sklearn.feature_selection._univariate_selection.SelectFpr": feature_selection.selector,
        "sklearn.feature_selection._univariate_selection.SelectFwe": feature_selection.selector,
        "sklearn.feature_selection._univariate_selection.SelectKBest": feature_selection.selector,
        "sklearn.feature_selection._univariate_selection.SelectPercentile": (
            feature_selection.selector
        ),
        "sklearn.feature_selection._variance_threshold.VarianceThreshold": (
            feature_selection.selector
        ),
        "sklearn.gaussian_process._gpc.GaussianProcessClassifier": (
            models.gaussian_process_classifier
        ),
        "sklearn.gaussian_process._gpr.GaussianProcessRegressor": (
            models.gaussian_process_regressor
        ),
        "sklearn.impute._base.MissingIndicator": indicator.missing_indicator,
        "sklearn.impute._base.SimpleImputer": simple.simple_imputer,
        "sklearn.impute._knn.KNNImputer": knn.knn_imputer,
        "sklearn.isotonic.IsotonicRegression": isotonic.isotonic_regression,
        "sklearn.kernel_approximation.AdditiveChi2Sampler": approximation.additive_chi2_sampler,
        "sklearn.kernel_approximation.Nystroem": kernel_estimators.nystroem,
        "sklearn.kernel_approximation.PolynomialCountSketch": (
            approximation.polynomial_count_sketch
        ),
        "sklearn.kernel_approximation.RBFSampler": approximation.rbf_sampler,
        "sklearn.kernel_approximation.SkewedChi2Sampler": approximation.skewed_chi2_sampler,
        "sklearn.kernel_ridge.KernelRidge": kernel_estimators.kernel_ridge,
        "sklearn.linear_model._base.LinearRegression": linear.linear_regressor,
        "sklearn.linear_model._bayes.ARDRegression": linear.linear_regressor,
        "sklearn.linear_model._bayes.BayesianRidge": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.ElasticNet": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.ElasticNetCV": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.Lasso": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.LassoCV": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.MultiTaskElasticNet": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.MultiTaskElasticNetCV": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.MultiTaskLasso": linear.linear_regressor,
        "sklearn.linear_model._coordinate_descent.MultiTaskLassoCV": linear.linear_regressor,
        "sklearn.linear_model._glm.glm.GammaRegressor": linear.log_link_regressor,
        "sklearn.linear_model._glm.glm.PoissonRegressor": linear.log_link_regressor,
        "sklearn.linear_model._glm.glm.TweedieRegressor": linear.log_link_regressor,
        "sklearn.linear_model._huber.HuberRegressor": linear.linear_regressor,
        "sklearn.linear_model._least_angle.Lars": linear.linear_regressor,
        "sklearn.linear_model._least_angle.LarsCV": linear.linear_regressor,
        "sklearn.linear_model._least_angle.LassoLars": linear.linear_regressor,
        "sklearn.linear_model._least_angle.LassoLarsCV": linear.linear_regressor,
        "sklearn.linear_model._least_angle.LassoLarsIC": linear.linear_regressor,
        "sklearn.linear_model._logistic.LogisticRegression": linear.logistic_regression,
        "sklearn.linear_model._logistic.LogisticRegressionCV": linear.logistic_regression,
        "sklearn.linear_model._omp.OrthogonalMatchingPursuit": linear.linear_regressor,
        "sklearn.linear_model._omp.OrthogonalMatchingPursuitCV": linear.linear_regressor,
        "sklearn.linear_model._passive_aggressive.PassiveAggressiveClassifier": (
            linear.linear_classifier
        ),
        "sklearn.linear_model._passive_aggressive.PassiveAggressiveRegressor": (
            linear.linear_regressor
        ),
        "sklearn.linear_model._perceptron.Perceptron": linear.linear_classifier,
        "sklearn.linear_model._quantile.QuantileRegressor": linear.linear_regressor,
        "sklearn.linear_model._ridge.Ridge": linear.linear_regressor,
        "sklearn.linear_model._ridge.RidgeCV": linear.linear_regressor,
        "sklearn.linear_model._ridge.RidgeClassifier": linear.linear_classifier,
        "sklearn.linear_model._ridge.RidgeClassifierCV": linear.linear_classifier,
        "sklearn.linear_model._stochastic_gradient.SGDClassifier": linear.sgd_classifier,
        "sklearn.linear_model._stochastic_gradient.SGDOneClassSVM": linear.sgd_one_class_svm,
        "sklearn.linear_model._stochastic_gradient.SGDRegressor": linear.linear_regressor,
        "sklearn.linear_model._theil_sen.TheilSenRegressor": linear.linear_regressor,
        "sklearn.mixture._bayesian_mixture.BayesianGaussianMixture": (
            mixture.bayesian_gaussian_mixture
        ),
        "sklearn.mixture._gaussian_mixture.GaussianMixture": mixture.gaussian_mixture,
        "sklearn.naive_bayes.BernoulliNB": naive_bayes.bernoulli_nb,
        "sklearn.naive_bayes.CategoricalNB": naive_bayes.categorical_nb,
        "sklearn.naive_bayes.ComplementNB": naive_bayes.complement_nb,
        "sklearn.naive_bayes.GaussianNB": naive_bayes.gaussian_nb,
        "sklearn.naive_bayes.MultinomialNB": naive_bayes.multinomial_nb,
        "sklearn.neighbors._classification.KNeighborsClassifier": neighbors.k_neighbors_classifier,
        "sklearn.neighbors._classification.RadiusNeighborsClassifier": (
            neighbors.radius_neighbors_classifier
        ),
        "sklearn.neighbors._kde.KernelDensity": kernel_density.kernel_density,
        "sklearn.neighbors._lof.LocalOutlierFactor": neighbors.local_outlier_factor,
        "sklearn.neighbors._nca.NeighborhoodComponentsAnalysis": (
            approximation.neighborhood_components
        ),
        "sklearn.neighbors._nearest_centroid.NearestCentroid": nearest_centroid.nearest_centroid,
        "sklearn.neighbors._regression.KNeighborsRegressor": neighbors.k_neighbors_regressor,
        "sklearn.neighbors._regression.RadiusNeighborsRegressor": (
            neighbors.radius_neighbors_regressor
        ),
        "sklearn.neural_network._multilayer_perceptron.MLPClassifier": (
            neural_network.mlp_classifier
        ),
        "sklearn.neural_network._multilayer_perceptron.MLPRegressor": neural_network.mlp_regressor,
        "sklearn.neural_network._rbm.BernoulliRBM": neural_network.bernoulli_rbm,
        "sklearn.preprocessing._data.Binarizer": scale.binarizer,
        "sklearn.preprocessing._data.KernelCenterer": kernel_estimators.kernel_centerer,
        "sklearn.preprocessing._data.MaxAbsScaler": scale.scaler,
        "sklearn.preprocessing._data.MinMaxScaler": scale.scaler,
        "sklearn.preprocessing._data.Normalizer": scale.normalizer,
        "sklearn.preprocessing._data.PowerTransformer": power.power_transformer,
        "sklearn.preprocessing._data.QuantileTransformer": quantile.quantile_transformer,
        "sklearn.preprocessing._data.RobustScaler": scale.scaler,
        "sklearn.preprocessing._data.StandardScaler": scale.scaler,
        "sklearn.preprocessing._discretization.KBinsDiscretizer": discretize.k_bins_discretizer,
        "sklearn.preprocessing._encoders.OneHotEncoder": encoders.one_hot_encoder,
        "sklearn.preprocessing._encoders.OrdinalEncoder": encoders.ordinal_encoder,
        "sklearn.preprocessing._function_transformer.FunctionTransformer": (
            function_transformer.function_transformer
        ),
        "sklearn.preprocessing._label.LabelBinarizer": labels.label_binarizer,
        "sklearn.preprocessing._label.LabelEncoder": labels.label_encoder,
        "sklearn.preprocessing._label.MultiLabelBinarizer": items.multi_label_binarizer,
        "sklearn.preprocessing._polynomial.PolynomialFeatures": polynomial.polynomial_features,
        "sklearn.preprocessing._polynomial.SplineTransformer": spline.spline_transformer,
        "sklearn.preprocessing._target_encoder.TargetEncoder": encoders.target_encoder,
        "sklearn.random_projection.GaussianRandomProjection": projections.projection,
        "sklearn.random_projection.SparseRandomProjection": projections.projection,
        "sklearn.semi_supervised._label_propagation.LabelPropagation": (
            label_propagation.label_propagation
        ),
        "sklearn.semi_supervised._label_propagation.LabelSpreading": (
            label_propagation.label_propagation
        ),
        "sklearn.svm._classes.LinearSVC": linear.linear_classifier,
        "sklearn.svm._classes.LinearSVR": linear.linear_regressor,
        "sklearn.svm._classes.NuSVC": svm.support_vector_classifier,
        "sklearn.svm._classes.NuSVR": svm.support_vector_regressor,
        "sklearn.svm._classes.OneClassSVM": svm.one_class_svm,
        "sklearn.svm._classes.SVC": svm.support_vector_classifier,
        "sklearn.svm._classes.SVR": svm.support_vector_regressor,
        "sklearn.tree._classes.DecisionTreeClassifier": forest.tree_classifier,
        "sklearn.tree._classes.DecisionTreeRegressor": forest.tree_regressor,
        "sklearn.tree._classes.ExtraTreeClassifier": forest.tree_classifier,
        "sklearn.tree._classes.ExtraTreeRegressor": forest.tree_regressor,
    }
)

COMPOSITES: Mapping[str, Callable[[Any, Frame, Recurse], Frame | Outputs]] = MappingProxyType(
    {
        "sklearn.calibration.CalibratedClassifierCV": calibration.calibrated_classifier,
        "sklearn.compose._column_transformer.ColumnTransformer": compose.column_transformer,
        "sklearn.compose._target.TransformedTargetRegressor": (
            target_transform.transformed_target_regressor
        ),
        "sklearn.ensemble._bagging.BaggingClassifier": bagging.bagging_classifier,
        "sklearn.ensemble._bagging.BaggingRegressor": bagging.bagging_regressor,
        "sklearn.ensemble._gb.GradientBoostingClassifier": (
            gradient_boosting.gradient_boosting_classifier
        ),
        "sklearn.ensemble._gb.GradientBoostingRegressor": (
            gradient_boosting.gradient_boosting_regressor
        ),
        "sklearn.ensemble._stacking.StackingClassifier": stacking.stacking_classifier,
        "sklearn.ensemble._stacking.StackingRegressor": stacking.stacking_regressor,
        "sklearn.ensemble._voting.VotingClassifier": voting.voting_classifier,
        "sklearn.ensemble._voting.VotingRegressor": voting.voting_regressor,
        "sklearn.ensemble._weight_boosting.AdaBoostClassifier": adaboost.adaboost_classifier,
        "sklearn.ensemble._weight_boosting.AdaBoostRegressor": adaboost.adaboost_regressor,
        "sklearn.feature_selection._rfe.RFE": feature_selection.recursive,
        "sklearn.feature_selection._rfe.RFECV": feature_selection.recursive,
        "sklearn.frozen._frozen.FrozenEstimator": compose.frozen_estimator,
        "sklearn.linear_model._ransac.RANSACRegressor": compose.ransac_regressor,
        "sklearn.model_selection._classification_threshold.FixedThresholdClassifier": (
            thresholds.fixed_threshold_classifier
        ),
        "sklearn.model_selection._classification_threshold.TunedThresholdClassifierCV": (
            thresholds.tuned_threshold_classifier
        ),
        "sklearn.impute._iterative.IterativeImputer": iterative.iterative_imputer,
        "sklearn.model_selection._search.GridSearchCV": compose.best_estimator,
        "sklearn.model_selection._search.RandomizedSearchCV": compose.best_estimator,
        "sklearn.model_selection._search_successive_halving.HalvingGridSearchCV": (
            compose.best_estimator
        ),
        "sklearn.model_selection._search_successive_halving.HalvingRandomSearchCV": (
            compose.best_estimator
        ),
        "sklearn.multiclass.OneVsOneClassifier": multiclass.one_vs_one_classifier,
        "sklearn.multiclass.OneVsRestClassifier": multiclass.one_vs_rest_classifier,
        "sklearn.multiclass.OutputCodeClassifier": multiclass.output_code_classifier,
        "sklearn.multioutput.ClassifierChain": multioutput.classifier_chain,
        "sklearn.multioutput.MultiOutputClassifier": multioutput.multi_output_classifier,
        "sklearn.multioutput.MultiOutputRegressor": multioutput.multi_output_regressor,
        "sklearn.multioutput.RegressorChain": multioutput.regressor_chain,
        "sklearn.pipeline.FeatureUnion": compose.feature_union,
        "sklearn.pipeline.Pipeline": compose.pipeline,
        "sklearn.semi_supervised._self_training.SelfTrainingClassifier": (
            compose.self_training_classifier
        ),
        "sqlml.training.estimators.encoded_target.EncodedTargetClassifier": (
            encoded_target.encoded_target_classifier
        ),
    }
)

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {
        **{
            path: compose.composite_schema
            for path, importer in COMPOSITES.items()
            if importer
            in (
                calibration.calibrated_classifier,
                compose.best_estimator,
                compose.feature_union,
                compose.pipeline,
                multiclass.one_vs_rest_classifier,
                stacking.stacking_classifier,
                stacking.stacking_regressor,
                voting.voting_classifier,
                voting.voting_regressor,
            )
        },
        **compose.OWN_COLUMNS,
        "sklearn.isotonic.IsotonicRegression": isotonic.isotonic_schema,
        "sklearn.preprocessing._label.LabelBinarizer": labels.label_schema,
        "sklearn.preprocessing._label.LabelEncoder": labels.label_schema,
        "sklearn.model_selection._classification_threshold.FixedThresholdClassifier": (
            thresholds.threshold_schema
        ),
        **{
            f"sklearn.svm._classes.{name}": svm.schema
            for name in ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM")
        },
    }
)
"""Composites that ask their parts for the columns, and others that keep no column count."""
