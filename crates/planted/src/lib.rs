//! The attribute `#[planted]` (as `#[nacre_types::planted]`): a decision that planted bugs spoil
//! (ADR 0010). The decision does not contain them.
//!
//! ```text
//!  #[planted]
//!  fn is_due(&self, now: Time) -> bool { self.at <= now }
//!    │
//!    ▼
//!  fn is_due(&self, now: Time) -> bool {
//!      #[cfg(feature = "mutants")]
//!      if let Some(spoiled) = planted::is_due(self, &now) { return spoiled; }
//!      self.at <= now
//!  }
//! ```
//! `planted` is a child module of the file, in `src/mutants/` of its crate. Its function of the
//! same name returns nothing if none of its bugs is switched on. It gets references as they are,
//! and a reference to every other argument.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// See the crate's head.
///
/// # Panics
/// The item is no function with a body and plain argument names, or it is generic.
#[proc_macro_attribute]
pub fn planted(_: TokenStream, function: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let name = tokens
        .iter()
        .position(|token| is_ident(token, "fn"))
        .expect("a function is planted")
        + 1;
    let Some(TokenTree::Group(arguments)) = tokens.get(name + 1) else {
        panic!("a planted function is not generic");
    };
    let hook = format!(
        "#[cfg(feature = \"mutants\")]
        if let Some(spoiled) = planted::{}({}) {{ return spoiled; }}",
        tokens[name],
        passed(arguments.stream()).join(", ")
    );
    let Some(TokenTree::Group(body)) = tokens.pop() else {
        panic!("a planted function has a body");
    };
    let mut hooked: TokenStream = hook.parse().expect("well-formed");
    hooked.extend(body.stream());
    let mut spoiled = Group::new(Delimiter::Brace, hooked);
    spoiled.set_span(body.span());
    tokens.push(spoiled.into());
    tokens.into_iter().collect()
}

fn is_ident(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == text)
}
fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// The arguments as they are passed on.
fn passed(arguments: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = arguments.into_iter().collect();
    let (mut all, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, token) in tokens.iter().enumerate() {
        let ends_arrow = at > 0 && is_sign(&tokens[at - 1], '-');
        depth += i32::from(is_sign(token, '<')) - i32::from(is_sign(token, '>') && !ends_arrow);
        if depth == 0 && is_sign(token, ',') {
            all.push(&tokens[begin..at]);
            begin = at + 1;
        }
    }
    all.push(&tokens[begin..]);
    all.retain(|argument| !argument.is_empty());
    all.into_iter().map(passed_on).collect()
}

fn passed_on(argument: &[TokenTree]) -> String {
    let Some(colon) = argument.iter().position(|token| is_sign(token, ':')) else {
        let passed = match argument {
            [first, ..] if is_sign(first, '&') => "self",
            [first, ..] if is_ident(first, "mut") => "&mut self",
            _ => "&self",
        };
        return passed.to_owned();
    };
    let name = match &argument[..colon] {
        [name @ TokenTree::Ident(_)] => name,
        _ => panic!("an argument of a planted function has a plain name"),
    };
    let is_reference = argument.get(colon + 1).is_some_and(|at| is_sign(at, '&'));
    format!("{}{name}", if is_reference { "" } else { "&" })
}
