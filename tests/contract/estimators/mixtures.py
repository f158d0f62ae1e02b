"""Gaussian mixtures and the elliptic envelope."""

from __future__ import annotations

from sklearn.covariance import EllipticEnvelope
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from tests.contract.estimators.case import Case, counts, varied

CASES: tuple[Case, ...] = (
    *(
        Case(
            f"GaussianMixture {kind}",
            lambda kind=kind: GaussianMixture(3, covariance_type=kind, random_state=0),
            data=varied,
        )
        for kind in ("full", "tied", "diag", "spherical")
    ),
    Case("GaussianMixture one component", GaussianMixture, data=varied),
    Case(
        "GaussianMixture regularised",
        lambda: GaussianMixture(2, reg_covar=1e-2, random_state=0),
        data=varied,
    ),
    *(
        Case(
            f"BayesianGaussianMixture {kind}",
            lambda kind=kind: BayesianGaussianMixture(
                n_components=4, covariance_type=kind, random_state=0
            ),
            data=varied,
        )
        for kind in ("full", "tied", "diag", "spherical")
    ),
    Case(
        "BayesianGaussianMixture dirichlet",
        lambda: BayesianGaussianMixture(
            n_components=3,
            weight_concentration_prior_type="dirichlet_distribution",
            mean_precision_prior=0.5,
            degrees_of_freedom_prior=9,
            random_state=0,
        ),
        data=counts,
    ),
    Case("EllipticEnvelope", lambda: EllipticEnvelope(random_state=0), data=varied),
    Case(
        "EllipticEnvelope loose",
        lambda: EllipticEnvelope(
            contamination=0.3, assume_centered=True, store_precision=False, random_state=0
        ),
        data=varied,
    ),
)
