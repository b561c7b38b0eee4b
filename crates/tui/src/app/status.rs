//! Figures: the line at the bottom, and the card that `/status` shows.

use agent::Status;

/// Figures for the line, the most telling first, so that a narrow screen loses the least.
pub fn figures(status: &Status) -> Vec<String> {
    let last = &status.last;
    let mut figures = vec![if status.model.is_empty() { "no model yet".to_owned() } else { status.model.clone() }];
    figures.extend(last.decode_rate.map(|rate| format!("{rate:.0} tok/s")));
    figures.extend(last.first_token_ms.map(|ms| format!("first {ms:.0} ms")));
    if last.input_tokens > 0 {
        figures.push(format!("cached {}%", share(last.cached_tokens, last.input_tokens)));
    }
    if status.context > 0 {
        let left = status.context.saturating_sub(status.context_used);
        figures.push(format!("left {}%", share(left, status.context)));
    }
    figures.extend(status.transport.as_deref().map(short_transport));
    figures.extend(status.lane.clone());
    figures
}

fn short_transport(name: &str) -> String {
    if name == "websocket" { "ws".to_owned() } else { name.to_owned() }
}

fn share(part: usize, whole: usize) -> usize {
    (part.min(whole) * 100).checked_div(whole).unwrap_or(0)
}

/// What really served, how fast, and what is allowed.
pub fn card(status: &Status) -> String {
    let last = &status.last;
    let unknown = || "not known yet".to_owned();
    let served = status.served_model.clone().unwrap_or_else(unknown);
    let quantisation = status.quantisation.as_deref().map(|name| format!(", {name}")).unwrap_or_default();
    let lane = status.lane.as_deref().map(|lane| format!(", lane {lane}")).unwrap_or_default();
    let rate = last.decode_rate.map_or_else(|| "rate not known".to_owned(), |rate| format!("{rate:.1} tok/s"));
    let first = last.first_token_ms.map(|ms| format!(", first token {ms:.0} ms")).unwrap_or_default();
    let prediction = match (last.accepted_prediction_tokens, last.rejected_prediction_tokens) {
        (0, 0) => String::new(),
        (right, wrong) => format!("; predicted {right} right, {wrong} wrong"),
    };
    let left = status.context.saturating_sub(status.context_used);
    let profile = status.profile.as_deref().map(|name| format!(", profile {name}")).unwrap_or_default();
    let instructions: Vec<String> = status.instructions.iter().map(|path| path.display().to_string()).collect();
    let pinned: Vec<String> = status.pinned.iter().map(|path| path.display().to_string()).collect();
    // Before the first turn most is not known; what is said then is what the first turn would use.
    let turn = |told: String| if last.requests == 0 { "no turn yet".to_owned() } else { told };
    let lines = [
        ("model", status.model.clone()),
        ("served", format!("{served}{quantisation}")),
        ("weights", status.weights.clone().unwrap_or_else(unknown)),
        (
            "provider",
            match &status.transport {
                Some(transport) => format!("{} over {transport}{lane}", status.provider),
                None => status.provider.clone(),
            },
        ),
        ("speed", turn(format!("{rate}{first}, turn {:.1} s in {} requests", last.total_ms / 1000.0, last.requests))),
        (
            "tokens",
            turn(format!(
                "{} in ({}% cached), {} out{prediction}",
                last.input_tokens,
                share(last.cached_tokens, last.input_tokens),
                last.output_tokens
            )),
        ),
        (
            "context",
            match status.context {
                0 => unknown(),
                all => format!("{} of {all} tokens used, {}% left", status.context_used, share(left, all)),
            },
        ),
        ("files", if pinned.is_empty() { "none kept; /add keeps one".to_owned() } else { pinned.join(", ") }),
        ("style", format!("{}{profile}", status.style)),
        ("allowed", format!("{}; approvals {}", status.sandbox, status.approvals)),
        ("session", status.session.clone()),
        ("told", if instructions.is_empty() { "no AGENTS.md".to_owned() } else { instructions.join(", ") }),
    ];
    lines.map(|(name, value)| format!("{name:<9} {value}")).join("\n")
}
