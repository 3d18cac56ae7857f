"""A job of a night: reads rows and lines of a log, groups them, and writes a table and a report.

Its argument is for how many seconds it does that, again and again, with other data each time.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import re
import sqlite3
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from statistics import fmean, quantiles

_ROWS, _LINES = 2000, 2000
_COUNTRIES = ("AT", "BR", "DE", "FR", "IN", "JP", "US")
_STATUSES = (200, 200, 200, 304, 404, 500)
_PATHS = ("/", "/cart", "/search?q=tea", "/orders/17", "/static/app.js")
_LINE = re.compile(
    r'(?P<address>\d+\.\d+\.\d+\.\d+) - (?P<user>\S+) \[(?P<time>[^\]]+)\] "(?P<verb>[A-Z]+) (?P<path>\S+)'
    r' HTTP/1\.1" (?P<status>\d{3}) (?P<size>\d+|-)'
)


@dataclass(frozen=True)
class Sale:
    """A row of the file of sales."""

    country: str
    product: str
    count: int
    price: Decimal
    time: datetime

    @property
    def amount(self) -> Decimal:
        """Return what was paid."""
        return self.price * self.count


def _table(draw: Random) -> str:
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(["country", "product", "count", "price", "time"])
    first = datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(_ROWS):
        price = f"{draw.randrange(1, 90)}.{draw.randrange(100):02}"
        time_ = first + timedelta(seconds=31 * number)
        product = f"product {draw.randrange(60)}, {draw.choice('abc')}"
        writer.writerow([draw.choice(_COUNTRIES), product, draw.randrange(1, 20), price, time_.isoformat()])
    return written.getvalue()


def _log(draw: Random) -> str:
    lines = list[str]()
    for number in range(_LINES):
        address, user = f"10.0.{draw.randrange(4)}.{draw.randrange(250)}", f"user{draw.randrange(90)}"
        asked = f'"GET {draw.choice(_PATHS)} HTTP/1.1" {draw.choice(_STATUSES)} {draw.randrange(9000)}'
        lines.append(f"{address} - {user} [01/Mar/2026:{number % 24:02}:10:03] {asked}")
    return "\n".join(lines)


def _sales(text: str) -> Iterator[Sale]:
    for row in csv.DictReader(io.StringIO(text)):
        time_ = datetime.fromisoformat(row["time"])
        yield Sale(row["country"], row["product"].strip(), int(row["count"]), Decimal(row["price"]), time_)


def _summed(sales: list[Sale]) -> dict[str, object]:
    by_country: defaultdict[str, list[Sale]] = defaultdict(list)
    for sale in sales:
        by_country[sale.country].append(sale)
    products = Counter[str]()
    for sale in sales:
        products[sale.product] += sale.count
    days = itertools.groupby(sorted(sales, key=lambda sale: sale.time), key=lambda sale: sale.time.date())
    return {
        "countries": {
            country: {
                "amount": str(sum(sale.amount for sale in of_country)),
                "mean": fmean(sale.count for sale in of_country),
                "quartiles": quantiles([float(sale.price) for sale in of_country], n=4),
            }
            for country, of_country in sorted(by_country.items())
        },
        "most": products.most_common(10),
        "days": {f"{day:%Y-%m-%d}": sum(1 for _ in of_day) for day, of_day in days},
    }


def _read(lines: str) -> dict[str, object]:
    sizes, users, failed = defaultdict[str, int](int), set[str](), list[dict[str, str]]()
    for line in lines.splitlines():
        if found := _LINE.match(line):
            path, _, query = found["path"].partition("?")
            sizes[path] += 0 if found["size"] == "-" else int(found["size"])
            users.add(found["user"].upper())
            if found["status"] >= "500":
                failed.append({**found.groupdict(), "query": query.replace("+", " ")})
    return {"sizes": dict(sizes), "users": sorted(users), "failed": failed[:100]}


def _kept(sales: list[Sale]) -> list[tuple[str, float]]:
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE sales (country, product, count, price)")
        rows = ((sale.country, sale.product, sale.count, float(sale.price)) for sale in sales)
        database.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", rows)
        return database.execute(
            "SELECT country, sum(count * price) FROM sales GROUP BY 1 ORDER BY 2"
        ).fetchall()


def _night(draw: Random) -> str:
    """Return the hash of the report on one night."""
    sales = list(_sales(_table(draw)))
    report = {"sales": _summed(sales), "log": _read(_log(draw)), "kept": _kept(sales)}
    lines = "\n".join(json.dumps(asdict(sale), default=str) for sale in sales)
    back = [json.loads(line)["product"] for line in lines.splitlines()]
    report["products"] = sorted({*back})
    written = json.dumps(report, indent=1, sort_keys=True).encode()
    return hashlib.sha256(zlib.compress(written)).hexdigest()


def main() -> None:
    """Work for as long as the argument says."""
    until, draw = time.monotonic() + float(sys.argv[1]), Random(5)  # noqa: S311 - made-up sales
    nights = [_night(draw)]
    while time.monotonic() < until:
        nights.append(_night(draw))
    sys.stdout.write(f"{len(nights)} nights, the last one {nights[-1]}\n")


if __name__ == "__main__":
    main()
