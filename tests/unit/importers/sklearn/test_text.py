"""Vectorizers alone, as Series and lists of documents take them, and what is refused."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestRegressor, StackingClassifier, VotingClassifier
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import murmurhash3_32
from xgboost import XGBRegressor

import sqlml
from sqlml.backends import base
from sqlml.backends.native.text.count_tokens import make_token_counter
from sqlml.errors import InputTypeError, MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.ir import store
from sqlml.ir.builder import Builder
from sqlml.ir.hashes import murmur3
from sqlml.ir.operators.text import WORD_RUN_PATTERNS, Analyzer
from sqlml.ir.utf8_column import TextColumn, is_well_formed, pack_words, select_words, unpack_words
from sqlml.passes import run, select_outputs
from sqlml.types import Array

LETTERS = "abcABC  \t\n\x0b..!_09éÉßſİΣσςÀ日本語K\u0301\u00a0\u2003-ǅⱥȺ𝔘\U00010400\x00½²ⅷªﬁ"


def scribbles(rows: int, seed: int = 0) -> list[str]:
    """Texts of letters that are hard to lower, to cut or to encode."""
    rng = np.random.default_rng(seed)
    letters = np.array(list(LETTERS), object)
    sizes = rng.choice([0, 1, 2, 3, 5, 20, 60], rows)
    return ["".join(rng.choice(letters, size)) for size in sizes]


def transformed(model: Any, documents: Any, **options: Any) -> Array:
    return sqlml.compile(model, **options).transform(documents)


ANALYZERS = [
    {"analyzer": analyzer, "ngram_range": sizes, "lowercase": lower, "strip_accents": accents}
    for analyzer, sizes, lower, accents in itertools.product(
        ("word", "char", "char_wb"), ((1, 1), (2, 4)), (True, False), (None, "ascii", "unicode")
    )
]


@pytest.mark.by_day(3)
@pytest.mark.parametrize("options", ANALYZERS, ids=lambda o: "-".join(map(str, o.values())))
def test_every_way_to_cut_hard_letters(options: dict[str, Any]) -> None:
    fitted_on, documents = scribbles(150), scribbles(150, 1)
    model = CountVectorizer(**options, max_features=3000).fit(fitted_on)
    np.testing.assert_array_equal(
        transformed(model, documents), model.transform(documents).toarray()
    )
    hashing = HashingVectorizer(**options, n_features=97, norm=None).fit(documents)
    want = hashing.transform(documents).toarray()
    np.testing.assert_array_equal(transformed(hashing, documents), want)
    np.testing.assert_array_equal(transformed(hashing, documents, backend="reference"), want)


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize(
    "pattern", [*WORD_RUN_PATTERNS, r"\b[^\W\d_]{2,}\b", r"(?i)[a-z]+", r"a(.)|b", r"\S+"]
)
def test_patterns_and_stop_words(pattern: str, most: int) -> None:
    if re.compile(pattern).groups > 1:
        pytest.skip("scikit-learn takes one group at most")
    documents = scribbles(200, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"token_pattern": pattern, "ngram_range": (1, most)}
        model = CountVectorizer(**options, stop_words=["b", "ab", "é"]).fit(documents)
    np.testing.assert_array_equal(
        transformed(model, documents), model.transform(documents).toarray()
    )


def test_every_character_is_cut_and_lowered_as_python_does() -> None:
    everything = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    documents = [f"a{c}b{c}{c} {c}{c}" for c in everything[::7]] + ["".join(everything)]
    model = HashingVectorizer(n_features=2**12, norm=None)
    np.testing.assert_array_equal(
        transformed(model, documents[-3000:]), model.transform(documents[-3000:]).toarray()
    )


def test_tf_idf_is_bit_for_bit_that_of_the_source() -> None:
    documents = scribbles(300, 3)
    for options in (
        {},
        {"norm": "l1", "sublinear_tf": True},
        {"norm": None, "smooth_idf": False},
        {"use_idf": False, "binary": True},
        {"dtype": np.float32, "sublinear_tf": True},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = TfidfVectorizer(analyzer="char_wb", **options).fit(documents)
        want = model.transform(documents).toarray().astype(np.float64)
        np.testing.assert_array_equal(transformed(model, documents), want)
        np.testing.assert_array_equal(transformed(model, documents, backend="torch"), want)


def test_scores_are_summed_as_scipy_sums_them() -> None:
    documents = scribbles(300, 4)
    target = np.array(["ab"[len(d) % 2] for d in documents])
    for dtype in (np.float64, np.float32):
        vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), dtype=dtype)
        for classifier in (LogisticRegression(), SGDClassifier(random_state=0)):
            model = make_pipeline(vectorizer, classifier).fit(documents, target)
            scorer = sqlml.compile(model)
            np.testing.assert_array_equal(scorer.predict(documents), model.predict(documents))
            np.testing.assert_array_equal(
                scorer.decision_function(documents), model.decision_function(documents)
            )


def test_one_sequence_of_documents_in_every_form() -> None:
    documents = ["a good text", "", "texts text"]
    model = make_pipeline(CountVectorizer(), LinearRegression()).fit(documents, [1, 2, 3])
    scorer = sqlml.compile(model, inputs=["note"])
    want = model.predict(documents)
    forms: list[Any] = [
        documents,
        tuple(documents),
        np.array(documents, object),
        np.array(documents),
        np.array(documents, object).reshape(-1, 1),
        pd.Series(documents, index=[7, 8, 9]),
        pd.Series(documents, dtype=object),
        pd.Series(documents, dtype="category"),
        pd.DataFrame({"other": 1, "NOTE": documents}),
        {"note": documents},
        pa.table({"note": pa.chunked_array([documents[:1], documents[1:]])}),
        pa.array(documents, pa.large_string()),
        pa.array(["x", *documents]).slice(1),
        pa.array(documents, pa.string_view()),
        pa.array(documents).dictionary_encode(),
    ]
    for form in forms:
        np.testing.assert_allclose(scorer.predict(form), want, rtol=1e-12)
    assert scorer.predict([]).shape == scorer.predict(np.empty(0, object)).shape == (0,)
    assert [f.name for f in sqlml.compile(model).features] == ["text"]


def test_missing_texts_and_numbers_are_errors() -> None:
    scorer = sqlml.compile(TfidfVectorizer().fit(["a good text"]))
    for bad in (["good", None], pd.Series(["good", None]), pa.array([None], pa.string())):
        with pytest.raises(MissingValueError, match="'text' has NULL, which TfidfVectorizer"):
            scorer.transform(bad)
    for bad in (np.zeros((2, 1)), pa.array([1, 2]), {"text": [1.0]}):
        with pytest.raises(InputTypeError, match="takes strings"):
            scorer.transform(bad)
    with pytest.raises(InputTypeError, match="not valid Unicode"):
        scorer.transform(["\udc80"])


def test_python_functions_are_refused() -> None:
    documents = ["some words", "more words"]
    for options in (
        {"analyzer": str.split},
        {"tokenizer": str.split, "token_pattern": None},
        {"preprocessor": str.upper},
        {"strip_accents": str.upper},
    ):
        model = CountVectorizer(**options).fit(documents)  # type: ignore[arg-type]
        with pytest.raises(UnsupportedModelError, match="calls the Python function"):
            sqlml.compile(model)


def test_what_else_is_refused_and_why() -> None:
    documents = ["some words", "more words"]
    refused = {
        r"may wrap": CountVectorizer(dtype=np.int8).fit(documents),
        r"n-gram sizes must be from 1": HashingVectorizer(ngram_range=(0, 2)),
        r"reads files": HashingVectorizer(input="filename"),
        r"not fitted": CountVectorizer(),
        r"call its fit\(\) on a few texts": make_pipeline(CountVectorizer(vocabulary=["a", "b"])),
    }
    for reason, model in refused.items():
        with pytest.raises(UnsupportedModelError, match=reason):
            sqlml.compile(model, inputs=["t"])
    frame = pd.DataFrame({"note": ["x y"]})
    listed = ColumnTransformer([("t", CountVectorizer(), ["note"])])
    with pytest.raises(UnsupportedModelError, match="give it one column as a string"):
        sqlml.compile(listed.fit(frame))


def test_wide_rows_are_never_made_dense() -> None:
    documents = scribbles(50, 5)
    with pytest.raises(UnsupportedModelError, match="at most 4096"):
        sqlml.compile(HashingVectorizer())
    neighbours = make_pipeline(HashingVectorizer(), KNeighborsRegressor())
    with pytest.raises(UnsupportedModelError, match="max_features=4096"):
        sqlml.compile(neighbours.fit(documents, np.arange(50)))
    for model in (LinearRegression(), DecisionTreeRegressor(max_depth=3)):
        wide = make_pipeline(HashingVectorizer(n_features=2**18), model)
        wide.fit(documents, [len(d) for d in documents])
        scorer = sqlml.compile(wide)
        np.testing.assert_allclose(scorer.predict(documents), wide.predict(documents), rtol=1e-9)
        core = run(select_outputs(scorer.program, ["label"]))
        dense = max(n.type.width for n in core.nodes if n.type.rowwise and not n.type.sparse)
        assert dense <= 8


def test_trees_look_for_the_words_that_they_test_alone() -> None:
    documents = [" ".join(np.random.default_rng(i).choice(list("abcdefgh"), 4)) for i in range(80)]
    vectorizer = CountVectorizer(token_pattern=r"\w")
    target = [d.count("c") for d in documents]
    model = make_pipeline(vectorizer, DecisionTreeRegressor(max_depth=2)).fit(documents, target)
    program = run(select_outputs(import_model(model).program, ["label"]))
    (count,) = [n for n in program.nodes if n.op == "count_tokens"]
    assert unpack_words(count.attrs["words"], count.attrs["ends"]) == ["c"]
    weighted = make_pipeline(
        CountVectorizer(token_pattern=r"\w"), TfidfTransformer(norm=None), LinearRegression()
    ).fit(documents, target)
    weighted[-1].coef_[[0, 1, 4]] = 0
    program = run(select_outputs(import_model(weighted).program, ["label"]))
    (count,) = [n for n in program.nodes if n.op == "count_tokens"]
    assert unpack_words(count.attrs["words"], count.attrs["ends"]) == list("cdfgh")
    for pipe in (model, weighted):
        got = sqlml.compile(pipe).predict(documents)
        np.testing.assert_allclose(got, pipe.predict(documents), rtol=1e-12, atol=1e-12)


def test_xgboost_takes_what_is_not_stored_for_missing_and_a_stored_zero_for_zero() -> None:
    documents = scribbles(200, 6)
    # With few columns, words of both signs meet and leave a zero that is stored.
    vectorizer = HashingVectorizer(n_features=4, norm=None, analyzer="char")
    assert (vectorizer.transform(documents).data == 0).any()
    model = make_pipeline(vectorizer, XGBRegressor(n_estimators=10, max_depth=4))
    model.fit(documents, [len(d) + d.count("a") for d in documents])
    np.testing.assert_array_equal(
        sqlml.compile(model).predict(documents).astype(np.float32), model.predict(documents)
    )


def test_unions_weights_and_counts_of_numbers() -> None:
    documents = scribbles(100, 7)
    union = FeatureUnion(
        [("w", TfidfVectorizer(analyzer="char")), ("h", HashingVectorizer(n_features=16))],
        transformer_weights={"h": 0.3},
    ).fit(documents)
    np.testing.assert_array_equal(
        transformed(union, documents), union.transform(documents).toarray()
    )
    counts = np.random.default_rng(0).poisson(0.5, (60, 5)).astype(float)
    for options in ({}, {"sublinear_tf": True, "norm": "l1"}):
        model = TfidfTransformer(**options).fit(counts)
        np.testing.assert_array_equal(transformed(model, counts), model.transform(counts).toarray())
    forest = make_pipeline(CountVectorizer(), RandomForestRegressor(3, random_state=0))
    forest.fit(documents, np.arange(100))
    np.testing.assert_array_equal(
        sqlml.compile(forest).predict(documents), forest.predict(documents)
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a, b: VotingClassifier([("a", a), ("b", b)], voting="soft"),
        lambda a, b: StackingClassifier([("a", a), ("b", b)], cv=2),
        lambda a, b: CalibratedClassifierCV(a, cv=2),
        lambda a, b: OneVsRestClassifier(b),
        lambda a, b: GridSearchCV(a, {"logisticregression__C": [1.0, 2.0]}, cv=2),
    ],
)
def test_ensembles_of_whole_pipelines_read_the_texts(wrap: Callable[[Any, Any], Any]) -> None:
    documents = scribbles(60, 8)
    target = np.array(["even" if len(d) % 2 else "odd" for d in documents])
    words = make_pipeline(TfidfVectorizer(analyzer="char"), LogisticRegression())
    counts = make_pipeline(CountVectorizer(analyzer="char"), MultinomialNB())
    model = wrap(words, counts).fit(documents, target)
    scorer = sqlml.compile(model)
    assert [f.name for f in scorer.features] == ["text"]
    np.testing.assert_array_equal(scorer.predict(documents), model.predict(documents))
    want = model.predict_proba(documents)
    np.testing.assert_allclose(scorer.predict_proba(documents), want, rtol=1e-9, atol=1e-12)


def test_the_logarithm_of_a_negative_count_is_an_error_where_the_source_raises() -> None:
    documents = ["dog dog", "cat cat bird"]
    model = make_pipeline(
        HashingVectorizer(norm=None, n_features=64), TfidfTransformer(sublinear_tf=True)
    ).fit(documents)
    with pytest.raises(ValueError, match="NaN"), np.errstate(all="ignore"):
        model.transform(documents)
    with pytest.raises(MissingValueError, match="TfidfTransformer does not take"):
        transformed(model, documents)


def test_dict_vectorizer_reads_the_columns_that_its_keys_were() -> None:
    frame = pd.DataFrame(
        {"city": ["Bern", "Oslo", None], "age": [3.0, 0.0, np.nan], "note": ["a=b", "c", "a=b"]}
    )
    model = DictVectorizer(sparse=False).fit(frame.head(2).to_dict("records"))
    fresh = pd.DataFrame({"note": ["a=b", "z"], "city": ["Oslo", None], "age": [1.5, -1.0]})
    scorer = sqlml.compile(model)
    assert {f.name: f.kind for f in scorer.features} == {
        "age": "number",
        "city": "string",
        "note": "string",
    }
    for table in (frame, fresh):
        np.testing.assert_array_equal(
            scorer.transform(table), model.transform(table.to_dict("records"))
        )
    mixed = DictVectorizer().fit([{"a": 1.0}, {"a": "x"}])
    with pytest.raises(UnsupportedModelError, match="numbers and strings under the key 'a'"):
        sqlml.compile(mixed)
    with pytest.raises(UnsupportedModelError, match="rounds numbers"):
        sqlml.compile(DictVectorizer(dtype=np.int64).fit([{"a": 1}]))


def test_feature_hasher_hashes_the_strings_of_a_row() -> None:
    rows = np.array([["dog", "cat"], ["dog", "dog"], ["", "日本"]], object)
    model = FeatureHasher(n_features=10, input_type="string")
    want = model.transform(rows).toarray()
    np.testing.assert_array_equal(sqlml.compile(model, inputs=["a", "b"]).transform(rows), want)


def test_a_stored_model_keeps_its_million_words_small() -> None:
    words = [f"w{i}" for i in range(100_000)]
    model = make_pipeline(CountVectorizer(vocabulary=words), LinearRegression())
    model.steps[0][1].fit(["w1"])
    model.steps[1][1].coef_, model.steps[1][1].intercept_ = np.ones(100_000), 0.0
    model.steps[1][1].n_features_in_ = 100_000
    imported = import_model(model)
    blob = store.dumps(imported.program)
    assert len(blob) < 400_000
    assert store.loads(blob).hash == imported.program.hash
    compiled = base.load_backend("native").compile(imported.program)
    got = compiled.run({"text": np.array(["w5 w99999 w100000 w5"], object)})["label"]
    assert got.tolist() == [[3.0]]


def test_packed_words_are_checked() -> None:
    data, ends = pack_words(["", "é", "\udc80", "ab"])
    assert is_well_formed(data, ends)
    assert unpack_words(data, ends) == ["", "é", "\udc80", "ab"]
    assert unpack_words(*select_words(data, ends, np.array([3, 0, 1]))) == ["ab", "", "é"]
    assert unpack_words(*select_words(data, ends, np.zeros(0, np.int64))) == []
    for broken in (ends[::-1], ends - 1, ends[:-1], np.array([1, 2, 5, 7])):
        assert not is_well_formed(data, np.ascontiguousarray(broken))
    assert not is_well_formed(np.array([0xFF], np.uint8), np.array([1]))
    assert not is_well_formed(data.astype(np.int64), ends)


def test_bytes_that_are_no_text_do_no_harm() -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, 4000).astype(np.uint8)
    cuts = np.sort(rng.integers(0, 4000, 300))
    texts = TextColumn(data, cuts[:-1], cuts[1:], np.zeros(299, bool))
    b = Builder()
    x = b.input("t", "string")
    for analyzer in ("word", "char", "char_wb"):
        node = b.node(
            b.op(
                "hash_tokens",
                x,
                analyzer=analyzer,
                lowercase=False,
                accents="",
                pattern=r"\w+",
                stop_words=np.empty(0, object),
                min_n=1,
                max_n=3,
                dtype="float64",
                features=("t",),
                step="HashingVectorizer",
                width=9,
                alternate_sign=True,
            )
        )
        assert make_token_counter(node.attrs, hashed=True)(texts).shape == (299, 9)


def test_the_hash_is_murmur3() -> None:
    rng = np.random.default_rng(0)
    for size in range(40):
        content = rng.integers(0, 256, size).astype(np.uint8).tobytes()
        assert murmur3(content) == murmurhash3_32(content, seed=0)


def test_the_analyzer_says_what_it_cannot_mean() -> None:
    good: dict[str, Any] = {
        "kind": "word",
        "lowercase": True,
        "accents": "",
        "pattern": r"\w+",
        "stop_words": frozenset(),
        "min_n": 1,
        "max_n": 1,
    }
    assert Analyzer(**good).extract_features("A b") == ["a", "b"]
    for change, message in (
        ({"kind": "line"}, "unknown analyzer"),
        ({"accents": "all"}, "accents 'all'"),
        ({"min_n": 0}, "invalid n-grams: 0 to"),
        ({"max_n": 10**9}, "n-grams"),
        ({"pattern": "("}, "token pattern"),
        ({"pattern": "(a)(b)"}, "2 groups"),
        ({"pattern": "a" * 5000}, "5000 characters"),
    ):
        with pytest.raises(sqlml.errors.ProgramError, match=message):
            Analyzer(**{**good, **change})
