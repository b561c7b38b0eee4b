//! The list of models: what comes with Flint, what is refused, what is suggested.

use hub::{Catalogue, Error};

#[test]
fn the_built_in_catalogue_has_the_promised_models() {
    let catalogue = Catalogue::built_in().unwrap();
    let names: Vec<&str> = catalogue.entries().iter().map(|entry| entry.name.as_str()).collect();
    for size in ["0.5b", "1.5b", "3b", "7b", "14b", "32b"] {
        assert!(names.contains(&format!("qwen2.5-coder-{size}").as_str()), "{size} of {names:?}");
    }
    assert!(names.contains(&"qwen3-coder-30b-a3b") && names.contains(&"smollm2-135m"));
    assert_eq!(catalogue.default_name(), "qwen2.5-coder-1.5b");
    assert_eq!(catalogue.find("Qwen2.5-Coder").unwrap().name, "qwen2.5-coder-1.5b");
}

#[test]
fn an_unknown_name_suggests_the_nearest() {
    let catalogue = Catalogue::built_in().unwrap();
    let nearest = |name: &str| match catalogue.find(name).unwrap_err() {
        Error::UnknownModel { nearest, .. } => nearest,
        other => panic!("{other}"),
    };
    assert_eq!(nearest("qwen2.5-codr-7b")[0], "qwen2.5-coder-7b");
    assert_eq!(nearest("smolm2")[0], "smollm2-135m");
    assert!(nearest("zzz").is_empty());
    let text = catalogue.find("smolm2-135m").unwrap_err().to_string();
    assert_eq!(text, "no model is called `smolm2-135m`; did you mean smollm2-135m?");
}

#[test]
fn a_catalogue_that_contradicts_itself_or_leaves_its_place_is_refused() {
    let refused = |change: (&str, &str), reason: &str| {
        let good = r#"default = "a"
            [[model]]
            name = "a"
            aliases = []
            parameters = "1"
            quantisation = "F32"
            context = 8
            licence = "x"
            [[model.sources]]
            kind = "packages"
            package = "p{n}"
            version = "1"
            member = "m/{nn}"
            parts = 2"#;
        Catalogue::parse(good).unwrap();
        let bad = good.replace(change.0, change.1);
        assert_ne!(bad, good);
        let text = Catalogue::parse(&bad).unwrap_err().to_string();
        assert!(text.contains(reason), "{text}");
    };
    refused((r#"default = "a""#, r#"default = "b""#), "the default `b` is not in the list");
    refused((r#"aliases = []"#, r#"aliases = ["a"]"#), "given twice");
    refused((r#"name = "a""#, r#"name = "../a""#), "a name is lower-case");
    refused((r#""p{n}""#, r#""--index-url=x""#), "is not a package name");
    refused((r#""m/{nn}""#, r#""m/../../{nn}""#), "leaves the package");
    refused(("parts = 2", "parts = 2000"), "parts must be");
    refused((r#"licence = "x""#, "licence = \"x\"\nsha256 = \"ABC\""), "sha256 must be");
    refused((r#"licence = "x""#, "licence = \"x\"\nsurprise = 1"), "surprise");
}
