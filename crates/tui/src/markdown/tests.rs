//! What a person sees of an answer in Markdown.

use proptest::prelude::*;
use ratatui::style::Modifier;

use super::*;

fn rows(pieces: &[&str], width: usize) -> Vec<Line<'static>> {
    let theme = Theme::new(true);
    let mut markdown = Markdown::new(width);
    pieces.iter().for_each(|piece| markdown.push(piece, &theme));
    markdown.rows().to_vec()
}

fn text(markdown: &str, width: usize) -> Vec<String> {
    rows(&[markdown], width).iter().map(|row| row.to_string().trim_end().to_owned()).collect()
}

/// The words of a line that have this modifier.
fn with(modifier: Modifier, markdown: &str) -> Vec<String> {
    let rows = rows(&[markdown], 80);
    let spans = rows.iter().flat_map(|row| row.spans.iter());
    spans.filter(|span| span.style.add_modifier.contains(modifier)).map(|span| span.content.to_string()).collect()
}

#[test]
fn an_answer_is_laid_out() {
    let answer = "\
# The cart
The **total** is the sum of *all* prices, see `Cart.total` in [the source](shop/cart.py).

1. Take the items
   - each has a price that is long enough to break
2. Add them

> Prices are in cents.

```python
def total(items):
    return sum(i.price for i in items)
```
---
| name | price |
|------|------:|
| tea  | 3 |
| `coffee` | 12 |
";
    assert_eq!(
        text(answer, 40),
        [
            "The cart",
            "The total is the sum of all prices, see",
            "Cart.total in the source (shop/cart.py).",
            "",
            "1. Take the items",
            "   • each has a price that is long",
            "     enough to break",
            "2. Add them",
            "",
            "▎ Prices are in cents.",
            "",
            "  def total(items):",
            "      return sum(i.price for i in items)",
            "────────────────────────────────────────",
            "name    price",
            "──────  ─────",
            "tea     3",
            "coffee  12",
        ]
    );
}

#[test]
fn marks_that_mark_nothing_stay() {
    for plain in [
        "2 * 3 * 4",
        "snake_case_name and __init__x",
        "a * b*",
        "**open",
        "`open",
        "#hashtag",
        "a [b] (c)",
        "1.5 is a number",
        "- ",
        "-5 degrees",
        "a\\b",
    ] {
        let line = format!("{plain}\n");
        let shown = text(&line, 80);
        let expected = if plain == "- " { "•" } else { plain };
        assert_eq!(shown, [expected], "{plain}");
    }
    assert_eq!(text("\\*not slanted\\*\n", 80), ["*not slanted*"]);
    assert_eq!(text("``a ` b`` and `` ` ``\n", 80), ["a ` b and `"]);
}

#[test]
fn words_have_the_weight_their_marks_give_them() {
    assert_eq!(with(Modifier::BOLD, "a **b `c`** __d__ e\n"), ["b ", "c", "d"]);
    assert_eq!(with(Modifier::ITALIC, "a *b* _c_ *d **e***\n")[..2], ["b", "c"]);
    assert_eq!(with(Modifier::CROSSED_OUT, "~~gone~~ here\n"), ["gone"]);
    assert_eq!(with(Modifier::BOLD, "**half a sen"), ["half a sen"], "an open line does not show its marks");
    assert_eq!(with(Modifier::UNDERLINED, "[a](b)\n"), ["a"]);
}

#[test]
fn code_ends_where_its_fence_does() {
    assert_eq!(text("~~~\n```\n~~~\nafter\n", 40), ["  ```", "after"]);
    assert_eq!(text("````md\n```sh\nls\n```\n````\nafter", 40), ["  ```sh", "  ls", "  ```", "after"]);
    assert_eq!(text("- a\n  ```\n  b\n    c\n  ```\n", 40), ["• a", "  b", "    c"]);
    assert_eq!(text("```one line``` of code\n", 40), ["one line of code"]);
}

#[test]
fn a_table_that_is_too_wide_stands_as_it_was_written() {
    assert_eq!(text("| aaaaaaaa | bbbbbbbb |\n|---|---|\n", 12), ["| aaaaaaaa |", "bbbbbbbb |", "|---|---|"]);
    assert_eq!(text("| a \\| b | c |\n", 20), ["a | b  c"]);
}

#[test]
fn a_line_without_end_is_laid_out_in_parts() {
    let theme = Theme::new(true);
    let mut markdown = Markdown::new(80);
    for _ in 0..LINE_BYTES_MAX {
        markdown.push("word ", &theme);
        assert!(markdown.open.len() <= 2 * LINE_BYTES_MAX);
    }
    assert!(markdown.done + LINE_BYTES_MAX / 40 > markdown.rows().len());
}

proptest! {
    #[test]
    fn pieces_give_what_the_whole_gives(
        words in "([a-c *_`#|>\n\\\\日-]|```|\n[|] a [|]\n|\n- |\\[a\\]\\(b\\)){0,80}",
        cuts in prop::collection::vec(0usize..200, 0..6),
        width in 1usize..30,
    ) {
        let mut edges: Vec<usize> = cuts.into_iter().map(|cut| cut.min(words.len())).filter(|&cut| words.is_char_boundary(cut)).collect();
        edges.extend([0, words.len()]);
        edges.sort_unstable();
        let pieces: Vec<&str> = edges.windows(2).map(|edge| &words[edge[0]..edge[1]]).collect();
        prop_assert_eq!(rows(&pieces, width), rows(&[&words], width));
    }

    #[test]
    fn whatever_a_model_writes_it_is_laid_out(words in any::<String>(), width in 1usize..40) {
        for row in rows(&[&words], width) {
            let steers = row.spans.iter().any(|span| span.content.contains(['\n', '\u{1b}']));
            prop_assert!(!steers);
        }
    }
}
