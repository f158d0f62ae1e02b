"""Tables of scikit-learn's estimators: class path -> importer, or the reason why it has none."""

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
    cluster.nearest_centre: (
        "cluster._affinity_propagation.AffinityPropagation cluster._mean_shift.MeanShift"
    ),
    cluster.feature_agglomeration: "cluster._agglomerative.FeatureAgglomeration",
    cluster.birch: "cluster._birch.Birch",
    cluster.bisecting_k_means: "cluster._bisect_k_means.BisectingKMeans",
    cluster.k_means: "cluster._kmeans.KMeans MiniBatchKMeans",
    generative_models.elliptic_envelope: "covariance._elliptic_envelope.EllipticEnvelope",
    decomposition.pls: "cross_decomposition._pls.CCA PLSCanonical PLSRegression",
    decomposition.pls_svd: "cross_decomposition._pls.PLSSVD",
    decomposition.sparse_coding: (
        "decomposition._dict_learning.DictionaryLearning MiniBatchDictionaryLearning SparseCoder"
    ),
    decomposition.factor_analysis: "decomposition._factor_analysis.FactorAnalysis",
    decomposition.fast_ica: "decomposition._fastica.FastICA",
    decomposition.pca: "decomposition._incremental_pca.IncrementalPCA decomposition._pca.PCA",
    kernel_models.kernel_pca: "decomposition._kernel_pca.KernelPCA",
    decomposition.sparse_pca: "decomposition._sparse_pca.MiniBatchSparsePCA SparsePCA",
    decomposition.projection: (
        "decomposition._truncated_svd.TruncatedSVD random_projection.GaussianRandomProjection "
        "SparseRandomProjection"
    ),
    generative_models.linear_discriminant: "discriminant_analysis.LinearDiscriminantAnalysis",
    generative_models.quadratic_discriminant: "discriminant_analysis.QuadraticDiscriminantAnalysis",
    dummy.dummy_classifier: "dummy.DummyClassifier",
    dummy.dummy_regressor: "dummy.DummyRegressor",
    decision_trees.random_trees_embedding: "ensemble._forest.RandomTreesEmbedding",
    gradient_boosting.hist_gradient_boosting_classifier: (
        "ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingClassifier"
    ),
    gradient_boosting.hist_gradient_boosting_regressor: (
        "ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingRegressor"
    ),
    decision_trees.isolation_forest: "ensemble._iforest.IsolationForest",
    feature_extraction.dict_vectorizer: "feature_extraction._dict_vectorizer.DictVectorizer",
    feature_extraction.feature_hasher: "feature_extraction._hash.FeatureHasher",
    feature_extraction.count_vectorizer: "feature_extraction.text.CountVectorizer",
    feature_extraction.hashing_vectorizer: "feature_extraction.text.HashingVectorizer",
    feature_extraction.tfidf_transformer: "feature_extraction.text.TfidfTransformer",
    feature_extraction.tfidf_vectorizer: "feature_extraction.text.TfidfVectorizer",
    feature_selection.model_based_selector: "feature_selection._from_model.SelectFromModel",
    feature_selection.selector: (
        "feature_selection._sequential.SequentialFeatureSelector "
        "feature_selection._univariate_selection.GenericUnivariateSelect SelectFdr SelectFpr "
        "SelectFwe SelectKBest SelectPercentile "
        "feature_selection._variance_threshold.VarianceThreshold"
    ),
    gaussian_process.gaussian_process_classifier: "gaussian_process._gpc.GaussianProcessClassifier",
    gaussian_process.gaussian_process_regressor: "gaussian_process._gpr.GaussianProcessRegressor",
    impute.missing_indicator: "impute._base.MissingIndicator",
    impute.simple_imputer: "impute._base.SimpleImputer",
    impute.knn_imputer: "impute._knn.KNNImputer",
    isotonic.isotonic_regression: "isotonic.IsotonicRegression",
    kernel_models.additive_chi2_sampler: "kernel_approximation.AdditiveChi2Sampler",
    kernel_models.nystroem: "kernel_approximation.Nystroem",
    kernel_models.polynomial_count_sketch: "kernel_approximation.PolynomialCountSketch",
    kernel_models.rbf_sampler: "kernel_approximation.RBFSampler",
    kernel_models.skewed_chi2_sampler: "kernel_approximation.SkewedChi2Sampler",
    kernel_models.kernel_ridge: "kernel_ridge.KernelRidge",
    linear_model.linear_regressor: (
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
    linear_model.log_link_regressor: (
        "linear_model._glm.glm.GammaRegressor PoissonRegressor TweedieRegressor"
    ),
    linear_model.logistic_regression: (
        "linear_model._logistic.LogisticRegression LogisticRegressionCV"
    ),
    linear_model.linear_classifier: (
        "linear_model._passive_aggressive.PassiveAggressiveClassifier "
        "linear_model._perceptron.Perceptron linear_model._ridge.RidgeClassifier "
        "RidgeClassifierCV svm._classes.LinearSVC"
    ),
    linear_model.sgd_classifier: "linear_model._stochastic_gradient.SGDClassifier",
    linear_model.sgd_one_class_svm: "linear_model._stochastic_gradient.SGDOneClassSVM",
    generative_models.bayesian_gaussian_mixture: (
        "mixture._bayesian_mixture.BayesianGaussianMixture"
    ),
    generative_models.gaussian_mixture: "mixture._gaussian_mixture.GaussianMixture",
    generative_models.bernoulli_nb: "naive_bayes.BernoulliNB",
    generative_models.categorical_nb: "naive_bayes.CategoricalNB",
    generative_models.complement_nb: "naive_bayes.ComplementNB",
    generative_models.gaussian_nb: "naive_bayes.GaussianNB",
    generative_models.multinomial_nb: "naive_bayes.MultinomialNB",
    neighbors.k_neighbors_classifier: "neighbors._classification.KNeighborsClassifier",
    neighbors.radius_neighbors_classifier: "neighbors._classification.RadiusNeighborsClassifier",
    neighbors.kernel_density: "neighbors._kde.KernelDensity",
    neighbors.local_outlier_factor: "neighbors._lof.LocalOutlierFactor",
    kernel_models.neighborhood_components: "neighbors._nca.NeighborhoodComponentsAnalysis",
    neighbors.nearest_centroid: "neighbors._nearest_centroid.NearestCentroid",
    neighbors.k_neighbors_regressor: "neighbors._regression.KNeighborsRegressor",
    neighbors.radius_neighbors_regressor: "neighbors._regression.RadiusNeighborsRegressor",
    neural_network.mlp_classifier: "neural_network._multilayer_perceptron.MLPClassifier",
    neural_network.mlp_regressor: "neural_network._multilayer_perceptron.MLPRegressor",
    neural_network.bernoulli_rbm: "neural_network._rbm.BernoulliRBM",
    numeric_transforms.binarizer: "preprocessing._data.Binarizer",
    kernel_models.kernel_centerer: "preprocessing._data.KernelCenterer",
    numeric_transforms.scaler: (
        "preprocessing._data.MaxAbsScaler MinMaxScaler RobustScaler StandardScaler"
    ),
    numeric_transforms.normalizer: "preprocessing._data.Normalizer",
    numeric_transforms.power_transformer: "preprocessing._data.PowerTransformer",
    numeric_transforms.quantile_transformer: "preprocessing._data.QuantileTransformer",
    numeric_transforms.k_bins_discretizer: "preprocessing._discretization.KBinsDiscretizer",
    encoders.one_hot_encoder: "preprocessing._encoders.OneHotEncoder",
    encoders.ordinal_encoder: "preprocessing._encoders.OrdinalEncoder",
    numeric_transforms.function_transformer: (
        "preprocessing._function_transformer.FunctionTransformer"
    ),
    encoders.label_binarizer: "preprocessing._label.LabelBinarizer",
    encoders.label_encoder: "preprocessing._label.LabelEncoder",
    feature_extraction.multi_label_binarizer: "preprocessing._label.MultiLabelBinarizer",
    numeric_transforms.polynomial_features: "preprocessing._polynomial.PolynomialFeatures",
    numeric_transforms.spline_transformer: "preprocessing._polynomial.SplineTransformer",
    encoders.target_encoder: "preprocessing._target_encoder.TargetEncoder",
    neighbors.label_propagation: (
        "semi_supervised._label_propagation.LabelPropagation LabelSpreading"
    ),
    svm.support_vector_classifier: "svm._classes.NuSVC SVC",
    svm.support_vector_regressor: "svm._classes.NuSVR SVR",
    svm.one_class_svm: "svm._classes.OneClassSVM",
    decision_trees.tree_classifier: (
        "ensemble._forest.ExtraTreesClassifier RandomForestClassifier "
        "tree._classes.DecisionTreeClassifier ExtraTreeClassifier"
    ),
    decision_trees.tree_regressor: (
        "ensemble._forest.ExtraTreesRegressor RandomForestRegressor "
        "tree._classes.DecisionTreeRegressor ExtraTreeRegressor"
    ),
}
_COMPOSITES: Mapping[Composite, str] = {
    calibration.calibrated_classifier: "calibration.CalibratedClassifierCV",
    compose.column_transformer: "compose._column_transformer.ColumnTransformer",
    compose.transformed_target_regressor: "compose._target.TransformedTargetRegressor",
    combined_estimators.bagging_classifier: "ensemble._bagging.BaggingClassifier",
    combined_estimators.bagging_regressor: "ensemble._bagging.BaggingRegressor",
    gradient_boosting.gradient_boosting_classifier: "ensemble._gb.GradientBoostingClassifier",
    gradient_boosting.gradient_boosting_regressor: "ensemble._gb.GradientBoostingRegressor",
    combined_estimators.stacking_classifier: "ensemble._stacking.StackingClassifier",
    combined_estimators.stacking_regressor: "ensemble._stacking.StackingRegressor",
    combined_estimators.voting_classifier: "ensemble._voting.VotingClassifier",
    combined_estimators.voting_regressor: "ensemble._voting.VotingRegressor",
    combined_estimators.adaboost_classifier: "ensemble._weight_boosting.AdaBoostClassifier",
    combined_estimators.adaboost_regressor: "ensemble._weight_boosting.AdaBoostRegressor",
    feature_selection.recursive_selector: "feature_selection._rfe.RFE RFECV",
    compose.frozen_estimator: "frozen._frozen.FrozenEstimator",
    impute.iterative_imputer: "impute._iterative.IterativeImputer",
    compose.ransac_regressor: "linear_model._ransac.RANSACRegressor",
    calibration.fixed_threshold_classifier: (
        "model_selection._classification_threshold.FixedThresholdClassifier"
    ),
    calibration.tuned_threshold_classifier: (
        "model_selection._classification_threshold.TunedThresholdClassifierCV"
    ),
    compose.best_estimator: (
        "model_selection._search.GridSearchCV RandomizedSearchCV "
        "model_selection._search_successive_halving.HalvingGridSearchCV HalvingRandomSearchCV"
    ),
    multiclass.one_vs_one_classifier: "multiclass.OneVsOneClassifier",
    multiclass.one_vs_rest_classifier: "multiclass.OneVsRestClassifier",
    multiclass.output_code_classifier: "multiclass.OutputCodeClassifier",
    multiclass.classifier_chain: "multioutput.ClassifierChain",
    multiclass.multi_output_classifier: "multioutput.MultiOutputClassifier",
    multiclass.multi_output_regressor: "multioutput.MultiOutputRegressor",
    multiclass.regressor_chain: "multioutput.RegressorChain",
    compose.feature_union: "pipeline.FeatureUnion",
    compose.pipeline: "pipeline.Pipeline",
    compose.self_training_classifier: "semi_supervised._self_training.SelfTrainingClassifier",
}

IMPORTERS: Mapping[str, Leaf] = index_by_class("sklearn", _LEAVES)
COMPOSITES: Mapping[str, Composite] = {
    **index_by_class("sklearn", _COMPOSITES),
    "sqlml.training.estimators.encoded_target.EncodedTargetClassifier": (
        calibration.encoded_target_classifier
    ),
}

_READ_LIKE_PARTS = (
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

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = {
    **{path: compose.composite_schema for path, f in COMPOSITES.items() if f in _READ_LIKE_PARTS},
    **compose.ROW_READERS,
    "sklearn.isotonic.IsotonicRegression": isotonic.read_isotonic_schema,
    "sklearn.preprocessing._label.LabelBinarizer": encoders.read_label_schema,
    "sklearn.preprocessing._label.LabelEncoder": encoders.read_label_schema,
    "sklearn.model_selection._classification_threshold.FixedThresholdClassifier": (
        calibration.read_threshold_schema
    ),
    **index_by_class("sklearn", {svm.read_schema: "svm._classes.SVC NuSVC SVR NuSVR OneClassSVM"}),
}
"""Maps the class of a composite, or of a model without a column count, to its column finder."""

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
