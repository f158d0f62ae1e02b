"""`Moment`: the parts of dates and timestamps, computed by numeric operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, reduce
from operator import attrgetter

import numpy as np

from sqlml.ir.builder import Builder, Value

DAY = 86_400_000_000
HOUR, MINUTE, SECOND = 3_600_000_000, 60_000_000, 1_000_000
"""Units of time in microseconds."""

_EPOCH = 719_468
"""The number of days from 0000-03-01 to 1970-01-01."""


class Moment:
    """Timestamps as microseconds since 1970-01-01, float64 (n, 1), and their calendar parts.

    Each part is a whole number, or NaN if the timestamp is NaN. The calendar is the proleptic
    Gregorian calendar. Internally, years begin in March, so that the leap day comes last (Hinnant,
    "chrono-Compatible Low-Level Date Algorithms", civil_from_days and days_from_civil).
    """

    def __init__(self, builder: Builder, microseconds: Value) -> None:
        self.builder = builder
        self.microseconds = microseconds

    @cached_property
    def days(self) -> Value:
        """Whole days since 1970-01-01."""
        # The remainder is subtracted first, because a rounded quotient may reach the next day.
        return self._op("div", self._op("sub", self.microseconds, self.time_of_day), float(DAY))

    @cached_property
    def time_of_day(self) -> Value:
        """Microseconds since midnight."""
        return self._op("mod", self.microseconds, float(DAY))

    @cached_property
    def _era(self) -> Value:
        """The index of the 400-year period; each period has 146,097 days."""
        return self.floor_divide(self._op("add", self.days, float(_EPOCH)), 146_097)

    @cached_property
    def _year_of_era(self) -> Value:
        day = self._day_of_era
        leap_days = self._op("sub", self.floor_divide(day, 36_524), self.floor_divide(day, 1_460))
        leap_days = self._op("sub", leap_days, self.floor_divide(day, 146_096))
        return self.floor_divide(self._op("add", day, leap_days), 365)

    @cached_property
    def _day_of_era(self) -> Value:
        days_since_epoch = self._op("add", self.days, float(_EPOCH))
        return self._op("sub", days_since_epoch, self._op("mul", self._era, 146_097.0))

    @cached_property
    def _day_of_year(self) -> Value:
        """The day of the year that begins in March, from 0 to 365."""
        return self._op("sub", self._day_of_era, self._count_days(self._year_of_era))

    @cached_property
    def _month_from_march(self) -> Value:
        return self.floor_divide(self._op("add", self._op("mul", self._day_of_year, 5.0), 2.0), 153)

    @cached_property
    def day(self) -> Value:
        """The day of the month, from 1 to 31."""
        month_start = self._op("add", self._op("mul", self._month_from_march, 153.0), 2.0)
        day = self._op("sub", self._day_of_year, self.floor_divide(month_start, 5))
        return self._op("add", day, 1.0)

    @cached_property
    def month(self) -> Value:
        shift = self._op("where", self._op("ge", self._month_from_march, 10.0), -9.0, 3.0)
        return self._op("add", self._month_from_march, shift)

    @cached_property
    def year(self) -> Value:
        year = self._op("add", self._op("mul", self._era, 400.0), self._year_of_era)
        return self._op("add", year, self.to_number(self._op("le", self.month, 2.0)))

    @cached_property
    def weekday(self) -> Value:
        """The day of the week, from 0 (Monday) to 6."""
        return self._op("mod", self._op("add", self.days, 3.0), 7.0)

    @cached_property
    def iso_weekday(self) -> Value:
        """The day of the week, from 1 (Monday) to 7."""
        return self._op("add", self.weekday, 1.0)

    @cached_property
    def weekday_from_sunday(self) -> Value:
        """The day of the week, from 0 (Sunday) to 6."""
        return self._op("mod", self.iso_weekday, 7.0)

    @cached_property
    def day_of_year(self) -> Value:
        """The day of the year, from 1 to 366."""
        # The first of January comes 306 days after the first of March in the year before.
        march_year = self._op("sub", self.year, 1.0)
        start = self._op("sub", self._op("add", self._count_days(march_year), 306.0), float(_EPOCH))
        return self._op("add", self._op("sub", self.days, start), 1.0)

    @cached_property
    def thursday_of_week(self) -> Moment:
        """The Thursday of the same ISO week; the year of this day is the ISO year."""
        days = self._op("add", self._op("sub", self.days, self.weekday), 3.0)
        return Moment(self.builder, self._op("mul", days, float(DAY)))

    @cached_property
    def week(self) -> Value:
        """The number of the ISO week, from 1 to 53."""
        return self.floor_divide(self._op("add", self.thursday_of_week.day_of_year, 6.0), 7)

    @cached_property
    def time_of_minute(self) -> Value:
        """Microseconds since the minute began."""
        return self._op("mod", self.time_of_day, float(MINUTE))

    @cached_property
    def days_in_month(self) -> Value:
        """The number of days in the month, from 28 to 31."""
        op = self.builder.op
        other_months = op("where", self.build_is_month(4, 6, 9, 11), 30.0, 31.0)
        february = op("where", self.is_leap_year, 29.0, 28.0)
        days = op("where", self._op("eq", self.month, 2.0), february, other_months)
        return op("where", op("isnan", self.days), np.nan, days)

    @cached_property
    def is_leap_year(self) -> Value:
        """A boolean that is true in leap years, and false if the timestamp is NaN."""
        op = self.builder.op
        remainders = (op("mod", self.year, years) for years in (4.0, 100.0, 400.0))
        is_fourth, is_hundredth, is_four_hundredth = (op("eq", r, 0.0) for r in remainders)
        return op("or", is_four_hundredth, op("and", is_fourth, op("not", is_hundredth)))

    @cached_property
    def is_month_start(self) -> Value:
        return self._op("eq", self.day, 1.0)

    @cached_property
    def is_month_end(self) -> Value:
        return self._op("eq", self.day, self.days_in_month)

    def build_is_month(self, *months: int) -> Value:
        """Return a boolean that is true if the month is in `months`, and false for a NaN."""
        matches = [self._op("eq", self.month, float(month)) for month in months]
        return reduce(lambda left, right: self._op("or", left, right), matches)

    def _count_days(self, years: Value) -> Value:
        """Count the days in the first `years` years; each year begins in March."""
        days = self._op("add", self._op("mul", years, 365.0), self.floor_divide(years, 4))
        days = self._op("sub", days, self.floor_divide(years, 100))
        return self._op("add", days, self.floor_divide(years, 400))

    def floor_divide(self, value: Value, divisor: int) -> Value:
        """Return the floor of `value / divisor`; the result is exact below 2**47."""
        return self._op("floor", self._op("div", value, float(divisor)))

    def to_number(self, condition: Value) -> Value:
        """Convert a boolean `condition` to 1 where it is true and 0 where it is false."""
        return self._op("where", condition, 1.0, 0.0)

    def _op(self, name: str, *inputs: Value | float) -> Value:
        return self.builder.op(name, *inputs)


PARTS: Mapping[str, Callable[[Moment], Value]] = {
    **{name: attrgetter(name) for name in ("day", "month", "week", "year")},
    **dict.fromkeys(("dayofweek", "dow", "weekday"), attrgetter("weekday_from_sunday")),
    **dict.fromkeys(("dayofyear", "doy"), attrgetter("day_of_year")),
    "dayofmonth": attrgetter("day"),
    "epoch": lambda m: m.builder.op("div", m.microseconds, float(SECOND)),
    "epoch_us": attrgetter("microseconds"),
    "hour": lambda m: m.floor_divide(m.time_of_day, HOUR),
    "isodow": attrgetter("iso_weekday"),
    "isoyear": attrgetter("thursday_of_week.year"),
    "microsecond": attrgetter("time_of_minute"),
    "millisecond": lambda m: m.floor_divide(m.time_of_minute, 1_000),
    "minute": lambda m: m.floor_divide(m.builder.op("mod", m.time_of_day, float(HOUR)), MINUTE),
    "quarter": lambda m: m.floor_divide(m.builder.op("add", m.month, 2.0), 3),
    "second": lambda m: m.floor_divide(m.time_of_minute, SECOND),
    "weekofyear": attrgetter("week"),
}
"""Maps each date function of DuckDB to a function that computes it."""
