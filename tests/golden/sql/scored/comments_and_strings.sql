-- name: a line comment that looks like a call
SELECT id, p FROM (SELECT id, predict('churn', *) AS p -- predict('nope', *) of the table
FROM customers) -- predict('
-- expect:
SELECT id, p FROM scored

-- name: a block comment that looks like a call
SELECT /* predict('nope', *) */ id, predict('churn', /* 'not', this */ *) AS p FROM customers /* and predict( */
-- expect:
SELECT id, p FROM scored

-- name: a string that looks like a call
SELECT 'predict(''churn'', *)' AS t, predict('churn', *) AS p FROM customers
-- expect:
SELECT 'predict(''churn'', *)' AS t, p FROM scored

-- name: dollar quotes
SELECT $$predict('churn', *)$$ AS a, $x$ it's $$ predict('x', $x$ AS b, predict('churn', *) AS p FROM customers
-- expect:
SELECT 'predict(''churn'', *)' AS a, ' it''s $$ predict(''x'', ' AS b, p FROM scored
-- spark:
SELECT "predict('churn', *)" AS a, " it's $$ predict('x', " AS b, predict('churn', *) AS p FROM customers

-- name: strings with escapes
SELECT E'it\'s predict(\'x\', *)\n' AS a, e'tab\tpredict(' AS b, predict('loyal', *) AS l FROM customers
-- expect:
SELECT 'it''s predict(''x'', *)' || chr(10) AS a, 'tab' || chr(9) || 'predict(' AS b, l FROM scored
-- spark:
SELECT 'it\'s predict(\'x\', *)\n' AS a, "tab\tpredict(" AS b, predict('loyal', *) AS l FROM customers

-- name: a backslash before the end of a plain string
SELECT 'a\' AS a, predict('churn', *) AS p, '\' AS b FROM customers
-- expect:
SELECT 'a' || chr(92) AS a, p, chr(92) AS b FROM scored
-- spark:
SELECT r'a\' AS a, predict('churn', *) AS p, '\\' AS b FROM customers

-- name: a quoted name that looks like a call
SELECT id AS "predict('churn', *)", predict('churn', *) AS "-- p" FROM customers
-- expect:
SELECT id AS "predict('churn', *)", p AS "-- p" FROM scored
-- spark:
SELECT id AS `predict('churn', *)`, predict('churn', *) AS `-- p` FROM customers

-- name: a string with a comment, a comment with a quote
SELECT '-- no comment' AS a, predict('risk', *) /* it's "one */ AS r, '/*' AS b FROM customers -- isn't it
-- expect:
SELECT '-- no comment' AS a, r, '/*' AS b FROM scored

-- name: a comment between the function and its bracket
SELECT predict /* a */ ('churn' -- b
 , *) AS p, id FROM customers
-- expect:
SELECT p, id FROM scored

-- name: a comment inside of a named argument
SELECT id, predict('value', charges /* money */ := /* twice */ 2 * charges, visits := visits -- seldom
) AS v FROM customers
-- rows:
SELECT id, 2 * charges AS charges, visits FROM customers
-- expect:
SELECT id, v FROM given

-- name: semicolons in strings and comments
SELECT id, ';' AS s /* ; */, predict('churn', *) AS p FROM customers -- ;
;
-- expect:
SELECT id, ';' AS s, p FROM scored

-- name: a comment before and after the query
/* first; */ -- second
SELECT id, predict('churn', *) AS p FROM customers; -- the end
-- expect:
SELECT id, p FROM scored

-- name: a nested looking block comment
SELECT id, /* /* predict('a' */ */ predict('loyal', *) AS l FROM customers
-- expect:
SELECT id, l FROM scored

-- name: adjacent strings, and strings with brackets
SELECT id, ')(' || '[' AS s, predict('churn', *, region := CASE WHEN id > 3 THEN 'nor' || 'th' ELSE ')' END) AS p FROM customers
-- rows:
SELECT * REPLACE (CASE WHEN id > 3 THEN 'north' ELSE ')' END AS region) FROM customers
-- expect:
SELECT id, ')([' AS s, p FROM given

-- name: the model's name as an escape string
SELECT id, predict(E'churn', *) AS p FROM customers
-- expect:
SELECT id, p FROM scored
-- spark:
SELECT id, predict('c\u0068urn', *) AS p FROM customers

-- name: the model's name in dollars
SELECT id, predict($$churn$$, *) AS p FROM customers
-- expect:
SELECT id, p FROM scored
-- spark:
SELECT id, predict("churn", *) AS p FROM customers

-- name: blob literals and numbers beside a call
SELECT id, '\xAA'::BLOB AS b, 1_000 AS n, 1e3 AS e, predict('risk', *) AS r FROM customers
-- expect:
SELECT id, '\xAA'::BLOB AS b, 1000 AS n, 1e3 AS e, r FROM scored
-- spark:
SELECT id, X'AA' AS b, 1000 AS n, 1e3 AS e, predict('risk', *) AS r FROM customers

-- name: operators that look like the start of something else
SELECT id, visits--1
 AS x, visits - -1 AS y, charges//2 AS z, predict('churn', *)!='yes' AS p FROM customers WHERE id<>3 AND id>=- 1
-- expect:
SELECT id, visits AS x, visits + 1 AS y, charges // 2 AS z, p = 'no' AS p FROM scored WHERE id <> 3
-- spark:
SELECT id, visits--1
 AS x, visits - -1 AS y, charges/2 AS z, predict('churn', *)!='yes' AS p FROM customers
WHERE id<>3 AND id>=- 1

-- name: a json arrow and a cast beside a call
SELECT id, ('{"predict": "(' || id || '"}')::JSON->>'predict' AS j, predict('loyal', *) AS l FROM customers
-- expect:
SELECT id, '(' || id AS j, l FROM scored
-- spark:
SELECT id, get_json_object('{"predict": "(' || id || '"}', '$.predict') AS j, predict('loyal', *) AS l FROM customers

-- name: a tab, a carriage return and hardly a blank
SELECT	id,predict_score('churn',*)as	v
FROM	customers	WHERE(id<50)AND(predict('risk',*)<>2)
-- expect:
SELECT id, m AS v FROM scored WHERE id < 50 AND r IN (0, 1)

-- name: a label and the next word without a blank
SELECT id,predict('churn',*)as p FROM customers WHERE predict('churn',*)in('yes')
-- expect:
SELECT id, p FROM scored WHERE p = 'yes'

-- name: no call at all, only the words
SELECT 'predict(' AS a, 'transform(' AS b -- predict('churn', *)
-- expect:
SELECT 'predict(' AS a, 'transform(' AS b

-- name: a parameter between two words without a blank
-- parameters: [2, 90, 50]
SELECT id,predict('risk',*,tenure:=?)as r FROM customers WHERE id<?AND predict('risk',*)<>9 ORDER BY id LIMIT?
-- rows:
SELECT id, 2.0 AS tenure, charges, visits FROM customers WHERE id < 90 ORDER BY id LIMIT 50
-- expect:
SELECT id, r FROM given ORDER BY id
-- spark:
SELECT id,predict('risk',*,tenure:=?)as r FROM customers WHERE id<(?)AND predict('risk',*)<>9 ORDER BY id LIMIT(?)
