"""All cases, family by family."""

from __future__ import annotations

from tests.contract.estimators import (
    clusters,
    decompositions,
    ensembles,
    everyday,
    imputation,
    items,
    kernels,
    linear,
    meta,
    mixtures,
    multioutput,
    naive_bayes,
    neighbors,
    neural,
    preprocessing,
    searches,
    selection,
    svm,
    text,
)
from tests.contract.estimators.case import Case

ALL: tuple[Case, ...] = (
    *clusters.CASES,
    *decompositions.CASES,
    *ensembles.CASES,
    *everyday.CASES,
    *imputation.CASES,
    *items.CASES,
    *kernels.CASES,
    *linear.CASES,
    *meta.CASES,
    *mixtures.CASES,
    *multioutput.CASES,
    *naive_bayes.CASES,
    *neighbors.CASES,
    *neural.CASES,
    *preprocessing.CASES,
    *searches.CASES,
    *selection.CASES,
    *svm.CASES,
    *text.CASES,
)
