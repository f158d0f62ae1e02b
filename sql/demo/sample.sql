-- Keep as many flights as the variable rows says, the same ones each time and of all months.
CREATE OR REPLACE TABLE flights AS
SELECT * FROM flights
QUALIFY row_number() OVER (ORDER BY hash(flight_id)) <= getvariable('rows')
ORDER BY flight_id;
