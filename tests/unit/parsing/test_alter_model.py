"""ALTER MODEL, and statements that name a version, parsed into values."""

from __future__ import annotations

import pytest

from sqlml.errors import ParseError
from sqlml.parsing.parse import parse
from sqlml.parsing.statements import (
    AddCascade,
    AddVersion,
    AlterModel,
    CommentOn,
    Describe,
    DescribeModel,
    Description,
    DropSmallModel,
    DropVersion,
    ExplainModel,
    ExportModel,
    ModelName,
    Promotion,
    RenameModel,
    ResetOptions,
    RetrainModel,
    SetAlias,
    SetDefault,
    SetOptions,
    SetTags,
    ShowCreate,
    ShowModels,
    ShowVersions,
    Statement,
    Training,
    TrainVersion,
    UnsetAlias,
    UnsetTags,
    VerifyModel,
)


def one(sql: str) -> Statement:
    (statement,) = parse(sql)
    return statement


def altered(rest: str) -> AlterModel:
    statement = one(f"ALTER MODEL shop.m {rest}")
    assert isinstance(statement, AlterModel) and statement.name == ModelName("m", "shop")
    return statement


def version(**of: int | str) -> ModelName:
    return ModelName("m", "shop", **of)  # type: ignore[arg-type]


def test_a_version_is_added_as_a_model_is_created() -> None:
    change = altered(
        "ADD VERSION 7 INPUT (a DOUBLE) USING 'x.json' FORMAT xgboost OPTIONS (sha256 = 'ff') "
        "COMMENT 'new'"
    ).change
    assert isinstance(change, AddVersion) and change.number == 7
    assert change.artifact.inputs == (("a", "DOUBLE"),)
    assert (change.artifact.source, change.artifact.description.comment) == ("x.json", "new")
    change = altered("ADD VERSION FROM 'x'").change
    assert isinstance(change, AddVersion) and change.number is None


def test_the_changes_of_versions() -> None:
    assert altered("DROP VERSION 3").change == DropVersion(version(version=3))
    assert altered("DROP VERSION champion").change == DropVersion(version(alias="champion"))
    assert altered("SET DEFAULT_VERSION = 2").change == SetDefault(version(version=2))
    assert altered("SET DEFAULT_VERSION = last").change == SetDefault(version(alias="last"))
    assert altered("SET ALIAS champion = 2").change == SetAlias("champion", version(version=2))
    assert altered("SET ALIAS a = b").change == SetAlias("a", version(alias="b"))
    assert altered('UNSET ALIAS "Ch"').change == UnsetAlias("Ch")


def test_the_changes_of_models() -> None:
    change = altered("SET TAG Team = 'it''s', \"two words\" = ''").change
    assert isinstance(change, SetTags)
    assert dict(change.tags) == {"team": "it's", "two words": ""}
    assert altered("UNSET TAG team, b").change == UnsetTags(("team", "b"))
    change = altered("SET OPTIONS (Device = 'cpu', backend = torch)").change
    assert isinstance(change, SetOptions)
    assert dict(change.options) == {"device": "cpu", "backend": "torch"}
    assert altered("RESET OPTIONS").change == ResetOptions()
    assert altered("RESET OPTIONS (Device, backend)").change == ResetOptions(("device", "backend"))
    assert altered('RENAME TO "New name"').change == RenameModel("New name")
    assert not altered("RENAME TO n").if_exists
    statement = one("alter model if exists m rename to n")
    assert isinstance(statement, AlterModel) and statement.if_exists


def test_options_are_those_of_the_version_that_is_named() -> None:
    statement = one("ALTER MODEL m/2 SET OPTIONS (device = 'cpu')")
    assert isinstance(statement, AlterModel) and statement.name == ModelName("m", version=2)
    statement = one("ALTER MODEL m@champion RESET OPTIONS")
    assert isinstance(statement, AlterModel) and statement.name == ModelName("m", alias="champion")


def test_a_cascade_is_learned_from_a_query() -> None:
    change = altered("ADD CASCADE USING (SELECT (a), 'x)' FROM t) OPTIONS (Label = y)").change
    assert isinstance(change, AddCascade)
    assert change.query == "SELECT (a), 'x)' FROM t"
    assert dict(change.options) == {"label": "y"}
    change = altered("ADD CASCADE USING (FROM t)").change
    assert isinstance(change, AddCascade) and not change.options
    statement = one("ALTER MODEL m/2 DROP CASCADE")
    assert isinstance(statement, AlterModel) and statement.change == DropSmallModel("cascade")
    assert statement.name == ModelName("m", version=2)


def test_a_version_is_trained_on_a_query() -> None:
    change = altered("ADD VERSION 3 OPTIONS (model_type = 'x') AS SELECT 1").change
    assert change == TrainVersion(Training("SELECT 1", {"model_type": "x"}), 3)


@pytest.mark.parametrize(
    ("rest", "query", "promotion"),
    [
        ("", None, None),
        (" AS SELECT (1) FROM t", "SELECT (1) FROM t", None),
        (" PROMOTE IF roc_auc >= CURRENT", None, Promotion("roc_auc", ">=")),
        (" PROMOTE IF loss < 0.5 AS FROM t", "FROM t", Promotion("loss", "<", 0.5)),
        (" PROMOTE IF loss < .5 AS FROM t", "FROM t", Promotion("loss", "<", 0.5)),
        (" AS FROM t PROMOTE IF roc_auc > 1", "FROM t", Promotion("roc_auc", ">", 1.0)),
    ],
)
def test_a_model_is_retrained(rest: str, query: str | None, promotion: Promotion | None) -> None:
    assert altered(f"RETRAIN{rest}").change == RetrainModel(query, promotion)


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("FLY", "expected ADD VERSION, RETRAIN, DROP PARTITION, DROP VERSION"),
        ("", "expected ADD VERSION"),
        ("ADD VERSION", "expected FROM"),
        ("ADD VERSION 1.5 FROM 'x'", "expected the number of the version"),
        ("DROP VERSION", "expected a version"),
        ("DROP VERSION 'x'", "expected a version"),
        ("SET DEFAULT_VERSION 2", "expected '='"),
        ("SET ALIAS champion", "expected '='"),
        ("SET ALIAS = 2", "expected the name of an alias"),
        ("SET TAG a = 1", "expected the value of a tag in single quotes"),
        ("SET TAG a = 'x', a = 'y'", "tag a is given twice"),
        ("SET TAG a = 'x',", "expected the name of a tag"),
        ("UNSET TAG", "expected the name of a tag"),
        ("SET OPTIONS", "expected '('"),
        ("RESET OPTIONS (a", "expected ')'"),
        ("SET OPTIONS (a = 1e)", "expected a number"),
        (f"SET OPTIONS (a = {'[' * 3000})", "expected a literal value"),
        ("RENAME TO a.b", "expected the end"),
        ("RENAME TO", "expected the new name"),
        ("UNSET ALIAS a b", "expected the end"),
        ("ADD CASCADE (FROM t)", "expected USING"),
        ("ADD CASCADE USING FROM t", "expected '('"),
        ("ADD CASCADE USING (FROM t", "this bracket is not closed"),
        ("ADD CASCADE USING (FROM t) label = 'y'", "expected the end"),
        ("DROP CASCADE c", "expected the end"),
        ("SET OPTIONS (description = 1)", "description must be one string"),
        ("SET OPTIONS (labels = ['a'])", "labels must be a list of pairs of a new tag and its"),
        ("SET OPTIONS (labels = [('a', 1)])", "labels must be a list of pairs"),
        ("SET OPTIONS (labels = [('a', 'x'), ('A', 'y')])", "pairs of a new tag"),
        ("SET OPTIONS (labels = [], backend = 'sql')", "a statement of their own, without backend"),
        ("ADD VERSION FROM 'x' OPTIONS (labels = [])", "labels belong to the whole model"),
    ],
)
def test_what_is_written_otherwise_shows_its_place(rest: str, says: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(f"ALTER MODEL m {rest}")
    assert says in str(caught.value) and "LINE 1" in str(caught.value)


def test_bigquerys_description_and_labels() -> None:
    labels = "labels = [('Team', 'it''s'), STRUCT('b', 'c')]"
    tags = {"team": "it's", "b": "c"}
    change = altered(f"SET OPTIONS (description = 'd', {labels})").change
    assert change == Describe(Description("d", tags, True, True))
    change = altered("SET OPTIONS (description = NULL)").change
    assert change == Describe(Description(changes_comment=True))
    change = altered("SET OPTIONS (backend = 'sql')").change
    assert change == SetOptions({"backend": "sql"})
    with pytest.raises(ParseError, match="labels belong to the whole model"):
        parse(f"ALTER MODEL m/2 SET OPTIONS ({labels})")


@pytest.mark.parametrize("rest", ["RENAME TO n", "DROP VERSION 1", "SET TAG a = 'x'"])
def test_what_concerns_the_whole_model_takes_no_version(rest: str) -> None:
    with pytest.raises(ParseError, match="applies to the whole model"):
        parse(f"ALTER MODEL m/2 {rest}")
    with pytest.raises(ParseError, match="applies to the whole model"):
        parse(f'ALTER MODEL "m@champion" {rest}')


def test_statements_that_name_a_version() -> None:
    two, champion = ModelName("m", "db", version=2), ModelName("a b", alias="champion")
    assert one("DESCRIBE MODEL db.m/2") == DescribeModel("DESCRIBE MODEL db.m/2", two)
    statement = one('EXPLAIN MODEL "a b"@champion')
    assert isinstance(statement, ExplainModel) and statement.name == champion
    statement = one("EXPORT MODEL db.m/2 TO 'x.onnx'")
    assert isinstance(statement, ExportModel) and statement.name == two
    statement = one("SHOW CREATE MODEL m@last")
    assert isinstance(statement, ShowCreate) and statement.name == ModelName("m", alias="last")
    statement = one("COMMENT ON MODEL db.m/2 IS 'it''s'")
    assert isinstance(statement, CommentOn) and (statement.name, statement.comment) == (two, "it's")
    statement = one("COMMENT ON MODEL m IS NULL")
    assert isinstance(statement, CommentOn) and statement.comment is None
    statement = one("VERIFY MODEL db.m/2 USING (SELECT ')' FROM t) AGAINST 'x.json'")
    assert isinstance(statement, VerifyModel) and statement.name == two
    assert (statement.query, statement.against) == ("SELECT ')' FROM t", "x.json")
    assert (str(two), str(champion)) == ("db.m/2", "a b@champion")


def test_show_takes_a_pattern_and_a_database() -> None:
    statement = one("SHOW MODELS LIKE 'a%' FROM db")
    assert isinstance(statement, ShowModels) and (statement.like, statement.database) == (
        "a%",
        "db",
    )
    statement = one("SHOW MODELS IN db")
    assert isinstance(statement, ShowModels) and (statement.like, statement.database) == (
        None,
        "db",
    )
    statement = one("SHOW VERSIONS IN MODEL db.m")
    assert isinstance(statement, ShowVersions) and statement.name == ModelName("m", "db")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("DESCRIBE MODEL m/x", "expected the number of a version"),
        ("DESCRIBE MODEL m@", "expected an alias of a version"),
        ("DROP MODEL m/2", "ALTER MODEL m DROP VERSION"),
        ("SHOW MODELS LIKE 'a' LIKE 'b'", "expected LIKE"),
        ("SHOW VERSIONS IN MODEL m/2", "expected the end"),
        ("CREATE MODEL m/2 FROM 'x'", "expected FROM"),
        ("EXPLAIN MODEL m x", "expected the end"),
    ],
)
def test_versions_stand_where_they_mean_something(sql: str, says: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(sql)
    assert says in str(caught.value)
