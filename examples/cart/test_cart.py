from cart import Item, add, cheapest, total


def test_total_counts_every_piece():
    items = [Item("apple", 50, 3), Item("bread", 300)]
    assert total(items) == 450
    assert total([]) == 0


def test_cheapest():
    assert cheapest([Item("apple", 50), Item("bread", 300)]).name == "apple"
    assert cheapest([]) is None


def test_add_counts_up():
    items = []
    add(items, "apple", 50)
    add(items, "apple", 50)
    assert items == [Item("apple", 50, 2)]


if __name__ == "__main__":
    test_total_counts_every_piece()
    test_cheapest()
    test_add_counts_up()
    print("all tests passed")
