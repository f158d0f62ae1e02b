"""The eight tables of TPC-H, small, from plain SQL: the same rows on each machine and version.

Keys, types and the values that queries look for follow the specification (TPC-H 3.0.1, section
4.2); lists of words are shorter, so that 500 orders are enough for the queries to find rows.
"""

from __future__ import annotations

import duckdb

ORDERS = 500
CUSTOMERS = 150
PARTS = 200
SUPPLIERS = 50

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")

_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = (
    "ALGERIA 0,ARGENTINA 1,BRAZIL 1,CANADA 1,EGYPT 4,ETHIOPIA 0,FRANCE 3,GERMANY 3,INDIA 2,"
    "INDONESIA 2,IRAN 4,IRAQ 4,JAPAN 2,JORDAN 4,KENYA 0,MOROCCO 0,MOZAMBIQUE 0,PERU 1,CHINA 2,"
    "ROMANIA 3,SAUDI ARABIA 4,VIETNAM 2,RUSSIA 3,UNITED KINGDOM 3,UNITED STATES 1"
)
_COLOURS = ("almond", "blue", "forest", "green", "ivory", "lemon", "plum", "rose")
_TYPES = (
    ("STANDARD", "ECONOMY", "PROMO", "MEDIUM"),
    ("ANODIZED", "POLISHED", "BURNISHED"),
    ("STEEL", "BRASS", "COPPER", "TIN"),
)
_CONTAINERS = (("SM", "MED", "LG"), ("CASE", "BOX", "BAG", "PACK", "PKG"))
_BRANDS = ("Brand#12", "Brand#23", "Brand#34", "Brand#45")
_SIZES = (1, 3, 5, 9, 14, 15, 19, 23, 36, 45, 49)
_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_MODES = ("AIR", "AIR REG", "FOB", "MAIL", "RAIL", "SHIP", "TRUCK")
_INSTRUCTIONS = ("COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
_COMMENTS = (
    "carefully final deposits",
    "special packages wake, requests haggle",
    "Customer of long Complaints",
    "quick ideas",
)

_MACROS = (
    "CREATE TEMP MACRO mix(x) AS (xor(x, x >> 15) * 739982445::BIGINT) % 4294967296",
    "CREATE TEMP MACRO pick(i, salt, n) AS (mix(mix(i::BIGINT * 31 + salt * 1000003)) >> 8) % n",
    "CREATE TEMP MACRO one_of(i, salt, words) AS words[1 + pick(i, salt, len(words))]",
    "CREATE TEMP MACRO money(i, salt, low, high) AS "
    "((low * 100 + pick(i, salt, (high - low) * 100)) / 100)::DECIMAL(15, 2)",
    "CREATE TEMP MACRO phone(nation, i) AS "
    "format('{}-{:03d}-{:03d}-{:04d}', 10 + nation, pick(i, 1, 900) + 100, pick(i, 2, 900) + 100, "
    "pick(i, 3, 9000) + 1000)",
    # A supplier of a part, j = 0..3: what a line was sold from is in partsupp.
    f"CREATE TEMP MACRO seller(part, j) AS (part + j * 13) % {SUPPLIERS} + 1",
)

_ROWS = {
    "region": f"""
        SELECT i::INTEGER AS r_regionkey, {list(_REGIONS)}[i + 1] AS r_name,
            'region ' || i AS r_comment
        FROM range({len(_REGIONS)}) AS t(i)""",
    "nation": f"""
        SELECT i::INTEGER AS n_nationkey, n[:-3] AS n_name, n[-1]::INTEGER AS n_regionkey,
            'nation ' || i AS n_comment
        FROM (SELECT i, split('{_NATIONS}', ',')[i + 1] AS n FROM range(25) AS t(i))""",
    "supplier": f"""
        SELECT i::INTEGER AS s_suppkey, format('Supplier#{{:09d}}', i) AS s_name,
            'address ' || pick(i, 4, 1000) AS s_address, (i % 25)::INTEGER AS s_nationkey,
            phone(i % 25, i) AS s_phone, money(i, 5, -999, 9999) AS s_acctbal,
            one_of(i, 6, {list(_COMMENTS)}) AS s_comment
        FROM range(1, {SUPPLIERS + 1}) AS t(i)""",
    "customer": f"""
        SELECT i::INTEGER AS c_custkey, format('Customer#{{:09d}}', i) AS c_name,
            'address ' || pick(i, 7, 1000) AS c_address, pick(i, 8, 25)::INTEGER AS c_nationkey,
            phone(pick(i, 8, 25), i) AS c_phone, money(i, 9, -999, 9999) AS c_acctbal,
            one_of(i, 10, {list(_SEGMENTS)}) AS c_mktsegment,
            one_of(i, 11, {list(_COMMENTS)}) AS c_comment
        FROM range(1, {CUSTOMERS + 1}) AS t(i)""",
    "part": f"""
        SELECT i::INTEGER AS p_partkey,
            one_of(i, 12, {list(_COLOURS)}) || ' ' || one_of(i, 13, {list(_COLOURS)}) AS p_name,
            'Manufacturer#' || (1 + pick(i, 14, 5)) AS p_mfgr,
            one_of(i, 15, {list(_BRANDS)}) AS p_brand,
            concat_ws(' ', one_of(i, 16, {list(_TYPES[0])}), one_of(i, 17, {list(_TYPES[1])}),
                one_of(i, 18, {list(_TYPES[2])})) AS p_type,
            one_of(i, 19, {list(_SIZES)})::INTEGER AS p_size,
            concat_ws(' ', one_of(i, 20, {list(_CONTAINERS[0])}),
                one_of(i, 21, {list(_CONTAINERS[1])})) AS p_container,
            money(i, 22, 900, 2000) AS p_retailprice, 'part' AS p_comment
        FROM range(1, {PARTS + 1}) AS t(i)""",
    "partsupp": f"""
        SELECT i::INTEGER AS ps_partkey, seller(i, j)::INTEGER AS ps_suppkey,
            (1 + pick(4 * i + j, 23, 9999))::INTEGER AS ps_availqty,
            money(4 * i + j, 24, 1, 1000) AS ps_supplycost, 'offer' AS ps_comment
        FROM range(1, {PARTS + 1}) AS t(i), range(4) AS u(j)""",
    # A third of the customers orders nothing, as the specification has it.
    "orders": f"""
        SELECT i::INTEGER AS o_orderkey,
            (3 * pick(i, 25, {CUSTOMERS // 3}) + 1 + pick(i, 26, 2))::INTEGER AS o_custkey,
            CASE WHEN pick(i, 27, 2406) < 1200 THEN 'F' WHEN pick(i, 27, 2406) < 1300 THEN 'P'
                ELSE 'O' END AS o_orderstatus,
            money(i, 28, 1000, 300000) AS o_totalprice,
            DATE '1992-01-01' + pick(i, 27, 2406)::INTEGER AS o_orderdate,
            one_of(i, 29, {list(_PRIORITIES)}) AS o_orderpriority,
            format('Clerk#{{:09d}}', pick(i, 30, 100)) AS o_clerk, 0 AS o_shippriority,
            one_of(i, 31, {list(_COMMENTS)}) AS o_comment
        FROM range(1, {ORDERS + 1}) AS t(i)""",
    # Each fiftieth order is a large one (query 18).
    "lineitem": f"""
        SELECT o_orderkey AS l_orderkey, part::INTEGER AS l_partkey,
            seller(part, pick(i, 33, 4))::INTEGER AS l_suppkey, n::INTEGER AS l_linenumber,
            quantity::DECIMAL(15, 2) AS l_quantity,
            (quantity * money(part, 22, 900, 2000))::DECIMAL(15, 2) AS l_extendedprice,
            (pick(i, 34, 11) / 100)::DECIMAL(15, 2) AS l_discount,
            (pick(i, 35, 9) / 100)::DECIMAL(15, 2) AS l_tax,
            CASE WHEN received > DATE '1995-06-17' THEN 'N' WHEN pick(i, 36, 2) = 0 THEN 'R'
                ELSE 'A' END AS l_returnflag,
            CASE WHEN shipped > DATE '1995-06-17' THEN 'O' ELSE 'F' END AS l_linestatus,
            shipped AS l_shipdate, o_orderdate + 30 + pick(i, 37, 61)::INTEGER AS l_commitdate,
            received AS l_receiptdate,
            one_of(i, 38, {list(_INSTRUCTIONS)}) AS l_shipinstruct,
            one_of(i, 39, {list(_MODES)}) AS l_shipmode, 'line' AS l_comment
        FROM (
            SELECT *, 10 * o_orderkey + n AS i, 1 + pick(10 * o_orderkey + n, 32, {PARTS}) AS part,
                CASE o_orderkey % 50 WHEN 0 THEN 50
                    ELSE 1 + pick(10 * o_orderkey + n, 40, 50) END AS quantity,
                o_orderdate + 1 + pick(10 * o_orderkey + n, 41, 121)::INTEGER AS shipped,
                shipped + 1 + pick(10 * o_orderkey + n, 42, 30)::INTEGER AS received
            FROM orders, range(1, 8) AS t(n)
            WHERE n <= 1 + pick(o_orderkey, 43, 7) OR o_orderkey % 50 = 0
        )""",
}


def fill(con: duckdb.DuckDBPyConnection) -> None:
    """Make the eight tables in the current schema of `con`."""
    for macro in _MACROS:
        con.execute(macro)
    for table in TABLES:
        con.execute(f"CREATE TABLE {table} AS {_ROWS[table]}")
