"""Formulas of statsmodels: what patsy makes of columns, and sqlml of patsy's design."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import sqlml
from sqlml.errors import UnknownCategoryError, UnsupportedModelError

smf = pytest.importorskip("statsmodels.formula.api")
pytest.importorskip("patsy")

FACTOR = 2.5


def table(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["a", "b", "y"])
    made["z"] = rng.random(rows) + 0.1
    made["k"] = rng.integers(0, 4, rows)
    made["region"] = rng.choice(["north", "south", "it's west"], rows)
    made["kind"] = pd.Categorical(rng.choice(["x", "y"], rows))
    made["flag"] = rng.random(rows) < 0.4
    made["odd name"] = rng.normal(size=rows)
    return made


FORMULAS = [
    "a + region",
    "a * b - 1",
    "C(region) + 0",
    "region * kind + a:region:kind + a:b:kind",
    "C(region, Treatment(reference='south')) + C(k, Sum)",
    "C(k, Poly) + C(region, Helmert):b + C(kind, Diff)",
    "C(k, levels=[3, 2, 1, 0])",
    "np.log(z) + np.exp(-b) + np.sqrt(z) + np.log1p(z) + np.abs(a) + abs(b)",
    "I(a**2) + I(a**-1) + I(z**0.5) + I(a**3) + np.power(z, 1.5) + I(a / (1 + z) % 1)",
    "I((a > 0) * b) + I(1.0 * (a <= 0.5)) + np.maximum(a, 0) + np.where(b > 0, a, 0)",
    "flag + flag:a + (a > 0) + C(a > b)",
    "center(a) + standardize(b) + scale(z, ddof=1) + np.log(scale(z, center=False))",
    "Q('odd name') + C(Q('region')):a + I(FACTOR * a) + I((region == 'south') * 1.0)",
    "I((a > 0) & (b > 0) | ~(z > 0.5)) + np.sin(a) + np.minimum(a, b)",
]


def fitted(formula: str, data: pd.DataFrame) -> Any:
    return smf.ols(f"y ~ {formula}", data).fit()


@pytest.mark.parametrize("formula", FORMULAS)
def test_predictions_are_those_of_statsmodels(formula: str) -> None:
    data = table()
    model = fitted(formula, data)
    rows = data.drop(columns="y").copy()
    for place, name in enumerate(["a", "b", "z", "region", "odd name"]):
        rows.loc[place, name] = None
    rows.loc[5, "z"], rows.loc[6, "z"], rows.loc[7, "a"] = 0.0, -1.0, 0.0
    found = sqlml.compile(model).predict(rows)
    with np.errstate(all="ignore"):
        want = np.asarray(model.predict(rows))
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-11)


def test_other_models_take_formulas() -> None:
    data = table().assign(yes=lambda t: (t.a + t.b > 0.2 * t.y).astype(int))
    for model in (
        smf.logit("yes ~ C(region) + a:kind", data).fit(disp=0),
        smf.poisson("k ~ np.log(z) * kind", data).fit(disp=0),
        smf.glm("y ~ region + I(a**2)", data).fit(),
        smf.ols("y ~ region", data).fit_regularized(alpha=0.1),
    ):
        np.testing.assert_allclose(sqlml.compile(model).predict(data), model.predict(data))


def test_the_columns_are_those_that_the_formula_reads() -> None:
    data = table()
    with sqlml.connect() as con:
        con.register("rows", data)
        model = fitted("C(region) + np.log(z):flag + I(k * a)", data)
        con.create_model("m", model)
        assert con.model("m").inputs == {
            "region": "VARCHAR",
            "flag": "DOUBLE",
            "z": "DOUBLE",
            "k": "DOUBLE",
            "a": "DOUBLE",
        }
        assert "label_flips=0" in dict(con.model("m").properties)["verification"]
        (found,) = con.execute("SELECT predict('m', *) FROM rows").fetchnumpy().values()
        np.testing.assert_allclose(found, model.predict(data))
        query = "SELECT predict('m', * REPLACE ('east' AS region)) FROM rows"
        with pytest.raises(UnknownCategoryError, match="'east', which the formula has never seen"):
            con.execute(query).fetchall()


def double(x: Any) -> Any:
    return 2 * x


REFUSED = {
    "double(a)": "'double",
    "np.cumsum(a)": "cumsum",
    "bs(z, df=4)": "bs",
    "a.abs()": "abs",
    "I(a // 2)": "//",
    "a.rank()": "rank",
    "I(flag + flag)": "truth values",
    "C(region.str.upper())": "produces strings",
    "I(__import__('numpy').abs(a))": "__import__",
}


@pytest.mark.parametrize("formula", REFUSED)
def test_what_is_refused_is_named(formula: str) -> None:
    with pytest.raises(UnsupportedModelError, match="formula") as caught:
        sqlml.compile(fitted(formula, table()))
    assert REFUSED[formula] in str(caught.value)


def test_a_name_that_hides_numpy_is_not_taken_for_it() -> None:
    class np:
        log = staticmethod(lambda x: x * 3)

    with pytest.raises(UnsupportedModelError, match="log"):
        sqlml.compile(smf.ols("y ~ np.log(z)", table()).fit())
