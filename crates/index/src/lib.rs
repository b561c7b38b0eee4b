//! What a project defines and where it is used, without a model: the items of each file by their lines, the references of
//! a name by whole words, and the changes that follow from them alone, such as a rename.
//!
//! It knows files and languages, and neither models, turns nor terminals; everything here is a plain function of the text
//! on disk, bounded in files and bytes.

pub mod outline;
pub mod walk;
