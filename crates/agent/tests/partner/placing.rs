//! What an answer changes is what it shows: answers that lost code, and what became of them.

use super::*;

const CATALOG: &str = include_str!("../../../../bench/intent/projects/shop/shop/catalog.py");
const CART: &str = include_str!("../../../../bench/intent/projects/shop/shop/cart.py");
const STORE: &str = include_str!("../../../../bench/intent/projects/todo/src/store.ts");

/// A workspace with these files and no others.
async fn world(files: &[(&str, &str)], answers: impl IntoIterator<Item = Say>) -> World {
    let world = World::new(answers).await;
    for name in ["module.py", "test_module.py"] {
        std::fs::remove_file(world.root().join(name)).unwrap();
    }
    files.iter().for_each(|(name, text)| world.write(name, text));
    world
}

#[tokio::test]
async fn a_word_in_the_request_removes_nothing() {
    let class = &STORE[STORE.find("export class Store").unwrap()..];
    let method =
        "\n  remove(id: number): void {\n    this.todos = this.todos.filter((todo) => todo.id !== id);\n  }\n}\n";
    let answer = format!("```typescript\n{}{method}```\n", class.trim_end().strip_suffix('}').unwrap());
    let world = world(&[("src/store.ts", STORE)], [Say::all(&answer)]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Add a method remove(id) to Store that deletes a todo.").await, Outcome::Done);
    let expected = format!("{}{method}", STORE.trim_end().strip_suffix('}').unwrap());
    assert_eq!(world.read("src/store.ts"), expected);
}

#[tokio::test]
async fn one_block_for_two_files_changes_both() {
    let answer = "```python\nfrom shop.catalog import Item\n\n@dataclass(frozen=True)\nclass Item:\n    sku: str\n    name: str\n    \
                  price_cents: int\n    grams: int = 0\n    color: str = \"\"\n\n\nclass Cart:\n    def weight(self) -> int:\n        \
                  return sum(item.grams * count for item, count in self.lines.values())\n```\n";
    let world = world(&[("shop/catalog.py", CATALOG), ("shop/cart.py", CART)], [Say::all(answer)]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Give items a color and carts a weight.").await, Outcome::Done);
    let catalog = CATALOG.replace("    grams: int = 0\n", "    grams: int = 0\n    color: str = \"\"\n");
    assert_eq!(world.read("shop/catalog.py"), catalog);
    let weight = "\n    def weight(self) -> int:\n        return sum(item.grams * count for item, count in self.lines.values())\n";
    assert_eq!(world.read("shop/cart.py"), format!("{CART}{weight}"));
    assert_eq!(talk.count(|event| matches!(event, Event::EditApplied { .. })), 2);
}

#[tokio::test]
async fn what_is_left_out_in_any_words_stays() {
    let answer = "```python\nclass Cart:\n    def remove(self, sku: str):\n        # Ihr Code steht hier\n\n    def is_empty(self) \
                  -> bool:\n        return len(self.lines) == 0\n```\n";
    let world = world(&[("shop/cart.py", CART)], [Say::all(answer)]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Use len in is_empty.").await, Outcome::Done);
    assert_eq!(world.read("shop/cart.py"), CART.replace("return not self.lines", "return len(self.lines) == 0"));
    assert!(talk.notices().contains("not placed: `Cart.remove`: the answer leaves out its body"), "{}", talk.notices());
}

#[tokio::test]
async fn what_two_files_have_is_not_guessed() {
    let answer = "```python\ndef main():\n    return 2\n```\n";
    let files = [("a.py", "def main():\n    return 1\n"), ("b.py", "def main():\n    return 1\n")];
    let world = world(&files, [Say::all(answer), Say::all(answer), Say::all(answer)]).await;
    let mut talk = world.start();
    let Outcome::Asked { question } = talk.ask("Return 2 from main.").await else { panic!("it cannot be known") };
    assert!(question.starts_with("Which file does `main` belong to: `a.py`, `b.py`?"), "{question}");
    assert_eq!((world.read("a.py"), world.read("b.py")), (files[0].1.to_owned(), files[1].1.to_owned()));
    let messages = world.script.messages(1);
    assert!(messages[2].1.contains("it stands in a.py and in b.py"), "the model was asked as well: {messages:?}");
    assert_eq!(talk.ask("b.py").await, Outcome::Done);
    assert_eq!((world.read("a.py").as_str(), world.read("b.py").as_str()), (files[0].1, "def main():\n    return 2\n"));
    let messages = world.script.messages(1);
    assert!(messages[2].1.contains("it stands in a.py and in b.py"), "the model is told the reason: {messages:?}");
}

#[tokio::test]
async fn code_is_no_readme() {
    let readme = "# Tisk\n\nA list of tasks.\n";
    let answer = "```typescript\nfunction fixTitle() {\n  // Your implementation here\n}\n```\n";
    let files = [("README.md", readme), ("src/store.ts", STORE), ("src/b.ts", "export const b = 1;\n")];
    let world = world(&files, [Say::all(answer), Say::all("```markdown\n# Task\n```\n")]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Fix the typo in the title of README.md.").await, Outcome::Done);
    assert_eq!(world.read("README.md"), "# Task\n\nA list of tasks.\n");
    assert_eq!((world.read("src/store.ts").as_str(), world.read("src/b.ts").as_str()), (STORE, files[2].1));
}

#[tokio::test]
async fn a_rename_needs_no_model() {
    let files = [
        ("shop/__init__.py", ""),
        ("shop/pricing.py", "def discount(a):\n    return a\n"),
        ("shop/orders.py", "from shop.pricing import discount\n\nx = discount(1)\n"),
        ("README.md", "`discount` it.\n"),
    ];
    let world = world(&files, []).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Rename the function discount to rebate everywhere.").await, Outcome::Done);
    assert!(world.script.requests().is_empty(), "nothing is asked");
    assert_eq!(world.read("shop/pricing.py"), "def rebate(a):\n    return a\n");
    assert_eq!(world.read("shop/orders.py"), "from shop.pricing import rebate\n\nx = rebate(1)\n");
    assert_eq!(world.read("README.md"), files[3].1);
    let said: String = talk
        .seen
        .iter()
        .filter_map(|event| match event {
            Event::Text { delta } => Some(delta.as_str()),
            _ => None,
        })
        .collect();
    assert!(
        said.contains("Renamed `discount` to `rebate`: 3 places in 2 files.") && said.contains("README.md:1"),
        "{said}"
    );
    assert_eq!(talk.ask("Rename shop/pricing.py to rates.py").await, Outcome::Done);
    assert_eq!(world.read("shop/orders.py"), "from shop.rates import rebate\n\nx = rebate(1)\n");
    assert!(!world.root().join("shop/pricing.py").exists() && world.root().join("shop/rates.py").exists());
    assert_eq!(talk.ask("Delete shop/rates.py.").await, Outcome::Done);
    assert!(!world.root().join("shop/rates.py").exists());
    talk.say(Command::Undo { force: false }).await;
    talk.until(|event| matches!(event, Event::Restored { .. })).await;
    assert_eq!(world.read("shop/rates.py"), "def rebate(a):\n    return a\n");
}

#[tokio::test]
async fn a_name_of_two_classes_is_asked_about() {
    let world = world(&[("shop/catalog.py", CATALOG), ("shop/cart.py", CART)], []).await;
    let mut talk = world.start();
    let Outcome::Asked { question } = talk.ask("Rename add to put.").await else { panic!("it cannot be known") };
    assert!(question.contains("shop/cart.py:12 (`Cart.add`), shop/catalog.py:20 (`Catalog.add`)"), "{question}");
    assert_eq!(world.read("shop/cart.py"), CART);
    assert_eq!(talk.ask("`Catalog.add`").await, Outcome::Done);
    assert!(world.read("shop/catalog.py").contains("def put("), "{}", world.read("shop/catalog.py"));
    assert_eq!(world.read("shop/cart.py"), CART);
}

#[tokio::test]
async fn in_an_empty_folder_a_file_is_made() {
    let answer = "Here it is:\n\n```python\nfor number in range(1, 16):\n    print(number)\n\n\ndef fizz(number):\n    return number\n```\n";
    let world = world(&[], [Say::all(answer), Say::all("```markdown\n# Fizz\n\nIt counts.\n```\n")]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Write a Python program fizz.py that counts to 15.").await, Outcome::Done);
    assert!(world.read("fizz.py").starts_with("for number in range(1, 16):\n"));
    assert_eq!(talk.ask("Add a README.md that says what it does.").await, Outcome::Done);
    assert_eq!(world.read("README.md"), "# Fizz\n\nIt counts.\n");
}

#[tokio::test]
async fn what_goes_and_is_used_is_told() {
    let answer = "```python\nclass Keep:\n    pass\n```\n";
    let files =
        [("a.py", "class Keep:\n    pass\n\n\ndef old():\n    return 1\n"), ("b.py", "from a import old\n\nold()\n")];
    let world = world(&files, [Say::all(answer)]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Remove the function old from a.py.").await, Outcome::Done);
    assert_eq!(world.read("a.py"), "class Keep:\n    pass\n");
    assert!(talk.notices().contains("`old` is gone from a.py and is still used: b.py:1, b.py:3"), "{}", talk.notices());
}

#[tokio::test]
async fn undo_keeps_what_the_person_wrote_since() {
    let old = "def first():\n    return 1\n\n\ndef last():\n    return 2\n";
    let world = world(&[("a.py", old)], [Say::all("```python\ndef last():\n    return 3\n```\n")]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Return 3 from last.").await, Outcome::Done);
    world.write("a.py", &world.read("a.py").replace("return 1", "return 100"));
    talk.say(Command::Undo { force: false }).await;
    talk.until(|event| matches!(event, Event::Restored { .. })).await;
    assert_eq!(world.read("a.py"), old.replace("return 1", "return 100"));
    assert!(talk.notices().contains("a.py: what was changed there since stays"), "{}", talk.notices());
    assert_eq!(talk.count(|event| matches!(event, Event::ApprovalAsked(_))), 0);
}

#[tokio::test]
async fn among_ten_thousand_files_the_right_one_or_a_question() {
    let answer = "```markdown\n# Flint\n```\n";
    let rounded = "```python\ndef tax(net):\n    return round(net)\n```\n";
    let world = world(&[("README.md", "# Flimt\n\nReal-time coding.\n")], [Say::all(answer), Say::all(rounded)]).await;
    for number in 0..10_000 {
        let folder = format!("part{}", number % 100);
        world.write(&format!("{folder}/m{number}.py"), &format!("def f{number}(title):\n    return title\n"));
    }
    for folder in ["part0", "part99"] {
        world.write(&format!("{folder}/README.md"), "# Flimt\n");
        world.write(&format!("{folder}/pricing.py"), "def tax(net):\n    return net\n");
    }
    let mut talk = world.start();
    assert_eq!(talk.ask("Fix the typo in the README title.").await, Outcome::Done);
    assert_eq!(world.read("README.md"), "# Flint\n\nReal-time coding.\n");
    assert_eq!(
        (world.read("part0/README.md").as_str(), world.read("part99/README.md").as_str()),
        ("# Flimt\n", "# Flimt\n")
    );
    let asked = talk.ask("Round the tax in pricing.py.").await;
    let question = "pricing.py could be part0/pricing.py or part99/pricing.py; say which".to_owned();
    assert_eq!(asked, Outcome::Asked { question });
    assert_eq!(world.script.requests().len(), 1, "nothing is asked where the file is not known");
    assert_eq!(talk.ask("part99/pricing.py").await, Outcome::Done);
    assert_eq!(world.read("part99/pricing.py"), "def tax(net):\n    return round(net)\n");
    let asked = world.script.messages(1).pop().unwrap().1;
    assert!(asked.contains("Round the tax in part99/pricing.py."), "{asked}");
}

#[tokio::test]
async fn what_is_imported_must_be_there() {
    let answer = |name: &str| {
        format!(
            "```python\nfrom shop.catalog import {name}\n\n\nclass Cart:\n    def is_empty(self) -> bool:\n        return {name} is None\n```\n"
        )
    };
    let files = [("shop/catalog.py", CATALOG), ("shop/cart.py", CART)];
    let world = world(&files, [Say::all(&answer("Basket")), Say::all(&answer("Catalog"))]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Look at the catalog in is_empty.").await, Outcome::Done);
    let messages = world.script.messages(1);
    assert!(
        messages[2].1.contains("shop/cart.py imports `Basket` from shop/catalog.py, which has no such name"),
        "{messages:?}"
    );
    assert!(
        world.read("shop/cart.py").contains("from shop.catalog import Catalog\n"),
        "{}",
        world.read("shop/cart.py")
    );
}

#[tokio::test]
async fn several_files_are_made_and_changed_in_one_turn() {
    let answer = "First, create `shop/rates.py` with the rates:\n\n```python\nRATE = 19\n\n\ndef rate():\n    return RATE\n```\n\nThen \
                  the settings in `shop.toml`:\n\n```toml\n[tax]\nrate = 19\n```\n\nAnd the cart:\n\n```python\nclass Cart:\n    def \
                  is_empty(self) -> bool:\n        return len(self.lines) == 0\n```\n";
    let world = world(&[("shop/cart.py", CART)], [Say::all(answer)]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Make shop/rates.py and shop.toml, and use len in Cart.is_empty.").await, Outcome::Done);
    assert_eq!(world.read("shop/rates.py"), "RATE = 19\n\n\ndef rate():\n    return RATE\n");
    assert_eq!(world.read("shop.toml"), "[tax]\nrate = 19\n");
    assert_eq!(world.read("shop/cart.py"), CART.replace("return not self.lines", "return len(self.lines) == 0"));
}

#[tokio::test]
async fn names_are_not_followed_where_nobody_looked() {
    let huge = format!("from a import old\n{}", "x = 1\n".repeat(60_000));
    let world = world(&[("a.py", "def old():\n    return 1\n"), ("big.py", &huge)], []).await;
    let mut talk = world.start();
    let Outcome::Failed { why } = talk.ask("Rename old to new everywhere.").await else {
        panic!("big.py was not read")
    };
    assert!(why.starts_with("big.py is too much to follow names in"), "{why}");
    assert_eq!(world.read("a.py"), "def old():\n    return 1\n");
}
