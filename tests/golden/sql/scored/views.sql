-- name: a view of scores
CREATE VIEW risky AS SELECT id, predict_proba('churn', *, class := 'yes') AS q FROM customers; FROM risky WHERE q > 0.5
-- expect:
CREATE VIEW risky AS SELECT id, q FROM scored; FROM risky WHERE q > 0.5
-- spark:
CREATE TEMPORARY VIEW risky AS SELECT id, predict_proba('churn', *, class := 'yes') AS q FROM customers; SELECT * FROM risky WHERE q > 0.5

-- name: a view over a view
CREATE VIEW one AS SELECT *, predict('value', *) AS worth FROM customers;
CREATE VIEW two AS SELECT id, tenure, worth AS charges, visits FROM one WHERE plan <> 'max';
SELECT id, predict('risk', *) AS r FROM two
-- rows:
SELECT id, tenure, v AS charges, visits FROM scored WHERE plan <> 'max'
-- expect:
CREATE VIEW one AS SELECT 1 AS x; CREATE VIEW two AS SELECT 1 AS x; SELECT id, r FROM given
-- spark:
CREATE TEMPORARY VIEW one AS SELECT *, predict('value', *) AS worth FROM customers;
CREATE TEMPORARY VIEW two AS SELECT id, tenure, worth AS charges, visits FROM one WHERE plan <> 'max';
SELECT id, predict('risk', *) AS r FROM two

-- name: three views, each with a call
CREATE VIEW a AS SELECT *, predict('churn', *) AS label FROM customers;
CREATE VIEW b AS SELECT *, predict('loyal', *) AS stays FROM a WHERE label = 'no';
CREATE VIEW c AS SELECT plan, count(*) AS n, avg(predict('value', *)) AS v FROM b WHERE stays GROUP BY plan;
FROM c
-- expect:
CREATE VIEW c AS SELECT plan, count(*) AS n, avg(v) AS v FROM scored WHERE p = 'no' AND l GROUP BY plan; FROM c
-- spark:
CREATE TEMPORARY VIEW a AS SELECT *, predict('churn', *) AS label FROM customers;
CREATE TEMPORARY VIEW b AS SELECT *, predict('loyal', *) AS stays FROM a WHERE label = 'no';
CREATE TEMPORARY VIEW c AS SELECT plan, count(*) AS n, avg(predict('value', *)) AS v FROM b WHERE stays GROUP BY plan;
SELECT * FROM c

-- name: a view with names for its columns
CREATE VIEW named(nr, "The Label") AS SELECT id, predict('churn', *) FROM customers; SELECT * FROM named
-- expect:
CREATE VIEW named(nr, "The Label") AS SELECT id, p FROM scored; SELECT * FROM named
-- spark:
CREATE TEMPORARY VIEW named(nr, `The Label`) AS SELECT id, predict('churn', *) FROM customers; SELECT * FROM named

-- name: an unnamed column of a view
CREATE VIEW plain AS SELECT id, predict('churn', *) FROM customers; SELECT * FROM plain
-- expect:
CREATE VIEW plain AS SELECT id, p AS "predict('churn', *)" FROM scored; SELECT * FROM plain
-- spark:
CREATE TEMPORARY VIEW plain AS SELECT id, predict('churn', *) FROM customers; SELECT * FROM plain

-- name: scoring the rows of a plain view
SELECT id, predict('churn', *) AS p FROM north
-- setup:
CREATE VIEW north AS SELECT * EXCLUDE (name) FROM customers WHERE region = 'north'
-- expect:
SELECT id, p FROM scored WHERE region = 'north'
-- spark setup:
CREATE VIEW north AS SELECT * EXCEPT (name) FROM customers WHERE region = 'north'

-- name: a temporary view and a view replaced
CREATE TEMP VIEW x AS SELECT predict('value/1', *) AS v FROM customers; CREATE OR REPLACE TEMP VIEW x AS SELECT id, predict('value', *) AS v FROM customers; FROM x
-- expect:
CREATE TEMP VIEW x AS SELECT 1; CREATE OR REPLACE TEMP VIEW x AS SELECT id, v FROM scored; FROM x

-- name: a view with parameters of a definition and a window
CREATE VIEW best AS WITH s AS (SELECT id, plan, predict('value', *) AS v FROM customers) SELECT id, plan FROM s QUALIFY row_number() OVER (PARTITION BY plan ORDER BY v DESC, id) = 1; FROM best
-- expect:
CREATE VIEW best AS SELECT id, plan FROM scored QUALIFY row_number() OVER (PARTITION BY plan ORDER BY v DESC, id) = 1; FROM best
-- spark:
CREATE TEMPORARY VIEW best AS WITH s AS (SELECT id, plan, predict('value', *) AS v FROM customers) SELECT id, plan FROM s QUALIFY row_number() OVER (PARTITION BY plan ORDER BY v DESC, id) = 1; SELECT * FROM best

-- name: a view with a lambda in it
CREATE VIEW wishes AS SELECT id, list_transform([0, 9], lambda n: predict('value', charges := charges, visits := n)) AS vs FROM customers; FROM wishes
-- rows:
SELECT id, charges, n AS visits FROM customers, unnest([0, 9]) u(n)
-- expect:
CREATE VIEW wishes AS SELECT 1; SELECT id, list(v ORDER BY visits) AS vs FROM given GROUP BY id
-- spark:
CREATE TEMPORARY VIEW wishes AS SELECT id, transform(array(0, 9), n -> predict('value', charges := charges, visits := n)) AS vs FROM customers; SELECT * FROM wishes

-- name: a view joined to its own table
CREATE VIEW labels AS SELECT id, predict('risk', *) AS r FROM customers; SELECT c.id, v.r, predict('loyal', c.*) AS l FROM customers c JOIN labels v USING (id)
-- expect:
CREATE VIEW labels AS SELECT id, r FROM scored; SELECT id, r, l FROM scored
-- spark:
CREATE TEMPORARY VIEW labels AS SELECT id, predict('risk', *) AS r FROM customers; SELECT c.id, v.r, predict('loyal', c.*) AS l FROM customers c JOIN labels v USING (id)

-- name: a view keeps its version
CREATE VIEW old AS SELECT id, predict('value', *) AS v FROM customers; EXPORT MODEL "value/1" TO 'first.sqlml'; CREATE OR REPLACE MODEL value FROM 'first.sqlml'; SELECT id, o.v, predict('value', c.*) AS now FROM old o JOIN customers c USING (id)
-- expect:
CREATE VIEW old AS SELECT 1; SELECT id, v, v1 AS now FROM scored
-- spark:
CREATE TEMPORARY VIEW old AS SELECT id, predict('value', *) AS v FROM customers; EXPORT MODEL `value/1` TO 'first.sqlml'; CREATE OR REPLACE MODEL value FROM 'first.sqlml'; SELECT id, o.v, predict('value', c.*) AS now FROM old o JOIN customers c USING (id)

-- name: a view that is read by a call after its table changed
CREATE VIEW x AS SELECT id, predict('loyal', *) AS l FROM customers; UPDATE customers SET tenure = 3; SELECT id, l FROM x
-- rows:
SELECT id, 3.0 AS tenure, visits FROM customers
-- expect:
CREATE VIEW x AS SELECT 1; SELECT id, l FROM given
-- spark:
CREATE TEMPORARY VIEW x AS SELECT id, predict('loyal', *) AS l FROM customers; CREATE TABLE later AS SELECT * EXCEPT (tenure), 3D AS tenure FROM customers; INSERT OVERWRITE customers BY NAME SELECT * FROM later; SELECT id, l FROM x

-- name: a view in another schema, with if not exists
CREATE SCHEMA s; CREATE VIEW IF NOT EXISTS s.v AS FROM customers SELECT id, p: predict('churn', *); SELECT * FROM s.v
-- expect:
CREATE SCHEMA s; CREATE VIEW IF NOT EXISTS s.v AS SELECT id, p FROM scored; SELECT * FROM s.v
-- spark gap: persistent views of Spark take no temporary functions, and temporary views no schema
