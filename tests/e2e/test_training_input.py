"""What training refuses, with one clear error each; nothing is half made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml import errors

TREE = "model_type = 'boosted_tree_classifier', n_estimators = 2, label = 'y'"


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as made:
        made.execute(
            "CREATE TABLE t AS SELECT range AS id, (hash(range) % 9)::INTEGER AS a, "
            "(hash(range, 2) % 100)::DOUBLE AS x, (a > 4)::INTEGER AS y FROM range(200)"
        )
        yield made


def refused(
    con: sqlml.Session, options: str, query: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        con.execute(f"CREATE MODEL m OPTIONS ({options}) AS {query}")
    assert not con.execute("SHOW MODELS").fetchall()
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(200,)]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT x, NULL::INTEGER AS y FROM t", "all values of the label 'y' are NULL"),
        ("SELECT x, 1 AS y FROM t", "the label 'y' is 1 in all rows: .* at least two classes"),
        ("SELECT x, range AS y FROM t, range(1001)", "'y' has 1,001 classes, .* at most 1,000"),
        ("SELECT x, id AS y FROM t", "a different class in every row"),
        ("SELECT x, [y] AS y FROM t", r"classes cannot have type INTEGER\[\]; cast column 'y'"),
        ("SELECT x, y, range FROM t, range(0)", "returns no rows: there is nothing to train on"),
        ("SELECT y FROM t", "no column that a model can learn from"),
        ("SELECT y, 'x'::BLOB AS b FROM t", "no column that a model can learn from"),
        ("SELECT y, 'k' || id AS k FROM t", "no column that a model can learn from"),
        ("SELECT x, x AS X, y FROM t", "several columns 'x'; give each a different name with AS"),
        (
            "SELECT CASE WHEN id = 7 THEN 'inf'::DOUBLE ELSE x END AS x, y FROM t",
            "column 'x' has infinite values, .* CASE WHEN isfinite",
        ),
        (
            "SELECT CASE WHEN id = 7 THEN 'inf'::DOUBLE ELSE x END AS \"an x\", y FROM t",
            """CASE WHEN isfinite."an x". THEN "an x" END""",
        ),
        ("SELECT x, CASE WHEN id = 7 THEN 'nan'::DOUBLE ELSE y END AS y FROM t", "isfinite.y"),
        ("SELECT x * 1e38 AS x, y FROM t", "beyond 3.40282e.38, which xgboost cannot take"),
        ("SELECT x, NULL AS y FROM t", "all values of the label 'y' are NULL"),
        ("SELECT y, NULL::VARCHAR AS c FROM t", "no column that a model can learn from"),
    ],
)
def test_rows_that_nothing_is_learned_from(con: sqlml.Session, query: str, says: str) -> None:
    refused(con, TREE, query, errors.ConfigError, says)


@pytest.mark.parametrize(
    ("options", "query", "says"),
    [
        (f"{TREE}, weight = 'a'", "SELECT x, y, -1 AS a FROM t", "weights of at least 0"),
        (f"{TREE}, weight = 'a'", "SELECT x, y, NULL AS a FROM t", "weights of at least 0"),
        (f"{TREE}, weight = 'a'", "SELECT x, y, 'inf'::DOUBLE AS a FROM t", "finite weights"),
        (f"{TREE}, weight = 'a'", "SELECT x, y, 0 AS a FROM t", "have a weight of 0"),
        (f"{TREE}, class_weights = [('0', 0), ('1', 0)]", "FROM t", "have a weight of 0"),
        (f"{TREE}, weight = 'a'", "SELECT x, y, '1' AS a FROM t", "of numbers, and 'a' is VARCHAR"),
        (f"{TREE}, split = 'seq', split_column = 'a'", "SELECT x, y, [1] AS a FROM t", "INTEGER.]"),
        (
            f"{TREE}, split = 'seq', split_column = 'a'",
            "SELECT x, y, NULL::DATE AS a FROM t",
            "split_column 'a' is NULL in all rows",
        ),
        (
            "model_type = 'boosted_tree_regressor', label = 'y', library = 'catboost'",
            "SELECT x, 3 AS y FROM t",
            "has one value in all rows: CatBoost needs two",
        ),
        (f"{TREE}, class_weights = [('7', 2)]", "FROM t", "unknown class '7'; classes: 0, 1"),
        (f"{TREE}, split = 'custom', split_column = 'a'", "FROM t", "'a' must be a BOOLEAN"),
        (
            "model_type = 'linear_reg', label = 'y'",
            "SELECT x, 'a' AS y FROM t",
            "models predict numbers, and column 'y' has type VARCHAR",
        ),
        (f"{TREE}, subsample = 7.5", "FROM t", "XGBClassifier cannot be trained: .*subsample"),
        (
            "model_type = 'logistic_reg', label = 'y', solver = 'x'",
            "FROM t",
            "option solver must be one of lbfgs, liblinear, newton-cg, .*, not 'x'",
        ),
        (f"{TREE}, verify = 3", "FROM t", "option verify cannot be 3"),
        (
            "model_type = 'logistic_reg', label = 'y', encoding = 'target'",
            "SELECT ['a', 'b'][id % 2 + 1] AS c, y FROM t WHERE id < 5",
            "'c' has too many names for so few rows: .*encoding = 'one_hot'",
        ),
        (f"{TREE}, positive_class = 'z'", "FROM t", "no class 'z'"),
    ],
)
def test_options_that_do_not_fit_the_rows(
    con: sqlml.Session, options: str, query: str, says: str
) -> None:
    refused(con, options, query, errors.ConfigError, says)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("label = 'z'", "option label: the query has no column 'z'; its columns: id, a, x, y"),
        ("label = 'idd'", "did you mean 'id'"),
        ("label = 'y', instance_weight_col = 'w'", "option instance_weight_col: .* column 'w'"),
        ("label = 'y', weight = 'w'", "option weight: the query has no column 'w'"),
        ("label = 'y', split = 'seq', split_column = 'd'", "option split_column: .* no column 'd'"),
    ],
)
def test_a_column_that_is_not_there_is_named(con: sqlml.Session, option: str, says: str) -> None:
    options = f"model_type = 'boosted_tree_classifier', {option}"
    refused(con, options, "FROM t", errors.MissingColumnError, says)


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        ("SELECT nothing FROM t", duckdb.BinderException, "nothing"),
        ("SELECT * FROM nowhere", duckdb.CatalogException, "nowhere"),
        ("SELECT x, y, (x || 'z')::INTEGER AS z FROM t", duckdb.ConversionException, "z"),
        (
            "SELECT x, 18446744073709551610::HUGEINT + y AS y FROM t",
            duckdb.InvalidInputException,
            "more digits than a DOUBLE holds",
        ),
        (
            "SELECT CASE WHEN id = 150 THEN error('halfway') ELSE x END AS x, y FROM t",
            duckdb.InvalidInputException,
            "halfway",
        ),
        ("DELETE FROM t RETURNING *", errors.ParseError, "training needs a query"),
        ("SELEC * FROM t", errors.ParseError, "training needs exactly one query"),
        ("SELECT predict('nobody', *) AS p, y FROM t", errors.UnknownModelError, "nobody"),
    ],
)
def test_a_query_that_fails_is_the_engines_error(
    con: sqlml.Session, query: str, error: type[Exception], says: str
) -> None:
    refused(con, TREE, query, error, says)


def test_a_failed_training_leaves_a_transaction_as_the_engine_does(con: sqlml.Session) -> None:
    con.execute("BEGIN; CREATE TABLE more AS FROM t")
    with pytest.raises(errors.ConfigError, match="returns no rows"):
        con.execute(f"CREATE MODEL m OPTIONS ({TREE}) AS FROM more WHERE false")
    assert con.execute("SELECT count(*) FROM more").fetchall() == [(200,)]
    con.execute(f"CREATE MODEL m OPTIONS ({TREE}) AS FROM more")
    con.execute("COMMIT")
    assert con.execute("SELECT count(predict('m', *)) FROM more").fetchall() == [(200,)]


def test_a_model_that_exists_is_told_before_the_work(con: sqlml.Session) -> None:
    con.execute(f"CREATE MODEL m OPTIONS ({TREE}) AS FROM t")
    with pytest.raises(errors.ModelExistsError, match="OR REPLACE MODEL"):
        con.execute(f"CREATE MODEL m OPTIONS ({TREE}) AS SELECT error('read') FROM t")
    con.execute(f"CREATE MODEL IF NOT EXISTS m OPTIONS ({TREE}) AS SELECT error('read') FROM t")
    assert len(con.execute("SHOW VERSIONS IN MODEL m").fetchall()) == 1


def test_a_read_only_database_is_told_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as plain:
        plain.execute("CREATE TABLE t AS SELECT range AS x, range % 2 AS y FROM range(100)")
    with sqlml.connect(path, read_only=True) as con:
        with pytest.raises(errors.CatalogError, match="read-only"):
            con.execute(f"CREATE MODEL m OPTIONS ({TREE}) AS SELECT error('read') FROM t")
    with sqlml.connect() as con:
        con.execute(f"ATTACH '{path}' AS shop (READ_ONLY)")
        with pytest.raises(errors.CatalogError, match="read-only"):
            con.execute(f"CREATE MODEL shop.m OPTIONS ({TREE}) AS SELECT error('read') FROM shop.t")
        con.execute(f"CREATE MODEL m OPTIONS ({TREE}) AS FROM shop.t")


@pytest.mark.parametrize(
    ("what", "options", "says"),
    [
        (LogisticRegression, {"label": "y"}, "an estimator with fit and get_params, not <class"),
        (3, {"label": "y"}, "not 3"),
        (LogisticRegression(), {"label": "y", "max_iter": 5}, "unknown option 'max_iter'"),
        (LogisticRegression(), {}, "LogisticRegression learns from a label"),
        (LogisticRegression(C=-1), {"label": "y"}, "LogisticRegression cannot be trained: .*C"),
        (LogisticRegression(), {"label": "y", "weight": "x"}, "weights of at least 0"),
    ],
)
def test_estimators_that_cannot_be_trained(
    con: sqlml.Session, what: object, options: dict[str, object], says: str
) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        con.train("m", what, "SELECT -x AS x, a, y FROM t", **options)  # type: ignore[arg-type]
    assert not con.execute("SHOW MODELS").fetchall()


def test_classes_that_only_held_out_rows_have_are_trained_on(con: sqlml.Session) -> None:
    told = con.execute(
        f"CREATE MODEL m OPTIONS ({TREE}, split = 'custom', split_column = 'late') AS "
        "SELECT x, a, CASE WHEN id = 199 THEN 2 ELSE y END AS y, id > 150 AS late FROM t"
    ).fetchall()
    assert ("notice", "only held-out rows had the classes 2: these rows are trained on") in told
    assert dict(told)["rows"] == "152" and dict(told)["held_out"] == "48"


def test_rows_without_a_label_are_left_out(con: sqlml.Session) -> None:
    told = con.execute(
        f"CREATE MODEL m OPTIONS ({TREE}, split = 'none') AS "
        "SELECT x, a, CASE WHEN id % 4 > 0 THEN y END AS y FROM t"
    ).fetchall()
    assert ("notice", "50 rows were left out: their label is NULL") in told
    assert dict(told)["rows"] == "150"


def test_rows_that_do_not_fit_are_told_before_they_are_read(con: sqlml.Session) -> None:
    query = "SELECT range AS a, range % 7 AS b, range % 2 AS y FROM range(100_000_000)"
    con.execute("SET memory_limit = '256MiB'")
    options = "model_type = 'boosted_tree_classifier', label = 'y', library = 'sklearn'"
    says = "HistGradient.* keeps all rows in memory: 100,000,000 of them .*library = 'xgboost'"
    refused(con, options, query, errors.ConfigError, says)
    says = "IsolationForest keeps all rows in memory.*USING SAMPLE"
    refused(con, "model_type = 'isolation_forest'", query, errors.ConfigError, says)
    says = "KMeans keeps all rows in memory"
    options = "model_type = 'kmeans', out_of_core = false"
    refused(con, options, query, errors.ConfigError, says)
    options = "model_type = 'boosted_tree_classifier', label = 'y', library = 'sklearn'"
    few = "SELECT * FROM (SELECT a, x, y FROM t) JOIN range(60_000) ON range % 3 < a"
    refused(con, options, few, errors.ConfigError, "HistGradient.* keeps all rows in memory")


def test_columns_without_a_value_are_left_out(con: sqlml.Session) -> None:
    for library in ("xgboost", "lightgbm", "catboost", "sklearn"):
        told = con.execute(
            "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'boosted_tree_classifier', "
            f"label = 'y', library = '{library}') AS "
            "SELECT x, NULL AS n, NULL::VARCHAR AS c, NULL::DOUBLE AS d, y FROM t"
        ).fetchall()
        for name in "ncd":
            says = f"column '{name}' has no value in any row and is left out"
            assert ("notice", says) in told
    assert con.execute("SELECT count(predict('m', x)) FROM t").fetchall() == [(200,)]


def test_no_rows_held_out_is_told(con: sqlml.Session) -> None:
    told = con.execute(
        f"CREATE MODEL m OPTIONS ({TREE}, split = 'seq', split_column = 's') AS "
        "SELECT x, y, 1 AS s FROM t"
    ).fetchall()
    assert any("no rows are held out" in text for _, text in told)


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("DATE '2024-01-01' + y", "DATE"),
        ("TIMESTAMP '2024-01-01' + INTERVAL 1 HOUR * y", "TIMESTAMP"),
        ("md5(y::VARCHAR)::UUID", "UUID"),
        ("['a', 'b'][y + 1]::ENUM('a', 'b', 'c')", "ENUM('a', 'b', 'c')"),
        ("y::DECIMAL(5, 1)", "DECIMAL(5,1)"),
        ("y::HUGEINT", "HUGEINT"),
    ],
)
def test_an_estimator_predicts_classes_in_their_own_type(
    con: sqlml.Session, label: str, kind: str
) -> None:
    con.train("m", DecisionTreeClassifier(), f"SELECT a, {label} AS y FROM t", label="y")
    told = con.execute(
        f"SELECT typeof(predict('m', a)), count_if(predict('m', a) = {label}) FROM t GROUP BY 1"
    ).fetchall()
    assert told == [(kind, 200)]


def test_an_estimator_is_told_what_may_be_unintended(con: sqlml.Session) -> None:
    query = "SELECT id, x, a, 1 AS one, y = 1 AS twin, y FROM t"
    with pytest.warns(sqlml.errors.TrainingWarning) as found:
        con.train("m", DecisionTreeClassifier(), query, label="y")
    told = " ".join(str(warning.message) for warning in found)
    for says in ("'one' has one value", "'id' is like a key", "'twin' determines the label 'y'"):
        assert says in told
    rows = con.execute("SELECT input, type, max FROM ml_feature_info(MODEL m)").fetchall()
    assert ("id", "BIGINT", 199.0) in rows and len(rows) == 5
    with pytest.raises(errors.ConfigError, match="'twin' determines the label 'y' exactly"):
        con.train("n", DecisionTreeClassifier(), query, label="y", leaks="error")


NOTICES = {
    "kmeans": ("model_type = 'kmeans', n_clusters = 2", "column 'gap' is NULL in 40 of 200 rows"),
    "pca": ("model_type = 'pca', n_components = 1", "a column of its own marks them, which pca"),
    "texts": ("model_type = 'logistic_reg', label = 'flag'", "write CAST(price AS DOUBLE)"),
    "linear": (
        "model_type = 'linear_reg', label = 'flag'",
        "the label 'flag' is a BOOLEAN, and linear_reg predicts numbers, such as 0.3 or 1.2: "
        "logistic_reg predicts",
    ),
    "trees": (
        "model_type = 'boosted_tree_regressor', n_estimators = 2, label = 'flag'",
        "boosted_tree_classifier predicts true or false",
    ),
}
UNUSUAL = """
    SELECT (hash(i, 1) % 50)::DOUBLE AS a, CASE WHEN i % 5 > 0 THEN a * 2 END AS gap,
        ((hash(i, 2) % 30) / 4 - 3)::VARCHAR AS price, '0' || (hash(i, 2) % 5) AS code,
        hash(i, 3) % 3 = 0 AS flag
    FROM range(200) t(i)
"""


@pytest.mark.parametrize("name", NOTICES)
def test_notices_say_what_becomes_of_unusual_values(name: str) -> None:
    options, says = NOTICES[name]
    with sqlml.connect() as con:
        answer = con.execute(f"CREATE MODEL m OPTIONS ({options}) AS {UNUSUAL}").fetchall()
        notices = [text for key, text in answer if key == "notice"]
        assert any(says in text for text in notices)
        assert not any("'code'" in text for text in notices)  # zeros in front: a code
        clear = "SELECT a, code, flag::INTEGER AS flag FROM (" + UNUSUAL + ")"
        answer = con.execute(f"CREATE MODEL n OPTIONS ({options}) AS {clear}").fetchall()
        assert not [text for key, text in answer if key == "notice" and "no rows" not in text]


def test_an_estimator_that_takes_no_texts_or_gaps_says_which_column() -> None:
    with sqlml.connect() as con:
        for columns, says in (
            ("a, code", "column 'code' contains strings: put an encoder such as OneHotEncoder"),
            ("a, gap", "column 'gap' is NULL in some rows: fill it in the query"),
        ):
            query = f"SELECT * REPLACE ('c' || code AS code) FROM ({UNUSUAL})"
            query = f"SELECT {columns}, flag FROM ({query})"
            with pytest.raises(errors.ConfigError, match=says):
                con.train("m", LogisticRegression(), query, label="flag")


def test_a_query_that_fails_late_raises_the_engines_error() -> None:
    late = "if(i = 399999, error('too late'), i)::BIGINT"
    with sqlml.connect() as con:
        con.execute("SET threads = 1")
        for made, error, says in (
            (late, duckdb.InvalidInputException, "too late"),
            (late.replace("error('too late')", "'x'::INT"), duckdb.ConversionException, "'x'"),
        ):
            query = f"SELECT {made} AS a, i % 2 AS y FROM range(400000) t(i)"
            with pytest.raises(error, match=says):
                con.train("m", "logistic_reg", query, label="y")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "rows",
    [
        "AS SELECT repeat('x', 60000 + (i % 3)::INT) AS a, i % 2 AS y FROM range(60000) t(i)",
        "TRANSFORM (repeat('x', 60000 + a) AS a, y) "
        "AS SELECT (i % 3)::INT AS a, i % 2 AS y FROM range(60000) t(i)",
    ],
    ids=["query", "TRANSFORM"],
)
def test_texts_of_gigabytes_are_refused(rows: str) -> None:
    transform, _, query = rows.rpartition("AS SELECT")
    options = "OPTIONS (model_type = 'logistic_reg', label = 'y')"
    with sqlml.connect() as con, pytest.raises(errors.ConfigError, match="shorten them"):
        con.execute(f"CREATE MODEL m {transform} {options} AS SELECT {query}")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("CREATE MODEL m AS FROM t", r"as in OPTIONS \(model_type = 'logistic_reg', label"),
        ('CREATE MODEL m OPTIONS (model_type = "logistic_reg") AS FROM t', "write 'logistic_reg'"),
        ('CREATE MODEL m OPTIONS (model_type = "it\'s") AS FROM t', "write 'it''s'"),
    ],
)
def test_an_option_that_is_missing_or_misspelt_shows_how_it_is_written(
    statement: str, says: str
) -> None:
    with sqlml.connect() as con, pytest.raises(errors.SqlmlError, match=says):
        con.execute(f"CREATE TABLE t AS {UNUSUAL}")
        con.execute(statement)
