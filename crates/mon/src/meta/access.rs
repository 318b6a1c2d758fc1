//! Access rights. In one place, for when clients are authenticated and have capabilities.

use super::settings::Settings;
use crate::state::meta::Meta;
use nacre_types::Name;
use nacre_wire::meta::form::namespace_of_span;
use nacre_wire::msg::meta::{META_SETTINGS, MetaError, MetaSpan};

pub use nacre_wire::msg::meta::META_ADMIN as ADMIN;

/// The kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read keys.
    Read,
    /// Change keys.
    Write,
}

/// Whether a client with this name has this access to a namespace. Clients without a name have the
/// empty name.
#[must_use]
pub fn may(meta: &Meta, name: &Name, namespace: &Name, verb: Verb) -> bool {
    if name.as_bytes() == ADMIN.as_bytes() {
        return true;
    }
    if namespace.as_bytes() == META_SETTINGS.as_bytes() {
        return verb == Verb::Read;
    }
    let settings = Settings::of(meta, namespace);
    let listed = if verb == Verb::Read {
        &settings.readers
    } else {
        &settings.writers
    };
    listed
        .iter()
        .any(|who| who == "*" || !name.is_empty() && who.as_bytes() == name.as_bytes())
}

/// Whether this client may read these keys.
///
/// # Errors
/// [`MetaError::Denied`].
pub fn may_read(meta: &Meta, name: &Name, span: &MetaSpan) -> Result<(), MetaError> {
    let denied = |namespace: &Name| MetaError::Denied {
        who: name.clone(),
        what: format!("read keys of `{namespace}`"),
    };
    if let Some(namespace) = namespace_of_span(span) {
        return if may(meta, name, &namespace, Verb::Read) {
            Ok(())
        } else {
            Err(denied(&namespace))
        };
    }
    // Across namespaces: all namespaces with settings must allow it.
    let settings = MetaSpan::Prefix {
        prefix: format!("{META_SETTINGS}/namespace/").as_str().into(),
    };
    for pair in meta.within(&settings) {
        let namespace = super::settings::settings_of(&pair.key).expect("listed by this prefix");
        if !may(meta, name, &namespace, Verb::Read) {
            return Err(denied(&namespace));
        }
    }
    Ok(())
}
