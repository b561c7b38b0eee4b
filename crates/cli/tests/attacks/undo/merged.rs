//! What somebody wrote since in the file that Flint changed: it stays when Flint's lines go, with the program that people run.

use super::world::{Style, configure};
use crate::support::{Answer, FakeModel, Home, printed, users};

const OLD: &str = "def first():\n    return 1\n\n\ndef last():\n    return 2\n";

#[test]
fn lines_of_the_same_file_stay() {
    for user in users() {
        let home = Home::new(user);
        home.write("work/a.py", OLD);
        let model = FakeModel::start([Answer::text("```python\ndef last():\n    return 3\n```\n")]);
        configure(&home, &model, Style::Pair, "");
        let output = home.run(&["exec", "Return 3 from last."]);
        assert!(output.status.success(), "{}", printed(&output));
        let read = || std::fs::read_to_string(home.work.join("a.py")).unwrap();
        assert_eq!(read(), OLD.replace("return 2", "return 3"));
        home.write("work/a.py", OLD.replace("return 2", "return 3").replace("return 1", "return 100"));
        let output = home.run(&["undo"]);
        assert!(output.status.success(), "{}", printed(&output));
        assert_eq!(read(), OLD.replace("return 1", "return 100"), "{}", printed(&output));
        assert!(
            printed(&output).contains("-    return 3") && printed(&output).contains("since stays"),
            "it is shown: {}",
            printed(&output)
        );
        let output = home.run(&["undo", "--redo"]);
        assert_eq!(
            read(),
            OLD.replace("return 2", "return 3").replace("return 1", "return 100"),
            "{}",
            printed(&output)
        );
    }
}

/// A rename asks no model, and `flint undo` takes it back.
#[test]
fn a_rename_goes_back_whole() {
    for user in users() {
        let home = Home::new(user);
        home.write("work/a.py", OLD);
        home.write("work/b.py", "from a import last\n\nprint(last())\n");
        let model = FakeModel::start([]);
        configure(&home, &model, Style::Pair, "");
        let output = home.run(&["exec", "Rename the function last to final everywhere."]);
        assert!(output.status.success(), "{}", printed(&output));
        let read = |name: &str| std::fs::read_to_string(home.work.join(name)).unwrap();
        assert_eq!(read("b.py"), "from a import final\n\nprint(final())\n");
        assert!(model.requests().is_empty(), "no model is asked");
        assert!(home.run(&["undo"]).status.success());
        assert_eq!((read("a.py"), read("b.py")), (OLD.to_owned(), "from a import last\n\nprint(last())\n".to_owned()));
    }
}
