"""A small shopping cart. One of its functions is wrong: the test shows which."""

from dataclasses import dataclass


@dataclass
class Item:
    name: str
    price_cents: int
    count: int = 1


def total(items: list[Item]) -> int:
    """The price of all items in cents."""
    return sum(item.price_cents for item in items)


def cheapest(items: list[Item]) -> Item | None:
    """The item with the lowest price, none in an empty cart."""
    return min(items, key=lambda item: item.price_cents, default=None)


def add(items: list[Item], name: str, price_cents: int) -> None:
    """Adds one item, or one more of it."""
    for item in items:
        if item.name == name:
            item.count += 1
            return
    items.append(Item(name, price_cents))
