"""What counts as a difference between a contender and the source library."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.compare import canonical, compare


def test_results_of_every_form_are_one_matrix() -> None:
    two = np.array([[0.75, 0.25], [0.5, 0.5]], np.float32)
    forms = (two, two[:, 1], two[:, 1:], two[:, None, :], two[:, None, 1:])
    mappings = [{0: float(a), 1: float(b)} for a, b in two]
    for form in (*forms, mappings):
        assert canonical(form, "predict_proba").tolist() == [[0.25], [0.5]]
    three = np.eye(3)
    assert canonical(three[:, None, :], "predict_proba").tolist() == three.tolist()
    assert canonical(two, "transform").tolist() == two.tolist()


def test_equal_results_differ_by_nothing() -> None:
    scores = np.array([[0.1], [np.nan], [np.inf]])
    same = compare(scores, scores.copy(), "predict", labels=False)
    assert (same.largest, same.relative, same.rows, same.labels) == (0.0, 0.0, 0.0, None)
    assert same.exact


def test_a_millionth_is_exact_and_more_is_not() -> None:
    want = np.array([[0.5], [0.25]])
    near = compare(want * (1 + 9e-7), want, "predict_proba", labels=True)
    far = compare(want * (1 + 2e-6), want, "predict_proba", labels=True)
    assert near.relative == pytest.approx(9e-7)
    assert not near.exact, "0.5 and a little more is another label"
    assert near.labels == 0.5
    assert not far.exact
    assert compare(want * (1 - 9e-7), want, "predict_proba", labels=True).exact


def test_a_number_near_zero_is_held_to_the_largest() -> None:
    want = np.array([[1.0, 1e-12]])
    assert compare(want + [[0.0, 1e-10]], want, "transform", labels=False).exact
    assert not compare(want + [[0.0, 1e-8]], want, "transform", labels=False).exact


def test_rows_beyond_the_bound_of_the_paper_are_counted() -> None:
    want = np.ones((4, 3))
    got = want.copy()
    got[1, 2] += 1e-3
    d = compare(got, want, "transform", labels=False)
    assert d.rows == 0.25
    assert d.largest == pytest.approx(1e-3)


def test_a_missing_number_is_an_infinite_difference() -> None:
    d = compare(np.array([[np.nan]]), np.array([[1.0]]), "predict", labels=False)
    assert d.largest == np.inf
    assert not d.exact


def test_an_infinite_number_is_no_bound() -> None:
    d = compare(np.array([[1.0], [2.0]]), np.array([[np.inf], [2.0]]), "predict", labels=False)
    assert d.largest == d.relative == np.inf
    assert d.rows == 0.5


def test_labels_of_several_classes_are_the_largest_score() -> None:
    want = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    got = np.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]])
    assert compare(got, want, "predict_proba", labels=True).labels == 0.5
    assert (
        compare(np.array([[1.0], [2.0]]), np.array([[1.0], [0.0]]), "predict", labels=True).labels
        == 0.5
    )


def test_many_rows_are_compared_in_parts() -> None:
    want = np.zeros((2_500_000, 1)) + 1.0
    got = want.copy()
    got[[5, 1_500_000, 2_499_999], 0] = [1.5, 2.0, 1.25]
    d = compare(got, want, "predict", labels=False)
    assert d.largest == 1.0
    assert d.rows == pytest.approx(3 / 2_500_000)


def test_another_shape_is_another_question() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 1\), the library's \(3, 2\)"):
        compare(np.zeros((3, 1)), np.zeros((3, 2)), "transform", labels=False)
