//! The text form of a map: what `crushtool -d` prints and `crushtool -c` reads
//! (`docs/formats/crush-text.md`).
//!
//! ```text
//!  text ─lexer─▶ words with lines ─parse─▶ statements ─build─▶ CrushMap ─print─▶ text
//! ```
//! [`parse`] never panics: any input gives a map or a [`ParseError`] with a line. Its allocations
//! are bounded by the length of the text and by the limits in [`crate::map`].

mod build;
mod error;
mod lexer;
mod parse;
mod print;

pub use error::{ParseError, Problem};
pub(crate) use lexer::is_name;
pub use parse::parse;
pub use print::print;
