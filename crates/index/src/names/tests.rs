//! Names in small projects.

use std::path::Path;

use super::*;
use crate::library::Shelf;

struct Project {
    _shelf: tempfile::TempDir,
    index: Index,
    library: Library,
}

impl Project {
    fn python() -> Self {
        let shelf = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = shelf.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("wire/__init__.py", "from .session import Session\n");
        write("wire/session.py", "class Session:\n    def send_request(self, request):\n        self.closed = False\n");
        let packages = [("wire".to_owned(), shelf.path().join("wire"))].into_iter().collect();
        let mut index = Index::new(Path::new("/p"));
        index.put(
            Path::new("shop/cart.py"),
            "import wire\nfrom wire import Session\n\n\nclass Cart:\n    def add_item(self, item):\n        self.items = [item]\n\n    \
             def total_price(self):\n        return sum(self.items)\n",
        );
        index.put(
            Path::new("shop/view.py"),
            "from shop.cart import Cart\n\n\ndef show_cart(cart):\n    cart.render_all()\n",
        );
        let mut library = Library::on(Language::Python, Shelf { packages }, None);
        library.load(imported(&index, Language::Python), 0);
        Self { _shelf: shelf, index, library }
    }

    fn check(&self, level: Level, path: &str, text: &str, expected: &[&str]) {
        let names = Names::new(&self.index, &self.library, level);
        let found: Vec<String> =
            names.unknown(Path::new(path), text, |_| true).iter().map(Unknown::to_string).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn what_exists_or_is_made_is_known() {
    let project = Project::python();
    project.check(
        Level::Members,
        "shop/new.py",
        "import os, json\nfrom wire import Session\nfrom shop.cart import Cart\n\n\ndef fill(count: int):\n    \
         cart, extra = Cart(), fill_more()\n    for line in range(count):\n        cart.add_item(line).render_all()\n    \
         Session().send_request(json.dumps({}))\n    return cart.total_price(), os.path.join(str(extra), 'no_such_name()')\n\n\ndef \
         fill_more():\n    pass\n",
        &[],
    );
}

#[test]
fn what_exists_nowhere_is_told_with_what_is_near() {
    let project = Project::python();
    let text =
        "from shop.cart import Cart\n\n\ndef f(cart):\n    cart.total_cost()\n    return Cart.add_item_once(cart)\n";
    let expected =
        ["`total_cost` does not exist; there is `total_price`", "`add_item_once` does not exist; there is `add_item`"];
    let names = Names::new(&project.index, &project.library, Level::Words);
    let found = names.unknown(Path::new("a.py"), text, |_| true);
    assert_eq!(found.iter().map(Unknown::to_string).collect::<Vec<_>>(), expected);
    // Lines that were there before are not looked at.
    assert!(names.unknown(Path::new("a.py"), text, |line| line < 4).is_empty());
}

#[test]
fn imports_lead_somewhere() {
    let project = Project::python();
    project.check(Level::Words, "a.py", "from wire import add_item\n", &[]);
    project.check(Level::Words, "a.py", "from wire import nope as n\n\nn()\n", &["`nope` does not exist"]);
    project.check(Level::Imports, "a.py", "from wire import add_item\n", &["`wire` has no `add_item`"]);
    project.check(
        Level::Imports,
        "a.py",
        "import wirex\nwirex.send_request()\n",
        &["there is no package `wirex` here; there is `wire`"],
    );
}

#[test]
fn members_belong_to_their_module() {
    let project = Project::python();
    let text = "import wire\n\n\ndef f():\n    wire.Session()\n    wire.add_item()\n";
    project.check(Level::Words, "a.py", text, &[]);
    let own = "class Shelf:\n    def put(self):\n        self.count = 1\n        self.count.real\n        self.render_all()\n";
    project.check(Level::Words, "a.py", own, &[]);
    project.check(Level::Members, "a.py", own, &["`Shelf` has no `render_all`"]);
    let base = own.replace("class Shelf:", "class Shelf(Cart):");
    project.check(Level::Members, "a.py", &base, &[]);
}
