"""The constructor parameters that sqlml knows, per class of scikit-learn.

A parameter that is not listed here came with another version of scikit-learn, and may change what
the model computes; so such a model is refused (see `fitted.check`) until somebody has looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "sklearn.calibration.CalibratedClassifierCV": "cv ensemble estimator method n_jobs",
        "sklearn.cluster._affinity_propagation.AffinityPropagation": (
            "affinity convergence_iter copy damping max_iter preference random_state verbose"
        ),
        "sklearn.cluster._agglomerative.AgglomerativeClustering": (
            "compute_distances compute_full_tree connectivity distance_threshold linkage memory "
            "metric n_clusters"
        ),
        "sklearn.cluster._agglomerative.FeatureAgglomeration": (
            "compute_distances compute_full_tree connectivity distance_threshold linkage memory "
            "metric n_clusters pooling_func"
        ),
        "sklearn.cluster._bicluster.SpectralBiclustering": (
            "init method mini_batch n_best n_clusters n_components n_init n_svd_vecs random_state "
            "svd_method"
        ),
        "sklearn.cluster._bicluster.SpectralCoclustering": (
            "init mini_batch n_clusters n_init n_svd_vecs random_state svd_method"
        ),
        "sklearn.cluster._birch.Birch": "branching_factor compute_labels n_clusters threshold",
        "sklearn.cluster._bisect_k_means.BisectingKMeans": (
            "algorithm bisecting_strategy copy_x init max_iter n_clusters n_init random_state tol "
            "verbose"
        ),
        "sklearn.cluster._dbscan.DBSCAN": (
            "algorithm eps leaf_size metric metric_params min_samples n_jobs p"
        ),
        "sklearn.cluster._hdbscan.hdbscan.HDBSCAN": (
            "algorithm allow_single_cluster alpha cluster_selection_epsilon "
            "cluster_selection_method copy leaf_size max_cluster_size metric metric_params "
            "min_cluster_size min_samples n_jobs store_centers"
        ),
        "sklearn.cluster._kmeans.KMeans": (
            "algorithm copy_x init max_iter n_clusters n_init random_state tol verbose"
        ),
        "sklearn.cluster._kmeans.MiniBatchKMeans": (
            "batch_size compute_labels init init_size max_iter max_no_improvement n_clusters "
            "n_init random_state reassignment_ratio tol verbose"
        ),
        "sklearn.cluster._mean_shift.MeanShift": (
            "bandwidth bin_seeding cluster_all max_iter min_bin_freq n_jobs seeds"
        ),
        "sklearn.cluster._optics.OPTICS": (
            "algorithm cluster_method eps leaf_size max_eps memory metric metric_params "
            "min_cluster_size min_samples n_jobs p predecessor_correction xi"
        ),
        "sklearn.cluster._spectral.SpectralClustering": (
            "affinity assign_labels coef0 degree eigen_solver eigen_tol gamma kernel_params "
            "n_clusters n_components n_init n_jobs n_neighbors random_state verbose"
        ),
        "sklearn.compose._column_transformer.ColumnTransformer": (
            "force_int_remainder_cols n_jobs remainder sparse_threshold transformer_weights "
            "transformers verbose verbose_feature_names_out"
        ),
        "sklearn.compose._target.TransformedTargetRegressor": (
            "check_inverse func inverse_func regressor transformer"
        ),
        "sklearn.covariance._elliptic_envelope.EllipticEnvelope": (
            "assume_centered contamination random_state store_precision support_fraction"
        ),
        "sklearn.covariance._empirical_covariance.EmpiricalCovariance": (
            "assume_centered store_precision"
        ),
        "sklearn.covariance._graph_lasso.GraphicalLasso": (
            "alpha assume_centered covariance enet_tol eps max_iter mode tol verbose"
        ),
        "sklearn.covariance._graph_lasso.GraphicalLassoCV": (
            "alphas assume_centered cv enet_tol eps max_iter mode n_jobs n_refinements tol verbose"
        ),
        "sklearn.covariance._robust_covariance.MinCovDet": (
            "assume_centered random_state store_precision support_fraction"
        ),
        "sklearn.covariance._shrunk_covariance.LedoitWolf": (
            "assume_centered block_size store_precision"
        ),
        "sklearn.covariance._shrunk_covariance.OAS": "assume_centered store_precision",
        "sklearn.covariance._shrunk_covariance.ShrunkCovariance": (
            "assume_centered shrinkage store_precision"
        ),
        "sklearn.cross_decomposition._pls.CCA": "copy max_iter n_components scale tol",
        "sklearn.cross_decomposition._pls.PLSCanonical": (
            "algorithm copy max_iter n_components scale tol"
        ),
        "sklearn.cross_decomposition._pls.PLSRegression": "copy max_iter n_components scale tol",
        "sklearn.cross_decomposition._pls.PLSSVD": "copy n_components scale",
        "sklearn.decomposition._dict_learning.DictionaryLearning": (
            "alpha callback code_init dict_init fit_algorithm max_iter n_components n_jobs "
            "positive_code positive_dict random_state split_sign tol transform_algorithm "
            "transform_alpha transform_max_iter transform_n_nonzero_coefs verbose"
        ),
        "sklearn.decomposition._dict_learning.MiniBatchDictionaryLearning": (
            "alpha batch_size callback dict_init fit_algorithm max_iter max_no_improvement "
            "n_components n_jobs positive_code positive_dict random_state shuffle split_sign tol "
            "transform_algorithm transform_alpha transform_max_iter transform_n_nonzero_coefs "
            "verbose"
        ),
        "sklearn.decomposition._dict_learning.SparseCoder": (
            "dictionary n_jobs positive_code split_sign transform_algorithm transform_alpha "
            "transform_max_iter transform_n_nonzero_coefs"
        ),
        "sklearn.decomposition._factor_analysis.FactorAnalysis": (
            "copy iterated_power max_iter n_components noise_variance_init random_state rotation "
            "svd_method tol"
        ),
        "sklearn.decomposition._fastica.FastICA": (
            "algorithm fun fun_args max_iter n_components random_state tol w_init whiten "
            "whiten_solver"
        ),
        "sklearn.decomposition._incremental_pca.IncrementalPCA": (
            "batch_size copy n_components whiten"
        ),
        "sklearn.decomposition._kernel_pca.KernelPCA": (
            "alpha coef0 copy_X degree eigen_solver fit_inverse_transform gamma iterated_power "
            "kernel kernel_params max_iter n_components n_jobs random_state remove_zero_eig tol"
        ),
        "sklearn.decomposition._lda.LatentDirichletAllocation": (
            "batch_size doc_topic_prior evaluate_every learning_decay learning_method "
            "learning_offset max_doc_update_iter max_iter mean_change_tol n_components n_jobs "
            "perp_tol random_state topic_word_prior total_samples verbose"
        ),
        "sklearn.decomposition._nmf.MiniBatchNMF": (
            "alpha_H alpha_W batch_size beta_loss forget_factor fresh_restarts "
            "fresh_restarts_max_iter init l1_ratio max_iter max_no_improvement n_components "
            "random_state tol transform_max_iter verbose"
        ),
        "sklearn.decomposition._nmf.NMF": (
            "alpha_H alpha_W beta_loss init l1_ratio max_iter n_components random_state shuffle "
            "solver tol verbose"
        ),
        "sklearn.decomposition._pca.PCA": (
            "copy iterated_power n_components n_oversamples power_iteration_normalizer "
            "random_state svd_solver tol whiten"
        ),
        "sklearn.decomposition._sparse_pca.MiniBatchSparsePCA": (
            "alpha batch_size callback max_iter max_no_improvement method n_components n_jobs "
            "random_state ridge_alpha shuffle tol verbose"
        ),
        "sklearn.decomposition._sparse_pca.SparsePCA": (
            "alpha max_iter method n_components n_jobs random_state ridge_alpha tol U_init V_init "
            "verbose"
        ),
        "sklearn.decomposition._truncated_svd.TruncatedSVD": (
            "algorithm n_components n_iter n_oversamples power_iteration_normalizer random_state "
            "tol"
        ),
        "sklearn.discriminant_analysis.LinearDiscriminantAnalysis": (
            "covariance_estimator n_components priors shrinkage solver store_covariance tol"
        ),
        "sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis": (
            "covariance_estimator priors reg_param shrinkage solver store_covariance tol"
        ),
        "sklearn.dummy.DummyClassifier": "constant random_state strategy",
        "sklearn.dummy.DummyRegressor": "constant quantile strategy",
        "sklearn.ensemble._bagging.BaggingClassifier": (
            "bootstrap bootstrap_features estimator max_features max_samples n_estimators n_jobs "
            "oob_score random_state verbose warm_start"
        ),
        "sklearn.ensemble._bagging.BaggingRegressor": (
            "bootstrap bootstrap_features estimator max_features max_samples n_estimators n_jobs "
            "oob_score random_state verbose warm_start"
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
        "sklearn.ensemble._forest.RandomTreesEmbedding": (
            "max_depth max_leaf_nodes min_impurity_decrease min_samples_leaf min_samples_split "
            "min_weight_fraction_leaf n_estimators n_jobs random_state sparse_output verbose "
            "warm_start"
        ),
        "sklearn.ensemble._gb.GradientBoostingClassifier": (
            "ccp_alpha criterion init learning_rate loss max_depth max_features max_leaf_nodes "
            "min_impurity_decrease min_samples_leaf min_samples_split min_weight_fraction_leaf "
            "n_estimators n_iter_no_change random_state subsample tol validation_fraction verbose "
            "warm_start"
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
            "categorical_features early_stopping interaction_cst l2_regularization learning_rate "
            "loss max_bins max_depth max_features max_iter max_leaf_nodes min_samples_leaf "
            "monotonic_cst n_iter_no_change quantile random_state scoring tol validation_fraction "
            "verbose warm_start"
        ),
        "sklearn.ensemble._iforest.IsolationForest": (
            "bootstrap contamination max_features max_samples n_estimators n_jobs random_state "
            "verbose warm_start"
        ),
        "sklearn.ensemble._stacking.StackingClassifier": (
            "cv estimators final_estimator n_jobs passthrough stack_method verbose"
        ),
        "sklearn.ensemble._stacking.StackingRegressor": (
            "cv estimators final_estimator n_jobs passthrough verbose"
        ),
        "sklearn.ensemble._voting.VotingClassifier": (
            "estimators flatten_transform n_jobs verbose voting weights"
        ),
        "sklearn.ensemble._voting.VotingRegressor": "estimators n_jobs verbose weights",
        "sklearn.ensemble._weight_boosting.AdaBoostClassifier": (
            "estimator learning_rate n_estimators random_state"
        ),
        "sklearn.ensemble._weight_boosting.AdaBoostRegressor": (
            "estimator learning_rate loss n_estimators random_state"
        ),
        "sklearn.feature_extraction._dict_vectorizer.DictVectorizer": "dtype separator sort sparse",
        "sklearn.feature_extraction._hash.FeatureHasher": (
            "alternate_sign dtype input_type n_features"
        ),
        "sklearn.feature_extraction.image.PatchExtractor": "max_patches patch_size random_state",
        "sklearn.feature_extraction.text.CountVectorizer": (
            "analyzer binary decode_error dtype encoding input lowercase max_df max_features "
            "min_df ngram_range preprocessor stop_words strip_accents token_pattern tokenizer "
            "vocabulary"
        ),
        "sklearn.feature_extraction.text.HashingVectorizer": (
            "alternate_sign analyzer binary decode_error dtype encoding input lowercase "
            "n_features ngram_range norm preprocessor stop_words strip_accents token_pattern "
            "tokenizer"
        ),
        "sklearn.feature_extraction.text.TfidfTransformer": "norm smooth_idf sublinear_tf use_idf",
        "sklearn.feature_extraction.text.TfidfVectorizer": (
            "analyzer binary decode_error dtype encoding input lowercase max_df max_features "
            "min_df ngram_range norm preprocessor smooth_idf stop_words strip_accents "
            "sublinear_tf token_pattern tokenizer use_idf vocabulary"
        ),
        "sklearn.feature_selection._from_model.SelectFromModel": (
            "estimator importance_getter max_features norm_order prefit threshold"
        ),
        "sklearn.feature_selection._rfe.RFE": (
            "estimator importance_getter n_features_to_select step verbose"
        ),
        "sklearn.feature_selection._rfe.RFECV": (
            "cv estimator importance_getter min_features_to_select n_jobs scoring step verbose"
        ),
        "sklearn.feature_selection._sequential.SequentialFeatureSelector": (
            "cv direction estimator n_features_to_select n_jobs scoring tol"
        ),
        "sklearn.feature_selection._univariate_selection.GenericUnivariateSelect": (
            "mode param score_func"
        ),
        "sklearn.feature_selection._univariate_selection.SelectFdr": "alpha score_func",
        "sklearn.feature_selection._univariate_selection.SelectFpr": "alpha score_func",
        "sklearn.feature_selection._univariate_selection.SelectFwe": "alpha score_func",
        "sklearn.feature_selection._univariate_selection.SelectKBest": "k score_func",
        "sklearn.feature_selection._univariate_selection.SelectPercentile": "percentile score_func",
        "sklearn.feature_selection._variance_threshold.VarianceThreshold": "threshold",
        "sklearn.frozen._frozen.FrozenEstimator": "estimator",
        "sklearn.gaussian_process._gpc.GaussianProcessClassifier": (
            "copy_X_train kernel max_iter_predict multi_class n_jobs n_restarts_optimizer "
            "optimizer random_state warm_start"
        ),
        "sklearn.gaussian_process._gpr.GaussianProcessRegressor": (
            "alpha copy_X_train kernel n_restarts_optimizer n_targets normalize_y optimizer "
            "random_state"
        ),
        "sklearn.impute._base.MissingIndicator": "error_on_new features missing_values sparse",
        "sklearn.impute._base.SimpleImputer": (
            "add_indicator copy fill_value keep_empty_features missing_values strategy"
        ),
        "sklearn.impute._iterative.IterativeImputer": (
            "add_indicator estimator fill_value imputation_order initial_strategy "
            "keep_empty_features max_iter max_value min_value missing_values n_nearest_features "
            "random_state sample_posterior skip_complete tol verbose"
        ),
        "sklearn.impute._knn.KNNImputer": (
            "add_indicator copy keep_empty_features metric missing_values n_neighbors weights"
        ),
        "sklearn.isotonic.IsotonicRegression": "increasing out_of_bounds y_max y_min",
        "sklearn.kernel_approximation.AdditiveChi2Sampler": "sample_interval sample_steps",
        "sklearn.kernel_approximation.Nystroem": (
            "coef0 degree gamma kernel kernel_params n_components n_jobs random_state"
        ),
        "sklearn.kernel_approximation.PolynomialCountSketch": (
            "coef0 degree gamma n_components random_state"
        ),
        "sklearn.kernel_approximation.RBFSampler": "gamma n_components random_state",
        "sklearn.kernel_approximation.SkewedChi2Sampler": "n_components random_state skewedness",
        "sklearn.kernel_ridge.KernelRidge": "alpha coef0 degree gamma kernel kernel_params",
        "sklearn.linear_model._base.LinearRegression": "copy_X fit_intercept n_jobs positive tol",
        "sklearn.linear_model._bayes.ARDRegression": (
            "alpha_1 alpha_2 compute_score copy_X fit_intercept lambda_1 lambda_2 max_iter "
            "threshold_lambda tol verbose"
        ),
        "sklearn.linear_model._bayes.BayesianRidge": (
            "alpha_1 alpha_2 alpha_init compute_score copy_X fit_intercept lambda_1 lambda_2 "
            "lambda_init max_iter tol verbose"
        ),
        "sklearn.linear_model._coordinate_descent.ElasticNet": (
            "alpha copy_X fit_intercept l1_ratio max_iter positive precompute random_state "
            "selection tol warm_start"
        ),
        "sklearn.linear_model._coordinate_descent.ElasticNetCV": (
            "alphas copy_X cv eps fit_intercept l1_ratio max_iter n_alphas n_jobs positive "
            "precompute random_state selection tol verbose"
        ),
        "sklearn.linear_model._coordinate_descent.Lasso": (
            "alpha copy_X fit_intercept max_iter positive precompute random_state selection tol "
            "warm_start"
        ),
        "sklearn.linear_model._coordinate_descent.LassoCV": (
            "alphas copy_X cv eps fit_intercept max_iter n_alphas n_jobs positive precompute "
            "random_state selection tol verbose"
        ),
        "sklearn.linear_model._coordinate_descent.MultiTaskElasticNet": (
            "alpha copy_X fit_intercept l1_ratio max_iter random_state selection tol warm_start"
        ),
        "sklearn.linear_model._coordinate_descent.MultiTaskElasticNetCV": (
            "alphas copy_X cv eps fit_intercept l1_ratio max_iter n_alphas n_jobs random_state "
            "selection tol verbose"
        ),
        "sklearn.linear_model._coordinate_descent.MultiTaskLasso": (
            "alpha copy_X fit_intercept max_iter random_state selection tol warm_start"
        ),
        "sklearn.linear_model._coordinate_descent.MultiTaskLassoCV": (
            "alphas copy_X cv eps fit_intercept max_iter n_alphas n_jobs random_state selection "
            "tol verbose"
        ),
        "sklearn.linear_model._glm.glm.GammaRegressor": (
            "alpha fit_intercept max_iter solver tol verbose warm_start"
        ),
        "sklearn.linear_model._glm.glm.PoissonRegressor": (
            "alpha fit_intercept max_iter solver tol verbose warm_start"
        ),
        "sklearn.linear_model._glm.glm.TweedieRegressor": (
            "alpha fit_intercept link max_iter power solver tol verbose warm_start"
        ),
        "sklearn.linear_model._huber.HuberRegressor": (
            "alpha epsilon fit_intercept max_iter tol warm_start"
        ),
        "sklearn.linear_model._least_angle.Lars": (
            "copy_X eps fit_intercept fit_path jitter n_nonzero_coefs precompute random_state "
            "verbose"
        ),
        "sklearn.linear_model._least_angle.LarsCV": (
            "copy_X cv eps fit_intercept max_iter max_n_alphas n_jobs precompute verbose"
        ),
        "sklearn.linear_model._least_angle.LassoLars": (
            "alpha copy_X eps fit_intercept fit_path jitter max_iter positive precompute "
            "random_state verbose"
        ),
        "sklearn.linear_model._least_angle.LassoLarsCV": (
            "copy_X cv eps fit_intercept max_iter max_n_alphas n_jobs positive precompute verbose"
        ),
        "sklearn.linear_model._least_angle.LassoLarsIC": (
            "copy_X criterion eps fit_intercept max_iter noise_variance positive precompute verbose"
        ),
        "sklearn.linear_model._logistic.LogisticRegression": (
            "C class_weight dual fit_intercept intercept_scaling l1_ratio max_iter multi_class "
            "n_jobs penalty random_state solver tol verbose warm_start"
        ),
        "sklearn.linear_model._logistic.LogisticRegressionCV": (
            "class_weight Cs cv dual fit_intercept intercept_scaling l1_ratios max_iter "
            "multi_class n_jobs penalty random_state refit scoring solver tol "
            "use_legacy_attributes verbose"
        ),
        "sklearn.linear_model._omp.OrthogonalMatchingPursuit": (
            "fit_intercept n_nonzero_coefs precompute tol"
        ),
        "sklearn.linear_model._omp.OrthogonalMatchingPursuitCV": (
            "copy cv fit_intercept max_iter n_jobs verbose"
        ),
        "sklearn.linear_model._passive_aggressive.PassiveAggressiveClassifier": (
            "average C class_weight early_stopping fit_intercept loss max_iter n_iter_no_change "
            "n_jobs random_state shuffle tol validation_fraction verbose warm_start"
        ),
        "sklearn.linear_model._passive_aggressive.PassiveAggressiveRegressor": (
            "average C early_stopping epsilon fit_intercept loss max_iter n_iter_no_change "
            "random_state shuffle tol validation_fraction verbose warm_start"
        ),
        "sklearn.linear_model._perceptron.Perceptron": (
            "alpha class_weight early_stopping eta0 fit_intercept l1_ratio max_iter "
            "n_iter_no_change n_jobs penalty random_state shuffle tol validation_fraction verbose "
            "warm_start"
        ),
        "sklearn.linear_model._quantile.QuantileRegressor": (
            "alpha fit_intercept quantile solver solver_options"
        ),
        "sklearn.linear_model._ransac.RANSACRegressor": (
            "estimator is_data_valid is_model_valid loss max_skips max_trials min_samples "
            "random_state residual_threshold stop_n_inliers stop_probability stop_score"
        ),
        "sklearn.linear_model._ridge.Ridge": (
            "alpha copy_X fit_intercept max_iter positive random_state solver tol"
        ),
        "sklearn.linear_model._ridge.RidgeCV": (
            "alpha_per_target alphas cv fit_intercept gcv_mode scoring store_cv_results "
            "store_cv_values"
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
        "sklearn.linear_model._stochastic_gradient.SGDOneClassSVM": (
            "average eta0 fit_intercept learning_rate max_iter nu power_t random_state shuffle "
            "tol verbose warm_start"
        ),
        "sklearn.linear_model._stochastic_gradient.SGDRegressor": (
            "alpha average early_stopping epsilon eta0 fit_intercept l1_ratio learning_rate loss "
            "max_iter n_iter_no_change penalty power_t random_state shuffle tol "
            "validation_fraction verbose warm_start"
        ),
        "sklearn.linear_model._theil_sen.TheilSenRegressor": (
            "fit_intercept max_iter max_subpopulation n_jobs n_subsamples random_state tol verbose"
        ),
        "sklearn.manifold._classical_mds.ClassicalMDS": "metric metric_params n_components",
        "sklearn.manifold._isomap.Isomap": (
            "eigen_solver max_iter metric metric_params n_components n_jobs n_neighbors "
            "neighbors_algorithm p path_method radius tol"
        ),
        "sklearn.manifold._locally_linear.LocallyLinearEmbedding": (
            "eigen_solver hessian_tol max_iter method modified_tol n_components n_jobs "
            "n_neighbors neighbors_algorithm random_state reg tol"
        ),
        "sklearn.manifold._mds.MDS": (
            "dissimilarity eps init max_iter metric metric_mds metric_params n_components n_init "
            "n_jobs normalized_stress random_state verbose"
        ),
        "sklearn.manifold._spectral_embedding.SpectralEmbedding": (
            "affinity eigen_solver eigen_tol gamma n_components n_jobs n_neighbors random_state"
        ),
        "sklearn.manifold._t_sne.TSNE": (
            "angle early_exaggeration init learning_rate max_iter method metric metric_params "
            "min_grad_norm n_components n_iter_without_progress n_jobs perplexity random_state "
            "verbose"
        ),
        "sklearn.mixture._bayesian_mixture.BayesianGaussianMixture": (
            "covariance_prior covariance_type degrees_of_freedom_prior init_params max_iter "
            "mean_precision_prior mean_prior n_components n_init random_state reg_covar tol "
            "verbose verbose_interval warm_start weight_concentration_prior "
            "weight_concentration_prior_type"
        ),
        "sklearn.mixture._gaussian_mixture.GaussianMixture": (
            "covariance_type init_params max_iter means_init n_components n_init precisions_init "
            "random_state reg_covar tol verbose verbose_interval warm_start weights_init"
        ),
        "sklearn.model_selection._classification_threshold.FixedThresholdClassifier": (
            "estimator pos_label response_method threshold"
        ),
        "sklearn.model_selection._classification_threshold.TunedThresholdClassifierCV": (
            "cv estimator n_jobs random_state refit response_method scoring store_cv_results "
            "thresholds"
        ),
        "sklearn.model_selection._search.GridSearchCV": (
            "cv error_score estimator n_jobs param_grid pre_dispatch refit return_train_score "
            "scoring verbose"
        ),
        "sklearn.model_selection._search.RandomizedSearchCV": (
            "cv error_score estimator n_iter n_jobs param_distributions pre_dispatch random_state "
            "refit return_train_score scoring verbose"
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
        "sklearn.multiclass.OneVsOneClassifier": "estimator n_jobs",
        "sklearn.multiclass.OneVsRestClassifier": "estimator n_jobs verbose",
        "sklearn.multiclass.OutputCodeClassifier": "code_size estimator n_jobs random_state",
        "sklearn.multioutput.ClassifierChain": (
            "base_estimator chain_method cv estimator order random_state verbose"
        ),
        "sklearn.multioutput.MultiOutputClassifier": "estimator n_jobs",
        "sklearn.multioutput.MultiOutputRegressor": "estimator n_jobs",
        "sklearn.multioutput.RegressorChain": (
            "base_estimator cv estimator order random_state verbose"
        ),
        "sklearn.naive_bayes.BernoulliNB": "alpha binarize class_prior fit_prior force_alpha",
        "sklearn.naive_bayes.CategoricalNB": (
            "alpha class_prior fit_prior force_alpha min_categories"
        ),
        "sklearn.naive_bayes.ComplementNB": "alpha class_prior fit_prior force_alpha norm",
        "sklearn.naive_bayes.GaussianNB": "priors var_smoothing",
        "sklearn.naive_bayes.MultinomialNB": "alpha class_prior fit_prior force_alpha",
        "sklearn.neighbors._classification.KNeighborsClassifier": (
            "algorithm leaf_size metric metric_params n_jobs n_neighbors p weights"
        ),
        "sklearn.neighbors._classification.RadiusNeighborsClassifier": (
            "algorithm leaf_size metric metric_params n_jobs outlier_label p radius weights"
        ),
        "sklearn.neighbors._graph.KNeighborsTransformer": (
            "algorithm leaf_size metric metric_params mode n_jobs n_neighbors p"
        ),
        "sklearn.neighbors._graph.RadiusNeighborsTransformer": (
            "algorithm leaf_size metric metric_params mode n_jobs p radius"
        ),
        "sklearn.neighbors._kde.KernelDensity": (
            "algorithm atol bandwidth breadth_first kernel leaf_size metric metric_params rtol"
        ),
        "sklearn.neighbors._lof.LocalOutlierFactor": (
            "algorithm contamination leaf_size metric metric_params n_jobs n_neighbors novelty p"
        ),
        "sklearn.neighbors._nca.NeighborhoodComponentsAnalysis": (
            "callback init max_iter n_components random_state tol verbose warm_start"
        ),
        "sklearn.neighbors._nearest_centroid.NearestCentroid": "metric priors shrink_threshold",
        "sklearn.neighbors._regression.KNeighborsRegressor": (
            "algorithm leaf_size metric metric_params n_jobs n_neighbors p weights"
        ),
        "sklearn.neighbors._regression.RadiusNeighborsRegressor": (
            "algorithm leaf_size metric metric_params n_jobs p radius weights"
        ),
        "sklearn.neighbors._unsupervised.NearestNeighbors": (
            "algorithm leaf_size metric metric_params n_jobs n_neighbors p radius"
        ),
        "sklearn.neural_network._multilayer_perceptron.MLPClassifier": (
            "activation alpha batch_size beta_1 beta_2 early_stopping epsilon hidden_layer_sizes "
            "learning_rate learning_rate_init max_fun max_iter momentum n_iter_no_change "
            "nesterovs_momentum power_t random_state shuffle solver tol validation_fraction "
            "verbose warm_start"
        ),
        "sklearn.neural_network._multilayer_perceptron.MLPRegressor": (
            "activation alpha batch_size beta_1 beta_2 early_stopping epsilon hidden_layer_sizes "
            "learning_rate learning_rate_init loss max_fun max_iter momentum n_iter_no_change "
            "nesterovs_momentum power_t random_state shuffle solver tol validation_fraction "
            "verbose warm_start"
        ),
        "sklearn.neural_network._rbm.BernoulliRBM": (
            "batch_size learning_rate n_components n_iter random_state verbose"
        ),
        "sklearn.pipeline.FeatureUnion": (
            "n_jobs transformer_list transformer_weights verbose verbose_feature_names_out"
        ),
        "sklearn.pipeline.Pipeline": "memory steps transform_input verbose",
        "sklearn.preprocessing._data.Binarizer": "copy threshold",
        "sklearn.preprocessing._data.KernelCenterer": "",
        "sklearn.preprocessing._data.MaxAbsScaler": "clip copy",
        "sklearn.preprocessing._data.MinMaxScaler": "clip copy feature_range",
        "sklearn.preprocessing._data.Normalizer": "copy norm",
        "sklearn.preprocessing._data.PowerTransformer": "copy method standardize",
        "sklearn.preprocessing._data.QuantileTransformer": (
            "copy ignore_implicit_zeros n_quantiles output_distribution random_state subsample"
        ),
        "sklearn.preprocessing._data.RobustScaler": (
            "copy quantile_range unit_variance with_centering with_scaling"
        ),
        "sklearn.preprocessing._data.StandardScaler": "copy with_mean with_std",
        "sklearn.preprocessing._discretization.KBinsDiscretizer": (
            "dtype encode n_bins quantile_method random_state strategy subsample"
        ),
        "sklearn.preprocessing._encoders.OneHotEncoder": (
            "categories drop dtype feature_name_combiner handle_unknown max_categories "
            "min_frequency sparse_output"
        ),
        "sklearn.preprocessing._encoders.OrdinalEncoder": (
            "categories dtype encoded_missing_value handle_unknown max_categories min_frequency "
            "unknown_value"
        ),
        "sklearn.preprocessing._function_transformer.FunctionTransformer": (
            "accept_sparse check_inverse feature_names_out func inv_kw_args inverse_func kw_args "
            "validate"
        ),
        "sklearn.preprocessing._label.LabelBinarizer": "neg_label pos_label sparse_output",
        "sklearn.preprocessing._label.LabelEncoder": "",
        "sklearn.preprocessing._label.MultiLabelBinarizer": "classes sparse_output",
        "sklearn.preprocessing._polynomial.PolynomialFeatures": (
            "degree include_bias interaction_only order"
        ),
        "sklearn.preprocessing._polynomial.SplineTransformer": (
            "degree extrapolation handle_missing include_bias knots n_knots order sparse_output"
        ),
        "sklearn.preprocessing._target_encoder.TargetEncoder": (
            "categories cv random_state shuffle smooth target_type"
        ),
        "sklearn.random_projection.GaussianRandomProjection": (
            "compute_inverse_components eps n_components random_state"
        ),
        "sklearn.random_projection.SparseRandomProjection": (
            "compute_inverse_components dense_output density eps n_components random_state"
        ),
        "sklearn.semi_supervised._label_propagation.LabelPropagation": (
            "gamma kernel max_iter n_jobs n_neighbors tol"
        ),
        "sklearn.semi_supervised._label_propagation.LabelSpreading": (
            "alpha gamma kernel max_iter n_jobs n_neighbors tol"
        ),
        "sklearn.semi_supervised._self_training.SelfTrainingClassifier": (
            "criterion estimator k_best max_iter threshold verbose"
        ),
        "sklearn.svm._classes.LinearSVC": (
            "C class_weight dual fit_intercept intercept_scaling loss max_iter multi_class "
            "penalty random_state tol verbose"
        ),
        "sklearn.svm._classes.LinearSVR": (
            "C dual epsilon fit_intercept intercept_scaling loss max_iter random_state tol verbose"
        ),
        "sklearn.svm._classes.NuSVC": (
            "break_ties cache_size class_weight coef0 decision_function_shape degree gamma kernel "
            "max_iter nu probability random_state shrinking tol verbose"
        ),
        "sklearn.svm._classes.NuSVR": (
            "C cache_size coef0 degree gamma kernel max_iter nu shrinking tol verbose"
        ),
        "sklearn.svm._classes.OneClassSVM": (
            "cache_size coef0 degree gamma kernel max_iter nu shrinking tol verbose"
        ),
        "sklearn.svm._classes.SVC": (
            "break_ties C cache_size class_weight coef0 decision_function_shape degree gamma "
            "kernel max_iter probability random_state shrinking tol verbose"
        ),
        "sklearn.svm._classes.SVR": (
            "C cache_size coef0 degree epsilon gamma kernel max_iter shrinking tol verbose"
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
    }
)
"""Class path -> the names of its parameters, separated by blanks."""
