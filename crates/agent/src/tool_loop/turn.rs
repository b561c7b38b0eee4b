//! A turn in the agent style, between the partner and the loop: what the person says goes in while it runs, what it
//! did goes into the conversation and the session when it is over.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use workspace::edit::Written;

use super::{Control, Conversation, INSTRUCTIONS, STEPS_MAX, ToolLoop};
use crate::config::WireApi;
use crate::tools::{Asks, Commands, PatchTool, ShellRules, Tools, ToolsOptions};
use crate::turn_context::{During, TurnContext};
use crate::{Failing, Intent, Outcome, Prompt};

/// What the person may say while the loop is busy for a moment.
const CONTROLS_MAX: usize = 64;

/// Runs one turn. Unless the message asks for a change, nothing is written without the person's word.
pub async fn turn(ctx: &mut TurnContext, prompt: &Prompt, intent: Intent) -> Outcome {
    let client = match ctx.client().await {
        Ok(client) => client,
        Err(why) => return Outcome::Failed { why },
    };
    ctx.say(&words(prompt)).await;
    let tools = tools(ctx);
    tools.set_intent(intent);
    let looped = ToolLoop {
        client,
        tools: Arc::clone(&tools),
        events: ctx.events(),
        settings: settings(ctx),
        steps_max: STEPS_MAX,
    };
    let before = ctx.conversation.items().to_vec();
    let known = before.len();
    // The private server remembers a response as long as the connection lives; others get everything each time.
    let mut conversation = Conversation::new(before, ctx.config().is_local());
    let (control, mut controlled) = mpsc::channel(CONTROLS_MAX);
    let end = {
        let begun = ctx.begun;
        let mut work = std::pin::pin!(looped.run(&mut conversation, &mut controlled, begun));
        loop {
            let said = match ctx.during(&mut work).await {
                During::Done(end) => break end,
                During::Stop => Control::Stop,
                During::Steer(prompt, at) => Control::Steer { text: words(&prompt), at },
                During::Decide { ask, decision } => {
                    tools.asks().decide(ask, decision);
                    continue;
                }
            };
            // More than fits is a key held down; the loop hears the ones before.
            let _ = control.try_send(said);
        }
    };
    for item in &conversation.items()[known..] {
        ctx.conversation.push(item.clone());
        ctx.history.item(item);
    }
    let written = tools.take_written();
    ctx.history.edited(&written);
    ctx.written = together(written);
    if let Some(last) = &end.last {
        ctx.account(last).await;
    }
    ctx.usage = end.usage;
    end.outcome
}

/// What a turn made of each file, whatever it wrote in between.
fn together(written: Vec<Written>) -> Vec<Written> {
    let mut files: Vec<Written> = Vec::new();
    for next in written {
        match files.iter_mut().find(|file| file.path == next.path) {
            Some(file) => file.new = next.new,
            None => files.push(next),
        }
    }
    files
}

/// The tools of this session, which remember what was always allowed.
fn tools(ctx: &mut TurnContext) -> Arc<Tools> {
    let config = ctx.config();
    if let Some(tools) = &ctx.tools {
        tools.set_policy(config.approval_policy);
        return Arc::clone(tools);
    }
    let patch = match config.provider().wire_api {
        WireApi::Responses => PatchTool::FreeText,
        WireApi::Chat => PatchTool::Function,
    };
    let mut protect = ctx.options.config.files.clone();
    protect.push(ctx.options.state.clone());
    let commands = Commands::new(config.sandbox_mode, config.sandbox_workspace_write.clone(), protect);
    let tools = Arc::new(Tools::new(ToolsOptions {
        root: ctx.root(),
        events: ctx.events(),
        patch,
        shell: ShellRules::new(commands, config.approval_policy),
        asks: Arc::new(Asks::new(ctx.ask_numbers())),
        edit_numbers: ctx.edit_numbers(),
        journal: ctx.history.journal(),
    }));
    ctx.tools = Some(Arc::clone(&tools));
    tools
}

fn settings(ctx: &TurnContext) -> Map<String, Value> {
    let project = &ctx.options.instructions;
    let instructions =
        if project.is_empty() { INSTRUCTIONS.to_owned() } else { format!("{INSTRUCTIONS}\n\n{project}") };
    let body = ctx.body(&instructions, Value::Null);
    let mut settings = match body {
        Value::Object(settings) => settings,
        _ => Map::new(),
    };
    settings.remove("input");
    settings
}

/// What the person said, with the place they pointed at.
fn words(prompt: &Prompt) -> String {
    let mut words = prompt.text.clone();
    if let Some((path, first, last)) = &prompt.selection {
        words += &format!("\n\nThis is about lines {first} to {last} of {}.", path.display());
    }
    if !prompt.pinned.is_empty() {
        let named: Vec<String> = prompt.pinned.iter().map(|path| path.display().to_string()).collect();
        words += &format!("\n\nRead these files before you answer, unless you have: {}.", named.join(", "));
    }
    if let Some(Failing { command, output }) = &prompt.failing {
        words += &format!("\n\n`{command}` fails:\n{output}");
    }
    words
}
