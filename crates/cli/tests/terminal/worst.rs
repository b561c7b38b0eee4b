//! The ten worst things that a new user met, each tried again by the real binary or on the real screen.
//!
//! | what was met | where it is tried |
//! |---|---|
//! | 1 talking to it edits code | `talk_changes_no_file`, `talk_on_the_screen_changes_no_file`; `tools/intent.rs` for eight words of the model |
//! | 2 a word in the request deletes code | `a_word_of_the_request_removes_nothing` |
//! | 3 `/undo` removes the user's own work | `undo_keeps_what_the_user_did_since`; `attacks/undo` |
//! | 4 half of an answer is dropped | `nothing_of_an_answer_is_dropped_without_a_word` |
//! | 5 no new files | `a_new_file_is_written_in_an_empty_folder` |
//! | 6 damage in other files | `an_elision_replaces_no_code` |
//! | 7 a configured check makes questions fail | `a_question_does_not_fail_because_of_a_check`; `tools/intent.rs` |
//! | 8 the retry misleads the model | `a_retry_asks_for_nothing_that_nobody_said` |
//! | 9 invention with the facts at hand | `what_is_known_is_not_invented`; `tools/intent.rs` |
//! | 10 forced tools with a format, calls in `<tools>` | `server/src/tools.rs`, `text/src/answer`; `clients/more_clients.rs` runs Cline |
//!
//! With `FLINT_UNDER_TEST=PATH` the binary of another commit is tried: nine of them fail with that of 9bd0c72, where they were
//! met (`docs/threat-model.md`).

use crate::world::{CART, World, printed};

/// Everything is code to this model, as it was to the one that was tried.
const CODE: &str = "Sure!\n\n```python\ndef total(cart):\n    return 0\n```\n";

fn sorts(message: &str) -> &'static str {
    let message = message.to_lowercase();
    match () {
        () if ["hello", "thanks"].iter().any(|word| message.contains(word)) => "chat",
        () if ["explain", "show me", "review", "what", "was macht"].iter().any(|word| message.contains(word)) => {
            "answer"
        }
        () => "edit",
    }
}

#[test]
fn talk_changes_no_file() {
    for message in [
        "hello",
        "thanks!",
        "Can you explain how the cart works?",
        "show me the total function",
        "Review shop/cart.py",
        "Was macht die Funktion total?",
        "!ls",
    ] {
        let world = World::new(sorts, &[CODE]);
        let before = world.files();
        let output = world.exec(&[message]);
        assert_eq!(output.status.code(), Some(0), "{message}: {}", printed(&output));
        assert_eq!(world.files(), before, "{message}");
    }
}

#[test]
fn talk_on_the_screen_changes_no_file() {
    let world = World::new(sorts, &[CODE]);
    let before = world.files();
    let screen = world.screen(&[], (90, 40));
    for (turn, message) in ["hello", "show me the total function"].into_iter().enumerate() {
        screen.enter(message);
        screen.wait("the answer", |text| text.matches("return 0").count() > turn && text.contains("Enter asks"));
    }
    assert!(!screen.text().contains("changed shop/cart.py"), "{}", screen.text());
    assert_eq!(world.files(), before);
}

#[test]
fn undo_keeps_what_the_user_did_since() {
    let world = World::new(|_| "edit", &[CODE]);
    world.write("README.md", "A shop.\n");
    let screen = world.screen(&[], (90, 40));
    screen.enter("Make total in shop/cart.py return nothing.");
    screen.sees("changed shop/cart.py");
    screen.sees("Enter asks");
    world.write("README.md", "A shop of mine.\n");
    world.write("new.txt", "mine\n");
    screen.enter("/undo");
    screen.sees("undo: shop/cart.py");
    assert_eq!(world.read("shop/cart.py"), CART);
    assert_eq!((world.read("README.md").as_str(), world.read("new.txt").as_str()), ("A shop of mine.\n", "mine\n"));
}

#[test]
fn nothing_of_an_answer_is_dropped_without_a_word() {
    let answer = "```python\nclass Item:\n    def __init__(self, name, price, weight):\n        self.name = name\n        self.price = price\n        self.weight = weight\n\n\nclass Cart:\n    def weight(self):\n        return sum(item.weight for item in self.items)\n```\n";
    let world = World::empty(|_| "edit", Box::leak(Box::new([answer])));
    world.write(
        "shop/catalog.py",
        "class Item:\n    def __init__(self, name, price):\n        self.name = name\n        self.price = price\n",
    );
    world.write("shop/cart.py", "from shop.catalog import Item\n\n\nclass Cart:\n    def __init__(self):\n        self.items = []\n\n    def add(self, item):\n        self.items.append(item)\n");
    let output = world
        .exec(&["Give Item a weight, and Cart a method weight that sums them. Files: shop/catalog.py shop/cart.py"]);
    let both = world.read("shop/catalog.py") + &world.read("shop/cart.py");
    let said = printed(&output);
    let item = both.contains("self.weight = weight");
    let cart = both.contains("def weight(self)");
    // Placed, or said not to be.
    assert!(item || said.contains("was not changed"), "Item: {said}\n{both}");
    assert!(cart || said.contains("was not changed"), "Cart: {said}\n{both}");
    assert!(both.contains("self.items.append(item)"), "what the answer does not mention stays: {both}");
}

#[test]
fn a_word_of_the_request_removes_nothing() {
    const STORE: &str = "export interface Todo {\n  id: number;\n  title: string;\n}\n\nexport class Store {\n  private todos: Todo[] = [];\n\n  add(todo: Todo): void {\n    this.todos.push(todo);\n  }\n}\n";
    let answer = "```typescript\nexport class Store {\n  private todos: Todo[] = [];\n\n  add(todo: Todo): void {\n    this.todos.push(todo);\n  }\n\n  remove(id: number): void {\n    this.todos = this.todos.filter((todo) => todo.id !== id);\n  }\n}\n```\n";
    let world = World::empty(|_| "edit", Box::leak(Box::new([answer])));
    world.write("src/store.ts", STORE);
    let output = world.exec(&["Add a method remove(id) to Store that deletes a todo"]);
    let text = world.read("src/store.ts");
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    assert!(text.contains("remove(id: number)"), "{text}");
    for line in STORE.lines() {
        assert!(text.contains(line), "{line:?} is gone: {text}");
    }
}

#[test]
fn a_new_file_is_written_in_an_empty_folder() {
    let with_function = "```python\ndef fizz(number):\n    return \"fizz\" if number % 3 == 0 else number\n\n\nfor number in range(1, 16):\n    print(fizz(number))\n```\n";
    let without = "Here you are:\n\n```python\nfor number in range(1, 16):\n    print(\"fizz\" if number % 3 == 0 else number)\n```\n";
    for (answer, begins) in [(with_function, "def fizz(number):\n"), (without, "for number in range(1, 16):\n")] {
        let world = World::empty(|_| "edit", Box::leak(Box::new([answer])));
        let output = world.exec(&["Write a Python program fizz.py that prints the numbers from 1 to 15 with fizz"]);
        assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
        assert!(world.read("fizz.py").starts_with(begins), "{}", world.read("fizz.py"));
    }
}

#[test]
fn an_elision_replaces_no_code() {
    let answer = "```rust\n#[test]\nfn schema() {\n    // Your implementation here\n}\n```\n";
    let world = World::empty(|_| "edit", Box::leak(Box::new([answer])));
    world.write("README.md", "# Teh shop\n\nSells things.\n");
    let code = "#[test]\nfn schema() {\n    let read = read(\"a.json\");\n    assert_eq!(read, 7);\n}\n";
    world.write("src/schema.rs", code);
    let output = world.exec(&["Fix the typo in the README title"]);
    assert_eq!(world.read("src/schema.rs"), code, "{}", printed(&output));
    assert_eq!(output.status.code(), Some(5), "it was not done, and is asked about: {}", printed(&output));
}

#[test]
fn a_question_does_not_fail_because_of_a_check() {
    let world = World::new(sorts, &["It is 4."]);
    let output = world.exec(&["-c", "check=\"false\"", "What is 2+2?"]);
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let told = world.talk(&["-ccheck=\"echo checked; false\""], &[("What is 2+2?", "done in")]);
    assert!(!told.contains("checked") && told.contains("It is 4."), "{told}");
}

#[test]
fn a_retry_asks_for_nothing_that_nobody_said() {
    // The answer is what is there, and defines more than what was asked for.
    let answer: &str = Box::leak(format!("```python\n{CART}```\n").into_boxed_str());
    let world = World::new(|_| "edit", Box::leak(Box::new([answer])));
    world.exec(&["--check", "false", "--repairs", "2", "Make total in shop/cart.py faster."]);
    let asked = world.model.asked();
    assert!(asked.len() > 1, "it is asked for again: {asked:?}");
    for asked in asked {
        let invented = asked.lines().find(|line| line.contains("anew") && line.contains("Cart"));
        assert_eq!(invented, None, "{asked}");
    }
}

#[test]
fn what_is_known_is_not_invented() {
    let world = World::new(|_| "answer", &["It reads the settings."]);
    let output = world.exec(&["What does shop/settings.py do?"]);
    assert!(printed(&output).contains("There is no `shop/settings.py`"), "{}", printed(&output));
    let world = World::new(|_| "answer", &["A cart."]);
    world.exec(&["What is in @shop/ ?"]);
    assert!(world.model.asked()[0].contains("shop/cart.py: Item, Cart, total"), "{:?}", world.model.asked());
    let world = World::new(|_| "edit", &["```python\nclass Cart:\n    pass\n```\n"]);
    world.write("shop/__init__.py", "");
    world.exec(&["Make it better."]);
    assert_eq!(world.read("shop/__init__.py"), "", "no copy of another module is appended");
}
