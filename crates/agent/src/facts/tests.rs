//! What is known about small projects.

use super::*;

const CART: &str = "\"\"\"What a customer buys.\"\"\"\n\nLIMIT = 20\n\n\nclass Cart:\n    \"\"\"Items.\"\"\"\n\n    def __init__(self):\n        self.lines = {}\n\n    def add_item(self, item):\n        if len(self.lines) >= LIMIT:\n            raise ValueError(\"too many items\")\n        self.lines[item.sku] = item\n";
const PRICING: &str = "TAX = 19\n\n\ndef tax(net):\n    return round(net * TAX / 100)\n\n\ndef shipping(subtotal):\n    return 0 if subtotal > 5000 else 490\n";

fn project(files: &[(&str, &str)]) -> (tempfile::TempDir, Project) {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let project = Project::read(folder.path());
    (folder, project)
}

fn shop() -> (tempfile::TempDir, Project) {
    project(&[("shop/cart.py", CART), ("shop/pricing.py", PRICING), ("README.md", "# shop\n\nA cart and prices.\n")])
}

#[test]
fn a_file_is_cut_into_functions_and_what_stands_between() {
    let (_folder, project) = shop();
    let index = project.sources.iter().position(|source| source.path.ends_with("cart.py")).unwrap();
    let passages = passages::of(&project, index);
    let names: Vec<(Option<&str>, usize, usize)> =
        passages.iter().map(|passage| (passage.name.as_deref(), passage.lines.start, passage.lines.end)).collect();
    assert_eq!(
        names,
        [(Some("LIMIT"), 0, 7), (Some("Cart.__init__"), 8, 10), (Some("Cart.add_item"), 11, 15)],
        "{passages:?}"
    );
}

#[test]
fn the_passage_that_answers_comes_first() {
    let (_folder, project) = shop();
    let best = |text: &str| {
        let found = passages::best(&project, &Prompt::from(text), 10_000, &|_| true);
        found.first().and_then(|passage| passage.name.clone()).unwrap_or_default()
    };
    assert_eq!(best("How is shipping computed?"), "shipping");
    assert_eq!(best("Where are too many items refused?"), "Cart.add_item");
    assert_eq!(best("Was macht die Funktion tax?"), "tax");
}

#[test]
fn what_does_not_exist_is_known() {
    let (_folder, project) = shop();
    let names = |text: &str| -> Vec<String> { missing(&project, text).into_iter().map(|one| one.written).collect() };
    for (text, name) in [
        ("where is orders.py", "orders.py"),
        ("What is in @src/utils.rs?", "src/utils.rs"),
        ("Gibt es eine Klasse Customer?", "Customer"),
        ("А где функция count_lines?", "count_lines"),
        ("src/server.ts 是做什么的？", "src/server.ts"),
        ("What does `apply_coupon` return?", "apply_coupon"),
    ] {
        assert_eq!(names(text), [name], "{text}");
    }
    for text in [
        "What does add_item do?",
        "Explain shop/cart.py",
        "Review cart.py and pricing.py",
        "What is the difference between Box and Rc in Rust?",
        "Can you explain how the cart works?",
        "Is and/or fine, e.g. here?",
        "Does it run on node.js?",
        "cart.pyをレビューしてください",
    ] {
        assert_eq!(names(text), [] as [String; 0], "{text}");
    }
    let near = missing(&project, "What is in card.py?");
    assert_eq!(near[0].near, ["shop/cart.py"]);
    let said = absent(&near, crate::intent::language::Language::English);
    assert!(said.contains("no `card.py`") && said.contains("Similar: `shop/cart.py`"), "{said}");
}

#[test]
fn files_and_folders_are_found_by_the_ends_of_their_paths() {
    let (_folder, project) = shop();
    let named = |text: &str| paths(&project, text);
    assert_eq!(named("What is in @shop/ ?"), [PathBuf::from("shop")]);
    assert_eq!(named("Review cart.py, please."), [PathBuf::from("shop/cart.py")]);
    assert_eq!(named("cart.pyをレビューしてください"), [PathBuf::from("shop/cart.py")]);
    assert_eq!(named("the shop is closed"), [] as [PathBuf; 0]);
    let found = project.find(&Prompt::from("What is in @shop/ ?"));
    let map = found.gathered.map.unwrap();
    assert!(map.contains("shop/cart.py: LIMIT, Cart") && !map.contains("README"), "{map}");
}

#[test]
fn of_a_long_file_the_part_that_matters_is_shown() {
    let mut text = String::from("import os\n\n");
    for number in 0..1_500 {
        text += &format!("def part_{number}(a):\n    return {number} + a + len(os.name)\n\n");
    }
    let (_folder, project) = project(&[("long.py", &text)]);
    let found = project.find(&Prompt::from("What does part_1300 in long.py return?"));
    let excerpt = found.gathered.fresh[0].excerpt.as_deref().unwrap();
    assert!(excerpt.contains("return 1300 + a"), "{excerpt}");
    assert!(excerpt.len() < SHOWN_BYTES_MAX * 2, "{}", excerpt.len());
    assert!(found.gathered.parts[0].lines.contains(&(3903, 3904)), "{:?}", found.gathered.parts);
}

#[test]
fn an_answer_gets_the_places_of_what_it_names() {
    let (_folder, project) = shop();
    let prompt = Prompt::from("How is shipping computed?");
    let found = project.find(&prompt);
    let told = say_citations(&citations(&project, &found, &prompt.text, "It is free above 5000, see `shipping`."));
    assert!(told.starts_with("shop/pricing.py:8 `shipping`"), "{told}");
    let prompt = Prompt::from("Where are too many items refused?");
    let found = project.find(&prompt);
    let told = say_citations(&citations(&project, &found, &prompt.text, "`Cart.add_item` raises a ValueError."));
    assert!(told.contains("shop/cart.py:12 `Cart.add_item`"), "{told}");
}
