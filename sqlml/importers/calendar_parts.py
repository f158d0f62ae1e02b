"""`Moment`: the parts of dates and timestamps, computed by operators of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, reduce
from types import MappingProxyType

import numpy as np

from sqlml.ir.builder import Builder, Value

DAY = 86_400_000_000
"""Microseconds."""
HOUR, MINUTE, SECOND = 3_600_000_000, 60_000_000, 1_000_000

_EPOCH = 719_468
"""Days from 0000-03-01 to 1970-01-01."""


class Moment:
    """Microseconds since 1970-01-01, float64 (n, 1), and what calendars call their parts.

    All parts are whole numbers in float64, which hold them exactly; of NaN they are NaN. The
    calendar is the Gregorian one, also for days before it was introduced, as in SQL and numpy.
    Years begin in March here, so that the day that is there every four years comes last: H.
    Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days, days_from_civil.
    """

    def __init__(self, builder: Builder, microseconds: Value) -> None:
        self.builder = builder
        self.microseconds = microseconds

    @cached_property
    def days(self) -> Value:
        """Whole days since 1970-01-01."""
        # a quotient alone may be rounded up to the next day: the remainder is exact
        start = self._op("sub", self.microseconds, self.of_day)
        return self._op("div", start, float(DAY))

    @cached_property
    def of_day(self) -> Value:
        """Microseconds since midnight."""
        return self._op("mod", self.microseconds, float(DAY))

    @cached_property
    def _era(self) -> Value:
        """400 years, which are always as many days."""
        return self._whole(self._op("add", self.days, float(_EPOCH)), 146_097)

    @cached_property
    def _year_of_era(self) -> Value:
        day = self._day_of_era
        leap = self._op("sub", self._whole(day, 36_524), self._whole(day, 1_460))
        leap = self._op("sub", leap, self._whole(day, 146_096))
        return self._whole(self._op("add", day, leap), 365)

    @cached_property
    def _day_of_era(self) -> Value:
        since = self._op("add", self.days, float(_EPOCH))
        return self._op("sub", since, self._op("mul", self._era, 146_097.0))

    @cached_property
    def _day_of_year(self) -> Value:
        """From 0, on the first of March."""
        return self._op("sub", self._day_of_era, self._days_of(self._year_of_era))

    @cached_property
    def _month_from_march(self) -> Value:
        day = self._op("add", self._op("mul", self._day_of_year, 5.0), 2.0)
        return self._whole(day, 153)

    @cached_property
    def day(self) -> Value:
        """Of the month, from 1."""
        before = self._op("add", self._op("mul", self._month_from_march, 153.0), 2.0)
        return self._op("add", self._op("sub", self._day_of_year, self._whole(before, 5)), 1.0)

    @cached_property
    def month(self) -> Value:
        """From 1 to 12."""
        turned = self._op("where", self._op("ge", self._month_from_march, 10.0), -9.0, 3.0)
        return self._op("add", self._month_from_march, turned)

    @cached_property
    def year(self) -> Value:
        """With its century."""
        year = self._op("add", self._op("mul", self._era, 400.0), self._year_of_era)
        return self._op("add", year, self._flag(self._op("le", self.month, 2.0)))

    @cached_property
    def quarter(self) -> Value:
        """From 1 to 4."""
        return self._whole(self._op("add", self.month, 2.0), 3)

    @cached_property
    def weekday(self) -> Value:
        """From 0, Monday, to 6."""
        return self._op("mod", self._op("add", self.days, 3.0), 7.0)

    @cached_property
    def iso_weekday(self) -> Value:
        """From 1, Monday, to 7."""
        return self._op("add", self.weekday, 1.0)

    @cached_property
    def weekday_from_sunday(self) -> Value:
        """From 0, Sunday, to 6."""
        return self._op("mod", self.iso_weekday, 7.0)

    @cached_property
    def day_of_year(self) -> Value:
        """From 1."""
        return self._op("add", self._op("sub", self.days, self.first_of_year(self.year)), 1.0)

    @cached_property
    def _thursday(self) -> Moment:
        """Of the same week: its year is that of the week."""
        days = self._op("add", self._op("sub", self.days, self.weekday), 3.0)
        return Moment(self.builder, self._op("mul", days, float(DAY)))

    @cached_property
    def iso_year(self) -> Value:
        """The year of the ISO week."""
        return self._thursday.year

    @cached_property
    def week(self) -> Value:
        """The ISO week, from 1 to 53."""
        return self._whole(self._op("add", self._thursday.day_of_year, 6.0), 7)

    @cached_property
    def hour(self) -> Value:
        """From 0 to 23."""
        return self._whole(self.of_day, HOUR)

    @cached_property
    def minute(self) -> Value:
        """From 0 to 59."""
        return self._whole(self._op("mod", self.of_day, float(HOUR)), MINUTE)

    @cached_property
    def second(self) -> Value:
        """From 0 to 59, without fractions."""
        return self._whole(self.of_minute, SECOND)

    @cached_property
    def of_minute(self) -> Value:
        """Microseconds since the minute began."""
        return self._op("mod", self.of_day, float(MINUTE))

    @cached_property
    def milliseconds_of_minute(self) -> Value:
        """As the engine counts `millisecond`."""
        return self._whole(self.of_minute, 1_000)

    @cached_property
    def seconds(self) -> Value:
        """Since 1970-01-01, with fractions."""
        return self._op("div", self.microseconds, float(SECOND))

    @cached_property
    def months(self) -> Value:
        """Since the year 0."""
        return self._op("add", self._op("mul", self.year, 12.0), self.month)

    @cached_property
    def days_in_month(self) -> Value:
        """From 28 to 31."""
        b = self.builder
        short = b.op("where", self.is_month(4, 6, 9, 11), 30.0, 31.0)
        february = b.op("where", self.is_leap_year, 29.0, 28.0)
        made = b.op("where", self._op("eq", self.month, 2.0), february, short)
        return b.op("where", b.op("isnan", self.days), np.nan, made)

    @cached_property
    def is_leap_year(self) -> Value:
        """bool; false of NaN."""
        b = self.builder
        fourth, hundredth, four_hundredth = (
            b.op("eq", b.op("mod", self.year, years), 0.0) for years in (4.0, 100.0, 400.0)
        )
        return b.op("or", four_hundredth, b.op("and", fourth, b.op("not", hundredth)))

    @cached_property
    def is_month_start(self) -> Value:
        """bool; false of NaN."""
        return self._op("eq", self.day, 1.0)

    @cached_property
    def is_month_end(self) -> Value:
        """bool; false of NaN."""
        return self._op("eq", self.day, self.days_in_month)

    def is_month(self, *months: int) -> Value:
        """bool: whether the month is one of these; false of NaN."""
        found = [self._op("eq", self.month, float(month)) for month in months]
        return reduce(lambda a, b: self._op("or", a, b), found)

    def first_of_year(self, year: Value) -> Value:
        """Days from 1970-01-01 to the first of January."""
        before = self._op("sub", year, 1.0)  # its March begins the year that January is in
        return self._op("sub", self._op("add", self._days_of(before), 306.0), float(_EPOCH))

    def _days_of(self, years: Value) -> Value:
        """Days of so many years, from March to February."""
        made = self._op("mul", years, 365.0)
        made = self._op("add", made, self._whole(years, 4))
        made = self._op("sub", made, self._whole(years, 100))
        return self._op("add", made, self._whole(years, 400))

    def _whole(self, value: Value, by: int) -> Value:
        """How many times `by` goes into whole numbers; exact as long as these are below 2**47."""
        return self._op("floor", self._op("div", value, float(by)))

    def _flag(self, condition: Value) -> Value:
        return self._op("where", condition, 1.0, 0.0)

    def _op(self, name: str, *inputs: Value | float) -> Value:
        return self.builder.op(name, *inputs)


PARTS: Mapping[str, Callable[[Moment], Value]] = MappingProxyType(
    {
        "day": lambda m: m.day,
        "dayofmonth": lambda m: m.day,
        "dayofweek": lambda m: m.weekday_from_sunday,
        "dayofyear": lambda m: m.day_of_year,
        "dow": lambda m: m.weekday_from_sunday,
        "doy": lambda m: m.day_of_year,
        "epoch": lambda m: m.seconds,
        "epoch_us": lambda m: m.microseconds,
        "hour": lambda m: m.hour,
        "isodow": lambda m: m.iso_weekday,
        "isoyear": lambda m: m.iso_year,
        "microsecond": lambda m: m.of_minute,
        "millisecond": lambda m: m.milliseconds_of_minute,
        "minute": lambda m: m.minute,
        "month": lambda m: m.month,
        "quarter": lambda m: m.quarter,
        "second": lambda m: m.second,
        "week": lambda m: m.week,
        "weekday": lambda m: m.weekday_from_sunday,
        "weekofyear": lambda m: m.week,
        "year": lambda m: m.year,
    }
)
"""DuckDB's functions of dates, by name."""
