"""Items for sale."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    sku: str
    name: str
    price_cents: int
    grams: int = 0


class Catalog:
    """Items by their number."""

    def __init__(self):
        self._items = {}

    def add(self, item):
        if item.sku in self._items:
            raise ValueError(f"{item.sku} is in the catalog already")
        self._items[item.sku] = item

    def get(self, sku):
        return self._items[sku]

    def search(self, words):
        words = words.lower().split()
        return [item for item in self._items.values() if all(word in item.name.lower() for word in words)]

    def __len__(self):
        return len(self._items)
