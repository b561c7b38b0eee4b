//! Names as numbers: every identifier once, and the terms each is made of once.

use std::collections::HashMap;

use crate::terms;

/// Names that are held at most. A repository of more is made of noise, and what comes later is not indexed.
const NAMES_MAX: usize = 2_000_000;

/// Strings by number.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    numbers: HashMap<Box<str>, u32>,
    all: Vec<Box<str>>,
}

impl Strings {
    /// The number of a string, which may be new; none where there is no room for another.
    pub(crate) fn add(&mut self, text: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        if self.all.len() == NAMES_MAX {
            return None;
        }
        let number = self.all.len() as u32;
        self.all.push(text.into());
        self.numbers.insert(text.into(), number);
        Some(number)
    }

    /// The number of a string that was added.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    /// The string of a number.
    pub(crate) fn text(&self, number: u32) -> &str {
        self.all.get(number as usize).map_or("", |text| text)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

/// Identifiers and the terms they are made of.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    pub(crate) names: Strings,
    pub(crate) terms: Strings,
    /// By name: its terms.
    of_name: Vec<Box<[u32]>>,
}

impl Vocabulary {
    /// The number of an identifier.
    pub(crate) fn add(&mut self, name: &str) -> Option<u32> {
        let number = self.names.add(name)?;
        if number as usize == self.of_name.len() {
            let mut found = Vec::new();
            terms::of_name(name, |term| found.extend(self.terms.add(term)));
            self.of_name.push(found.into());
        }
        Some(number)
    }

    /// The terms of an identifier.
    pub(crate) fn terms_of(&self, name: u32) -> &[u32] {
        self.of_name.get(name as usize).map_or(&[], |terms| terms)
    }
}
