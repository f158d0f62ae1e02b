"""Signatures of the preprocessing functions of TRANSFORM (...)."""

from __future__ import annotations

from sqlml.planner.syntax.preprocessing import MULTI_FEATURE_FUNCTIONS, SIGNATURES
from sqlml.training.transform.preprocessors import PREPROCESSORS


def test_each_function_has_a_form_with_its_own_name() -> None:
    assert {*SIGNATURES} == {*PREPROCESSORS, *MULTI_FEATURE_FUNCTIONS}
    assert all(form.example.startswith(f"{name}(") for name, form in SIGNATURES.items())
