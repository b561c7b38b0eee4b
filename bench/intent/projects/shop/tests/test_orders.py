import unittest

from shop.cart import Cart
from shop.catalog import Item
from shop.orders import OrderBook


class Orders(unittest.TestCase):
    def test_only_paid_orders_count(self):
        book, cart = OrderBook(), Cart()
        cart.add(Item("m1", "Mug", 1000))
        first = book.place(cart)
        book.place(cart)
        first.pay()
        self.assertEqual(book.revenue(), first.total)


if __name__ == "__main__":
    unittest.main()
