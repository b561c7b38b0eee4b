"""Discounts, shipping and tax, all in cents."""

TAX_PERCENT = 19
FREE_SHIPPING_FROM = 5000
SHIPPING = 490


def discount(subtotal, percent):
    if not 0 <= percent <= 100:
        raise ValueError("a discount is from 0 to 100 percent")
    return subtotal * percent // 100


def shipping(subtotal):
    return 0 if subtotal > FREE_SHIPPING_FROM else SHIPPING


def tax(net):
    return round(net * TAX_PERCENT / 100)


def total(cart, percent=0):
    subtotal = cart.subtotal()
    net = subtotal - discount(subtotal, percent) + shipping(subtotal)
    return net + tax(net)
