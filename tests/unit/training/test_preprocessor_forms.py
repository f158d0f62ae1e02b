"""How the preprocessing functions of TRANSFORM (..) are called."""

from __future__ import annotations

from sqlml.training.preprocessor_forms import FORMS
from sqlml.training.preprocessors import PREPROCESSORS
from sqlml.training.transform_items import SEVERAL


def test_each_function_has_a_form_with_its_own_name() -> None:
    assert {*FORMS} == {*PREPROCESSORS, *SEVERAL}
    assert all(form.example.startswith(f"{name}(") for name, form in FORMS.items())
