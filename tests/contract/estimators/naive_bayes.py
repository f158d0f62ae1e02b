"""Naive Bayes and the discriminants."""

from __future__ import annotations

import numpy as np
from sklearn.covariance import OAS
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.naive_bayes import (
    BernoulliNB,
    CategoricalNB,
    ComplementNB,
    GaussianNB,
    MultinomialNB,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.contract.estimators.case import Case, counts, positive, three, two, varied

KINDS = ("string", "int64", "bool", "float64")

CASES: tuple[Case, ...] = (
    Case("GaussianNB", GaussianNB, three, labels=("string", "int64", "float64")),
    Case("GaussianNB two classes", GaussianNB, two, labels=KINDS),
    Case("GaussianNB priors", lambda: GaussianNB(priors=[0.0, 0.3, 0.7]), three),
    Case("GaussianNB smoothed", lambda: GaussianNB(var_smoothing=1e-2), three),
    Case("MultinomialNB", MultinomialNB, three, counts),
    Case("MultinomialNB two classes", MultinomialNB, two, counts, labels=KINDS),
    Case("MultinomialNB alphas", lambda: MultinomialNB(alpha=np.arange(5) + 0.1), three, counts),
    Case("MultinomialNB flat", lambda: MultinomialNB(fit_prior=False), three, positive),
    Case("ComplementNB", ComplementNB, three, counts),
    Case("ComplementNB norm", lambda: ComplementNB(norm=True, alpha=0.3), two, counts),
    Case("BernoulliNB", BernoulliNB, three, counts),
    Case("BernoulliNB above 1.5", lambda: BernoulliNB(binarize=1.5), two, counts, labels=KINDS),
    Case("BernoulliNB near zero", lambda: BernoulliNB(binarize=0.01), three),
    Case(
        "BernoulliNB as it is",
        lambda: make_pipeline(OneHotEncoder(handle_unknown="ignore"), BernoulliNB(binarize=None)),
        three,
        counts,
    ),
    Case("CategoricalNB", CategoricalNB, three, counts),
    Case("CategoricalNB alpha", lambda: CategoricalNB(alpha=0.2), two, counts, labels=KINDS),
    Case(
        "CategoricalNB room for more",
        lambda: CategoricalNB(min_categories=[10, 11, 12, 13, 14], fit_prior=False),
        three,
        counts,
    ),
    Case("LinearDiscriminantAnalysis", LinearDiscriminantAnalysis, three, varied),
    Case("LinearDiscriminantAnalysis two", LinearDiscriminantAnalysis, two, varied, labels=KINDS),
    Case(
        "LinearDiscriminantAnalysis one component",
        lambda: LinearDiscriminantAnalysis(n_components=1, priors=[0.2, 0.2, 0.6]),
        three,
        varied,
    ),
    Case(
        "LinearDiscriminantAnalysis eigen",
        lambda: LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        three,
        varied,
    ),
    Case(
        "LinearDiscriminantAnalysis estimator",
        lambda: LinearDiscriminantAnalysis(solver="eigen", covariance_estimator=OAS()),
        two,
        varied,
    ),
    Case(
        "LinearDiscriminantAnalysis in the middle",
        lambda: make_pipeline(LinearDiscriminantAnalysis(), GaussianNB()),
        three,
        varied,
    ),
    Case("QuadraticDiscriminantAnalysis", QuadraticDiscriminantAnalysis, three, varied),
    Case(
        "QuadraticDiscriminantAnalysis two",
        QuadraticDiscriminantAnalysis,
        two,
        varied,
        labels=KINDS,
    ),
    Case(
        "QuadraticDiscriminantAnalysis regularised",
        lambda: QuadraticDiscriminantAnalysis(reg_param=0.1, priors=[0.1, 0.1, 0.8]),
        three,
        varied,
    ),
    Case(
        "QuadraticDiscriminantAnalysis eigen",
        lambda: QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.3),
        three,
    ),
)
