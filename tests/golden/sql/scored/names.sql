-- name: features with umlauts, blanks, quotes and a reserved word
SELECT predict('haus', *) AS h FROM haus
-- expect:
SELECT h FROM haus_scored

-- name: unusual features by name
SELECT predict('haus', "GRößE" := "größe", "select" := "select", "mixed case" := "Mixed Case", "a""b" := 1) AS h
FROM (SELECT "Größe", "select", "Mixed Case" FROM haus)
-- rows:
SELECT * REPLACE (1 AS "a""b") FROM haus
-- expect:
SELECT h FROM given
-- spark:
SELECT predict('haus', `GRößE` := `größe`, `select` := `select`, `mixed case` := `Mixed Case`, `a"b` := 1) AS h
FROM (SELECT `Größe`, `select`, `Mixed Case` FROM haus)

-- name: unusual features by position
SELECT predict('haus', "Größe", haus."select", "Mixed Case", haus."a""b") AS h FROM haus
-- expect:
SELECT h FROM haus_scored
-- spark:
SELECT predict('haus', `Größe`, haus.`select`, `Mixed Case`, haus.`a"b`) AS h FROM haus

-- name: unusual features as a struct
SELECT predict('haus', {'Größe': "Größe", 'select': "select", 'mixed case': "Mixed Case", 'a"b': "a""b"}) AS h FROM haus
-- expect:
SELECT h FROM haus_scored
-- spark:
SELECT predict('haus', named_struct('Größe', `Größe`, 'select', `select`, 'mixed case', `Mixed Case`, 'a"b', `a"b`)) AS h FROM haus

-- name: columns in another case than the features
SELECT predict('churn', *) AS p FROM (SELECT tenure AS "TENURE", charges AS Charges, plan AS "pLAN", region AS REGION FROM customers)
-- expect:
SELECT p FROM scored
-- spark:
SELECT predict('churn', *) AS p FROM (SELECT tenure AS `TENURE`, charges AS Charges, plan AS `pLAN`, region AS REGION FROM customers)

-- name: a table with a unicode name and an alias with a quote
SELECT "it's".k, predict('value', "it's".*) AS v FROM "Kunden – 東京" AS "it's"
-- setup:
CREATE TABLE "Kunden – 東京" AS SELECT id AS k, charges, visits FROM customers
-- expect:
SELECT id AS k, v FROM scored
-- spark setup:
CREATE TEMPORARY VIEW `Kunden – 東京` AS SELECT id AS k, charges, visits FROM customers
-- spark:
SELECT `it's`.k, predict('value', `it's`.*) AS v FROM `Kunden – 東京` AS `it's`

-- name: a table named as a keyword
SELECT "order".id, predict('churn', "order".*) AS p FROM "order" WHERE "order"."plan" = 'max'
-- setup:
CREATE TABLE "order" AS FROM customers
-- expect:
SELECT id, p FROM scored WHERE plan = 'max'
-- spark setup:
CREATE TABLE `order` AS FROM customers
-- spark:
SELECT `order`.id, predict('churn', `order`.*) AS p FROM `order` WHERE `order`.`plan` = 'max'

-- name: aliases that are keywords in quotes
SELECT "from"."where" AS "select", predict('value', "from".charges, "from".visits) AS "group" FROM (SELECT id AS "where", charges, visits FROM customers) AS "from"
-- expect:
SELECT id AS "select", v AS "group" FROM scored
-- spark:
SELECT `from`.`where` AS `select`, predict('value', `from`.charges, `from`.visits) AS `group` FROM (SELECT id AS `where`, charges, visits FROM customers) AS `from`

-- name: words that are no keywords as columns
SELECT filter, predict('loyal', tenure := year, visits := model) AS value FROM (SELECT id AS filter, tenure AS year, visits AS model FROM customers)
-- expect:
SELECT id AS filter, l AS value FROM scored

-- name: a column that is named as a function of ours
SELECT predict, predict('value', *) AS transform FROM (SELECT id AS predict, charges, visits FROM customers)
-- expect:
SELECT id AS predict, v AS transform FROM scored

-- name: a table that is named as a function of ours
SELECT predict.id, predict('churn', predict.*) AS p FROM predict
-- setup:
CREATE TABLE predict AS FROM customers
-- expect:
SELECT id, p FROM scored

-- name: an alias that is named as a function of ours
SELECT transform.id, transform('scale', transform.*) AS s FROM customers AS transform ORDER BY transform.id
-- expect:
SELECT id, s FROM scored ORDER BY id

-- name: the name of the column has a quote in it
SELECT id, predict('churn', *, region := 'it''s') FROM customers
-- rows:
SELECT * REPLACE ('it''s' AS region) FROM customers
-- expect:
SELECT id, p AS "predict('churn', *, region := 'it''s')" FROM given

-- name: the name of the column has double quotes in it
SELECT predict('haus', *, "select" := 3) FROM haus
-- rows:
SELECT * REPLACE (3 AS "select") FROM haus
-- expect:
SELECT h AS "predict('haus', *, ""select"" := 3)" FROM given
-- spark:
SELECT predict('haus', *, `select` := 3) FROM haus

-- name: aliases in unicode and mixed case keep their letters
SELECT id AS "Nr.", predict('value', *) AS "Wert in €", predict('churn', *) AS Kündigt FROM customers
-- expect:
SELECT id AS "Nr.", v AS "Wert in €", p AS Kündigt FROM scored
-- spark:
SELECT id AS `Nr.`, predict('value', *) AS `Wert in €`, predict('churn', *) AS `Kündigt` FROM customers

-- name: unicode in front of a call
SELECT 'ä😀' AS x, predict('churn', *) AS p, '🐘' || predict('risk', *) AS y FROM customers
-- expect:
SELECT 'ä😀' AS x, p, '🐘' || r AS y FROM scored

-- name: a schema in quotes
SELECT t.id, predict('churn', t.*) AS p FROM "My Schema"."The Table" t
-- setup:
CREATE SCHEMA "My Schema"; CREATE TABLE "My Schema"."The Table" AS FROM customers
-- expect:
SELECT id, p FROM scored
-- spark setup:
CREATE OR REPLACE GLOBAL TEMPORARY VIEW `The Table` AS FROM customers
-- spark:
SELECT t.id, predict('churn', t.*) AS p FROM `global_temp`.`The Table` t

-- name: database, schema and table
SELECT id, predict('loyal', *) AS l FROM memory_of.main.copy_of
-- setup:
ATTACH ':memory:' AS memory_of; CREATE TABLE memory_of.main.copy_of AS FROM customers
-- expect:
SELECT id, l FROM scored
-- spark setup:
CREATE TABLE spark_catalog.corpus.copy_of AS FROM customers
-- spark:
SELECT id, predict('loyal', *) AS l FROM spark_catalog.corpus.copy_of

-- name: a column qualified by database and schema
SELECT memory_of.main.copy_of.id, predict('value', memory_of.main.copy_of.charges, copy_of.visits) AS v FROM memory_of.main.copy_of
-- setup:
ATTACH ':memory:' AS memory_of; CREATE TABLE memory_of.main.copy_of AS FROM customers
-- expect:
SELECT id, v FROM scored
-- spark setup:
CREATE TABLE spark_catalog.corpus.copy_of AS FROM customers
-- spark:
SELECT spark_catalog.corpus.copy_of.id, predict('value', spark_catalog.corpus.copy_of.charges, copy_of.visits) AS v FROM spark_catalog.corpus.copy_of

-- name: a column named as a clause, in front of a call
SELECT "limit", predict('value', *) AS v FROM (SELECT id AS "limit", charges, visits FROM customers) ORDER BY "limit" LIMIT 5
-- expect:
SELECT id AS "limit", v FROM scored ORDER BY id LIMIT 5
-- spark:
SELECT `limit`, predict('value', *) AS v FROM (SELECT id AS `limit`, charges, visits FROM customers) ORDER BY `limit` LIMIT 5

-- name: rowid and other columns that a star does not have
SELECT rowid, predict('churn', *) AS p FROM customers WHERE rowid < 10
-- expect:
SELECT rowid, p FROM scored WHERE rowid < 10
-- spark:
SELECT _metadata.row_index AS rowid, predict('churn', *) AS p FROM customers WHERE _metadata.row_index < 10

-- name: a feature from rowid
SELECT id, predict('loyal', tenure := tenure, visits := rowid) AS l FROM customers
-- rows:
SELECT id, tenure, rowid AS visits FROM customers
-- expect:
SELECT id, l FROM given
-- spark:
SELECT id, predict('loyal', tenure := tenure, visits := _metadata.row_index) AS l FROM customers

-- name: an operator's right side is no name of the column
SELECT predict('value', *) > charges, predict('value', *) - visits, predict('churn', *) = plan, predict('value', *) * charges, id FROM customers
-- expect:
SELECT v > charges AS "(predict('value', *) > charges)", v - visits AS "(predict('value', *) - visits)", p = plan AS "(predict('churn', *) = plan)",
    v * charges AS "(predict('value', *) * charges)", id FROM scored

-- name: a cast's type, a collation and a pattern are no name of the column
SELECT predict('risk', *)::VARCHAR, predict('churn', *) COLLATE NOCASE, predict('churn', *) LIKE 'y%', predict('churn', *) || 'x', predict('risk', *) IN (1, 2), id FROM customers
-- expect:
SELECT r::VARCHAR AS "CAST(predict('risk', *) AS VARCHAR)", p AS "predict('churn', *) COLLATE NOCASE", p LIKE 'y%' AS "(predict('churn', *) ~~ 'y%')", p || 'x' AS "(predict('churn', *) || 'x')", r IN (1, 2) AS "(predict('risk', *) IN (1, 2))", id FROM scored
-- spark:
SELECT predict('risk', *)::STRING, predict('churn', *) COLLATE UTF8_LCASE, predict('churn', *) LIKE 'y%', predict('churn', *) || 'x', predict('risk', *) IN (1, 2), id FROM customers

-- name: words behind an expression that are no name of the column
SELECT predict('loyal', *) AND region IS NULL, predict('loyal', *) IS TRUE, predict('churn', *) LIKE plan, predict('churn', *) NOTNULL, id FROM customers
-- expect:
SELECT l AND region IS NULL AS "(predict('loyal', *) AND (region IS NULL))", l IS TRUE AS "(CAST(predict('loyal', *) AS BOOLEAN) IS NOT DISTINCT FROM true)", p LIKE plan AS "(predict('churn', *) ~~ plan)", true AS "(predict('churn', *) IS NOT NULL)", id FROM scored
-- spark:
SELECT predict('loyal', *) AND region IS NULL, predict('loyal', *) IS TRUE, predict('churn', *) LIKE plan, predict('churn', *) IS NOT NULL, id FROM customers

-- name: names directly behind a bracket, a cast and a call
SELECT (predict('value', *))worth, predict('risk', *)::INT r, [predict('loyal', *)]l, predict('churn', *)"p", 'x'||predict('churn', *) AS 'in quotes', id FROM customers
-- expect:
SELECT v AS worth, r::INT AS r, [l] AS l, p, 'x' || p AS "in quotes", id FROM scored
-- spark:
SELECT (predict('value', *))worth, predict('risk', *)::INT r, array(predict('loyal', *))l, predict('churn', *)`p`, 'x'||predict('churn', *) AS `in quotes`, id FROM customers

-- name: a name that is used by its text outside
SELECT "predict('churn', *)" AS p, "(predict('value', *) + 1)" AS v FROM (SELECT predict('churn', *), predict('value', *) + 1 FROM customers)
-- expect:
SELECT p, v + 1 AS v FROM scored
-- spark:
SELECT `predict('churn', *)` AS p, `predict('value', *) + 1` AS v FROM (SELECT predict('churn', *), predict('value', *) + 1 FROM customers)

-- name: statements' verbs as columns, in brackets
SELECT (update + predict('value', *)) AS a, (delete, predict('loyal', *)) AS b, (values) AS c FROM (SELECT id AS update, id AS delete, plan AS values, charges, visits, tenure FROM customers)
-- expect:
SELECT id + v AS a, (id, l) AS b, plan AS c FROM scored
-- spark gap: two values in brackets are a struct of Spark, whose fields have names

-- name: a column named conflict in a join's condition
SELECT c.id, predict('churn', c.*) AS p FROM customers c JOIN (SELECT 3 AS conflict, 3 AS sample) x ON conflict > c.id WHERE predict('churn', c.*) IS NOT NULL
-- expect:
SELECT id, p FROM scored WHERE id < 3

-- name: an alias of a table in another case
SELECT "C".id, predict('churn', C.*) AS p, predict('value', "c".charges, c.VISITS) AS v FROM customers AS "C"
-- expect:
SELECT id, p, v FROM scored
-- spark:
SELECT `C`.id, predict('churn', C.*) AS p, predict('value', `c`.charges, c.VISITS) AS v FROM customers AS `C`

-- name: a feature that is called class
SELECT id, predict('value', charges := "class", visits := class) AS v FROM (SELECT id, visits AS class FROM customers)
-- rows:
SELECT id, visits AS charges, visits FROM customers
-- expect:
SELECT id, v FROM given
-- spark:
SELECT id, predict('value', charges := `class`, visits := class) AS v FROM (SELECT id, visits AS class FROM customers)

-- name: a column that comes twice, the second under another name
SELECT id, predict('churn', *) AS p FROM (SELECT *, 'max' AS plan FROM customers)
-- expect:
SELECT id, p FROM scored
-- spark gap: Spark leaves two columns of one name as they are
