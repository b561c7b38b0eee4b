//! `flint doctor` and `flint models`: reports that scripts read.

use serde_json::Value;

use crate::{flint, stdout, success};

#[test]
fn the_doctor_reports_a_machine() {
    let report: Value = serde_json::from_str(&stdout(&success(flint(&["doctor", "--json"])))).unwrap();
    assert!(report["cpu"]["cores"].as_u64().unwrap() >= 1);
    let available = report["kernels"]["available"].as_array().unwrap();
    assert_eq!(report["kernels"]["chosen"], available[0]);
    assert_eq!(available.last().unwrap(), "reference");
    for key in ["one_thread_gb_s", "all_threads_gb_s"] {
        assert!(report["bandwidth"][key].as_f64().unwrap() > 0.1, "{report}");
    }
    for problem in report["problems"].as_array().unwrap() {
        assert!(!problem["hint"].as_str().unwrap().is_empty(), "{problem}");
    }
}

#[test]
fn the_doctor_sees_an_empty_store_and_wrong_kernels() {
    let home = tempfile::tempdir().unwrap();
    let mut command = flint(&["doctor"]);
    command.env("FLINT_HOME", home.path().join("not/yet/here")).env("FLINT_KERNELS", "abacus");
    let text = stdout(&success(command));
    assert!(text.contains("problem: no model is here\n   hint: fetch the default with `flint models pull"), "{text}");
    assert!(text.contains("problem: FLINT_KERNELS=abacus"), "{text}");
    assert!(!text.contains("no problems found"), "{text}");
}

#[test]
fn models_are_listed_as_json() {
    let list: Value = serde_json::from_str(&stdout(&success(flint(&["models", "list", "--json"])))).unwrap();
    let list = list.as_array().unwrap();
    let small = list.iter().find(|model| model["name"] == "smollm2-135m").unwrap();
    assert_eq!(small["bytes"], 98_362_432);
    assert_eq!(list.iter().filter(|model| model["default"] == true).count(), 1);
}
