"""Models through SQLAlchemy and pandas: `create_engine("sqlml:///shop.duckdb")`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import sqlml

sa = pytest.importorskip("sqlalchemy")
pytest.importorskip("duckdb_engine")

SHOP = """
    CREATE TABLE shops(id INTEGER PRIMARY KEY, name VARCHAR UNIQUE);
    CREATE TABLE customers(
        visits DOUBLE, age UTINYINT NOT NULL CHECK (age < 200), shop INTEGER REFERENCES shops(id),
        spent DECIMAL(9, 2) DEFAULT 0, since DATE, tags VARCHAR[], seen TIMESTAMP WITH TIME ZONE,
        place STRUCT(x INTEGER)
    );
    COMMENT ON TABLE customers IS 'who buys';
    INSERT INTO shops VALUES (1, 'north');
    INSERT INTO customers (visits, age, shop) VALUES (0, 30, 1), (1, 40, 1), (0.2, 50, NULL);
    CREATE VIEW adults AS SELECT * FROM customers WHERE age >= 18;
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.execute(SHOP)
        model = LogisticRegression().fit([[0.0], [1]], ["no", "yes"])
        con.create_model("churn", model, inputs=["visits"])
    return path


@pytest.fixture
def connection(shop: Path) -> Iterator[sa.Connection]:
    engine = sa.create_engine(f"sqlml:///{shop}")
    with engine.connect() as made:
        yield made
    engine.dispose()


def test_queries(connection: sa.Connection) -> None:
    asked = "SELECT predict('churn', *) AS churn, age FROM customers WHERE visits >= :least"
    found = pd.read_sql(sa.text(asked), connection, params={"least": 0.5})
    assert found.to_dict("list") == {"churn": ["yes"], "age": [40]}
    customers = sa.Table("customers", sa.MetaData(), autoload_with=connection)
    call = sa.func.predict("churn", customers.c.visits)
    built = sa.select(customers.c.age, call).where(customers.c.visits == 0)
    assert connection.execute(built).fetchall() == [(30, "no")]
    with pytest.raises(sqlml.errors.UnknownModelError, match="did you mean"):
        connection.execute(sa.text("SELECT predict('chrn', *) FROM customers"))


def test_statements_are_part_of_the_transaction(connection: sa.Connection) -> None:
    connection.execute(sa.text("DROP MODEL churn"))
    assert connection.execute(sa.text("SHOW MODELS")).fetchall() == []
    connection.rollback()
    connection.execute(sa.text("ALTER MODEL churn SET ALIAS tried = 1"))
    connection.commit()
    shown = connection.execute(sa.text("SHOW MODELS")).mappings().all()
    assert [(row["name"], row["aliases"]) for row in shown] == [("churn", {"tried": 1})]


def test_reflection(connection: sa.Connection) -> None:
    told = sa.inspect(connection)
    assert (told.get_table_names(), told.get_view_names()) == (["customers", "shops"], ["adults"])
    columns = {column["name"]: column for column in told.get_columns("customers")}
    assert {name: type(column["type"]).__name__ for name, column in columns.items()} == {
        "visits": "DOUBLE",
        "age": "UTinyInteger",
        "shop": "INTEGER",
        "spent": "DECIMAL",
        "since": "DATE",
        "tags": "ARRAY",
        "seen": "TIMESTAMP",
        "place": "NullType",
    }
    assert str(columns["spent"]["type"]) == "DECIMAL(9, 2)"
    assert [name for name, column in columns.items() if not column["nullable"]] == ["age"]
    assert "0" in columns["spent"]["default"]
    assert len(told.get_columns("adults")) == len(columns)
    assert told.get_pk_constraint("shops")["constrained_columns"] == ["id"]
    (key,) = told.get_foreign_keys("customers")
    assert (key["constrained_columns"], key["referred_table"]) == (["shop"], "shops")
    assert [u["column_names"] for u in told.get_unique_constraints("shops")] == [["name"]]
    assert [c["sqltext"] for c in told.get_check_constraints("customers")] == ["(age < 200)"]
    assert told.get_table_comment("customers") == {"text": "who buys"}
    with pytest.raises(sa.exc.NoSuchTableError):
        told.get_columns("nobody")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duckdb_engine warns that it knows no indexes
        whole = sa.MetaData()
        whole.reflect(connection, views=True)
    assert set(whole.tables) == {"customers", "shops", "adults"}


def test_pandas_writes_a_table_again(connection: sa.Connection) -> None:
    for visits in ([0.0], [1.0, 0.0]):
        frame = pd.DataFrame({"visits": visits})
        frame.to_sql("scored", connection, index=False, if_exists="replace")
        found = pd.read_sql("SELECT predict('churn', *) AS p FROM scored", connection)
        assert list(found.p) == ["yes" if v else "no" for v in visits]


def test_the_file_may_be_open_already(shop: Path) -> None:
    with sqlml.connect(shop) as con:
        for _ in range(2):
            engine = sa.create_engine(f"sqlml:///{shop}?allow_pickle=true")
            with engine.connect() as connection:
                session = sqlml.attach(connection)
                assert session._models.allow_pickle
                asked = "SELECT count(predict('churn', *)) FROM customers"
                assert connection.execute(sa.text(asked)).scalar() == 3
        assert con.execute(asked).fetchone() == (3,)


def test_settings_in_the_url() -> None:
    engine = sa.create_engine("sqlml:///:memory:?threads=1&explain_output=all")
    with engine.connect() as connection:
        asked = "SELECT current_setting('threads'), current_setting('explain_output')"
        assert connection.execute(sa.text(asked)).fetchone() == (1, "all")
        assert not sqlml.attach(connection)._models.allow_pickle
