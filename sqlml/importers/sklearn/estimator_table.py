"""The table of scikit-learn's estimators: the importer of each class, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Recurse, Schema
from sqlml.importers.sklearn import (
    cluster,
    decomposition,
    dummy,
    feature_extraction,
    feature_selection,
    gaussian_process,
    generative_models,
    impute,
    isotonic,
    kernel_density,
    kernel_models,
    label_propagation,
    linear_model,
    neighbors,
    neural_network,
    svm,
)
from sqlml.importers.sklearn.ensemble import combined_estimators, forests, gradient_boosting
from sqlml.importers.sklearn.meta import calibration, compose, multiclass, target_transform
from sqlml.importers.sklearn.preprocessing import encoders, function_transformer, numeric_transforms

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "sklearn.cluster._affinity_propagation.AffinityPropagation": cluster.nearest_centre,
        "sklearn.cluster._agglomerative.FeatureAgglomeration": (cluster.feature_agglomeration),
        "sklearn.cluster._birch.Birch": cluster.birch,
        "sklearn.cluster._bisect_k_means.BisectingKMeans": cluster.bisecting_k_means,
        "sklearn.cluster._kmeans.KMeans": cluster.k_means,
        "sklearn.cluster._kmeans.MiniBatchKMeans": cluster.k_means,
        "sklearn.cluster._mean_shift.MeanShift": cluster.nearest_centre,
        "sklearn.covariance._elliptic_envelope.EllipticEnvelope": (
            generative_models.elliptic_envelope
        ),
        "sklearn.cross_decomposition._pls.CCA": decomposition.pls,
        "sklearn.cross_decomposition._pls.PLSCanonical": decomposition.pls,
        "sklearn.cross_decomposition._pls.PLSRegression": decomposition.pls,
        "sklearn.cross_decomposition._pls.PLSSVD": decomposition.pls_svd,
        "sklearn.decomposition._dict_learning.DictionaryLearning": decomposition.sparse_coding,
        "sklearn.decomposition._dict_learning.MiniBatchDictionaryLearning": (
            decomposition.sparse_coding
        ),
        "sklearn.decomposition._dict_learning.SparseCoder": decomposition.sparse_coding,
        "sklearn.decomposition._factor_analysis.FactorAnalysis": decomposition.factor_analysis,
        "sklearn.decomposition._fastica.FastICA": decomposition.fast_ica,
        "sklearn.decomposition._incremental_pca.IncrementalPCA": decomposition.pca,
        "sklearn.decomposition._kernel_pca.KernelPCA": kernel_models.kernel_pca,
        "sklearn.decomposition._pca.PCA": decomposition.pca,
        "sklearn.decomposition._sparse_pca.MiniBatchSparsePCA": decomposition.sparse_pca,
        "sklearn.decomposition._sparse_pca.SparsePCA": decomposition.sparse_pca,
        "sklearn.decomposition._truncated_svd.TruncatedSVD": decomposition.projection,
        "sklearn.discriminant_analysis.LinearDiscriminantAnalysis": (
            generative_models.linear_discriminant
        ),
        "sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis": (
            generative_models.quadratic_discriminant
        ),
        "sklearn.dummy.DummyClassifier": dummy.dummy_classifier,
        "sklearn.dummy.DummyRegressor": dummy.dummy_regressor,
        "sklearn.ensemble._forest.ExtraTreesClassifier": forests.forest_classifier,
        "sklearn.ensemble._forest.ExtraTreesRegressor": forests.forest_regressor,
        "sklearn.ensemble._forest.RandomForestClassifier": forests.forest_classifier,
        "sklearn.ensemble._forest.RandomForestRegressor": forests.forest_regressor,
        "sklearn.ensemble._forest.RandomTreesEmbedding": (forests.random_trees_embedding),
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting"
        ".HistGradientBoostingClassifier": (gradient_boosting.hist_gradient_boosting_classifier),
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting"
        ".HistGradientBoostingRegressor": gradient_boosting.hist_gradient_boosting_regressor,
        "sklearn.ensemble._iforest.IsolationForest": forests.isolation_forest,
        "sklearn.feature_extraction._dict_vectorizer.DictVectorizer": (
            feature_extraction.dict_vectorizer
        ),
        "sklearn.feature_extraction._hash.FeatureHasher": feature_extraction.feature_hasher,
        "sklearn.feature_extraction.text.CountVectorizer": feature_extraction.count_vectorizer,
        "sklearn.feature_extraction.text.HashingVectorizer": feature_extraction.hashing_vectorizer,
        "sklearn.feature_extraction.text.TfidfTransformer": feature_extraction.tfidf_transformer,
        "sklearn.feature_extraction.text.TfidfVectorizer": feature_extraction.tfidf_vectorizer,
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
            gaussian_process.gaussian_process_classifier
        ),
        "sklearn.gaussian_process._gpr.GaussianProcessRegressor": (
            gaussian_process.gaussian_process_regressor
        ),
        "sklearn.impute._base.MissingIndicator": impute.missing_indicator,
        "sklearn.impute._base.SimpleImputer": impute.simple_imputer,
        "sklearn.impute._knn.KNNImputer": impute.knn_imputer,
        "sklearn.isotonic.IsotonicRegression": isotonic.isotonic_regression,
        "sklearn.kernel_approximation.AdditiveChi2Sampler": kernel_models.additive_chi2_sampler,
        "sklearn.kernel_approximation.Nystroem": kernel_models.nystroem,
        "sklearn.kernel_approximation.PolynomialCountSketch": (
            kernel_models.polynomial_count_sketch
        ),
        "sklearn.kernel_approximation.RBFSampler": kernel_models.rbf_sampler,
        "sklearn.kernel_approximation.SkewedChi2Sampler": kernel_models.skewed_chi2_sampler,
        "sklearn.kernel_ridge.KernelRidge": kernel_models.kernel_ridge,
        "sklearn.linear_model._base.LinearRegression": linear_model.linear_regressor,
        "sklearn.linear_model._bayes.ARDRegression": linear_model.linear_regressor,
        "sklearn.linear_model._bayes.BayesianRidge": linear_model.linear_regressor,
        "sklearn.linear_model._coordinate_descent.ElasticNet": linear_model.linear_regressor,
        "sklearn.linear_model._coordinate_descent.ElasticNetCV": linear_model.linear_regressor,
        "sklearn.linear_model._coordinate_descent.Lasso": linear_model.linear_regressor,
        "sklearn.linear_model._coordinate_descent.LassoCV": linear_model.linear_regressor,
        "sklearn.linear_model._coordinate_descent.MultiTaskElasticNet": (
            linear_model.linear_regressor
        ),
        "sklearn.linear_model._coordinate_descent.MultiTaskElasticNetCV": (
            linear_model.linear_regressor
        ),
        "sklearn.linear_model._coordinate_descent.MultiTaskLasso": linear_model.linear_regressor,
        "sklearn.linear_model._coordinate_descent.MultiTaskLassoCV": linear_model.linear_regressor,
        "sklearn.linear_model._glm.glm.GammaRegressor": linear_model.log_link_regressor,
        "sklearn.linear_model._glm.glm.PoissonRegressor": linear_model.log_link_regressor,
        "sklearn.linear_model._glm.glm.TweedieRegressor": linear_model.log_link_regressor,
        "sklearn.linear_model._huber.HuberRegressor": linear_model.linear_regressor,
        "sklearn.linear_model._least_angle.Lars": linear_model.linear_regressor,
        "sklearn.linear_model._least_angle.LarsCV": linear_model.linear_regressor,
        "sklearn.linear_model._least_angle.LassoLars": linear_model.linear_regressor,
        "sklearn.linear_model._least_angle.LassoLarsCV": linear_model.linear_regressor,
        "sklearn.linear_model._least_angle.LassoLarsIC": linear_model.linear_regressor,
        "sklearn.linear_model._logistic.LogisticRegression": linear_model.logistic_regression,
        "sklearn.linear_model._logistic.LogisticRegressionCV": linear_model.logistic_regression,
        "sklearn.linear_model._omp.OrthogonalMatchingPursuit": linear_model.linear_regressor,
        "sklearn.linear_model._omp.OrthogonalMatchingPursuitCV": linear_model.linear_regressor,
        "sklearn.linear_model._passive_aggressive.PassiveAggressiveClassifier": (
            linear_model.linear_classifier
        ),
        "sklearn.linear_model._passive_aggressive.PassiveAggressiveRegressor": (
            linear_model.linear_regressor
        ),
        "sklearn.linear_model._perceptron.Perceptron": linear_model.linear_classifier,
        "sklearn.linear_model._quantile.QuantileRegressor": linear_model.linear_regressor,
        "sklearn.linear_model._ridge.Ridge": linear_model.linear_regressor,
        "sklearn.linear_model._ridge.RidgeCV": linear_model.linear_regressor,
        "sklearn.linear_model._ridge.RidgeClassifier": linear_model.linear_classifier,
        "sklearn.linear_model._ridge.RidgeClassifierCV": linear_model.linear_classifier,
        "sklearn.linear_model._stochastic_gradient.SGDClassifier": linear_model.sgd_classifier,
        "sklearn.linear_model._stochastic_gradient.SGDOneClassSVM": linear_model.sgd_one_class_svm,
        "sklearn.linear_model._stochastic_gradient.SGDRegressor": linear_model.linear_regressor,
        "sklearn.linear_model._theil_sen.TheilSenRegressor": linear_model.linear_regressor,
        "sklearn.mixture._bayesian_mixture.BayesianGaussianMixture": (
            generative_models.bayesian_gaussian_mixture
        ),
        "sklearn.mixture._gaussian_mixture.GaussianMixture": generative_models.gaussian_mixture,
        "sklearn.naive_bayes.BernoulliNB": generative_models.bernoulli_nb,
        "sklearn.naive_bayes.CategoricalNB": generative_models.categorical_nb,
        "sklearn.naive_bayes.ComplementNB": generative_models.complement_nb,
        "sklearn.naive_bayes.GaussianNB": generative_models.gaussian_nb,
        "sklearn.naive_bayes.MultinomialNB": generative_models.multinomial_nb,
        "sklearn.neighbors._classification.KNeighborsClassifier": neighbors.k_neighbors_classifier,
        "sklearn.neighbors._classification.RadiusNeighborsClassifier": (
            neighbors.radius_neighbors_classifier
        ),
        "sklearn.neighbors._kde.KernelDensity": kernel_density.kernel_density,
        "sklearn.neighbors._lof.LocalOutlierFactor": neighbors.local_outlier_factor,
        "sklearn.neighbors._nca.NeighborhoodComponentsAnalysis": (
            kernel_models.neighborhood_components
        ),
        "sklearn.neighbors._nearest_centroid.NearestCentroid": neighbors.nearest_centroid,
        "sklearn.neighbors._regression.KNeighborsRegressor": neighbors.k_neighbors_regressor,
        "sklearn.neighbors._regression.RadiusNeighborsRegressor": (
            neighbors.radius_neighbors_regressor
        ),
        "sklearn.neural_network._multilayer_perceptron.MLPClassifier": (
            neural_network.mlp_classifier
        ),
        "sklearn.neural_network._multilayer_perceptron.MLPRegressor": neural_network.mlp_regressor,
        "sklearn.neural_network._rbm.BernoulliRBM": neural_network.bernoulli_rbm,
        "sklearn.preprocessing._data.Binarizer": numeric_transforms.binarizer,
        "sklearn.preprocessing._data.KernelCenterer": kernel_models.kernel_centerer,
        "sklearn.preprocessing._data.MaxAbsScaler": numeric_transforms.scaler,
        "sklearn.preprocessing._data.MinMaxScaler": numeric_transforms.scaler,
        "sklearn.preprocessing._data.Normalizer": numeric_transforms.normalizer,
        "sklearn.preprocessing._data.PowerTransformer": numeric_transforms.power_transformer,
        "sklearn.preprocessing._data.QuantileTransformer": numeric_transforms.quantile_transformer,
        "sklearn.preprocessing._data.RobustScaler": numeric_transforms.scaler,
        "sklearn.preprocessing._data.StandardScaler": numeric_transforms.scaler,
        "sklearn.preprocessing._discretization.KBinsDiscretizer": (
            numeric_transforms.k_bins_discretizer
        ),
        "sklearn.preprocessing._encoders.OneHotEncoder": encoders.one_hot_encoder,
        "sklearn.preprocessing._encoders.OrdinalEncoder": encoders.ordinal_encoder,
        "sklearn.preprocessing._function_transformer.FunctionTransformer": (
            function_transformer.function_transformer
        ),
        "sklearn.preprocessing._label.LabelBinarizer": encoders.label_binarizer,
        "sklearn.preprocessing._label.LabelEncoder": encoders.label_encoder,
        "sklearn.preprocessing._label.MultiLabelBinarizer": (
            feature_extraction.multi_label_binarizer
        ),
        "sklearn.preprocessing._polynomial.PolynomialFeatures": (
            numeric_transforms.polynomial_features
        ),
        "sklearn.preprocessing._polynomial.SplineTransformer": (
            numeric_transforms.spline_transformer
        ),
        "sklearn.preprocessing._target_encoder.TargetEncoder": encoders.target_encoder,
        "sklearn.random_projection.GaussianRandomProjection": decomposition.projection,
        "sklearn.random_projection.SparseRandomProjection": decomposition.projection,
        "sklearn.semi_supervised._label_propagation.LabelPropagation": (
            label_propagation.label_propagation
        ),
        "sklearn.semi_supervised._label_propagation.LabelSpreading": (
            label_propagation.label_propagation
        ),
        "sklearn.svm._classes.LinearSVC": linear_model.linear_classifier,
        "sklearn.svm._classes.LinearSVR": linear_model.linear_regressor,
        "sklearn.svm._classes.NuSVC": svm.support_vector_classifier,
        "sklearn.svm._classes.NuSVR": svm.support_vector_regressor,
        "sklearn.svm._classes.OneClassSVM": svm.one_class_svm,
        "sklearn.svm._classes.SVC": svm.support_vector_classifier,
        "sklearn.svm._classes.SVR": svm.support_vector_regressor,
        "sklearn.tree._classes.DecisionTreeClassifier": forests.tree_classifier,
        "sklearn.tree._classes.DecisionTreeRegressor": forests.tree_regressor,
        "sklearn.tree._classes.ExtraTreeClassifier": forests.tree_classifier,
        "sklearn.tree._classes.ExtraTreeRegressor": forests.tree_regressor,
    }
)

COMPOSITES: Mapping[str, Callable[[Any, Frame, Recurse], Frame | Outputs]] = MappingProxyType(
    {
        "sklearn.calibration.CalibratedClassifierCV": calibration.calibrated_classifier,
        "sklearn.compose._column_transformer.ColumnTransformer": compose.column_transformer,
        "sklearn.compose._target.TransformedTargetRegressor": (
            target_transform.transformed_target_regressor
        ),
        "sklearn.ensemble._bagging.BaggingClassifier": combined_estimators.bagging_classifier,
        "sklearn.ensemble._bagging.BaggingRegressor": combined_estimators.bagging_regressor,
        "sklearn.ensemble._gb.GradientBoostingClassifier": (
            gradient_boosting.gradient_boosting_classifier
        ),
        "sklearn.ensemble._gb.GradientBoostingRegressor": (
            gradient_boosting.gradient_boosting_regressor
        ),
        "sklearn.ensemble._stacking.StackingClassifier": combined_estimators.stacking_classifier,
        "sklearn.ensemble._stacking.StackingRegressor": combined_estimators.stacking_regressor,
        "sklearn.ensemble._voting.VotingClassifier": combined_estimators.voting_classifier,
        "sklearn.ensemble._voting.VotingRegressor": combined_estimators.voting_regressor,
        "sklearn.ensemble._weight_boosting.AdaBoostClassifier": (
            combined_estimators.adaboost_classifier
        ),
        "sklearn.ensemble._weight_boosting.AdaBoostRegressor": (
            combined_estimators.adaboost_regressor
        ),
        "sklearn.feature_selection._rfe.RFE": feature_selection.recursive,
        "sklearn.feature_selection._rfe.RFECV": feature_selection.recursive,
        "sklearn.frozen._frozen.FrozenEstimator": compose.frozen_estimator,
        "sklearn.linear_model._ransac.RANSACRegressor": compose.ransac_regressor,
        "sklearn.model_selection._classification_threshold.FixedThresholdClassifier": (
            calibration.fixed_threshold_classifier
        ),
        "sklearn.model_selection._classification_threshold.TunedThresholdClassifierCV": (
            calibration.tuned_threshold_classifier
        ),
        "sklearn.impute._iterative.IterativeImputer": impute.iterative_imputer,
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
        "sklearn.multioutput.ClassifierChain": multiclass.classifier_chain,
        "sklearn.multioutput.MultiOutputClassifier": multiclass.multi_output_classifier,
        "sklearn.multioutput.MultiOutputRegressor": multiclass.multi_output_regressor,
        "sklearn.multioutput.RegressorChain": multiclass.regressor_chain,
        "sklearn.pipeline.FeatureUnion": compose.feature_union,
        "sklearn.pipeline.Pipeline": compose.pipeline,
        "sklearn.semi_supervised._self_training.SelfTrainingClassifier": (
            compose.self_training_classifier
        ),
        "sqlml.training.estimators.encoded_target.EncodedTargetClassifier": (
            calibration.encoded_target_classifier
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
                combined_estimators.stacking_classifier,
                combined_estimators.stacking_regressor,
                combined_estimators.voting_classifier,
                combined_estimators.voting_regressor,
            )
        },
        **compose.OWN_COLUMNS,
        "sklearn.isotonic.IsotonicRegression": isotonic.isotonic_schema,
        "sklearn.preprocessing._label.LabelBinarizer": encoders.label_schema,
        "sklearn.preprocessing._label.LabelEncoder": encoders.label_schema,
        "sklearn.model_selection._classification_threshold.FixedThresholdClassifier": (
            calibration.threshold_schema
        ),
        **{
            f"sklearn.svm._classes.{name}": svm.schema
            for name in ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM")
        },
    }
)
"""Composites that ask their parts for the columns, and others that keep no column count."""


# Estimators that are not imported, with the reasons.


_TRAINING_ONLY = (
    "it labels or places the rows that it was fitted on, and has no method for new ones"
)
_COVARIANCE = (
    "it estimates a covariance matrix and has no prediction per row; EllipticEnvelope has one"
)
_GRAPH = (
    "its result is a graph between rows and training rows, not a column of a table; use "
    "KNeighborsClassifier or KNeighborsRegressor"
)
_MANIFOLD = "it solves a new optimisation problem for the rows that it transforms"
_ITERATIVE = "its transform solves an optimisation problem for each row until it converges"

UNSUPPORTED: Mapping[str, str] = MappingProxyType(
    {
        "sklearn.cluster._agglomerative.AgglomerativeClustering": _TRAINING_ONLY,
        "sklearn.cluster._bicluster.SpectralBiclustering": _TRAINING_ONLY,
        "sklearn.cluster._bicluster.SpectralCoclustering": _TRAINING_ONLY,
        "sklearn.cluster._dbscan.DBSCAN": _TRAINING_ONLY,
        "sklearn.cluster._hdbscan.hdbscan.HDBSCAN": _TRAINING_ONLY,
        "sklearn.cluster._optics.OPTICS": _TRAINING_ONLY,
        "sklearn.cluster._spectral.SpectralClustering": _TRAINING_ONLY,
        "sklearn.covariance._empirical_covariance.EmpiricalCovariance": _COVARIANCE,
        "sklearn.covariance._graph_lasso.GraphicalLasso": _COVARIANCE,
        "sklearn.covariance._graph_lasso.GraphicalLassoCV": _COVARIANCE,
        "sklearn.covariance._robust_covariance.MinCovDet": _COVARIANCE,
        "sklearn.covariance._shrunk_covariance.LedoitWolf": _COVARIANCE,
        "sklearn.covariance._shrunk_covariance.OAS": _COVARIANCE,
        "sklearn.covariance._shrunk_covariance.ShrunkCovariance": _COVARIANCE,
        "sklearn.decomposition._lda.LatentDirichletAllocation": _ITERATIVE,
        "sklearn.decomposition._nmf.MiniBatchNMF": _ITERATIVE,
        "sklearn.decomposition._nmf.NMF": _ITERATIVE,
        "sklearn.feature_extraction.image.PatchExtractor": "it cuts images, not rows of a table",
        "sklearn.manifold._classical_mds.ClassicalMDS": _TRAINING_ONLY,
        "sklearn.manifold._isomap.Isomap": (
            "its transform follows shortest paths through a graph of the training rows"
        ),
        "sklearn.manifold._locally_linear.LocallyLinearEmbedding": _MANIFOLD,
        "sklearn.manifold._mds.MDS": _TRAINING_ONLY,
        "sklearn.manifold._spectral_embedding.SpectralEmbedding": _TRAINING_ONLY,
        "sklearn.manifold._t_sne.TSNE": _TRAINING_ONLY,
        "sklearn.neighbors._graph.KNeighborsTransformer": _GRAPH,
        "sklearn.neighbors._graph.RadiusNeighborsTransformer": _GRAPH,
        "sklearn.neighbors._unsupervised.NearestNeighbors": _GRAPH,
    }
)
"""Class path -> why not."""
