//! The compliance suite of the Open Responses specification.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::install::npm_dir;
use crate::server::Server;
use crate::{DEFAULT_MODEL, client, given_path, scratch, text, turn};

/// Shows a picture to the model. The default model reads text, and says so.
const NOT_APPLICABLE: &str = "image-input";

#[test]
fn open_responses_compliance() {
    let Some(_turn) = turn() else { return };
    let Some(suite) = given_path("FLINT_OPENRESPONSES", "a checkout of the Open Responses repository") else { return };
    let packages = npm_dir("bun", &["bun@1.4.4", "zod@3.25.76"]);
    let server = Server::start(DEFAULT_MODEL);
    let home = scratch("home-");
    let run = |ids: &str| compliance(&suite, &packages, home.path(), &server, ids).output().expect("bun starts");

    let ids = ids(&run("?"));
    assert!(ids.iter().any(|id| id == NOT_APPLICABLE), "{ids:?}");
    let mut failed = Vec::new();
    // One by one: all at once, sixteen generations share the machine and the suite's limits of 30 s.
    for id in &ids {
        let output = run(id);
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{id}: {error}\n{}{}", text(&output.stdout), text(&output.stderr)));
        let result = &report["results"][0];
        println!("{id}: {} {} ms {}", result["status"], result["duration"], result["errors"]);
        if result["status"] != "passed" {
            println!("  asked {}\n  got {}", result["request"], result["response"]);
            failed.push(id.as_str());
        }
    }
    println!("{} of {} pass", ids.len() - failed.len(), ids.len());
    assert_eq!(failed, [NOT_APPLICABLE]);
}

/// The ids the suite knows, from its answer to one that it does not.
fn ids(output: &Output) -> Vec<String> {
    let answer = text(&output.stderr);
    let list = answer.lines().find_map(|line| line.strip_prefix("Available test IDs: "));
    list.unwrap_or_else(|| panic!("no ids in {answer}")).split(", ").map(str::to_owned).collect()
}

fn compliance(suite: &Path, packages: &Path, home: &Path, server: &Server, ids: &str) -> Command {
    let modules = packages.join("node_modules");
    let mut command = client(modules.join("@oven/bun-linux-x64/bin/bun"), home);
    command.arg("run").arg(suite.join("bin/compliance-test.ts")).env("NODE_PATH", modules);
    command.args(["-u", &server.base_url(), "-k", crate::server::KEY, "-m", DEFAULT_MODEL, "--json", "-f", ids]);
    command
}
