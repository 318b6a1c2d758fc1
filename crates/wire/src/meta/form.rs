//! Validity of keys and transactions: what can be refused without looking at any key.

use crate::codec::Wire;
use crate::msg::meta::{
    META_KEY_MAX, META_OPS_MAX, META_SETTINGS, META_TRANSACTION_BYTES_MAX, MetaCall, MetaError,
    MetaOp, MetaSpan,
};
use nacre_types::Name;
use std::collections::BTreeSet;

/// Shortest and longest lease, in milliseconds.
pub const TTL_MS: std::ops::RangeInclusive<u64> = 500..=86_400_000;

fn invalid(why: impl Into<String>) -> MetaError {
    MetaError::Invalid { why: why.into() }
}

/// The first element of a key; `None` when it has no `/` or begins with one.
#[must_use]
pub fn namespace_of(key: &Name) -> Option<Name> {
    let end = key.as_bytes().iter().position(|byte| *byte == b'/')?;
    (end > 0).then(|| Name::copy(&key.as_bytes()[..end]))
}

/// The one namespace that contains a span.
#[must_use]
pub fn namespace_of_span(span: &MetaSpan) -> Option<Name> {
    match span {
        MetaSpan::Key { key } => namespace_of(key),
        MetaSpan::Prefix { prefix } => namespace_of(prefix),
        MetaSpan::Between { from, to } => {
            namespace_of(from).filter(|namespace| namespace_of(to).as_ref() == Some(namespace))
        }
    }
}

/// The namespace of a key to be set.
///
/// # Errors
/// It is not a valid key.
pub fn key(key: &Name) -> Result<Name, MetaError> {
    let form = || {
        invalid(format!(
            "`{key}` is no key; keys are NAMESPACE/NAME, at most {META_KEY_MAX} bytes"
        ))
    };
    let namespace = namespace_of(key).ok_or_else(form)?;
    if key.as_bytes().len() > META_KEY_MAX || key.as_bytes().len() == namespace.as_bytes().len() + 1
    {
        return Err(form());
    }
    Ok(namespace)
}

/// The namespace of keys to be deleted.
///
/// # Errors
/// They belong to several namespaces.
pub fn deletion(span: &MetaSpan) -> Result<Name, MetaError> {
    let form = || invalid("a deletion stays in one namespace: its keys begin with NAMESPACE/");
    namespace_of_span(span).ok_or_else(form)
}

/// Checks that no key is set twice by one transaction.
///
/// # Errors
/// A key is.
pub fn sets_once(ops: &[MetaOp]) -> Result<(), MetaError> {
    let mut put: BTreeSet<&Name> = BTreeSet::new();
    for op in ops {
        if let MetaOp::Put { key, .. } = op
            && !put.insert(key)
        {
            return Err(invalid(format!("`{key}` is set twice by one transaction")));
        }
    }
    Ok(())
}

/// Checks a transaction's size, independently of its namespaces' settings. Other calls have no
/// bounds.
///
/// # Errors
/// The transaction exceeds them.
pub fn bounds(call: &MetaCall) -> Result<(), MetaError> {
    let MetaCall::Transact {
        compares,
        then,
        otherwise,
    } = call
    else {
        return Ok(());
    };
    if call.to_bytes().len() > META_TRANSACTION_BYTES_MAX {
        let what = "transaction".to_owned();
        return Err(MetaError::TooLarge {
            what,
            limit: META_TRANSACTION_BYTES_MAX as u64,
        });
    }
    if [compares.len(), then.len(), otherwise.len()]
        .iter()
        .any(|n| *n > META_OPS_MAX)
    {
        return Err(invalid(format!(
            "a transaction has at most {META_OPS_MAX} compares and operations in each list"
        )));
    }
    Ok(())
}

/// Checks the duration of a lease.
///
/// # Errors
/// It is too short or too long.
pub fn ttl(ttl_ms: u64) -> Result<(), MetaError> {
    if !TTL_MS.contains(&ttl_ms) {
        return Err(invalid(format!(
            "a lease lasts between {} and {} ms",
            TTL_MS.start(),
            TTL_MS.end()
        )));
    }
    Ok(())
}

/// The key of a namespace's settings.
#[must_use]
pub fn settings_key(namespace: &Name) -> Name {
    let mut key = format!("{META_SETTINGS}/namespace/").into_bytes();
    key.extend_from_slice(namespace.as_bytes());
    Name::copy(&key)
}
/// The key of a program.
#[must_use]
pub fn program_key(name: &str) -> Name {
    format!("{META_SETTINGS}/program/{name}").as_str().into()
}
/// The program stored under this key.
#[must_use]
pub fn program_of(key: &Name) -> Option<&str> {
    let prefix = format!("{META_SETTINGS}/program/");
    std::str::from_utf8(key.as_bytes().strip_prefix(prefix.as_bytes())?).ok()
}
/// The namespace whose settings are stored under this key.
#[must_use]
pub fn settings_of(key: &Name) -> Option<Name> {
    let prefix = format!("{META_SETTINGS}/namespace/");
    key.as_bytes()
        .strip_prefix(prefix.as_bytes())
        .map(Name::copy)
}
