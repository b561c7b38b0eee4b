//! Fill in the middle: the order of the parts, and what goes first when room is short.

use text::{ExtraFile, Infill, Special, TextError, Tokenizer, write_infill};

use crate::models::{self, gguf, made_up_tokenizer, with_tokens};

fn tokenizer() -> Tokenizer {
    let names = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"];
    Tokenizer::from_gguf(&gguf(&with_tokens("qwen2", &names))).unwrap()
}

const EXTRA: [ExtraFile<'static>; 2] =
    [ExtraFile { filename: "a.rs", text: "aaa\n" }, ExtraFile { filename: "b.rs", text: "<|fim_middle|>\n" }];

const INFILL: Infill<'static> =
    Infill { prefix: "0123456789", suffix: "abcdefghij", prompt: "xy", extra: &[], repo: None, tokens_max: 1000 };

fn written(tokenizer: &Tokenizer, infill: &Infill<'_>) -> String {
    let tokens = write_infill(tokenizer, infill).unwrap();
    assert!(tokens.len() <= infill.tokens_max);
    String::from_utf8(tokenizer.decode(&tokens)).unwrap()
}

#[test]
fn parts_come_in_order() {
    let tokenizer = tokenizer();
    let check = |infill: &Infill<'_>, expected: &str| assert_eq!(written(&tokenizer, infill), expected);
    check(&INFILL, "<|fim_prefix|>0123456789<|fim_suffix|>abcdefghij<|fim_middle|>xy");
    check(
        &Infill { extra: &EXTRA, ..INFILL },
        "<|repo_name|>myproject\n<|file_sep|>a.rs\naaa\n<|file_sep|>b.rs\n<|fim_middle|>\n<|file_sep|>filename\n\
         <|fim_prefix|>0123456789<|fim_suffix|>abcdefghij<|fim_middle|>xy",
    );
    check(
        &Infill { repo: Some("flint"), prompt: "", ..INFILL },
        "<|repo_name|>flint\n<|file_sep|>filename\n<|fim_prefix|>0123456789<|fim_suffix|>abcdefghij<|fim_middle|>",
    );
}

#[test]
fn texts_never_become_tokens() {
    let tokenizer = tokenizer();
    let middle = tokenizer.vocabulary().special().fim_middle.unwrap();
    let infill = Infill {
        prefix: "<|fim_middle|>",
        suffix: "<|fim_middle|>",
        prompt: "<|fim_middle|>",
        extra: &EXTRA,
        ..INFILL
    };
    let tokens = write_infill(&tokenizer, &infill).unwrap();
    assert_eq!(tokens.iter().filter(|&&token| token == middle).count(), 1);
}

#[test]
fn what_is_far_goes_first() {
    let tokenizer = tokenizer();
    let full = write_infill(&tokenizer, &Infill { extra: &EXTRA, ..INFILL }).unwrap().len();
    // One less drops the first file; one less than that needs, all of the files but not their header.
    let one = written(&tokenizer, &Infill { extra: &EXTRA, tokens_max: full - 1, ..INFILL });
    assert!(!one.contains("a.rs") && one.contains("b.rs") && one.contains("prefix|>0123"), "{one}");
    // Every digit is a token, and every letter but for "ab".
    let short = |tokens_max| written(&tokenizer, &Infill { extra: &EXTRA, tokens_max, ..INFILL });
    assert_eq!(short(24), "<|fim_prefix|>0123456789<|fim_suffix|>abcdefghij<|fim_middle|>xy");
    assert_eq!(short(17), "<|fim_prefix|>123456789<|fim_suffix|>abcd<|fim_middle|>xy");
    assert_eq!(short(9), "<|fim_prefix|>789<|fim_suffix|>ab<|fim_middle|>xy");
    assert_eq!(short(5), "<|fim_prefix|><|fim_suffix|><|fim_middle|>xy");
    // What one side leaves, the other takes.
    let left = written(&tokenizer, &Infill { suffix: "j", tokens_max: 12, ..INFILL });
    assert_eq!(left, "<|fim_prefix|>456789<|fim_suffix|>j<|fim_middle|>xy");
    let right = written(&tokenizer, &Infill { prefix: "0", tokens_max: 12, ..INFILL });
    assert_eq!(right, "<|fim_prefix|>0<|fim_suffix|>abcdefg<|fim_middle|>xy");
    let error = write_infill(&tokenizer, &Infill { tokens_max: 4, ..INFILL }).unwrap_err();
    assert!(matches!(error, TextError::InfillTooLong { needed: 5, max: 4 }), "{error}");
}

#[test]
fn a_model_without_the_tokens_says_so() {
    let error = write_infill(made_up_tokenizer("qwen2"), &INFILL).unwrap_err();
    assert!(error.to_string().contains("cannot fill in the middle"), "{error}");
}

#[test]
fn a_real_model_has_all_tokens() {
    let Some(gguf) = models::real("qwen2.5-coder-1.5b") else {
        return;
    };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let infill = Infill { prefix: "fn add(", suffix: "\n}\n", prompt: "a: ", extra: &EXTRA[..1], ..INFILL };
    let expected = "<|repo_name|>myproject\n<|file_sep|>a.rs\naaa\n<|file_sep|>filename\n\
                    <|fim_prefix|>fn add(<|fim_suffix|>\n}\n<|fim_middle|>a: ";
    assert_eq!(write_infill(&tokenizer, &infill).unwrap(), tokenizer.encode(expected, Special::Parse));
}
