//! The leader's judgement of a request: whether it is valid, whether the client has the right, and
//! what the namespaces' settings and validators decide.
//!
//! It judges by the state applied so far and records what it read as guards. If a guard no longer
//! holds when the entry is applied, the entry has no effect and is judged again. Validators see the
//! branch that the compares choose now: the compared keys are guarded if either branch has
//! something to judge.

use super::access::{ADMIN, Verb, may, may_read};
use super::lead::ENTRY_BYTES_MAX;
use super::overruns::{OVERRUNS_MAX, Overruns};
use super::programs::{
    Fault, FaultLine, Program, Programs, TRANSACTION_STEPS_MAX, TriggerOp, Uses, ValidateRequest,
    Verdict,
};
use super::settings::{Settings, Used, program_key, program_of, settings_of};
use crate::state::meta::record::{
    MetaAct, MetaEntry, MetaGuard, MetaLimit, MetaQuiet, MetaTerms, MetaTrigger,
};
use crate::state::meta::{Meta, namespace_of_trigger};
use nacre_types::Name;
use nacre_wire::Wire;
use nacre_wire::meta::form::{self, namespace_of, namespace_of_span, settings_key};
use nacre_wire::msg::meta::{META_OPS_MAX, META_SETTINGS, MetaCall, MetaError, MetaOp, MetaSpan};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pending trigger runs of a namespace; beyond, requests that would add to them
/// wait.
pub const PENDING_MAX: usize = 1_000;
/// Maximum number of keys of an expired lease that are detached at once.
const KEPT_MAX: usize = 64;
/// Maximum bytes of keys and values detached at once.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Maximum bytes of guards for the end of a lease; with keys in more namespaces it ends in parts.
const GUARD_BYTES_MAX: usize = 128 << 10;
/// Maximum number of program checks per transaction, for its own texts and those that its settings
/// name: each takes a separate virtual machine.
const CHECKS_MAX: usize = 32;
/// Minimum size charged for a key, however short it is: it takes 54 bytes in the monitors'
/// snapshots beside its contents.
const BYTES_PER_KEY: u64 = 128;

fn invalid(why: impl Into<String>) -> MetaError {
    MetaError::Invalid { why: why.into() }
}

/// Inputs of admission.
pub struct Judge<'a> {
    /// The state applied so far.
    pub meta: &'a Meta,
    /// Maximum bytes of all metadata together.
    pub total_bytes_max: u64,
    /// For validators.
    pub programs: &'a mut dyn Programs,
    /// Faults of programs, for the cluster log, which holds each of them once.
    pub said: Vec<FaultLine>,
    /// Programs stopped by the clock.
    pub overruns: Overruns,
    /// Trigger runs added by this turn's requests, by namespace.
    pub adds: BTreeMap<Name, usize>,
}

/// The single key of a trigger's operation.
const fn key_of(op: &MetaOp) -> Option<&Name> {
    match op {
        MetaOp::Put { key, .. }
        | MetaOp::Delete {
            span: MetaSpan::Key { key },
        } => Some(key),
        MetaOp::Delete { .. } | MetaOp::Get { .. } => None,
    }
}

/// Whether a program can be used in this way.
fn fits(used: &Used, namespace: &Name, uses: Uses) -> Result<(), MetaError> {
    let (can, function) = match used {
        Used::Validator { .. } => (uses.validator, "validate(key, old, new, who, revision)"),
        Used::Trigger { .. } => (uses.trigger, "trigger(name, revision, events)"),
    };
    if can {
        return Ok(());
    }
    let (program, place) = (used.program(), used.of(namespace));
    Err(invalid(format!(
        "program {program} cannot be the {place}: it has no function `{function}`"
    )))
}

/// The span of all namespaces' settings.
fn all_settings() -> MetaSpan {
    MetaSpan::Prefix {
        prefix: settings_key(&Name::default()),
    }
}

/// The effects of a lease's end.
struct Ending {
    found: Found,
    kept: Vec<(Name, MetaError)>,
    /// The keys of the first part, if it is too much for one entry.
    part: Option<Vec<Name>>,
}

/// Results gathered during admission.
#[derive(Default)]
struct Found {
    settings: BTreeMap<Name, Settings>,
    written: BTreeSet<Name>,
    guards: BTreeSet<Name>,
    /// Whether the result depends on the programs in use.
    uses: bool,
    /// Number of texts checked.
    checks: usize,
}

impl Found {
    fn settings(&mut self, meta: &Meta, namespace: &Name) -> &Settings {
        self.guards.insert(settings_key(namespace));
        self.settings
            .entry(namespace.clone())
            .or_insert_with(|| Settings::of(meta, namespace))
    }
}

impl<'a> Judge<'a> {
    /// For one turn.
    pub fn new(meta: &'a Meta, total_bytes_max: u64, programs: &'a mut dyn Programs) -> Self {
        Self {
            meta,
            total_bytes_max,
            programs,
            said: Vec::new(),
            overruns: Overruns::default(),
            adds: BTreeMap::new(),
        }
    }
}

impl Judge<'_> {
    /// Converts a request into an entry.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn admit(
        &mut self,
        name: &Name,
        call: &MetaCall,
    ) -> Result<(MetaAct, MetaTerms), MetaError> {
        self.programs.begin_request();
        match call {
            MetaCall::Transact {
                compares,
                then,
                otherwise,
            } => {
                form::bounds(call)?;
                let mut found = Found::default();
                for compare in compares {
                    let span = MetaSpan::Key {
                        key: compare.key.clone(),
                    };
                    self.reads(name, &span, &mut found)?;
                }
                let (mut then, mut otherwise) = (then.clone(), otherwise.clone());
                self.check_ops(name, &then, &mut found)?;
                self.check_ops(name, &otherwise, &mut found)?;
                self.check_programs(&then, &mut found)?;
                self.check_programs(&otherwise, &mut found)?;
                // Of both branches: the choice is made when the entry is applied.
                if then
                    .iter()
                    .chain(&otherwise)
                    .any(|op| self.has_validator(op, &mut found))
                {
                    found
                        .guards
                        .extend(compares.iter().map(|compare| compare.key.clone()));
                }
                let chosen = if self.meta.all_hold(compares) {
                    &mut then
                } else {
                    &mut otherwise
                };
                self.validate(name, chosen, &mut found)?;
                let act = MetaAct::Transact {
                    compares: compares.clone(),
                    then,
                    otherwise,
                };
                Ok((act, self.terms(found, 0)?))
            }
            MetaCall::Grant { ttl_ms } => {
                form::ttl(*ttl_ms)?;
                Ok((MetaAct::Grant { ttl_ms: *ttl_ms }, MetaTerms::default()))
            }
            MetaCall::Revoke { lease } => {
                self.owns(name, *lease)?;
                let ending = self.ending(*lease, 2 * KEPT_MAX, usize::MAX)?;
                if let Some((_, error)) = ending.kept.into_iter().next() {
                    return Err(error);
                }
                if ending.part.is_some() {
                    return Err(invalid(
                        "the lease has keys in too many namespaces to end at once; delete some, or let it run out",
                    ));
                }
                Ok((
                    MetaAct::Revoke { lease: *lease },
                    self.terms(ending.found, 0)?,
                ))
            }
            MetaCall::Range { .. } | MetaCall::KeepAlive { .. } | MetaCall::Leases {} => {
                Err(invalid("this request changes nothing"))
            }
        }
    }

    /// The end of an expired lease, with the effects of deleting its keys. Validators judge that as
    /// any deletion. Keys whose deletion they reject stay without a lease: those are detached
    /// first, and when the lease is found expired again, the others are deleted with it.
    ///
    /// # Errors
    /// Too many trigger runs are pending.
    pub fn expire(&mut self, lease: u64) -> Result<(MetaAct, MetaTerms), MetaError> {
        self.programs.begin_request();
        // The size of the end is known only when it is built: if it is too large for an entry, try
        // fewer keys.
        for keys_max in [usize::MAX, 64, 8] {
            let (act, terms) = self.expire_some(lease, keys_max)?;
            let entry = MetaEntry {
                who: None,
                act,
                terms,
            };
            if entry.to_bytes().len() <= ENTRY_BYTES_MAX {
                return Ok((entry.act, entry.terms));
            }
        }
        self.expire_some(lease, 1)
    }

    fn expire_some(
        &mut self,
        lease: u64,
        keys_max: usize,
    ) -> Result<(MetaAct, MetaTerms), MetaError> {
        let Ending { found, kept, part } = self.ending(lease, KEPT_MAX, keys_max)?;
        if kept.is_empty() {
            let Some(part) = part else {
                return Ok((MetaAct::Revoke { lease }, self.terms(found, 0)?));
            };
            // The rest is deleted when it is found expired again.
            let delete = |key| MetaOp::Delete {
                span: MetaSpan::Key { key },
            };
            let then = part.into_iter().map(delete).collect();
            return Ok((
                MetaAct::Transact {
                    compares: Vec::new(),
                    then,
                    otherwise: Vec::new(),
                },
                self.terms(found, 0)?,
            ));
        }
        let mut then = Vec::with_capacity(kept.len());
        for (key, why) in kept {
            let Some(pair) = self.meta.get(&key) else {
                continue;
            };
            then.push(MetaOp::Put {
                key: key.clone(),
                value: pair.value.clone(),
                lease: 0,
            });
            let text = format!("lease {lease} ran out, and `{key}` stays without it: {why}");
            self.said.push(FaultLine {
                key: text.clone(),
                text,
            });
        }
        let mut found = found;
        found.written = then
            .iter()
            .filter_map(|op| key_of(op).and_then(namespace_of))
            .collect();
        Ok((
            MetaAct::Transact {
                compares: Vec::new(),
                then,
                otherwise: Vec::new(),
            },
            self.terms(found, 0)?,
        ))
    }

    /// The effects of a lease's end, and its keys whose deletion validators reject, up to `most` of
    /// them; over as many keys as may go at once.
    fn ending(&mut self, lease: u64, most: usize, keys_max: usize) -> Result<Ending, MetaError> {
        let mut found = Found::default();
        let (mut kept, mut kept_bytes) = (Vec::new(), 0);
        let owner = self
            .meta
            .lease(lease)
            .map(|holding| holding.owner.clone())
            .unwrap_or_default();
        let begun = self.programs.steps();
        let (mut part, mut guard_bytes, mut whole) = (Vec::new(), 0, true);
        for (number, key) in self.meta.keys_of_lease(lease).enumerate() {
            let Some(namespace) = namespace_of(key) else {
                continue;
            };
            // (A client that put its keys into a thousand namespaces had a lease that never ended.)
            whole = guard_bytes < GUARD_BYTES_MAX && number < keys_max;
            if !whole {
                break;
            }
            if found.written.insert(namespace.clone()) {
                guard_bytes += namespace.as_bytes().len();
            }
            if part.len() < META_OPS_MAX {
                part.push(key.clone());
            }
            if found.settings(self.meta, &namespace).validator.is_none() {
                continue;
            }
            if kept.len() >= most || kept_bytes >= KEPT_BYTES_MAX {
                continue;
            }
            let mut op = [MetaOp::Delete {
                span: MetaSpan::Key { key: key.clone() },
            }];
            // Beyond the limit for one request, further keys are treated as rejected: they stay.
            let judged = match self.programs.steps() - begun > TRANSACTION_STEPS_MAX {
                true => Err(invalid(
                    "the lease has more keys with a validator than can be judged at once",
                )),
                false => self.validate(&owner, &mut op, &mut found),
            };
            if let Err(why) = judged {
                found.guards.insert(key.clone());
                kept_bytes +=
                    key.as_bytes().len() + self.meta.get(key).map_or(0, |pair| pair.value.len());
                kept.push((key.clone(), why));
            }
        }
        Ok(Ending {
            found,
            kept,
            part: (!whole).then_some(part),
        })
    }

    /// Converts a trigger's changes into an entry; a trigger has `admin`'s rights.
    ///
    /// # Errors
    /// Why its changes are refused.
    pub fn fired(
        &mut self,
        ops: Vec<TriggerOp>,
        depth: u32,
    ) -> Result<(Vec<MetaOp>, MetaTerms), MetaError> {
        let name = Name::from(ADMIN);
        self.programs.begin_request();
        let mut found = Found::default();
        let mut kept = Vec::with_capacity(ops.len());
        for TriggerOp { op, if_revision } in ops {
            if let (Some(wanted), Some(key)) = (if_revision, key_of(&op)) {
                // Judged here and guarded: if the key has changed when this is applied, the trigger
                // is run again.
                found.guards.insert(key.clone());
                if self.meta.modified(key) != wanted {
                    continue;
                }
            }
            kept.push(op);
        }
        self.check_ops(&name, &kept, &mut found)?;
        self.check_programs(&kept, &mut found)?;
        self.validate(&name, &mut kept, &mut found)?;
        // Its own changes reduce the pending runs: their limit does not delay it.
        Ok((kept, self.terms_of(found, depth)))
    }

    /// A program of the metadata.
    ///
    /// # Errors
    /// There is none, or it is not text.
    pub fn program(&self, name: &str) -> Result<&str, String> {
        let key = program_key(name);
        let source = self.meta.get(&key).ok_or_else(|| {
            format!("there is no program `{name}`; `nacre meta program install` makes one")
        })?;
        std::str::from_utf8(&source.value).map_err(|_| format!("program `{name}` is no text"))
    }

    /// Reports a program's fault: once per version, use and line in the cluster log.
    pub fn tell(&mut self, program: &str, what: &str, fault: &Fault) {
        let revision = self.meta.modified(&program_key(program));
        let failed = format!("program {program} (revision {revision}), {what}, failed");
        self.said.push(FaultLine {
            key: format!("{failed}: line {}", fault.line),
            text: format!("{failed}: {fault}"),
        });
    }

    /// Checks that a program is not suspended.
    ///
    /// # Errors
    /// It is suspended.
    pub fn runs(&self, program: &str) -> Result<(), Fault> {
        if !self
            .overruns
            .suspends(program, self.meta.modified(&program_key(program)))
        {
            return Ok(());
        }
        let message = format!(
            "it is suspended, as it took more time than the monitors have {OVERRUNS_MAX} times; install one that does less, or change the \
             namespace's settings"
        );
        Err(Fault { line: 0, message })
    }

    /// Counts the runs that the clock has stopped since the count was `before`.
    pub fn count_overruns(&mut self, before: u64, program: &str, what: &str) {
        if self.programs.overruns() == before {
            return;
        }
        let revision = self.meta.modified(&program_key(program));
        if self.overruns.count(program, revision) {
            let text = format!(
                "program {program} (revision {revision}), {what}, is suspended: it took more time than the monitors have {OVERRUNS_MAX} times"
            );
            self.said.push(FaultLine {
                key: text.clone(),
                text,
            });
        }
    }

    /// The lease, if it belongs to this client.
    ///
    /// # Errors
    /// There is no such lease, or it belongs to another client.
    pub fn owns(&self, name: &Name, lease: u64) -> Result<u64, MetaError> {
        let holding = self
            .meta
            .lease(lease)
            .ok_or(MetaError::NoSuchLease { lease })?;
        if holding.owner != *name && name.as_bytes() != ADMIN.as_bytes() {
            return Err(MetaError::Denied {
                who: name.clone(),
                what: format!("use lease {lease} of `{}`", holding.owner),
            });
        }
        Ok(holding.ttl_ms)
    }

    fn reads(&self, name: &Name, span: &MetaSpan, found: &mut Found) -> Result<(), MetaError> {
        may_read(self.meta, name, span)?;
        if let Some(namespace) = namespace_of_span(span) {
            found.settings(self.meta, &namespace);
        }
        Ok(())
    }

    fn writes(&self, name: &Name, namespace: &Name, found: &mut Found) -> Result<(), MetaError> {
        if !may(self.meta, name, namespace, Verb::Write) {
            let what = format!("write keys of `{namespace}`");
            return Err(MetaError::Denied {
                who: name.clone(),
                what,
            });
        }
        found.written.insert(namespace.clone());
        found.settings(self.meta, namespace);
        Ok(())
    }

    fn check_ops(&self, name: &Name, ops: &[MetaOp], found: &mut Found) -> Result<(), MetaError> {
        form::sets_once(ops)?;
        for op in ops {
            match op {
                MetaOp::Get { span, .. } => self.reads(name, span, found)?,
                MetaOp::Put { key, value, lease } => {
                    let namespace = form::key(key)?;
                    self.writes(name, &namespace, found)?;
                    let limit = found.settings(self.meta, &namespace).value_bytes_max;
                    if value.len() as u64 > limit {
                        return Err(MetaError::TooLarge {
                            what: format!("value of `{key}`"),
                            limit,
                        });
                    }
                    if *lease != 0 {
                        self.owns(name, *lease)?;
                    }
                    if let Some(of) = settings_of(key) {
                        Settings::check(&of, value)
                            .map_err(|why| invalid(format!("namespace `{of}`: {why}")))?;
                    }
                }
                MetaOp::Delete { span } => {
                    let namespace = form::deletion(span)?;
                    self.writes(name, &namespace, found)?;
                }
            }
        }
        Ok(())
    }

    /// Checks programs: a new text must be a program that suits all its uses; programs that
    /// namespaces use must exist and remain.
    fn check_programs(&mut self, ops: &[MetaOp], found: &mut Found) -> Result<(), MetaError> {
        let text = |name: &str, value: &[u8]| {
            let text = std::str::from_utf8(value).map(str::to_owned);
            text.map_err(|_| invalid(format!("program {name} is refused: it is no text")))
        };
        let puts = || {
            ops.iter().filter_map(|op| {
                if let MetaOp::Put { key, value, .. } = op {
                    Some((key, value))
                } else {
                    None
                }
            })
        };
        for op in ops {
            if let MetaOp::Put {
                key, lease: 1.., ..
            } = op
                && let Some(name) = program_of(key)
            {
                return Err(invalid(format!(
                    "program {name} has no lease: it stays as long as an object or a class names it"
                )));
            }
        }
        for (key, value) in puts() {
            if let Some(name) = program_of(key) {
                if name.contains('/') {
                    return Err(invalid(format!(
                        "`{name}` is no name of a program: it has a `/`"
                    )));
                }
                let source = text(name, value)?;
                let uses = self.check_program(name, &source, found)?;
                found.uses = true;
                for (namespace, used) in self.used(|program| program == name) {
                    fits(&used, &namespace, uses)?;
                }
            }
            let Some(namespace) = settings_of(key) else {
                continue;
            };
            let Ok(settings) = Settings::check(&namespace, value) else {
                continue;
            };
            for used in settings.programs() {
                let program = program_key(used.program());
                let new = puts()
                    .find(|(key, _)| **key == program)
                    .map(|(_, value)| value.clone());
                let source = match &new {
                    Some(value) => text(used.program(), value)?,
                    None => self
                        .program(used.program())
                        .map_err(|why| invalid(format!("namespace `{namespace}`: {why}")))?
                        .to_owned(),
                };
                found.guards.insert(program);
                let uses = self.check_program(used.program(), &source, found)?;
                fits(&used, &namespace, uses)?;
            }
        }
        for op in ops {
            let MetaOp::Delete { span } = op else {
                continue;
            };
            let gone: BTreeSet<String> = self
                .meta
                .within(span)
                .filter_map(|pair| program_of(&pair.key))
                .map(str::to_owned)
                .collect();
            if gone.is_empty() {
                continue;
            }
            found.uses = true;
            if let Some((namespace, used)) = self.used(|program| gone.contains(program)).first() {
                return Err(invalid(format!(
                    "program {} is in use: it is the {}; change that with `nacre meta namespace` first",
                    used.program(),
                    used.of(namespace),
                )));
            }
        }
        Ok(())
    }

    fn check_program(
        &mut self,
        name: &str,
        source: &str,
        found: &mut Found,
    ) -> Result<Uses, MetaError> {
        found.checks += 1;
        if found.checks > CHECKS_MAX {
            return Err(invalid(format!(
                "one transaction may bring or name {CHECKS_MAX} programs: split it"
            )));
        }
        let refused = |fault: Fault| invalid(format!("program {name} is refused: {fault}"));
        self.programs
            .check(Program { name, source })
            .map_err(refused)
    }

    /// Namespaces that use certain programs, and their use.
    fn used(&self, which: impl Fn(&str) -> bool) -> Vec<(Name, Used)> {
        let span = all_settings();
        let namespaces = self
            .meta
            .within(&span)
            .filter_map(|pair| settings_of(&pair.key));
        let used = |namespace: Name| {
            let programs: Vec<_> = Settings::of(self.meta, &namespace).programs().collect();
            programs
                .into_iter()
                .map(move |used| (namespace.clone(), used))
        };
        namespaces
            .flat_map(used)
            .filter(|(_, used)| which(used.program()))
            .collect()
    }

    /// Runs the validators of the written keys.
    fn validate(
        &mut self,
        name: &Name,
        ops: &mut [MetaOp],
        found: &mut Found,
    ) -> Result<(), MetaError> {
        let begun = self.programs.steps();
        for op in ops {
            let (key, new) = match op {
                MetaOp::Put { key, value, .. } => (key.clone(), Some(value.clone())),
                MetaOp::Delete {
                    span: MetaSpan::Key { key },
                } => (key.clone(), None),
                MetaOp::Delete { span } => {
                    let namespace = namespace_of_span(span).expect("checked before");
                    if found.settings(self.meta, &namespace).validator.is_some() {
                        return Err(invalid(format!(
                            "`{namespace}` has a validator: delete its keys one by one"
                        )));
                    }
                    continue;
                }
                MetaOp::Get { .. } => continue,
            };
            let namespace =
                namespace_of(&key).ok_or_else(|| invalid(format!("`{key}` is no key")))?;
            let Some(validator) = found.settings(self.meta, &namespace).validator.clone() else {
                continue;
            };
            let rejected = |line, message| MetaError::Rejected {
                validator: validator.clone(),
                line,
                message,
            };
            found.guards.extend([key.clone(), program_key(&validator)]);
            let source = self
                .program(&validator)
                .map_err(|why| rejected(0, why))?
                .to_owned();
            let request = ValidateRequest {
                old: self.meta.get(&key).cloned(),
                new,
                who: name.clone(),
                revision: self.meta.revision(),
                key: key.clone(),
            };
            self.runs(&validator)
                .map_err(|fault| rejected(0, fault.message))?;
            let before = self.programs.overruns();
            let verdict = self.programs.validate(
                Program {
                    name: &validator,
                    source: &source,
                },
                &request,
            );
            self.count_overruns(before, &validator, &format!("validator of `{namespace}`"));
            if self.programs.steps() - begun > TRANSACTION_STEPS_MAX {
                return Err(rejected(
                    0,
                    "it has too much to do for one transaction; split it".to_owned(),
                ));
            }
            match verdict {
                Verdict::Accept => {}
                Verdict::Reject { line, message } => return Err(rejected(line, message)),
                Verdict::Failed(fault) => {
                    self.tell(&validator, &format!("validator of `{namespace}`"), &fault);
                    return Err(rejected(
                        fault.line,
                        format!("it failed: {}", fault.message),
                    ));
                }
                Verdict::Rewrite(new) => {
                    let limit = found.settings(self.meta, &namespace).value_bytes_max;
                    if new.len() as u64 > limit {
                        return Err(MetaError::TooLarge {
                            what: format!("validator's value of `{key}`"),
                            limit,
                        });
                    }
                    match op {
                        MetaOp::Put { value, .. } => *value = new,
                        _ => return Err(rejected(0, "a deletion cannot be rewritten".to_owned())),
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether an operation changes a key that a validator judges.
    fn has_validator(&self, op: &MetaOp, found: &mut Found) -> bool {
        let namespace = match op {
            MetaOp::Put { key, .. } => namespace_of(key),
            MetaOp::Delete { span } => namespace_of_span(span),
            MetaOp::Get { .. } => None,
        };
        namespace.is_some_and(|namespace| found.settings(self.meta, &namespace).validator.is_some())
    }

    fn terms(&mut self, found: Found, depth: u32) -> Result<MetaTerms, MetaError> {
        let terms = self.terms_of(found, depth);
        for trigger in &terms.triggers {
            let namespace = namespace_of_trigger(&trigger.name);
            let adds = self.adds.get(&namespace).copied().unwrap_or_default();
            if self.meta.pending_of(&namespace) + adds >= PENDING_MAX
                || self.meta.triggers_are_behind()
            {
                let why =
                    format!("triggers of `{namespace}` have too much to do; try again in a moment");
                return Err(MetaError::Unavailable { why });
            }
        }
        for trigger in &terms.triggers {
            *self
                .adds
                .entry(namespace_of_trigger(&trigger.name))
                .or_default() += 1;
        }
        Ok(terms)
    }

    fn terms_of(&self, found: Found, depth: u32) -> MetaTerms {
        let guard = |key: Name| MetaGuard {
            modified: self.meta.modified(&key),
            key,
        };
        let (bytes, keys) = (self.total_bytes_max, self.total_bytes_max / BYTES_PER_KEY);
        let mut limits = vec![MetaLimit {
            namespace: Name::default(),
            bytes,
            keys,
        }];
        let mut triggers = Vec::new();
        for namespace in &found.written {
            let Some(settings) = found.settings.get(namespace) else {
                continue;
            };
            if settings.quota_bytes < u64::MAX || settings.keys_max < u64::MAX {
                let (bytes, keys) = (settings.quota_bytes, settings.keys_max);
                limits.push(MetaLimit {
                    namespace: namespace.clone(),
                    bytes,
                    keys,
                });
            }
            triggers.extend(settings.triggers.iter().map(|trigger| MetaTrigger {
                name: format!("{namespace}/{}", trigger.name).as_str().into(),
                prefix: trigger.prefix.clone(),
            }));
        }
        if found
            .written
            .iter()
            .any(|namespace| namespace.as_bytes() == META_SETTINGS.as_bytes())
        {
            // Settings must stay changeable when all metadata are full.
            limits.retain(|limit| !limit.namespace.is_empty());
        }
        // Settings that are judged with this, and applied before it, may name a program that this
        // removes.
        let settings = MetaQuiet {
            span: all_settings(),
            since: self.meta.revision(),
        };
        let quiet = found.uses.then_some(settings).into_iter().collect();
        MetaTerms {
            guards: found.guards.into_iter().map(guard).collect(),
            limits,
            triggers,
            depth,
            quiet,
        }
    }
}
