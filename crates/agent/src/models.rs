//! Which models can be chosen between turns.

use crate::turn_context::TurnContext;

/// Names less alike than this (0 to 1, Jaro-Winkler) are not offered.
const LIKENESS_MIN: f64 = 0.75;
/// Names offered for one that is not known.
const NEAREST_MAX: usize = 3;

/// A model that can be asked for by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownModel {
    /// Its name.
    pub name: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// It is on this machine.
    pub here: bool,
    /// Its size for people, where it is known.
    pub size: String,
    /// Where it would be fetched from.
    pub source: String,
}

/// Uses another model from the next turn on; without a name it lists what there is.
pub async fn choose(ctx: &mut TurnContext, name: &str) {
    let (known, local) = ((ctx.options.models)(), ctx.config().is_local());
    if name.is_empty() {
        let text = list(&known, &ctx.model(), local);
        return ctx.notice(text).await;
    }
    let name = match find(&known, name) {
        Ok(name) => name,
        Err(why) if local => return ctx.trouble(why).await,
        // What another provider serves, it says itself.
        Err(_) => name.to_owned(),
    };
    // The private server offers what it was started with.
    if local && !ctx.options.server.models.contains(&name) {
        ctx.options.server.models.push(name.clone());
    }
    ctx.options.config.config.model = Some(name.clone());
    ctx.disconnect();
    ctx.notice(format!("{name} answers from the next message on.")).await;
    ctx.emit_status().await;
}

/// The model of this name that is here, or a file; else what to do.
pub fn find(known: &[KnownModel], name: &str) -> Result<String, String> {
    let wanted = name.trim().to_lowercase();
    let names = |model: &KnownModel| std::iter::once(&model.name).chain(&model.aliases).any(|name| *name == wanted);
    match known.iter().find(|model| names(model)) {
        Some(model) if model.here => Ok(model.name.clone()),
        Some(model) => Err(format!(
            "{} is not here ({}); `flint models pull {}` in another terminal fetches it",
            model.name,
            costs(model),
            model.name
        )),
        None if name.contains('/') && std::path::Path::new(name).is_file() => Ok(name.to_owned()),
        None => Err(unknown(known, &wanted)),
    }
}

fn unknown(known: &[KnownModel], wanted: &str) -> String {
    let likeness = |model: &KnownModel| {
        let names = std::iter::once(&model.name).chain(&model.aliases);
        names.map(|name| strsim::jaro_winkler(name, wanted)).fold(0.0, f64::max)
    };
    let mut near: Vec<(f64, &str)> = known.iter().map(|model| (likeness(model), model.name.as_str())).collect();
    near.retain(|(likeness, _)| *likeness >= LIKENESS_MIN);
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near: Vec<&str> = near.into_iter().take(NEAREST_MAX).map(|(_, name)| name).collect();
    match near.is_empty() {
        true => format!("there is no model {wanted}; /model lists those there are"),
        false => format!("there is no model {wanted}; the nearest names are {}", near.join(", ")),
    }
}

/// What a pull would cost.
fn costs(model: &KnownModel) -> String {
    let size = if model.size.is_empty() { "size not known" } else { &model.size };
    format!("{size} from {}", model.source)
}

fn list(known: &[KnownModel], used: &str, local: bool) -> String {
    let widest = known.iter().map(|model| model.name.len()).max().unwrap_or(0);
    let row = |model: &KnownModel| {
        let sign = if model.name == used { '▸' } else { ' ' };
        let state = if model.here { format!("here, {}", model.size) } else { costs(model) };
        format!("{sign} {:<widest$}  {}", model.name, state)
    };
    if !local {
        return format!("{used} is in use; /model NAME asks the provider for another one.");
    }
    let (here, absent): (Vec<&KnownModel>, Vec<&KnownModel>) = known.iter().partition(|model| model.here);
    let mut lines = vec![format!("{used} is in use. /model NAME chooses one that is here:")];
    lines.extend(here.into_iter().map(row));
    if !absent.is_empty() {
        lines.push("`flint models pull NAME` fetches one of these:".to_owned());
        lines.extend(absent.into_iter().map(row));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<KnownModel> {
        let model = |name: &str, here| KnownModel {
            name: name.to_owned(),
            aliases: vec![format!("{name}-instruct")],
            here,
            size: "1.1 GB".to_owned(),
            source: "Hugging Face A/B".to_owned(),
        };
        vec![model("coder-1.5b", true), model("coder-3b", false)]
    }

    #[test]
    fn only_what_is_here_can_be_chosen() {
        assert_eq!(find(&known(), "Coder-1.5b-instruct").as_deref(), Ok("coder-1.5b"));
        let absent = find(&known(), "coder-3b").unwrap_err();
        assert!(absent.contains("1.1 GB from Hugging Face A/B") && absent.contains("pull coder-3b"), "{absent}");
        let unknown = find(&known(), "coder-15b").unwrap_err();
        assert!(unknown.contains("coder-1.5b"), "{unknown}");
        assert!(find(&known(), "nosuch").unwrap_err().contains("/model lists"));
        assert!(find(&known(), "/no/such/file.gguf").is_err());
    }

    #[test]
    fn the_list_says_what_is_here_and_what_a_pull_costs() {
        let text = list(&known(), "coder-1.5b", true);
        assert!(text.contains("▸ coder-1.5b  here, 1.1 GB\n"), "{text}");
        assert!(text.ends_with("  coder-3b    1.1 GB from Hugging Face A/B"), "{text}");
    }
}
