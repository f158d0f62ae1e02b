"""Willump's seven workloads (table 1 of the paper) in their shape: what costs, and what decides.

Each has rows of which most can be told by what is cheap, and some only by what is dear: the
characters of a text, a look-up in another database, a member of a stack, aggregates of relations.
All of it is made from seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

Array = np.ndarray[Any, Any]
Random = np.random.Generator

SONGS, ARTISTS, USERS, CLIENTS, CUSTOMERS = 20_000, 5_000, 20_000, 50_000, 100_000
ORDERS, VISITS = 30, 50
"""Of a customer, in the mean."""


ORDERED = ("bought", "mean", "spread", "most", "middle", "items")
VISITED = ("visited", "pages", "favourite", "sites")
HABITS = ("evenings", "skips", "likes", "shares", "searches", "offline")
SOUNDS = ("tempo", "loudness", "energy", "voice", "crowd", "length")
ACCOUNTS = ("balance", "cards", "turnover", "overdrafts", "limits", "requests")
LISTENER, ARTIST = ("taste", "age", *HABITS), ("style", "albums", *SOUNDS)
CLIENT = ("late", "ceiling", *ACCOUNTS)
"""What is made of relations (by Featuretools, say), and columns of tables of the other server: as
many as such tables have, of which one or two tell."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload.

    Attributes:
        rows_of: makes so many rows with an `id`.
        model: what is fitted on the features.
        features: the model's columns, in this order.
        label: the column that is predicted.
        select, source: of the query that makes the features; the rows are the table `{t}`.
        relations: the other tables of the engine.
        remote: tables of the other database server.
        learn: how many rows the small models learn from.
        cascade, top_k: how many times as fast it has to be; None where there is no bar.
    """

    about: str
    rows_of: Callable[[int, Random], pd.DataFrame]
    model: Callable[[], Any]
    features: tuple[str, ...]
    label: str
    select: str
    source: str
    relations: Callable[[Random], Mapping[str, pd.DataFrame]] = lambda _: {}
    remote: Callable[[Random], Mapping[str, pd.DataFrame]] = lambda _: {}
    classifies: bool = True
    learn: int = 120_000
    cascade: float | None = None
    top_k: float = 1.3

    def query(self, table: str) -> str:
        """The features, the label and the `id` of a table's rows."""
        return f"SELECT {self.select} FROM {self.source.format(t=table)}"


def vocabulary(count: int, random: Random) -> Array:
    """Different words of two to four syllables."""
    syllables = np.array([c + v for c in "bdfgklmnprstvz" for v in "aeiou"])
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(random.choice(syllables, random.integers(2, 5)))] = None
    return np.array(list(words), object)


WORDS = vocabulary(6_000, np.random.default_rng(77))
"""The language of all texts: the first are frequent."""

INSULTS, PROVOCATIONS, BRANDS = WORDS[5_000:5_040], WORDS[5_040:5_060], WORDS[5_060:5_160]


def texts(rows: int, shortest: int, longest: int, random: Random) -> list[list[str]]:
    """Words by their frequency."""
    length = random.integers(shortest, longest, rows)
    drawn = WORDS[(random.zipf(1.15, int(length.sum())) - 1) % 5_000]
    return [list(part) for part in np.split(drawn, np.cumsum(length)[:-1])]


def disguised(word: str, random: Random) -> str:
    """A word as somebody writes it whom a filter of words shall not find."""
    place = int(random.integers(1, len(word)))
    return f"{word[:place]}{random.choice(list('*-._'))}{word[place:]}"


def comments(rows: int, random: Random) -> pd.DataFrame:
    """Comments, toxic or not: an insult is enough, and a provocation may come with a disguised
    one."""
    made = texts(rows, 15, 50, random)
    kind = random.choice(3, rows, p=[0.72, 0.13, 0.15])
    toxic = kind == 1
    for row in np.flatnonzero(kind == 1):
        for word in random.choice(INSULTS, 2):
            made[row].insert(int(random.integers(len(made[row]))), word)
    for row in np.flatnonzero(kind == 2):
        made[row].insert(int(random.integers(len(made[row]))), random.choice(PROVOCATIONS))
        toxic[row] = random.random() < 0.5
        if toxic[row]:
            for word in random.choice(INSULTS, 3):
                place = int(random.integers(len(made[row])))
                made[row].insert(place, disguised(word, random))
    frame = pd.DataFrame({"id": range(rows), "comment": [" ".join(words) for words in made]})
    return frame.assign(toxic=toxic.astype(int))


def words_and_characters(column: str, most: int | None = None) -> list[tuple[str, Any, str]]:
    """The vectorizers of a text, of at most so many columns each."""
    words = TfidfVectorizer(min_df=3, max_features=most)
    characters = TfidfVectorizer(analyzer="char", ngram_range=(2, 4), min_df=10, max_features=most)
    return [("words", words, column), ("characters", characters, column)]


def listings(rows: int, random: Random) -> pd.DataFrame:
    """Listings of a store, clear or not: by their words, in some categories by how they are
    spelled."""
    made = texts(rows, 6, 14, random)
    category = random.integers(0, 12, rows)
    clear = random.random(rows) < 0.5
    spelled = category < 3
    for row in range(rows):
        good = bool(clear[row])
        if spelled[row]:
            number = f"{random.integers(100, 999)}"
            made[row].append(f"{'xk' if good else 'zz'}{number}{'b' if good else ''}")
        else:
            made[row] += list(random.choice(INSULTS[:20] if good else INSULTS[20:], 2))
    return pd.DataFrame(
        {
            "id": range(rows),
            "title": [" ".join(words) for words in made],
            "category": category.astype(str).astype(object),
            "price": random.gamma(2, 20, rows).round(2),
            "clear": clear.astype(int),
        }
    )


def goods(rows: int, random: Random) -> pd.DataFrame:
    """Goods and their prices: by brand and category first, then by the description."""
    made = texts(rows, 15, 40, random)
    brand, category = random.integers(0, 100, rows), random.integers(0, 20, rows)
    worth = np.zeros(rows)
    for row in range(rows):
        if random.random() < 0.3:
            word = int(random.integers(40))
            made[row].append(INSULTS[word])
            worth[row] = word / 40
    price = 2 * np.sin(brand) + np.cos(category) + 0.3 * worth + random.normal(0, 0.05, rows)
    return pd.DataFrame(
        {
            "id": range(rows),
            "name": [f"{BRANDS[b]} {words[0]}" for b, words in zip(brand, made, strict=True)],
            "category": category.astype(str).astype(object),
            "description": [" ".join(words) for words in made],
            "price": price,
        }
    )


def plays(rows: int, random: Random) -> pd.DataFrame:
    """Who was played what, and whether they listened again."""
    frame = pd.DataFrame(
        {
            "id": range(rows),
            "song": random.integers(0, SONGS, rows),
            "listener": random.integers(0, USERS, rows),
            "tab": random.integers(0, 10, rows),
            "hour": random.integers(0, 24, rows),
        }
    )
    song = np.sin(frame.song * 0.7)
    listener, artist = np.cos(frame.listener * 1.3), np.sin((frame.song % ARTISTS) * 2.1)
    by_tab = np.where(frame.tab < 4, 5.0, -5.0)
    told = np.where(frame.tab < 8, by_tab + song, 2 * listener + 2 * artist)
    return frame.assign(again=(told + random.logistic(0, 0.2, rows) > 0).astype(int))


def songs(_: Random) -> Mapping[str, pd.DataFrame]:
    """What is known of songs."""
    song = np.arange(SONGS)
    made = {"song": song, "artist": song % ARTISTS, "mood": np.sin(song * 0.7)}
    return {"songs": pd.DataFrame(made).assign(seconds=100 + song % 300)}


def listeners_and_artists(random: Random) -> Mapping[str, pd.DataFrame]:
    """What another server knows."""
    listener, artist = np.arange(USERS), np.arange(ARTISTS)
    known = {"key": listener, "taste": np.cos(listener * 1.3), "age": 15 + listener % 50}
    made = {"key": artist, "style": np.sin(artist * 2.1), "albums": 1 + artist % 20}
    return {
        "listeners": pd.DataFrame({**known, **more(HABITS, USERS, random)}),
        "artists": pd.DataFrame({**made, **more(SOUNDS, ARTISTS, random)}),
    }


def more(names: tuple[str, ...], rows: int, random: Random) -> dict[str, Array]:
    """Columns that come along, and say nothing."""
    return {name: random.normal(size=rows) for name in names}


def looked_up(call: str, names: tuple[str, ...]) -> str:
    """The fields of a row that a function fetches."""
    return ", ".join(f"{call}.{name} AS {name}" for name in names)


def loans(rows: int, random: Random) -> pd.DataFrame:
    """Loans, and how likely they are lost."""
    frame = pd.DataFrame(
        {
            "id": range(rows),
            "client": random.integers(0, CLIENTS, rows),
            "amount": random.gamma(2, 5_000, rows).round(2),
            "income": random.gamma(4, 10_000, rows).round(2),
            "months": random.integers(6, 72, rows),
        }
    )
    burden = np.log1p(frame.amount / frame.income * 12 / frame.months)
    late = (frame.client * 7 % 13) / 13
    risk = 3 * burden + 0.15 * late + random.normal(0, 0.02, rows)
    return frame.assign(risk=risk)


def clients(random: Random) -> Mapping[str, pd.DataFrame]:
    """What another server knows."""
    client = np.arange(CLIENTS)
    made = {"key": client, "late": (client * 7 % 13) / 13, "ceiling": 1_000.0 + client % 90}
    return {"clients": pd.DataFrame({**made, **more(ACCOUNTS, CLIENTS, random)})}


def measurements(rows: int, random: Random) -> pd.DataFrame:
    """Numbers of two classes: a line tells most, and a curve the others."""
    x = random.normal(size=(rows, 12))
    line = 3 * x[:, 0] + 2 * x[:, 1]
    curve = np.where(np.abs(line) < 1.2, 4 * np.sin(3 * x[:, 2]) * np.sign(x[:, 3]), line)
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(12)])
    return frame.assign(id=range(rows), kind=(curve > 0).astype(int))


def visitors(rows: int, random: Random) -> pd.DataFrame:
    """Customers, and whether they buy next month: by what they are, and some by what they did."""
    customer = random.integers(0, CUSTOMERS, rows)
    frame = pd.DataFrame(
        {
            "id": range(rows),
            "customer": customer,
            "age": random.integers(18, 80, rows),
            "days": random.integers(0, 300, rows),
            "plan": random.integers(0, 6, rows),
        }
    )
    spends = np.sin(customer * 0.37)
    told = np.where(frame.plan < 5, np.where(frame.days < 60, 4.0, -4.0), 4 * spends)
    return frame.assign(buys=(told + random.logistic(0, 0.2, rows) > 0).astype(int))


def orders_and_visits(random: Random) -> Mapping[str, pd.DataFrame]:
    """What customers did, in no order."""
    buyer = random.integers(0, CUSTOMERS, CUSTOMERS * ORDERS)
    visitor = random.integers(0, CUSTOMERS, CUSTOMERS * VISITS)
    pages, site = random.integers(1, 30, visitor.size), random.integers(0, 40, visitor.size)
    goods = random.integers(0, 500, buyer.size)
    amount = 20 + 10 * np.sin(buyer * 0.37) + random.normal(0, 2, buyer.size)
    return {
        "orders": pd.DataFrame({"customer": buyer, "amount": amount, "item": goods}),
        "visits": pd.DataFrame({"customer": visitor, "pages": pages, "site": site}),
    }


def boosted() -> Any:
    """A classifier of boosted trees."""
    return HistGradientBoostingClassifier(max_iter=100, random_state=0)


def texts_of(column: str, rest: list[Any], last: Any) -> Any:
    """A pipeline of vectorizers."""
    return make_pipeline(ColumnTransformer([*words_and_characters(column), *rest]), last)


def stack() -> Any:
    """A line and a forest, and a line over both."""
    members = [
        ("line", make_pipeline(StandardScaler(), LogisticRegression())),
        ("forest", RandomForestClassifier(300, random_state=0, n_jobs=-1)),
    ]
    return StackingClassifier(members, LogisticRegression(), cv=3)


def _hot() -> Any:
    return OneHotEncoder(handle_unknown="ignore")


WORKLOADS: Mapping[str, Workload] = {
    "toxic": Workload(
        "comments: TF-IDF of words and characters, linear",
        comments,
        lambda: texts_of("comment", [], LogisticRegression(C=30, max_iter=500)),
        ("comment",),
        "toxic",
        "*",
        "{t}",
        cascade=2.5,
    ),
    "music": Workload(
        "look-ups in a table and on another server, boosted trees",
        plays,
        boosted,
        ("tab", "hour", "seconds", "mood", *LISTENER, *ARTIST),
        "again",
        "p.id, p.tab, p.hour, p.again, s.seconds, s.mood, "
        f"{looked_up('listener(p.listener)', LISTENER)}, {looked_up('artist(s.artist)', ARTIST)}",
        "{t} p LEFT JOIN songs s ON p.song = s.song",
        songs,
        listeners_and_artists,
        cascade=2.4,
    ),
    "product": Workload(
        "titles: TF-IDF of words and characters, categories, linear",
        listings,
        lambda: texts_of(
            "title",
            [("category", _hot(), ["category"]), ("price", StandardScaler(), ["price"])],
            LogisticRegression(C=30, max_iter=500),
        ),
        ("title", "category", "price"),
        "clear",
        "*",
        "{t}",
        cascade=1.5,
    ),
    "instant": Workload(
        "a stack of a linear model and a forest",
        measurements,
        stack,
        tuple(f"x{k}" for k in range(12)),
        "kind",
        "*",
        "{t}",
    ),
    "purchase": Workload(
        "aggregates over relations, boosted trees",
        visitors,
        boosted,
        ("age", "days", "plan", *ORDERED, *VISITED),
        "buys",
        f"c.id, c.age, c.days, c.plan, c.buys, {', '.join((*ORDERED, *VISITED))}",
        "{t} c LEFT JOIN (SELECT customer, count(*) AS bought, avg(amount) AS mean, "
        "stddev(amount) AS spread, max(amount) AS most, median(amount) AS middle, "
        "count(DISTINCT item) AS items FROM orders GROUP BY customer) o ON c.customer = o.customer "
        "LEFT JOIN (SELECT customer, count(*) AS visited, avg(pages) AS pages, "
        "mode(site) AS favourite, count(DISTINCT site) AS sites FROM visits GROUP BY customer) v "
        "ON c.customer = v.customer",
        orders_and_visits,
        cascade=1.5,
    ),
    "price": Workload(
        "encodings and TF-IDF of two texts, a net",
        goods,
        lambda: make_pipeline(
            ColumnTransformer(
                [
                    ("name", TfidfVectorizer(min_df=3, max_features=500), "name"),
                    ("category", _hot(), ["category"]),
                    *words_and_characters("description", 1_500),  # sqlml makes 4,096 dense ones
                ]
            ),
            MLPRegressor(
                hidden_layer_sizes=(32,), early_stopping=True, max_iter=12, random_state=0
            ),
        ),
        ("name", "category", "description"),
        "price",
        "*",
        "{t}",
        classifies=False,
    ),
    "credit": Workload(
        "look-ups on another server, boosted trees",
        loans,
        lambda: HistGradientBoostingRegressor(max_iter=100, random_state=0),
        ("amount", "income", "months", *CLIENT),
        "risk",
        f"l.id, l.amount, l.income, l.months, l.risk, {looked_up('client(l.client)', CLIENT)}",
        "{t} l",
        remote=clients,
        classifies=False,
        learn=480_000,  # the larger the tables that are tried, the smaller the share that is kept
        top_k=10.0,
    ),
}
"""Workloads by the names that the paper gives them."""
