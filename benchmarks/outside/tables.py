"""Tables with the shapes of those in IMBridge's queries: columns, categories, keys and filters.

Source: "IMBridge: Impedance Mismatch Mitigation between Database Engine and Prediction Query
Execution" and its queries on the data sets of Raven (Expedia, Flights, Credit Card, Hospital). The
rows are generated; a label depends on a few columns, so that models have something to learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.outside.prediction_query import rank_into_classes

Rng = np.random.Generator
Tables = dict[str, pd.DataFrame]


def _levels(
    rng: Rng, prefix: str, count: int, rows: int
) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Return strings of `count` categories, of which the first are the most frequent."""
    names = np.array([f"{prefix}{k}" for k in range(count)], object)
    places = (count * rng.random(rows) ** 2).astype(np.int64)
    return names[places]


def make_expedia(rows: int, seed: int) -> Tables:
    """Return listings, hotels and searches: `rows` listings of 40,000 hotels in 8,000 searches."""
    rng = np.random.default_rng(seed)
    hotels, searches = 40_000, 8_000
    listings = pd.DataFrame(
        {
            "srch_id": rng.integers(0, searches, rows),
            "prop_id": rng.integers(0, hotels, rows),
            "position": _levels(rng, "p", 40, rows),
            "prop_location_score1": rng.gamma(4, 0.8, rows),
            "prop_location_score2": rng.beta(1, 4, rows),
            "prop_log_historical_price": rng.normal(4.9, 0.6, rows),
            "price_usd": np.exp(rng.normal(4.9, 0.7, rows)),
            "orig_destination_distance": rng.gamma(1, 1200, rows),
        }
    )
    hotel = pd.DataFrame(
        {
            "prop_id": np.arange(hotels),
            "prop_country_id": _levels(rng, "c", 150, hotels),
            "prop_starrating": rng.integers(0, 6, hotels),
            "prop_review_score": rng.integers(0, 11, hotels) / 2,
            "prop_brand_bool": rng.random(hotels) < 0.6,
            "count_clicks": rng.integers(0, 40, hotels),
            "count_bookings": rng.integers(0, 30, hotels),
            "avg_bookings_usd": rng.gamma(2, 150, hotels),
            "stdev_bookings_usd": rng.gamma(2, 60, hotels),
        }
    )
    search = pd.DataFrame(
        {
            "srch_id": np.arange(searches),
            "year": _levels(rng, "20", 3, searches),
            "month": _levels(rng, "m", 12, searches),
            "weekofyear": _levels(rng, "w", 53, searches),
            "time": _levels(rng, "h", 24, searches),
            "site_id": _levels(rng, "s", 32, searches),
            "visitor_location_country_id": _levels(rng, "v", 160, searches),
            "srch_destination_id": _levels(rng, "d", 3000, searches),
            "srch_length_of_stay": rng.integers(1, 15, searches),
            "srch_booking_window": rng.integers(0, 200, searches),
            "srch_adults_count": rng.integers(1, 6, searches),
            "srch_children_count": rng.integers(0, 4, searches),
            "srch_room_count": rng.integers(1, 5, searches),
            "srch_saturday_night_bool": rng.random(searches) < 0.5,
            "random_bool": rng.random(searches) < 0.3,
        }
    )
    return {"listings": listings, "hotels": hotel, "searches": search}


def make_flights(rows: int, seed: int) -> Tables:
    """Return routes, airlines and two tables of airports."""
    rng = np.random.default_rng(seed)
    airlines, airports = 540, 3_000
    routes = pd.DataFrame(
        {
            "airlineid": rng.integers(0, airlines, rows),
            "sairportid": rng.integers(0, airports, rows),
            "dairportid": rng.integers(0, airports, rows),
        }
    )
    airline = pd.DataFrame(
        {
            "airlineid": np.arange(airlines),
            "name1": rng.integers(0, 6, airlines),
            "name2": np.where(rng.random(airlines) < 0.8, "t", "f"),
            "name4": np.where(rng.random(airlines) < 0.8, "t", "f"),
            "acountry": _levels(rng, "a", 110, airlines),
            "active": np.where(rng.random(airlines) < 0.9, "Y", "N"),
        }
    )
    tables = {"routes": routes, "airlines": airline}
    for side, name in (("s", "origins"), ("d", "destinations")):
        tables[name] = pd.DataFrame(
            {
                f"{side}airportid": np.arange(airports),
                f"{side}latitude": rng.uniform(-60, 75, airports),
                f"{side}longitude": rng.uniform(-180, 180, airports),
                f"{side}city": _levels(rng, "t", 2_000, airports),
                f"{side}country": _levels(rng, "c", 200, airports),
                f"{side}timezone": rng.integers(-11, 13, airports),
                f"{side}dst": _levels(rng, "z", 6, airports),
            }
        )
    return tables


def make_credit_card(rows: int, seed: int) -> Tables:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 28))
    card = pd.DataFrame(values, columns=[f"v{k}" for k in range(1, 29)])
    card["amount"] = rng.gamma(0.5, 170, rows)
    card["seconds"] = rng.integers(0, 172_800, rows)
    return {"card": card}


def make_hospital(rows: int, seed: int) -> Tables:
    """Return stays of 9 numbers and 15 categories."""
    rng = np.random.default_rng(seed)
    stay = pd.DataFrame({f"n{k}": rng.normal(size=rows) for k in range(9)})
    stay["rcount"] = _levels(rng, "r", 6, rows)
    stay["gender"] = _levels(rng, "g", 2, rows)
    stay["facid"] = _levels(rng, "f", 5, rows)
    for k in range(12):
        stay[f"flag{k}"] = rng.integers(0, 2, rows)
    stay["eid"] = np.arange(rows)
    return {"stays": stay}


WORDS = 20_000


def make_reviews(rows: int, seed: int) -> Tables:
    """Return reviews of 5 to 120 words out of `WORDS`."""
    rng = np.random.default_rng(seed)
    words = np.array([f"word{k}" for k in range(WORDS)], object)
    lengths = rng.integers(5, 120, rows)
    places = (WORDS * rng.random(int(lengths.sum())) ** 3).astype(np.int64)
    parts = np.split(words[places], np.cumsum(lengths)[:-1])
    return {"reviews": pd.DataFrame({"id": np.arange(rows), "txt": [" ".join(p) for p in parts]})}


def label_returns(rows: pd.DataFrame) -> Any:
    """Return flags of lines: R, A or N, of which the ship mode and the quantity decide."""
    return np.array(["A", "N", "R"])[
        rank_into_classes(rows, ("l_quantity", "l_shipmode", "o_totalprice"), 3)
    ]


STORES, DEPARTMENTS, WEEKS = 40, 60, 52


def make_sales(rows: int, seed: int) -> Tables:
    """Return weeks to forecast of departments of stores, and the names of the departments."""
    rng = np.random.default_rng(seed)
    sales = pd.DataFrame(
        {
            "store": rng.integers(0, STORES, rows),
            "department": rng.integers(0, DEPARTMENTS, rows),
            "week": rng.integers(0, 2 * WEEKS, rows),
        }
    )
    departments = pd.DataFrame({"department": np.arange(DEPARTMENTS)})
    departments["name"] = [f"department {k}" for k in range(DEPARTMENTS)]
    return {"sales": sales, "departments": departments}


USERS, PRODUCTS = 50_000, 5_000


def make_ratings(rows: int, seed: int) -> Tables:
    """Return ratings, 1 to 5, of products by users."""
    rng = np.random.default_rng(seed)
    ratings = pd.DataFrame(
        {
            "userid": rng.integers(0, USERS, rows),
            "productid": rng.integers(0, PRODUCTS, rows),
            "rating": rng.integers(1, 6, rows),
        }
    )
    return {"ratings": ratings}


ZONES = 260


def make_rides(rows: int, seed: int) -> Tables:
    """Return taxi rides and the names of zones."""
    rng = np.random.default_rng(seed)
    distance = rng.gamma(1.5, 2.0, rows)
    rides = pd.DataFrame(
        {
            "zone_id": rng.integers(0, ZONES, rows),
            "distance": distance,
            "fare": 3 + 2.5 * distance + rng.normal(0, 1, rows),
            "pickup_hour": rng.integers(0, 24, rows),
            "pickup_day": rng.integers(1, 32, rows),
            "passengers": rng.integers(0, 7, rows),
            "tolls": np.where(rng.random(rows) < 0.05, 6.55, 0.0),
            "payment": _levels(rng, "kind", 5, rows),
        }
    )
    zones = pd.DataFrame({"zone_id": np.arange(ZONES), "zone": [f"zone {k}" for k in range(ZONES)]})
    return {"rides": rides, "zones": zones}
