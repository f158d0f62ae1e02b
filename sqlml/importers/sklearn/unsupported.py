"""The estimators of scikit-learn that are not imported, with the reason, as data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
