//! Providers that speak only Chat Completions, made to look like the Responses API: [`request`] turns what a caller asks for
//! into a chat request, [`reader`] turns the chunks of the answer into the events every caller of this crate reads.
//!
//! Chat keeps nothing between requests, so the whole conversation must be in `input`; `previous_response_id`, background
//! responses and warm-ups are errors that say so. Tools that take free text become functions with one text, and back.

mod reader;
mod request;

pub(crate) use reader::ChatReader;
pub(crate) use request::ChatBody;
