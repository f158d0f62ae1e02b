"""Results of statsmodels' linear models, which predict the mean of the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import sqlml
from sqlml import errors

pytest.importorskip("statsmodels")

import statsmodels.api as sm
import statsmodels.formula.api as smf

RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame(RANDOM.normal(size=(200, 3)), columns=["a", "b", "c"])
Y = 2 * ROWS.a - ROWS.b + RANDOM.normal(size=200)
YES = (Y > 0).astype(int)
COUNTS = RANDOM.poisson(np.exp(ROWS.a / 2))
WITH_ONES = sm.add_constant(ROWS)
BINOMIAL, GAMMA = sm.families.Binomial(), sm.families.Gamma(sm.families.links.Log())
links = sm.families.links
LINEAR = 4 + 0.3 * ROWS.a + RANDOM.random(200)
FORMULA = ROWS.assign(y=Y, yes=YES)

FITTED: dict[str, tuple[Any, Any]] = {
    "ols": (sm.OLS(Y, WITH_ONES).fit(), WITH_ONES),
    "ols without a constant": (sm.OLS(Y, ROWS).fit(), ROWS),
    "regularized": (sm.OLS(Y, WITH_ONES).fit_regularized(alpha=0.1), WITH_ONES),
    "wls": (sm.WLS(Y, WITH_ONES, weights=RANDOM.random(200)).fit(), WITH_ONES),
    "constant last": (sm.OLS(Y, sm.add_constant(ROWS, prepend=False)).fit(), None),
    "logit": (sm.Logit(YES, WITH_ONES).fit(disp=0), WITH_ONES),
    "poisson": (sm.Poisson(COUNTS, WITH_ONES).fit(disp=0), WITH_ONES),
    "glm": (sm.GLM(YES, WITH_ONES, family=BINOMIAL).fit(), WITH_ONES),
    "glm with a log": (sm.GLM(np.exp(Y), WITH_ONES, family=GAMMA).fit(), WITH_ONES),
    "glm of numbers": (sm.GLM(Y, ROWS).fit(), ROWS),
    "probit": (sm.Probit(YES, WITH_ONES).fit(disp=0), WITH_ONES),
    **{
        f"glm, {link.__name__}": (
            sm.GLM(YES, WITH_ONES, family=sm.families.Binomial(link())).fit(),
            WITH_ONES,
        )
        for link in (links.Probit, links.CLogLog, links.LogLog)
    },
    **{
        f"glm, {type(family.link).__name__}": (
            sm.GLM(family.link.inverse(LINEAR), WITH_ONES, family=family).fit(
                start_params=[4, 0.3, 0, 0]
            ),
            WITH_ONES,
        )
        for family in (
            sm.families.Gamma(links.InversePower()),
            sm.families.InverseGaussian(links.InverseSquared()),
            sm.families.Poisson(links.Sqrt()),
        )
    },
    "formula": (smf.ols("y ~ a + c", FORMULA).fit(), ROWS),
    "logit by formula": (smf.logit("yes ~ b + a", FORMULA).fit(disp=0), ROWS),
}


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", FITTED)
def test_results(name: str) -> None:
    model, x = FITTED[name]
    x = sm.add_constant(ROWS, prepend=False) if x is None else x
    want = np.asarray(model.predict(x))
    np.testing.assert_allclose(sqlml.compile(model).predict(ROWS), want, rtol=1e-12, atol=1e-14)
    with sqlml.connect() as con:
        con.register("rows", ROWS)
        con.create_model("m", model)
        (found,) = con.execute("SELECT predict('m', *) FROM rows").fetchnumpy().values()
        told = dict(con.model("m").properties)
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-14)
    assert told["library"].startswith("statsmodels 0") and "label_flips=0" in told["verification"]


def test_a_matrix_has_no_names() -> None:
    model = sm.OLS(Y.to_numpy(), sm.add_constant(ROWS.to_numpy())).fit()
    found = sqlml.compile(model).predict(ROWS.to_numpy())
    np.testing.assert_allclose(found, model.predict(sm.add_constant(ROWS.to_numpy())), rtol=1e-12)
    with sqlml.connect() as con:
        with pytest.raises(errors.ConfigError, match="without column names"):
            con.create_model("m", model)
        con.create_model("m", model, inputs=["a", "b", "c"])
        assert list(con.model("m").inputs) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (sm.GLM(YES, WITH_ONES, family=sm.families.Binomial(links.Cauchy())), "Cauchy"),
        (sm.OLS(Y, np.ones(200)), "reads no columns"),
        (sm.MNLogit(RANDOM.integers(0, 3, 200), WITH_ONES), "does not import|equations"),
        (sm.RLM(Y, WITH_ONES), "does not import"),
    ],
)
def test_what_is_not_covered(model: Any, words: str) -> None:
    options = {"disp": 0} if "discrete" in type(model).__module__ else {}
    with pytest.raises(errors.UnsupportedModelError, match=words):
        sqlml.compile(model.fit(**options))
