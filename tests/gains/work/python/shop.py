"""A service of FastAPI as fleets have them: orders in SQLite, checked bodies, JSON and pages of HTML."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import escape
from random import Random
from string import Template
from uuid import UUID

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

_CUSTOMERS, _ORDERS, _FIRST = 200, 4000, datetime(2026, 1, 1, tzinfo=UTC)
_AGENT = re.compile(r"(?P<name>[A-Za-z-]+)/(?P<version>\d+(?:\.\d+)*)")
_ROW = Template("<tr><td>$number</td><td>$customer</td><td>$amount</td><td>$placed</td></tr>")
_log = logging.getLogger("shop")
_log.addHandler(logging.FileHandler(os.devnull))
_log.setLevel(logging.INFO)


class Item(BaseModel):
    """A position of an order."""

    name: str = Field(min_length=1, max_length=80)
    count: int = Field(ge=1, le=100)
    price: Decimal


class Order(BaseModel):
    """An order of a customer."""

    customer: str
    items: list[Item] = Field(min_length=1, max_length=50)
    note: str = ""


class Placed(BaseModel):
    """An order as it is kept."""

    number: int
    customer: str
    amount: Decimal
    placed: datetime


def _filled() -> sqlite3.Connection:
    draw = Random(3)  # noqa: S311 - made-up orders
    database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    database.execute(
        "CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT, amount TEXT, placed TEXT)"
    )
    database.execute("CREATE INDEX by_customer ON orders (customer)")
    rows = [
        (
            f"customer-{draw.randrange(_CUSTOMERS)}",
            str(Decimal(draw.randrange(100, 100_000)) / 100),
            (_FIRST + timedelta(minutes=7 * number)).isoformat(),
        )
        for number in range(_ORDERS)
    ]
    database.executemany("INSERT INTO orders (customer, amount, placed) VALUES (?, ?, ?)", rows)
    return database


app = FastAPI()
_database = _filled()


def _select(where: str, *values: object) -> Iterator[Placed]:
    for number, customer, amount, placed in _database.execute(
        f"SELECT number, customer, amount, placed FROM orders WHERE {where}",  # noqa: S608 - a constant of this file
        values,
    ):
        yield Placed(
            number=number, customer=customer, amount=Decimal(amount), placed=datetime.fromisoformat(placed)
        )


@app.get("/orders/{number}")
async def one(number: int, request: Request) -> Placed:
    """Return an order."""
    agent = _AGENT.match(request.headers.get("user-agent", ""))
    _log.info("order %d read by %s", number, agent["name"] if agent else "unknown")
    for order in _select("number = ?", number):
        return order
    raise HTTPException(404, f"there is no order {number}")


@app.get("/customers/{customer}/orders")
async def of_customer(customer: str, limit: int = 20) -> list[Placed]:
    """Return a customer's latest orders."""
    return list(_select("customer = ? ORDER BY number DESC LIMIT ?", customer, limit))


@app.post("/orders", status_code=201)
async def place(order: Order) -> dict[str, object]:
    """Keep an order in place of an old one, so that the table stays as it is."""
    amount = sum((item.price * item.count for item in order.items), Decimal())
    number = 1 + hash((order.customer, amount)) % _ORDERS
    row = (number, order.customer, str(amount), datetime.now(UTC).isoformat())
    _database.execute("REPLACE INTO orders VALUES (?, ?, ?, ?)", row)
    by_name = {item.name.casefold(): item.count for item in sorted(order.items, key=lambda item: item.name)}
    _log.info("order %d of %s: %s", number, order.customer, by_name)
    return {"number": number, "amount": f"{amount:.2f}", "receipt": UUID(int=number * 7919), "items": by_name}


@app.get("/customers/{customer}/page", response_class=HTMLResponse)
async def page(customer: str) -> str:
    """Return a customer's orders as a page."""
    rows = (
        _ROW.substitute(
            number=order.number,
            customer=escape(order.customer),
            amount=f"{order.amount:,.2f}",
            placed=f"{order.placed:%d %b %Y}",
        )
        for order in _select("customer = ? LIMIT 20", customer)
    )
    return f"<!doctype html><title>{escape(customer)}</title><table>{''.join(rows)}</table>"
