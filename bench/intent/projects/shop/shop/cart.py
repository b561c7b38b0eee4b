"""What a customer wants to buy."""

from shop.catalog import Item


class Cart:
    """Items and how many of each."""

    def __init__(self):
        self.lines = {}

    def add(self, item: Item, count: int = 1):
        old = self.lines.get(item.sku, (item, 0))[1]
        self.lines[item.sku] = (item, old + count)

    def remove(self, sku: str):
        del self.lines[sku]

    def subtotal(self) -> int:
        return sum(item.price_cents * count for item, count in self.lines.values())

    def is_empty(self) -> bool:
        return not self.lines
