"""Orders: carts that were paid."""

from datetime import datetime, timezone

from shop.pricing import total


class Order:
    def __init__(self, number, cart, percent=0):
        self.number = number
        self.lines = list(cart.lines.values())
        self.total = total(cart, percent)
        self.at = datetime.now(timezone.utc)
        self.state = "new"

    def pay(self):
        if self.state != "new":
            raise ValueError(f"order {self.number} is {self.state}")
        self.state = "paid"

    def cancel(self):
        self.state = "cancelled"


class OrderBook:
    def __init__(self):
        self.orders = []

    def place(self, cart, percent=0):
        if cart.is_empty():
            raise ValueError("the cart is empty")
        order = Order(len(self.orders) + 1, cart, percent)
        self.orders.append(order)
        return order

    def revenue(self):
        return sum(order.total for order in self.orders if order.state == "paid")
