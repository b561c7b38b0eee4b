//! Renames in projects that are then run.

use std::process::Command;

use proptest::prelude::*;

use super::*;

/// Writes a project, renames in it, and returns what came of it and the folder.
fn renamed(files: &[(&str, &str)], from: &str, to: &str) -> (Result<Renamed, Unclear>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let sources: Vec<Source<'_>> = files.iter().map(|(path, text)| Source { path: Path::new(path), text }).collect();
    let renamed = rename(&sources, from, to);
    let mut texts: Vec<(PathBuf, String)> =
        files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
    for (path, text) in renamed.iter().flat_map(|renamed| &renamed.files) {
        texts.iter_mut().find(|(known, _)| known == path).unwrap().1.clone_from(text);
    }
    for (path, text) in texts {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    (renamed, folder)
}

fn runs(folder: &Path, program: &str, arguments: &[&str]) {
    let output =
        Command::new(program).args(arguments).current_dir(folder).env("CARGO_NET_OFFLINE", "true").output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

const PYTHON: &[(&str, &str)] = &[
    ("shop/__init__.py", "from .pricing import discount, tax\n\n__all__ = [\"discount\", \"tax\"]\n"),
    (
        "shop/pricing.py",
        "\"\"\"Prices.\"\"\"\n\n\ndef discount(subtotal, percent):\n    \"\"\"What `discount` takes off.\"\"\"\n    return subtotal * percent // 100\n\n\n# discount() is called by net.\ndef net(subtotal, percent):\n    return subtotal - discount(subtotal, percent)\n\n\ndef tax(net):\n    return net * 19 // 100\n",
    ),
    (
        "shop/orders.py",
        "from shop import pricing\nimport shop.pricing as rates\n\n\nclass Order:\n    def __init__(self, discount=0):\n        self.discount = discount\n\n    def total(self, subtotal):\n        return subtotal - pricing.discount(subtotal, self.discount) + rates.discount(0, 0)\n",
    ),
    (
        "shop/report.py",
        "from shop.pricing import (\n    discount,\n    tax,\n)\nfrom shop.orders import Order\n\n\ndef line(subtotal):\n    order = Order(discount=10)\n    return f\"{discount(subtotal, 10)} discount, {tax(subtotal)} {order.total(subtotal)}\"\n",
    ),
    (
        "shop/old.py",
        "from shop.pricing import discount as reduce_price\n\n\ndef half(price):\n    discount = reduce_price(price, 50)\n    return price - discount\n",
    ),
    (
        "shop/cli.py",
        "import shop\n\n\ndef main():\n    def inner(discount):\n        return discount + 1\n    return shop.discount(100, 10), inner(1)\n",
    ),
    (
        "test_shop.py",
        "import unittest\nfrom unittest import mock\n\nimport shop\nfrom shop import discount\nfrom shop.cli import main\nfrom shop.old import half\nfrom shop.orders import Order\nfrom shop.pricing import net\nfrom shop.report import line\n\n\nclass Tests(unittest.TestCase):\n    def test_all(self):\n        self.assertEqual(discount(100, 10), 10)\n        self.assertEqual(main(), (10, 2))\n        self.assertEqual(half(100), 50)\n        self.assertEqual(Order(discount=10).total(100), 90)\n        self.assertEqual(line(100), \"10 discount, 19 90\")\n        self.assertIn(\"tax\", shop.__all__)\n\n    def test_patched(self):\n        with mock.patch(\"shop.pricing.discount\", return_value=1):\n            self.assertEqual(net(100, 10), 99)\n\n\nif __name__ == \"__main__\":\n    unittest.main()\n",
    ),
    ("README.md", "# shop\n\nUse `discount`.\n"),
];

#[test]
fn a_python_function_in_seven_files() {
    let (result, before) = renamed(PYTHON, "nothing", "else");
    assert_eq!(result.unwrap_err(), Unclear::Absent("nothing".to_owned()));
    runs(before.path(), "python3", &["test_shop.py"]);
    let (result, after) = renamed(PYTHON, "discount", "rebate");
    let result = result.unwrap();
    runs(after.path(), "python3", &["test_shop.py"]);
    assert_eq!(result.files.len(), 7, "{result:?}");
    let read = |path: &str| std::fs::read_to_string(after.path().join(path)).unwrap();
    assert_eq!(read("shop/__init__.py"), "from .pricing import rebate, tax\n\n__all__ = [\"rebate\", \"tax\"]\n");
    assert!(
        read("shop/old.py").contains("import rebate as reduce_price")
            && read("shop/old.py").contains("discount = reduce_price")
    );
    assert!(
        read("shop/orders.py").contains("self.discount = discount")
            && read("shop/orders.py").contains("rates.rebate(0, 0)")
    );
    assert!(
        read("shop/report.py").contains("Order(discount=10)")
            && read("shop/report.py").contains("{rebate(subtotal, 10)} discount,")
    );
    assert!(read("shop/pricing.py").contains("# rebate() is called"));
    assert!(result.mentions.contains(&("README.md".into(), 3)), "{:?}", result.mentions);
}

const RUST: &[(&str, &str)] = &[
    ("Cargo.toml", "[package]\nname = \"bill-book\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n"),
    (
        "src/lib.rs",
        "//! Bills.\n\npub mod money;\npub mod order;\npub mod report;\nmod inner;\n\npub use money::discount;\n\npub fn twice(price: u32) -> u32 {\n    discount(price, 10) + crate::money::discount(price, 10)\n}\n\npub fn deep() -> u32 {\n    inner::far(100)\n}\n",
    ),
    (
        "src/money.rs",
        "/// Takes off.\n///\n/// ```\n/// assert_eq!(bill_book::money::discount(100, 10), 10);\n/// ```\npub fn discount(price: u32, percent: u32) -> u32 {\n    price * percent / 100\n}\n\npub struct Cut {\n    pub discount: u32,\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn takes_off() {\n        assert_eq!(discount(100, 10), 10);\n    }\n}\n",
    ),
    (
        "src/order.rs",
        "use crate::money::{self, Cut};\n\npub struct Order {\n    pub cut: Cut,\n}\n\nimpl Order {\n    pub fn new(discount: u32) -> Self {\n        Order { cut: Cut { discount } }\n    }\n\n    pub fn total(&self, price: u32) -> u32 {\n        let discount = money::discount(price, self.cut.discount);\n        price - discount\n    }\n\n    pub fn discount(&self) -> u32 {\n        self.cut.discount\n    }\n}\n",
    ),
    (
        "src/report.rs",
        "use super::money::discount;\n\npub fn line(price: u32) -> String {\n    let discount = discount(price, 10);\n    format!(\"{discount} {}\", super::money::discount(price, 20))\n}\n",
    ),
    (
        "src/inner.rs",
        "use crate::discount as cut;\nuse crate::money::*;\n\npub fn far(price: u32) -> u32 {\n    cut(price, 1) + discount(price, 2)\n}\n",
    ),
    ("src/main.rs", "use bill_book::discount;\n\nfn main() {\n    println!(\"{}\", discount(100, 10));\n}\n"),
    (
        "tests/all.rs",
        "use bill_book::money::discount;\nuse bill_book::order::Order;\nuse bill_book::{deep, report::line, twice};\n\n#[test]\nfn all() {\n    assert_eq!(discount(100, 10), 10);\n    assert_eq!(twice(100), 20);\n    assert_eq!(deep(), 3);\n    assert_eq!(line(100), \"10 20\");\n    let order = Order::new(10);\n    assert_eq!((order.total(100), order.discount()), (90, 10));\n}\n",
    ),
];

#[test]
fn a_rust_function_in_seven_files() {
    let (result, after) = renamed(RUST, "money::discount", "rebate");
    let result = result.unwrap();
    let read = |path: &str| std::fs::read_to_string(after.path().join(path)).unwrap();
    runs(after.path(), env!("CARGO"), &["test", "--offline", "--quiet"]);
    assert_eq!(result.files.len(), 7, "{result:?}");
    assert!(read("src/order.rs").contains("let discount = money::rebate(price, self.cut.discount)"));
    assert!(read("src/order.rs").contains("pub fn discount(&self)"), "a method of that name is something else");
    assert!(read("src/report.rs").contains("let discount = rebate(price, 10);"));
}

#[test]
fn scripts_follow_their_imports() {
    let files: &[(&str, &str)] = &[
        ("src/a.ts", "export function cut(price: number): number {\n  return price / 2\n}\n"),
        ("src/index.ts", "export { cut } from \"./a.js\"\n"),
        (
            "src/b.ts",
            "import { cut } from \"./a.js\"\nimport * as a from './a.js'\n\nexport const all = { cut, other: cut(2) + a.cut(1) }\nconst x = { cut: 1 }\nconsole.log(`${cut(1)} cut`, x.cut)\n",
        ),
        ("src/c.ts", "import { cut as half } from \"../src\"\nconst cut = half(1)\n"),
        ("src/d.ts", "function f(cut: number) { return cut }\n"),
    ];
    let (result, after) = renamed(files, "cut", "halve");
    assert_eq!(result.unwrap().files.len(), 4);
    let read = |path: &str| std::fs::read_to_string(after.path().join(path)).unwrap();
    assert_eq!(
        read("src/b.ts"),
        "import { halve } from \"./a.js\"\nimport * as a from './a.js'\n\nexport const all = { cut: halve, other: halve(2) + a.halve(1) }\nconst x = { cut: 1 }\nconsole.log(`${halve(1)} cut`, x.cut)\n"
    );
    assert_eq!(read("src/c.ts"), "import { halve as half } from \"../src\"\nconst cut = half(1)\n");
    assert_eq!(read("src/index.ts"), "export { halve } from \"./a.js\"\n");
}

#[test]
fn what_cannot_be_told_is_not_renamed() {
    let files: &[(&str, &str)] = &[
        ("a.py", "class A:\n    def add(self):\n        pass\n\n\ndef free():\n    pass\n\n\ndef taken():\n    pass\n"),
        (
            "b.py",
            "from a import A, free\n\n\nclass B:\n    def add(self):\n        A().add()\n\n    def only(self):\n        return self.only()\n",
        ),
    ];
    let why = |from: &str, to: &str| renamed(files, from, to).0.unwrap_err().to_string();
    assert_eq!(
        why("add", "put"),
        "`add` is defined in several places: a.py:2 (`A.add`), b.py:5 (`B.add`); say which, with its class or file"
    );
    assert_eq!(why("free", "taken"), "`taken` is taken already, at a.py:10; choose another name");
    assert_eq!(why("free", "A"), "`A` is taken already, at a.py:1; choose another name");
    assert_eq!(why("free", "not a name"), "`not a name` cannot be a name");
    let only = renamed(files, "only", "single").0.unwrap();
    assert_eq!(only.places, 2);
    let sources: Vec<Source<'_>> = files.iter().map(|(path, text)| Source { path: Path::new(path), text }).collect();
    assert_eq!(uses(&sources, Path::new("a.py"), "free"), [("b.py".into(), 1)]);
    assert_eq!(uses(&sources, Path::new("a.py"), "taken"), []);
}

#[test]
fn a_module_that_gets_another_name_is_imported_by_it() {
    let files: &[(&str, &str)] = &[
        ("shop/pricing.py", "def tax():\n    pass\n"),
        (
            "shop/a.py",
            "from shop.pricing import tax\nimport shop.pricing\nfrom . import pricing\n\npricing.tax()\nshop.pricing.tax()\npricing = 1\n",
        ),
        ("b.py", "pricing = 3\npricing.real\n"),
    ];
    let sources: Vec<Source<'_>> = files.iter().map(|(path, text)| Source { path: Path::new(path), text }).collect();
    let moved = crate::moved(&sources, Path::new("shop/pricing.py"), Path::new("shop/rates.py")).unwrap();
    let expected = "from shop.rates import tax\nimport shop.rates\nfrom . import rates\n\nrates.tax()\nshop.rates.tax()\npricing = 1\n";
    assert_eq!(moved, [("shop/a.py".into(), expected.to_owned())]);
    assert_eq!(crate::importers(&sources, Path::new("shop/pricing.py")).len(), 5);
}

proptest! {
    /// Whatever stands in the files, nothing breaks, and what comes back differs from what was there only in the name.
    #[test]
    fn any_text_can_be_searched(
        one in "(old|new|é|\u{3000}|import |from |use |crate::|super::|\\{|\\}|\\(|\\)|\"|'|`|f\"|#|//|\\.|:|=|,| as |type |\n|def |fn |let | ){0,40}",
        two in "(old|new|é|import |from |use |a::|a\\.|\\{|\\}|\\(|\"|'|#|\\.|:|=|,| as |\\*|\n|def |fn | ){0,40}",
    ) {
        for ending in ["py", "rs", "ts", "go", "c"] {
            let (first, second) = (format!("a.{ending}"), format!("src/b.{ending}"));
            let sources = [Source { path: Path::new(&first), text: &one }, Source { path: Path::new(&second), text: &two }];
            if let Ok(renamed) = rename(&sources, "old", "newest") {
                for (path, text) in renamed.files {
                    let before = sources.iter().find(|source| source.path == path).unwrap().text;
                    prop_assert_eq!(text.replace("old: newest", "old").replace("newest", "old"), before);
                }
            }
            let _ = uses(&sources, Path::new(&first), "old");
            let _ = crate::moved(&sources, Path::new(&first), Path::new("old.py"));
            let _ = crate::importers(&sources, Path::new(&second));
            let _ = crate::dangling(&sources, Path::new(&second), &two, |_| false);
        }
    }
}
