//! What keys do. The order of the questions is the order of who has the keyboard: leaving, an open list, an approval,
//! offers of completion, offered candidates, and then the composer.

use std::time::{Duration, Instant};

use agent::{ApprovalAsk, Command, Decision};
use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::picker::Picked;
use super::{App, Effect};

/// Letters answer an approval only this long after it appeared, so that what was being typed is no answer.
pub const APPROVAL_REST: Duration = Duration::from_millis(400);
/// A second press counts as one with the first within this time.
pub const TWICE_WITHIN: Duration = Duration::from_millis(1_500);

impl App {
    /// Takes in what the person did.
    pub fn input(&mut self, input: Input, now: Instant) {
        match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => self.key(key, now),
            Input::Paste(text) => self.write(&text),
            _ => {}
        }
    }

    fn key(&mut self, key: KeyEvent, now: Instant) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if !(control && key.code == KeyCode::Char('c')) {
            self.leave_armed = None;
        }
        if key.code != KeyCode::Esc {
            self.rewind_armed = None;
        }
        match key.code {
            KeyCode::Char('c') if control => return self.interrupt(now),
            KeyCode::Char('d') if control && self.composer.is_empty() => return self.effects.push(Effect::Leave),
            KeyCode::Char('z') if control => return self.effects.push(Effect::Suspend),
            KeyCode::Char('l') if control => return self.effects.push(Effect::Redraw),
            KeyCode::Char('o') if control => return self.send(Command::Overrule),
            _ => {}
        }
        let taken = self.picker_key(key)
            || self.approval_key(key, now)
            || self.completion_key(key)
            || self.offer_key(key)
            || self.scroll_key(key)
            || self.composer_key(key);
        if !taken {
            self.command_key(key, now);
        }
    }

    /// Ctrl-C: first what is written goes, then what runs, then we.
    fn interrupt(&mut self, now: Instant) {
        if self.picker.take().is_some() {
        } else if !self.composer.is_empty() {
            let text = self.composer.take();
            self.remember(&text);
            self.completion = None;
        } else if self.turn.as_ref().is_some_and(|turn| !turn.stopping) {
            self.stop();
        } else if self.leave_armed.is_some_and(|armed| now - armed < TWICE_WITHIN) {
            self.effects.push(Effect::Leave);
        } else {
            self.leave_armed = Some(now);
        }
    }

    fn picker_key(&mut self, key: KeyEvent) -> bool {
        let Some(picker) = &mut self.picker else { return false };
        let command = match picker.key(key) {
            Picked::Stays(command) => command,
            Picked::Closes(command) => {
                self.picker = None;
                command
            }
        };
        self.effects.extend(command.map(Effect::Send));
        true
    }

    /// With Alt a letter always answers; alone it does when nothing is written and the question has been seen.
    fn approval_key(&mut self, key: KeyEvent, now: Instant) -> bool {
        let Some((approval, since)) = self.approvals.front() else { return false };
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let seen = self.composer.is_empty() && now - *since >= APPROVAL_REST;
        let is_command = matches!(approval.what, ApprovalAsk::Command { .. });
        let shown = self.asked.ask == Some(approval.ask);
        if shown && !self.asked.fits && matches!(key.code, KeyCode::PageUp | KeyCode::PageDown) {
            let page = self.asked.page;
            let from = self.asked.from;
            self.asked.from = if key.code == KeyCode::PageUp { from.saturating_sub(page) } else { from + page };
            return true;
        }
        let decision = match key.code {
            KeyCode::Char('y') => Decision::Yes,
            KeyCode::Char('a') if is_command => Decision::Always,
            KeyCode::Char('n') => Decision::No,
            KeyCode::Char('s') => Decision::Stop,
            _ => return false,
        };
        if !(alt || seen) {
            return false;
        }
        // Nobody can allow what they cannot have read.
        if matches!(decision, Decision::Yes | Decision::Always) && !(shown && self.asked.end_seen) {
            return true;
        }
        let ask = approval.ask;
        self.approvals.pop_front();
        self.send(Command::Decide { ask, decision });
        true
    }

    fn completion_key(&mut self, key: KeyEvent) -> bool {
        let Some(completion) = &mut self.completion else { return false };
        let count = completion.offers.len();
        match key.code {
            KeyCode::Up => completion.chosen = (completion.chosen + count - 1) % count,
            KeyCode::Down => completion.chosen = (completion.chosen + 1) % count,
            KeyCode::Esc => self.completion = None,
            KeyCode::Tab | KeyCode::Enter if key.modifiers.is_empty() => {
                let (offer, _) = completion.offers[completion.chosen].clone();
                let from = completion.from;
                // What is already written whole is sent, not completed.
                if key.code == KeyCode::Enter && self.composer.text()[from..self.composer.cursor()] == offer {
                    return false;
                }
                self.composer.replace_before(from, &(offer + " "));
                self.recomplete();
            }
            _ => return false,
        }
        true
    }

    fn offer_key(&mut self, key: KeyEvent) -> bool {
        let Some(best) = self.offer.filter(|_| self.composer.is_empty() && self.turn.is_none()) else { return false };
        let candidate = match key.code {
            KeyCode::Enter => best,
            KeyCode::Esc => {
                self.offer = None;
                return true;
            }
            KeyCode::Char(digit @ '1'..='9') if key.modifiers.is_empty() => digit as usize - '0' as usize,
            _ => return false,
        };
        self.offer = None;
        self.send(Command::Choose { candidate });
        true
    }

    fn scroll_key(&mut self, key: KeyEvent) -> bool {
        if self.finishes {
            // The terminal scrolls.
            return false;
        }
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let rows = match key.code {
            KeyCode::PageUp => -self.conversation.page(),
            KeyCode::PageDown => self.conversation.page(),
            KeyCode::Up if shift => -1,
            KeyCode::Down if shift => 1,
            KeyCode::Home if control => isize::MIN / 2,
            KeyCode::End if control => {
                self.conversation.follow();
                return true;
            }
            _ => return false,
        };
        self.conversation.scroll(rows, &self.theme);
        true
    }

    /// Writing and moving. False for keys that do something else.
    fn composer_key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let by_word = control || alt;
        let composer = &mut self.composer;
        let mut changed = true;
        match key.code {
            KeyCode::Enter if alt || key.modifiers.contains(KeyModifiers::SHIFT) => return self.newline(),
            KeyCode::Char('j') if control => return self.newline(),
            KeyCode::Backspace if by_word => composer.cut_word_left(),
            KeyCode::Char('w') if control => composer.cut_word_left(),
            KeyCode::Delete if by_word => composer.cut_word_right(),
            KeyCode::Char('d') if alt => composer.cut_word_right(),
            KeyCode::Backspace => composer.backspace(),
            KeyCode::Char('h') if control => composer.backspace(),
            KeyCode::Delete => composer.delete(),
            KeyCode::Char('d') if control => composer.delete(),
            KeyCode::Char('u') if control => composer.cut_to_home(),
            KeyCode::Char('k') if control => composer.cut_to_end(),
            KeyCode::Char('y') if control => composer.paste_cut(),
            KeyCode::Char(c) if !by_word => return self.letter(c),
            _ => changed = false,
        }
        if changed {
            self.changed();
            return true;
        }
        match key.code {
            KeyCode::Left if by_word => composer.word_left(),
            KeyCode::Char('b') if alt => composer.word_left(),
            KeyCode::Right if by_word => composer.word_right(),
            KeyCode::Char('f') if alt => composer.word_right(),
            KeyCode::Left => composer.left(),
            KeyCode::Char('b') if control => composer.left(),
            KeyCode::Right => composer.right(),
            KeyCode::Char('f') if control => composer.right(),
            KeyCode::Home => composer.home(),
            KeyCode::Char('a') if control => composer.home(),
            KeyCode::End => composer.end(),
            KeyCode::Char('e') if control => composer.end(),
            _ => return false,
        }
        self.recomplete();
        true
    }

    /// Keys that send something, or bring back what was sent.
    fn command_key(&mut self, key: KeyEvent, now: Instant) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => self.submit(now),
            KeyCode::Tab if self.turn.is_some() => self.queue(),
            KeyCode::Esc => self.escape(now),
            KeyCode::Up => self.older(),
            KeyCode::Char('p') if control => self.older(),
            KeyCode::Down => self.newer(),
            KeyCode::Char('n') if control => self.newer(),
            _ => {}
        }
    }

    fn escape(&mut self, now: Instant) {
        if self.turn.is_some() {
            self.stop();
        } else if self.composer.is_empty() {
            if self.rewind_armed.is_some_and(|armed| now - armed < TWICE_WITHIN) {
                self.rewind_armed = None;
                self.picker_wanted = Some(None);
                self.send(Command::Turns);
            } else {
                self.rewind_armed = Some(now);
            }
        }
    }

    fn older(&mut self) {
        if !self.composer.up()
            && let Some(text) = self.history.older(self.composer.text())
        {
            self.composer.set(text);
        }
    }

    fn newer(&mut self) {
        if !self.composer.down()
            && let Some(text) = self.history.newer()
        {
            self.composer.set(text);
        }
    }

    fn letter(&mut self, c: char) -> bool {
        self.write(c.encode_utf8(&mut [0; 4]));
        true
    }

    fn newline(&mut self) -> bool {
        self.write("\n");
        true
    }

    fn write(&mut self, text: &str) {
        if self.composer.insert(text) {
            self.changed();
        } else {
            let limit = crate::composer::BYTES_MAX / 1024;
            self.trouble(format!("a prompt holds {limit} KiB; save the text in a file and mention it with @"));
        }
    }

    fn changed(&mut self) {
        self.history.leave();
        self.recomplete();
    }
}
