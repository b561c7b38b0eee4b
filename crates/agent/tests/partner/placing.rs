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
    let world = world(&files, [Say::all(answer), Say::all(answer)]).await;
    let mut talk = world.start();
    let Outcome::Failed { why } = talk.ask("Return 2 from main.").await else { panic!("it cannot be known") };
    assert!(why.contains("`main`: it stands in a.py and in b.py; say which file is meant"), "{why}");
    assert_eq!((world.read("a.py"), world.read("b.py")), (files[0].1.to_owned(), files[1].1.to_owned()));
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
