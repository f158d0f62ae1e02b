"""Clusterers, mixtures and the elliptic envelope: ties, odd fits, steps of pipelines, refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import (
    DBSCAN,
    AffinityPropagation,
    Birch,
    BisectingKMeans,
    FeatureAgglomeration,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.compose import make_column_transformer
from sklearn.covariance import EllipticEnvelope, LedoitWolf
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LinearRegression
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import sqlml
from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored


def blobs(rows: int = 150, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    centres = np.array([[0, 0], [10, 0], [0, 10]])
    x = centres[rng.integers(0, 3, rows)] + rng.normal(size=(rows, 2))
    return pd.DataFrame(x, columns=["a", "b"])


def placed(cls: type, centres: list[list[float]]) -> KMeans:
    """A KMeans whose centres lie exactly at `centres`."""
    model = cls(len(centres), init=np.array(centres), n_init=1, max_iter=1).fit(np.array(centres))
    model.cluster_centers_ = np.array(centres)
    return model


@pytest.mark.parametrize("cls", [KMeans, MiniBatchKMeans])
def test_half_way_is_the_first_cluster(cls: type) -> None:
    model = placed(cls, [[4.0, 0.0], [0.0, 0.0], [0.0, 4.0]])
    rows = np.array([[2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [-1.0, -1.0], [1.0, 1.0]])
    imported = assert_same(model, rows)
    assert scored(imported, rows)["label"].ravel().tolist() == [0, 1, 0, 1, 1]


def test_at_the_centre_the_distance_is_zero() -> None:
    model = placed(KMeans, [[4.0, 0.0], [0.0, 3.0]])
    made = scored(import_model(model), model.cluster_centers_)["transform"]
    np.testing.assert_array_equal(made, [[0, 5], [5, 0]])


@pytest.mark.parametrize(
    "model",
    [
        KMeans(3, n_init=1, random_state=0),
        BisectingKMeans(4, random_state=0),
        MeanShift(bandwidth=3),
        AffinityPropagation(random_state=0),
        Birch(n_clusters=3),
        GaussianMixture(3, random_state=0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_rows_far_away_from_every_centre(model: KMeans) -> None:
    model.fit(blobs())
    rows = pd.DataFrame({"a": [1e8, -1e17, 3e200, 0.0], "b": [1.0, 1e17, 0.0, -1e150]})
    with np.errstate(all="ignore"):
        ours = scored(import_model(model), rows)
        np.testing.assert_array_equal(ours["label"][:, 0], model.predict(rows))


def test_the_left_of_two_equal_halves() -> None:
    x = np.array([[0.0], [1.0], [8.0], [9.0]])
    model = BisectingKMeans(4, random_state=0).fit(x)
    rows = np.array([[4.5], [0.5], [8.5], [-3.0], [12.0], [4.0], [5.0]])
    assert_same(model, rows)


@pytest.mark.parametrize("clusters", [2, 3, 20])
def test_bisections_of_every_depth(clusters: int) -> None:
    for strategy in ("biggest_inertia", "largest_cluster"):
        model = BisectingKMeans(clusters, bisecting_strategy=strategy, random_state=1)
        assert_same(model.fit(blobs()), blobs(400, 9))


def test_clusters_of_birch_that_are_no_row_numbers() -> None:
    x = blobs()
    noisy = Birch(threshold=0.3, n_clusters=DBSCAN(eps=0.9, min_samples=4)).fit(x)
    imported = import_model(noisy)
    (labels,) = imported.program.labels
    assert labels.kind == "int64"
    assert labels.values[0] == -1
    made = scored(imported, x)
    np.testing.assert_array_equal(labels.array()[made["label"][:, 0]], noisy.predict(x))
    # A row that is a subcluster's centre: the source's own distance is rounding noise.
    np.testing.assert_allclose(made["transform"], noisy.transform(x), rtol=1e-9, atol=1e-6)


def test_affinity_propagation_that_did_not_converge_says_minus_one() -> None:
    x = blobs(40)
    model = AffinityPropagation(max_iter=1, random_state=0).fit(x)
    assert not len(model.cluster_centers_)
    imported = assert_same(model, x)
    assert imported.program.labels[0].values == (-1,)
    assert_both_raise(model, x.assign(a=np.nan), MissingValueError, "'a'")


def test_precomputed_similarities_are_refused() -> None:
    x = blobs(30).to_numpy()
    similarity = -((x[:, None] - x) ** 2).sum(axis=2)
    model = AffinityPropagation(affinity="precomputed", random_state=0).fit(similarity)
    with pytest.raises(UnsupportedModelError, match="affinity='euclidean'"):
        import_model(model)


def test_those_without_predict_say_so() -> None:
    with pytest.raises(UnsupportedModelError, match="DBSCAN.*no method for new"):
        import_model(DBSCAN().fit(blobs()))
    with pytest.raises(UnsupportedModelError, match="LedoitWolf.*EllipticEnvelope"):
        import_model(LedoitWolf().fit(blobs()))


@pytest.mark.parametrize(
    "model", [KMeans(), GaussianMixture(), Birch(), EllipticEnvelope()], ids=lambda m: str(m)
)
def test_an_unfitted_one_is_refused(model: KMeans) -> None:
    model.n_features_in_ = 2
    with pytest.raises(UnsupportedModelError, match="fit"):
        import_model(model)


def test_the_middle_of_a_pipeline_hands_on_the_distances() -> None:
    x = blobs()
    pipe = make_pipeline(
        StandardScaler(), KMeans(4, n_init=1, random_state=0), KMeans(2, n_init=1, random_state=0)
    )
    assert set(assert_same(pipe.fit(x), x).program.outputs) == {"label", "transform"}
    columns = make_column_transformer(
        (make_pipeline(StandardScaler(), Birch(n_clusters=2, threshold=0.8)), ["a", "b"]),
        ("passthrough", ["a"]),
    )
    assert_same(make_pipeline(columns, LinearRegression()).fit(x, x["a"] - x["b"]), x)


def test_a_last_step_that_passes_on_leaves_the_transform_alone() -> None:
    x = blobs()
    pipe = Pipeline([("k", KMeans(3, n_init=1, random_state=0)), ("last", "passthrough")]).fit(x)
    assert set(assert_same(pipe, x).program.outputs) == {"transform"}
    mixture = Pipeline([("m", GaussianMixture(2, random_state=0)), ("last", "passthrough")])
    mixture.steps[0][1].fit(x)
    with pytest.raises(UnsupportedModelError, match="last step only passes on"):
        import_model(mixture)


def test_a_mixture_cannot_stand_in_the_middle() -> None:
    x = blobs()
    pipe = make_pipeline(StandardScaler(), GaussianNB()).fit(x, x["a"] > 3)
    broken = Pipeline([*pipe.steps, ("last", LinearRegression().fit(x, x["a"]))])
    with pytest.raises(UnsupportedModelError, match="'last' follows a step that predicts"):
        import_model(broken)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_a_mixture_fitted_on_float32_computes_in_float64(kind: str) -> None:
    x = blobs().astype(np.float32)
    for cls in (GaussianMixture, BayesianGaussianMixture):
        model = cls(n_components=3, covariance_type=kind, random_state=0).fit(x)
        wide = x.astype(np.float64)
        ours = scored(import_model(model), wide)
        np.testing.assert_array_equal(ours["label"][:, 0], model.predict(wide))
        np.testing.assert_allclose(ours["samples"][:, 0], model.score_samples(wide), rtol=1e-6)


def test_a_component_without_weight_is_never_chosen() -> None:
    x = blobs()
    model = GaussianMixture(3, random_state=0).fit(x)
    model.weights_ = np.array([0.5, 0.0, 0.5])
    with np.errstate(divide="ignore"):
        imported = assert_same(model, x)
    assert not (scored(imported, x)["label"] == 1).any()


def test_the_envelope_itself_is_inside() -> None:
    x = blobs()
    model = EllipticEnvelope(random_state=0).fit(x)
    row = x.iloc[[7]]
    model.offset_ = float(model.score_samples(row)[0])
    ours = scored(import_model(model), row)
    model.offset_ = float(ours["samples"][0, 0])
    assert scored(import_model(model), row)["label"].tolist() == [[1]]
    assert_same(model, x)


def test_words_as_sparse_rows_of_any_width() -> None:
    rng = np.random.default_rng(0)
    words = np.array(["red", "green", "blue", "grey", "black"])
    texts = [" ".join(rng.choice(words, rng.integers(0, 6))) for _ in range(60)]
    for columns in (64, 2**14):
        for cls in (KMeans, BisectingKMeans, MiniBatchKMeans):
            counter = HashingVectorizer(n_features=columns, norm=None)
            model = make_pipeline(counter, cls(3, n_init=1, random_state=0)).fit(texts)
            imported = import_model(model)
            (feature,) = imported.features
            made = reference.run(imported.program, {feature.name: np.array(texts, object)})
            np.testing.assert_array_equal(made["label"][:, 0], model.predict(texts))
            assert ("transform" in made) == (columns == 64)  # which needs dense rows
            if columns == 64:
                np.testing.assert_allclose(
                    made["transform"], model.transform(texts), rtol=1e-9, atol=1e-7
                )


def test_pools_that_python_alone_can_compute_are_refused() -> None:
    x = blobs().assign(c=1.0)
    for pool in (np.median, lambda columns, axis: columns[:, 0]):
        model = FeatureAgglomeration(2, pooling_func=pool).fit(x)
        with pytest.raises(UnsupportedModelError, match=r"pooling_func=np\.mean"):
            import_model(model)


def test_a_cluster_is_a_whole_number_in_sql() -> None:
    x = blobs(20)
    model = KMeans(3, n_init=1, random_state=0).fit(x)
    connection = sqlml.connect()
    connection.register("points", x)
    connection.create_model("places", model)
    answers = connection.execute(
        "SELECT predict('places', a, b) AS c, typeof(c), transform('places', a, b) FROM points"
    ).fetchall()
    assert [c for c, _, _ in answers] == model.predict(x).tolist()
    assert {kind for _, kind, _ in answers} == {"BIGINT"}
    np.testing.assert_allclose([t for _, _, t in answers], model.transform(x), rtol=1e-9)
