"""The catalog in a directory: statements, several sessions, damage."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sqlml
from sqlml import errors
from sqlml.spark.catalog_directory import RETAINED_INDEXES, Directory
from sqlml.spark.files import HadoopFiles, LocalFiles

FORGED = b'{"sqlml_catalog": 1, "models": [], "versions": "abc", "aliases": [], "tags": []}'


def rows(con: Any, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in con.sql(query).collect()]


def indexes(folder: Path) -> list[Path]:
    return sorted((folder / "index").iterdir())


def test_the_statements_about_models(con: Any, value: Any, tmp_path: Path) -> None:
    assert [row[0] for row in rows(con, "SHOW MODELS")] == ["churn", "value"]
    assert [row[0] for row in rows(con, "SHOW MODELS LIKE 'ch%'")] == ["churn"]
    con.add_version("value", value, comment="again")
    con.sql("ALTER MODEL value SET ALIAS champion = 2; ALTER MODEL value SET DEFAULT_VERSION = 2")
    assert dict(rows(con, "DESCRIBE MODEL value"))["aliases"] == "champion"
    assert [row[0] for row in rows(con, "SHOW VERSIONS IN MODEL value")] == [1, 2]
    con.sql(f"EXPORT MODEL churn TO '{tmp_path / 'churn.sqlml'}'")
    con.sql(f"CREATE MODEL again FROM '{tmp_path / 'churn.sqlml'}'")
    assert (
        dict(rows(con, "DESCRIBE MODEL again"))["hash"]
        == dict(rows(con, "DESCRIBE MODEL churn"))["hash"]
    )
    con.sql("ALTER MODEL again RENAME TO other")
    con.sql("COMMENT ON MODEL other IS 'it''s'")
    assert dict(rows(con, "DESCRIBE MODEL other"))["comment"] == "it's"
    con.sql("DROP MODEL other")
    with pytest.raises(errors.UnknownModelError):
        con.sql("DROP MODEL other")
    assert "program" in dict(rows(con, "EXPLAIN MODEL value"))


def test_a_file_that_is_not_there(con: Any, tmp_path: Path) -> None:
    for path in ("no.sqlml", "", "no/such.sqlml"):
        with pytest.raises(errors.ArtifactError):
            con.sql(f"CREATE MODEL m FROM '{tmp_path / path}'")


def test_a_model_moves_from_duckdb_and_back(con: Any, churn: Any, tmp_path: Path) -> None:
    con.export_model("churn", tmp_path / "churn.sqlml")
    with sqlml.connect() as duck:
        duck.execute(f"CREATE MODEL churn FROM '{tmp_path / 'churn.sqlml'}'")
        duck.execute(f"EXPORT MODEL churn TO '{tmp_path / 'back.sqlml'}'")
    assert (tmp_path / "back.sqlml").read_bytes() == (tmp_path / "churn.sqlml").read_bytes()


def test_another_session_sees_each_change(con: Any, spark: Any, value: Any, tmp_path: Path) -> None:
    with sqlml.attach(spark, catalog=tmp_path / "models") as other:
        ask = "SELECT predict('value', age := 1, income := 0) AS v"
        before = rows(other, ask)
        assert before == rows(con, ask) == [(pytest.approx(2.0),)]
        twice = type(value)().fit([[0.0, 0.0], [1.0, 0.0]], [0.0, 4.0])
        con.create_model("value", twice, inputs=["age", "income"], or_replace=True)
        assert rows(other, ask) == [(pytest.approx(4.0),)]
        other.sql("DROP MODEL value")
        with pytest.raises(errors.UnknownModelError):
            con.sql(ask)


@pytest.mark.nightly
def test_many_writers_lose_nothing(con: Any, spark: Any, value: Any, tmp_path: Path) -> None:
    """Each in a session of its own, all at once."""
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            with sqlml.attach(spark, catalog=tmp_path / "models") as own:
                for k in range(3):
                    own.create_model(f"m_{number}_{k}", value, verify=False)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    assert len(rows(con, "SHOW MODELS LIKE 'm_%'")) == 12
    asked = [f"predict('m_{n}_{k}', age := 1, income := 0)" for n in range(4) for k in range(3)]
    assert rows(con, f"SELECT {', '.join(asked)}") == [(pytest.approx(2.0),) * 12]
    numbers = [int(path.stem) for path in indexes(tmp_path / "models")]
    assert numbers[-1] == 14 and numbers == list(range(numbers[0], 15))


def test_a_writer_that_was_overtaken_loses_nothing(
    con: Any, spark: Any, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many others wrote meanwhile that the number that it takes is free again."""
    add = LocalFiles.add
    others = sqlml.attach(spark, catalog=tmp_path / "models")
    overtaken: list[str] = []

    def slow(self: LocalFiles, path: str, content: bytes) -> bool:
        if path.startswith("index/") and not overtaken:
            overtaken.append(path)
            for k in range(15):
                others.sql(f"ALTER MODEL value SET TAG t{k} = 'x'")
            assert not (tmp_path / "models" / path).exists()
        return add(self, path, content)

    monkeypatch.setattr(LocalFiles, "add", slow)
    con.sql("ALTER MODEL value SET TAG mine = 'y'")
    others.close()
    with sqlml.attach(spark, catalog=tmp_path / "models") as fresh:
        tags = dict(rows(fresh, "DESCRIBE MODEL value"))["tags"]
    assert "mine=y" in tags and "t0=x" in tags and "t14=x" in tags


@pytest.mark.nightly
def test_programs_leave_with_the_last_index_that_names_them(
    con: Any, spark: Any, value: Any, tmp_path: Path
) -> None:
    programs = tmp_path / "models" / "programs"
    kept = {file.name for file in programs.iterdir()}
    for k in range(15):
        con.sql("DROP MODEL IF EXISTS other")
        con.create_model("other", _step(value, float(k)), verify=False)
    assert len(indexes(tmp_path / "models")) == RETAINED_INDEXES
    assert len(list(programs.iterdir())) == len(kept) + RETAINED_INDEXES // 2
    with sqlml.attach(spark, catalog=tmp_path / "models") as fresh:
        assert rows(fresh, "SELECT predict('other', age := 1, income := 0)") == [
            (pytest.approx(14.0),)
        ]
    con.sql("DROP MODEL other")
    for k in range(RETAINED_INDEXES):
        con.sql(f"ALTER MODEL value SET TAG k = '{k}'")
    assert {file.name for file in programs.iterdir()} == kept


def test_a_program_that_is_swept_while_it_comes_back(
    con: Any, spark: Any, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session removes it between its file, which was there, and the index that names it."""
    con.create_model("other", _step(value, 1.0), verify=False)
    digest = dict(rows(con, "DESCRIBE MODEL other"))["hash"]
    con.sql("DROP MODEL other")
    add = LocalFiles.add
    file = tmp_path / "models" / "programs" / f"{digest}.sqlml"

    def slow(self: LocalFiles, path: str, content: bytes) -> bool:
        if path.startswith("index/"):
            file.unlink()
        return add(self, path, content)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "add", slow)
        con.create_model("other", _step(value, 1.0), verify=False)
    assert file.exists()


def test_a_session_does_not_sweep_while_another_writes(
    con: Any, spark: Any, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other's index may name what this one would remove; a later change removes it."""
    con.create_model("other", _step(value, 1.0), verify=False)
    con.sql("DROP MODEL other")
    programs = tmp_path / "models" / "programs"
    for k in range(RETAINED_INDEXES - 2):
        con.sql(f"ALTER MODEL value SET TAG k = '{k}'")
    assert len(list(programs.iterdir())) == 3
    ask = Directory.index
    with sqlml.attach(spark, catalog=tmp_path / "models") as others, monkeypatch.context() as patch:

        def slow(self: Directory, number: int) -> dict[str, Any]:
            patch.undo()
            others.create_model("again", _step(value, 1.0), verify=False)
            return ask(self, number)

        patch.setattr(Directory, "index", slow)
        con.sql("ALTER MODEL value SET TAG k = 'last'")
    assert len(list(programs.iterdir())) == 3
    with sqlml.attach(spark, catalog=tmp_path / "models") as fresh:
        assert rows(fresh, "SELECT predict('again', age := 1, income := 0) > 0.99") == [(True,)]


def _step(value: Any, height: float) -> Any:
    return type(value)().fit(pd.DataFrame({"age": [0.0, 1.0], "income": [0.0, 0.0]}), [0.0, height])


@pytest.mark.parametrize("digest", ["../../../../etc/passwd", "", "A" * 64, "x", "a" * 63])
def test_a_hash_is_no_path(tmp_path: Path, digest: str) -> None:
    with pytest.raises(errors.CatalogError, match="not the hash of a model"):
        Directory(LocalFiles(tmp_path)).program(digest)


def test_files_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        LocalFiles(tmp_path).add("a/b", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_files_that_are_none_of_ours(con: Any, spark: Any, value: Any, tmp_path: Path) -> None:
    """Whatever they are called, the models stay."""
    index = tmp_path / "models" / "index"
    newest = indexes(tmp_path / "models")[-1]
    for name in ("9" * 20, "0" * 18 + "99\u00b2", "\u0660" * 19 + "9", "x", "1" * 21):
        (index / f"{name}.json").write_bytes(newest.read_bytes())
    (index / ".0.json.new").write_bytes(b"")
    con.create_model("new", value, verify=False)
    with sqlml.attach(spark, catalog=tmp_path / "models") as fresh:
        assert [row[0] for row in rows(fresh, "SHOW MODELS")] == ["churn", "new", "value"]


def test_a_uri_without_a_whole_path(spark: Any) -> None:
    with pytest.raises(errors.CatalogError, match="an absolute path"):
        sqlml.attach(spark, catalog="file:relative/models")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"sqlml_catalog": 1}', b'{"a": 1}', FORGED]
)
def test_a_damaged_index_is_told(con: Any, spark: Any, tmp_path: Path, content: bytes) -> None:
    newest = indexes(tmp_path / "models")[-1]
    newest.with_name(f"{int(newest.stem) + 1:020d}.json").write_bytes(content)
    with pytest.raises(errors.CatalogError, match="damaged"):
        con.sql("SHOW MODELS")
    newest.with_name(f"{int(newest.stem) + 1:020d}.json").unlink()
    assert len(rows(con, "SHOW MODELS")) == 2


def test_an_index_of_a_later_version_is_told(con: Any, tmp_path: Path) -> None:
    newest = indexes(tmp_path / "models")[-1]
    index = json.loads(newest.read_bytes())
    later = newest.with_name(f"{int(newest.stem) + 1:020d}.json")
    later.write_text(json.dumps({**index, "sqlml_catalog": 99}))
    with pytest.raises(errors.CatalogError, match="later version of sqlml"):
        con.sql("SHOW MODELS")


def test_a_program_that_is_damaged_or_gone_is_told(con: Any, spark: Any, tmp_path: Path) -> None:
    for path in (tmp_path / "models" / "programs").iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    with sqlml.attach(spark, catalog=tmp_path / "models") as other:
        with pytest.raises(errors.ArtifactError):
            other.sql("SELECT predict('value', age := 1, income := 0)")
        for path in (tmp_path / "models" / "programs").iterdir():
            path.unlink()
        with pytest.raises(errors.UnknownModelError, match="create the model again"):
            other.sql("SELECT predict('value', age := 1, income := 0)")


def test_a_directory_that_cannot_be_written(spark: Any, value: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(errors.CatalogError, match=r"cannot read .*catalog=\.\.\.\)"):
        sqlml.attach(spark, catalog=tmp_path / "file")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "programs").write_text("no directory")
    with sqlml.attach(spark, catalog=tmp_path / "models") as con:
        with pytest.raises(errors.CatalogError, match=r"cannot write .*catalog=\.\.\.\)"):
            con.create_model("value", value, verify=False)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("nope://x/y", 'cannot reach nope://x/y: No FileSystem for scheme "nope"'),
        ("s3a://bucket/models", "cannot reach .*S3AFileSystem not found"),
        ("hdfs://nohost.invalid:9000/models", "cannot reach .*nohost.invalid"),
    ],
)
def test_a_place_that_cannot_be_reached(spark: Any, place: str, says: str) -> None:
    with pytest.raises(errors.CatalogError, match=says):
        sqlml.attach(spark, catalog=place)


def test_a_place_without_a_name(spark: Any) -> None:
    with pytest.raises(errors.ConfigError, match="has no name"):
        sqlml.attach(spark, catalog="")


def test_hadoops_files_are_as_those_of_this_machine(spark: Any, tmp_path: Path) -> None:
    local = LocalFiles(tmp_path / "a")
    hadoop = HadoopFiles(f"file://{tmp_path / 'a'}", spark)
    assert local.names("x") == hadoop.names("x") == []
    assert hadoop.read("x/1") is None and local.read("x/1") is None
    assert hadoop.add("x/1", b"one\x00\xff") and not hadoop.add("x/1", b"two")
    assert local.read("x/1") == hadoop.read("x/1") == b"one\x00\xff"
    assert local.size("x/1") == hadoop.size("x/1") == 5
    assert local.size("x/9") is hadoop.size("x/9") is None
    assert local.size("x") is hadoop.size("x") is None
    assert local.add("x/2", b"") and not hadoop.add("x/2", b"again")
    assert {"1", "2"} <= set(hadoop.names("x"))
    hadoop.remove("x/1")
    assert local.read("x/1") is None and hadoop.read("x/1") is None


def test_what_is_no_regular_file_is_neither_read_nor_replaced(con: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", f"file:{tmp_path / 'pipe'}"):
        with pytest.raises(errors.ArtifactError, match="is a pipe"):
            con.sql(f"CREATE MODEL m FROM '{path}'")
        with pytest.raises(errors.ArtifactError, match="is a pipe"):
            con.sql(f"EXPORT MODEL churn TO '{path}' FORMAT SQLML")
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(errors.ArtifactError, match="is a device"):
        con.sql("CREATE MODEL m FROM '/dev/zero'")
    with pytest.raises(errors.CatalogError, match="it is a pipe"):
        LocalFiles(tmp_path).read("pipe")


def test_hadoop_holds_a_catalog(spark: Any, value: Any, tmp_path: Path) -> None:
    from sqlml.spark.session import SparkSession

    with SparkSession(spark, HadoopFiles(f"file://{tmp_path}/models", spark)) as con:
        con.create_model("value", value, verify=False)
        assert [row[0] for row in rows(con, "SHOW MODELS")] == ["value"]
        con.sql("DROP MODEL value")
        assert rows(con, "SHOW MODELS") == []
