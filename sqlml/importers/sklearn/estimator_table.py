"""Tables that map the estimators of scikit-learn to importers, or to a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlml.importers.frame import Composite, Leaf, Schema, index_by_class
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
    kernel_models,
    linear_model,
    neighbors,
    neural_network,
    svm,
)
from sqlml.importers.sklearn.ensemble import combined_estimators, decision_trees, gradient_boosting
from sqlml.importers.sklearn.meta import calibration, compose, multiclass
from sqlml.importers.sklearn.preprocessing import encoders, numeric_transforms

_LEAVES: Mapping[Leaf, str] = {
    cluster.import_nearest_centre: (
        "cluster._affinity_propagation.AffinityPropagation cluster._mean_shift.MeanShift"
    ),
    cluster.import_feature_agglomeration: "cluster._agglomerative.FeatureAgglomeration",
    cluster.import_birch: "cluster._birch.Birch",
    cluster.import_bisecting_k_means: "cluster._bisect_k_means.BisectingKMeans",
    cluster.import_k_means: "cluster._kmeans.KMeans MiniBatchKMeans",
    generative_models.import_elliptic_envelope: "covariance._elliptic_envelope.EllipticEnvelope",
    decomposition.import_pls: "cross_decomposition._pls.CCA PLSCanonical PLSRegression",
    decomposition.import_pls_svd: "cross_decomposition._pls.PLSSVD",
    decomposition.import_sparse_coding: (
        "decomposition._dict_learning.DictionaryLearning MiniBatchDictionaryLearning SparseCoder"
    ),
    decomposition.import_factor_analysis: "decomposition._factor_analysis.FactorAnalysis",
    decomposition.import_fast_ica: "decomposition._fastica.FastICA",
    decomposition.import_pca: (
        "decomposition._incremental_pca.IncrementalPCA decomposition._pca.PCA"
    ),
    kernel_models.import_kernel_pca: "decomposition._kernel_pca.KernelPCA",
    decomposition.import_sparse_pca: "decomposition._sparse_pca.MiniBatchSparsePCA SparsePCA",
    decomposition.import_projection: (
        "decomposition._truncated_svd.TruncatedSVD random_projection.GaussianRandomProjection "
        "SparseRandomProjection"
    ),
    generative_models.import_linear_discriminant: (
        "discriminant_analysis.LinearDiscriminantAnalysis"
    ),
    generative_models.import_quadratic_discriminant: (
        "discriminant_analysis.QuadraticDiscriminantAnalysis"
    ),
    dummy.import_dummy_classifier: "dummy.DummyClassifier",
    dummy.import_dummy_regressor: "dummy.DummyRegressor",
    decision_trees.import_random_trees_embedding: "ensemble._forest.RandomTreesEmbedding",
    gradient_boosting.import_hist_gradient_boosting_classifier: (
        "ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingClassifier"
    ),
    gradient_boosting.import_hist_gradient_boosting_regressor: (
        "ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingRegressor"
    ),
    decision_trees.import_isolation_forest: "ensemble._iforest.IsolationForest",
    feature_extraction.import_dict_vectorizer: "feature_extraction._dict_vectorizer.DictVectorizer",
    feature_extraction.import_feature_hasher: "feature_extraction._hash.FeatureHasher",
    feature_extraction.import_count_vectorizer: "feature_extraction.text.CountVectorizer",
    feature_extraction.import_hashing_vectorizer: "feature_extraction.text.HashingVectorizer",
    feature_extraction.import_tfidf_transformer: "feature_extraction.text.TfidfTransformer",
    feature_extraction.import_tfidf_vectorizer: "feature_extraction.text.TfidfVectorizer",
    feature_selection.import_model_based_selector: "feature_selection._from_model.SelectFromModel",
    feature_selection.import_fitted_selector: (
        "feature_selection._sequential.SequentialFeatureSelector "
        "feature_selection._univariate_selection.GenericUnivariateSelect SelectFdr SelectFpr "
        "SelectFwe SelectKBest SelectPercentile "
        "feature_selection._variance_threshold.VarianceThreshold"
    ),
    gaussian_process.import_gaussian_process_classifier: (
        "gaussian_process._gpc.GaussianProcessClassifier"
    ),
    gaussian_process.import_gaussian_process_regressor: (
        "gaussian_process._gpr.GaussianProcessRegressor"
    ),
    impute.import_missing_indicator: "impute._base.MissingIndicator",
    impute.import_simple_imputer: "impute._base.SimpleImputer",
    impute.import_knn_imputer: "impute._knn.KNNImputer",
    isotonic.import_isotonic_regression: "isotonic.IsotonicRegression",
    kernel_models.import_additive_chi2_sampler: "kernel_approximation.AdditiveChi2Sampler",
    kernel_models.import_nystroem: "kernel_approximation.Nystroem",
    kernel_models.import_polynomial_count_sketch: "kernel_approximation.PolynomialCountSketch",
    kernel_models.import_rbf_sampler: "kernel_approximation.RBFSampler",
    kernel_models.import_skewed_chi2_sampler: "kernel_approximation.SkewedChi2Sampler",
    kernel_models.import_kernel_ridge: "kernel_ridge.KernelRidge",
    linear_model.import_linear_regressor: (
        "linear_model._base.LinearRegression linear_model._bayes.ARDRegression BayesianRidge "
        "linear_model._coordinate_descent.ElasticNet ElasticNetCV Lasso LassoCV "
        "MultiTaskElasticNet MultiTaskElasticNetCV MultiTaskLasso MultiTaskLassoCV "
        "linear_model._huber.HuberRegressor linear_model._least_angle.Lars LarsCV LassoLars "
        "LassoLarsCV LassoLarsIC linear_model._omp.OrthogonalMatchingPursuit "
        "OrthogonalMatchingPursuitCV linear_model._passive_aggressive.PassiveAggressiveRegressor "
        "linear_model._quantile.QuantileRegressor linear_model._ridge.Ridge RidgeCV "
        "linear_model._stochastic_gradient.SGDRegressor "
        "linear_model._theil_sen.TheilSenRegressor svm._classes.LinearSVR"
    ),
    linear_model.import_log_link_regressor: (
        "linear_model._glm.glm.GammaRegressor PoissonRegressor TweedieRegressor"
    ),
    linear_model.import_logistic_regression: (
        "linear_model._logistic.LogisticRegression LogisticRegressionCV"
    ),
    linear_model.import_linear_classifier: (
        "linear_model._passive_aggressive.PassiveAggressiveClassifier "
        "linear_model._perceptron.Perceptron linear_model._ridge.RidgeClassifier "
        "RidgeClassifierCV svm._classes.LinearSVC"
    ),
    linear_model.import_sgd_classifier: "linear_model._stochastic_gradient.SGDClassifier",
    linear_model.import_sgd_one_class_svm: "linear_model._stochastic_gradient.SGDOneClassSVM",
    generative_models.import_bayesian_gaussian_mixture: (
        "mixture._bayesian_mixture.BayesianGaussianMixture"
    ),
    generative_models.import_gaussian_mixture: "mixture._gaussian_mixture.GaussianMixture",
    generative_models.import_bernoulli_nb: "naive_bayes.BernoulliNB",
    generative_models.import_categorical_nb: "naive_bayes.CategoricalNB",
    generative_models.import_complement_nb: "naive_bayes.ComplementNB",
    generative_models.import_gaussian_nb: "naive_bayes.GaussianNB",
    generative_models.import_multinomial_nb: "naive_bayes.MultinomialNB",
    neighbors.import_k_neighbors_classifier: "neighbors._classification.KNeighborsClassifier",
    neighbors.import_radius_neighbors_classifier: (
        "neighbors._classification.RadiusNeighborsClassifier"
    ),
    neighbors.import_kernel_density: "neighbors._kde.KernelDensity",
    neighbors.import_local_outlier_factor: "neighbors._lof.LocalOutlierFactor",
    kernel_models.import_neighborhood_components: "neighbors._nca.NeighborhoodComponentsAnalysis",
    neighbors.import_nearest_centroid: "neighbors._nearest_centroid.NearestCentroid",
    neighbors.import_k_neighbors_regressor: "neighbors._regression.KNeighborsRegressor",
    neighbors.import_radius_neighbors_regressor: "neighbors._regression.RadiusNeighborsRegressor",
    neural_network.import_mlp_classifier: "neural_network._multilayer_perceptron.MLPClassifier",
    neural_network.import_mlp_regressor: "neural_network._multilayer_perceptron.MLPRegressor",
    neural_network.import_bernoulli_rbm: "neural_network._rbm.BernoulliRBM",
    numeric_transforms.import_binarizer: "preprocessing._data.Binarizer",
    kernel_models.import_kernel_centerer: "preprocessing._data.KernelCenterer",
    numeric_transforms.import_scaler: (
        "preprocessing._data.MaxAbsScaler MinMaxScaler RobustScaler StandardScaler"
    ),
    numeric_transforms.import_normalizer: "preprocessing._data.Normalizer",
    numeric_transforms.import_power_transformer: "preprocessing._data.PowerTransformer",
    numeric_transforms.import_quantile_transformer: "preprocessing._data.QuantileTransformer",
    numeric_transforms.import_k_bins_discretizer: "preprocessing._discretization.KBinsDiscretizer",
    encoders.import_one_hot_encoder: "preprocessing._encoders.OneHotEncoder",
    encoders.import_ordinal_encoder: "preprocessing._encoders.OrdinalEncoder",
    numeric_transforms.import_function_transformer: (
        "preprocessing._function_transformer.FunctionTransformer"
    ),
    encoders.import_label_binarizer: "preprocessing._label.LabelBinarizer",
    encoders.import_label_encoder: "preprocessing._label.LabelEncoder",
    feature_extraction.import_multi_label_binarizer: "preprocessing._label.MultiLabelBinarizer",
    numeric_transforms.import_polynomial_features: "preprocessing._polynomial.PolynomialFeatures",
    numeric_transforms.import_spline_transformer: "preprocessing._polynomial.SplineTransformer",
    encoders.import_target_encoder: "preprocessing._target_encoder.TargetEncoder",
    neighbors.import_label_propagation: (
        "semi_supervised._label_propagation.LabelPropagation LabelSpreading"
    ),
    svm.import_support_vector_classifier: "svm._classes.NuSVC SVC",
    svm.import_support_vector_regressor: "svm._classes.NuSVR SVR",
    svm.import_one_class_svm: "svm._classes.OneClassSVM",
    decision_trees.import_tree_classifier: (
        "ensemble._forest.ExtraTreesClassifier RandomForestClassifier "
        "tree._classes.DecisionTreeClassifier ExtraTreeClassifier"
    ),
    decision_trees.import_tree_regressor: (
        "ensemble._forest.ExtraTreesRegressor RandomForestRegressor "
        "tree._classes.DecisionTreeRegressor ExtraTreeRegressor"
    ),
}
_COMPOSITES: Mapping[Composite, str] = {
    calibration.import_calibrated_classifier: "calibration.CalibratedClassifierCV",
    compose.import_column_transformer: "compose._column_transformer.ColumnTransformer",
    compose.import_transformed_target_regressor: "compose._target.TransformedTargetRegressor",
    combined_estimators.import_bagging_classifier: "ensemble._bagging.BaggingClassifier",
    combined_estimators.import_bagging_regressor: "ensemble._bagging.BaggingRegressor",
    gradient_boosting.import_gradient_boosting_classifier: (
        "ensemble._gb.GradientBoostingClassifier"
    ),
    gradient_boosting.import_gradient_boosting_regressor: "ensemble._gb.GradientBoostingRegressor",
    combined_estimators.import_stacking_classifier: "ensemble._stacking.StackingClassifier",
    combined_estimators.import_stacking_regressor: "ensemble._stacking.StackingRegressor",
    combined_estimators.import_voting_classifier: "ensemble._voting.VotingClassifier",
    combined_estimators.import_voting_regressor: "ensemble._voting.VotingRegressor",
    combined_estimators.import_adaboost_classifier: "ensemble._weight_boosting.AdaBoostClassifier",
    combined_estimators.import_adaboost_regressor: "ensemble._weight_boosting.AdaBoostRegressor",
    feature_selection.import_recursive_selector: "feature_selection._rfe.RFE RFECV",
    compose.import_frozen_estimator: "frozen._frozen.FrozenEstimator",
    impute.import_iterative_imputer: "impute._iterative.IterativeImputer",
    compose.import_ransac_regressor: "linear_model._ransac.RANSACRegressor",
    calibration.import_fixed_threshold_classifier: (
        "model_selection._classification_threshold.FixedThresholdClassifier"
    ),
    calibration.import_tuned_threshold_classifier: (
        "model_selection._classification_threshold.TunedThresholdClassifierCV"
    ),
    compose.import_best_estimator: (
        "model_selection._search.GridSearchCV RandomizedSearchCV "
        "model_selection._search_successive_halving.HalvingGridSearchCV HalvingRandomSearchCV"
    ),
    multiclass.import_one_vs_one_classifier: "multiclass.OneVsOneClassifier",
    multiclass.import_one_vs_rest_classifier: "multiclass.OneVsRestClassifier",
    multiclass.import_output_code_classifier: "multiclass.OutputCodeClassifier",
    multiclass.import_classifier_chain: "multioutput.ClassifierChain",
    multiclass.import_multi_output_classifier: "multioutput.MultiOutputClassifier",
    multiclass.import_multi_output_regressor: "multioutput.MultiOutputRegressor",
    multiclass.import_regressor_chain: "multioutput.RegressorChain",
    compose.import_feature_union: "pipeline.FeatureUnion",
    compose.import_pipeline: "pipeline.Pipeline",
    compose.import_self_training_classifier: (
        "semi_supervised._self_training.SelfTrainingClassifier"
    ),
}

IMPORTERS: Mapping[str, Leaf] = index_by_class("sklearn", _LEAVES)
COMPOSITES: Mapping[str, Composite] = {
    **index_by_class("sklearn", _COMPOSITES),
    "sqlml.training.estimators.encoded_target.EncodedTargetClassifier": (
        calibration.import_encoded_target_classifier
    ),
}

_READ_LIKE_PARTS = (
    calibration.import_calibrated_classifier,
    compose.import_best_estimator,
    compose.import_feature_union,
    compose.import_pipeline,
    multiclass.import_one_vs_rest_classifier,
    combined_estimators.import_stacking_classifier,
    combined_estimators.import_stacking_regressor,
    combined_estimators.import_voting_classifier,
    combined_estimators.import_voting_regressor,
)

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = {
    **{
        path: compose.read_composite_schema
        for path, f in COMPOSITES.items()
        if f in _READ_LIKE_PARTS
    },
    **compose.ROW_READERS,
    "sklearn.isotonic.IsotonicRegression": isotonic.read_isotonic_schema,
    "sklearn.preprocessing._label.LabelBinarizer": encoders.read_label_schema,
    "sklearn.preprocessing._label.LabelEncoder": encoders.read_label_schema,
    "sklearn.model_selection._classification_threshold.FixedThresholdClassifier": (
        calibration.read_threshold_schema
    ),
    **index_by_class("sklearn", {svm.read_schema: "svm._classes.SVC NuSVC SVR NuSVR OneClassSVM"}),
}
"""Maps composites, and models without a column count, to functions that find the columns."""

_GRAPH = (
    "its result is a graph between rows and training rows, not a column of a table; use "
    "KNeighborsClassifier or KNeighborsRegressor"
)
_MANIFOLD = "it solves a new optimisation problem for the rows that it transforms"
_ITERATIVE = "its transform solves an optimisation problem for each row until it converges"

_REFUSED: Mapping[str, str] = {
    "it labels or places the rows that it was fitted on, and has no method for new rows": (
        "cluster._agglomerative.AgglomerativeClustering cluster._bicluster.SpectralBiclustering "
        "SpectralCoclustering cluster._dbscan.DBSCAN cluster._hdbscan.hdbscan.HDBSCAN "
        "cluster._optics.OPTICS cluster._spectral.SpectralClustering "
        "manifold._classical_mds.ClassicalMDS manifold._mds.MDS "
        "manifold._spectral_embedding.SpectralEmbedding manifold._t_sne.TSNE"
    ),
    "it estimates a covariance matrix and has no prediction per row; EllipticEnvelope has one": (
        "covariance._empirical_covariance.EmpiricalCovariance "
        "covariance._graph_lasso.GraphicalLasso GraphicalLassoCV "
        "covariance._robust_covariance.MinCovDet covariance._shrunk_covariance.LedoitWolf OAS "
        "ShrunkCovariance"
    ),
    _ITERATIVE: "decomposition._lda.LatentDirichletAllocation decomposition._nmf.MiniBatchNMF NMF",
    "it cuts images, not rows of a table": "feature_extraction.image.PatchExtractor",
    "its transform follows shortest paths through a graph of the training rows": (
        "manifold._isomap.Isomap"
    ),
    _MANIFOLD: "manifold._locally_linear.LocallyLinearEmbedding",
    _GRAPH: (
        "neighbors._graph.KNeighborsTransformer RadiusNeighborsTransformer "
        "neighbors._unsupervised.NearestNeighbors"
    ),
}

UNSUPPORTED: Mapping[str, str] = index_by_class("sklearn", _REFUSED)
"""Maps the path of an unsupported class to the reason why sqlml does not import it."""
