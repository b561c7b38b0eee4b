import unittest

from shop.cart import Cart
from shop.catalog import Item
from shop.pricing import discount, shipping, total

MUG = Item("m1", "Mug", 1000)


class Pricing(unittest.TestCase):
    def test_discount(self):
        self.assertEqual(discount(1000, 10), 100)

    def test_shipping_is_free_for_large_orders(self):
        self.assertEqual(shipping(5000), 0)

    def test_total(self):
        cart = Cart()
        cart.add(MUG)
        self.assertEqual(total(cart), 1773)


if __name__ == "__main__":
    unittest.main()
