//! A command that the person typed after `!`: it runs in the sandbox, and what it prints is part of the conversation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::{CommandSpec, Mode, Policy, Sandbox};
use tokio::sync::watch;

use crate::event::{Event, Outcome};
use crate::tools::{self, Interrupt};
use crate::turn_context::{During, TurnContext};

/// What the screen calls it.
pub const TOOL: &str = "$";

/// Calls of tools have small numbers; what the person runs in a turn has this one and the turn's.
const CALL: u64 = 1 << 33;

/// How long it may take.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Bytes of what it prints that the model reads.
const READ_BYTES_MAX: usize = 6_000;

/// Runs one.
pub async fn run(ctx: &mut TurnContext, line: &str) -> Outcome {
    // Finding out takes two processes.
    let sandbox = match tokio::task::spawn_blocking(Sandbox::detect).await {
        Ok(sandbox) => sandbox,
        Err(error) => return Outcome::Failed { why: error.to_string() },
    };
    let mut policy = ctx.sandbox_policy();
    if !sandbox.holds(&policy) && policy.mode != Mode::DangerFullAccess {
        ctx.notice("No sandbox holds commands on this machine, so this one runs without.").await;
        policy = Policy::unconfined();
    }
    let journal = ctx.history.journal();
    let keeper = Arc::clone(&journal);
    let before = match tokio::task::spawn_blocking(move || keeper.command_begins()).await {
        Ok(Ok(before)) => before,
        Ok(Err(why)) => return Outcome::Failed { why },
        Err(error) => return Outcome::Failed { why: error.to_string() },
    };
    let call = CALL + u64::from(ctx.turn);
    ctx.emit(Event::ToolStarted { call, tool: TOOL.to_owned(), title: line.to_owned() }).await;
    let mut spec = CommandSpec::shell(line, ctx.root());
    spec.timeout = Some(TIMEOUT);
    let (tell, interrupt) = watch::channel(Interrupt::None);
    let (events, begun, mut stopped) = (ctx.events(), Instant::now(), false);
    let ran = {
        let mut work = std::pin::pin!(tools::command::run(&sandbox, &spec, &policy, interrupt, Some((&events, call))));
        loop {
            match ctx.during(&mut work).await {
                During::Done(ran) => break ran,
                During::Stop => {
                    stopped = true;
                    let _ = tell.send(Interrupt::Stopped);
                }
                During::Steer(prompt, _) => ctx.queue(prompt).await,
                During::Decide { .. } => {}
            }
        }
    };
    // Should this break, the command counts as one that was cut off, and undo asks.
    let _ = tokio::task::spawn_blocking(move || journal.command_ended(&before)).await;
    let ms = begun.elapsed().as_micros() as f64 / 1000.0;
    let result = match ran {
        Ok(ran) => tools::shell::result(ran, TIMEOUT),
        Err(why) => {
            ctx.emit(Event::ToolEnded { call, exit_code: None, ok: false, ms }).await;
            return Outcome::Failed { why };
        }
    };
    ctx.emit(Event::ToolEnded { call, exit_code: result.exit_code, ok: result.ok, ms }).await;
    let printed = tools::bounded(&result.output, READ_BYTES_MAX);
    ctx.say(&format!("I ran `{line}`. It printed:\n{printed}")).await;
    if stopped { Outcome::Stopped } else { Outcome::Done }
}
