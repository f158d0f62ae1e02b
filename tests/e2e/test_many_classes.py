"""Classifiers of very many classes: a query that names them all is planned in no time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import sqlml

COUNT = 1000


def labels(of: str) -> Any:
    if of == "numbers":
        return np.array([(-1) ** k * k * 2**50 // 1000 for k in range(COUNT)])
    names = [f"it's class {k}" for k in range(COUNT)]
    if of == "separators":
        names[:5] = ["a|b", "a;b", "a\nb", "", "ä|日本"]
    if of == "all separators":
        names[:4] = ["a|b", "a;b", "a\nb", "a\x1fb"]
    return np.array(names, object)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
@pytest.mark.parametrize("of", ["strings", "separators", "all separators", "numbers"])
def test_each_label_comes_back_as_it_was(of: str) -> None:
    x, y = np.arange(float(COUNT))[:, None], labels(of)
    model = KNeighborsClassifier(1).fit(x, y)
    with sqlml.connect() as con:
        con.create_model("m", model, inputs=["a"], verify=False)
        con.execute(f"CREATE TABLE t AS SELECT range::DOUBLE AS a FROM range({COUNT})")
        found = con.execute("SELECT predict('m', *) FROM t ORDER BY a").fetchall()
        assert [v for (v,) in found] == y.tolist()
        with con.connection.cursor() as plain:
            assert plain.execute("SELECT predict('m', t) FROM t ORDER BY a").fetchall() == found
        query = "SELECT predict_proba('m', a) FROM t WHERE a = 2"
        ((proba,),) = con.execute(query).fetchall()
        assert proba[y[2]] == 1.0 and len(proba) == COUNT
        if of != "all separators":
            begin = time.process_time()
            con.execute("SELECT predict('m', a) FROM t WHERE a = 3").fetchall()
            assert time.process_time() - begin < 0.5
