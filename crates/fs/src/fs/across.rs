//! Calls that more than one rank has to answer. Callers get one answer, as if there were one rank.
//!
//! ```text
//!  Lookup ─▶ Elsewhere ─▶ Stat at the inode's rank ─▶ Node
//!  Make   ─▶ Elsewhere ─▶ Open there, or Stat ─────▶ Node
//!                           └ it is gone: again from the beginning, a few times
//!  List   ─▶ ListedPartly ─▶ Stat of each of the others, all at once
//!                              └─▶ Listed, in order, without those that are gone
//!  StatFs, Flush ─▶ each rank ─▶ sums, or done
//! ```
//! A name that is known to refer to another rank's inode is followed without a request to its
//! directory's rank.
//!
//! Invariant: a reference is followed only if it was read during the call, or is cached under a
//! share with a valid lease.

#[cfg(test)]
#[path = "across_test.rs"]
mod tests;

use super::*;
use crate::names::last_listed;
use nacre_wire::fs::name_hash;
use nacre_wire::msg::fs::{FsElsewhere, FsListed};

/// Most references that a call follows.
const TRIES: u8 = 4;

/// A request of a call that was referred to another rank.
#[derive(Debug)]
pub(super) enum Led {
    /// At the rank it was referred to: the request, and the number of attempts.
    There(FsCall, u8),
    /// The call itself, repeated: the number of attempts.
    Again(u8),
}

/// The answers so far of a call that waits for several.
#[derive(Debug)]
pub(super) struct Parts {
    left: usize,
    failed: Option<u16>,
    of: Of,
}

#[derive(Debug)]
enum Of {
    Page(Page),
    Room { bytes: u64, files: u64 },
    Flush,
}

/// A page of a listing.
#[derive(Debug)]
struct Page {
    dir: Ino,
    bytes_max: u32,
    entries: Vec<FsListed>,
    elsewhere: Vec<FsElsewhere>,
    end: bool,
}

impl Page {
    /// The hash of its last name, including names that are gone.
    fn last(&self) -> u64 {
        last_listed(&self.entries, &self.elsewhere).unwrap_or(0)
    }
}

const fn is_gone(errno: u16) -> bool {
    matches!(errno, ENOENT | ESTALE)
}

impl Fs {
    /// Begins a call that is not for one rank alone, as far as is known; returns whether it is one.
    pub(super) fn goes_elsewhere(
        &mut self,
        call: CallId,
        asked: &FsCall,
        out: &mut Vec<Output>,
    ) -> bool {
        match asked {
            FsCall::Lookup { dir, name } => {
                let Some(ino) = self.names.elsewhere(&self.lasting(), *dir, name) else {
                    return false;
                };
                self.lead(asked, Purpose::Call(call), ino, 0, out);
                true
            }
            FsCall::StatFs {} | FsCall::Flush {} => {
                let ranks = self.seek.ranks().unwrap_or(1);
                if ranks > 1 {
                    let room = Of::Room { bytes: 0, files: 0 };
                    let of = if matches!(asked, FsCall::Flush {}) {
                        Of::Flush
                    } else {
                        room
                    };
                    self.parts.insert(
                        call,
                        Parts {
                            left: usize::from(ranks),
                            failed: None,
                            of,
                        },
                    );
                    for rank in 0..ranks {
                        self.request_at(
                            Rank(rank),
                            asked.clone(),
                            Purpose::Part(call, usize::from(rank)),
                            out,
                        );
                    }
                }
                ranks > 1
            }
            _ => false,
        }
    }

    // ── one inode elsewhere ─────────────────────────────────────────────────────────────

    /// An answer may refer to another rank, or come from one after such a reference: returns what
    /// remains to be done here.
    pub(super) fn on_led(
        &mut self,
        number: u64,
        asked: &FsCall,
        answer: FsAnswer,
        purpose: Option<Purpose>,
        out: &mut Vec<Output>,
    ) -> Option<(FsAnswer, Option<Purpose>)> {
        let led = self.led.remove(&number);
        match (answer, purpose, led) {
            (FsAnswer::Elsewhere { ino, .. }, Some(purpose), led) => {
                let tries = if let Some(Led::Again(tries)) = led {
                    tries
                } else {
                    0
                };
                self.lead(asked, purpose, ino, tries, out);
                None
            }
            (FsAnswer::Failed { errno }, Some(purpose), Some(Led::There(asked, tries)))
                if is_gone(errno) =>
            {
                self.lead_again(asked, purpose, tries, out);
                None
            }
            (
                FsAnswer::ListedPartly {
                    entries,
                    elsewhere,
                    end,
                },
                Some(Purpose::Call(call)),
                _,
            ) => {
                if let FsCall::List { dir, bytes_max, .. } = *asked {
                    self.page(
                        call,
                        Page {
                            dir,
                            bytes_max,
                            entries,
                            elsewhere,
                            end,
                        },
                        out,
                    );
                }
                None
            }
            (answer, purpose, _) => Some((answer, purpose)),
        }
    }
    /// Whether the file system has a rank.
    fn has_rank(&self, rank: Rank) -> bool {
        self.seek.ranks().is_some_and(|ranks| rank.0 < ranks.max(1))
    }
    /// The requested inode belongs to another rank.
    fn lead(
        &mut self,
        asked: &FsCall,
        purpose: Purpose,
        ino: Ino,
        tries: u8,
        out: &mut Vec<Output>,
    ) {
        if !self.has_rank(rank_of(ino)) {
            // The file system may have got more ranks since.
            self.seek.look_again(self.now);
            return self.lead_again(asked.clone(), purpose, TRIES, out);
        }
        let there = match asked {
            FsCall::Make {
                open: true, write, ..
            } => FsCall::Open { ino, write: *write },
            _ => FsCall::Stat { ino },
        };
        self.led
            .insert(self.sessions.next(), Led::There(asked.clone(), tries));
        self.request(there, purpose, out);
    }
    /// The inode referred to is gone: looks the name up again.
    fn lead_again(&mut self, asked: FsCall, purpose: Purpose, tries: u8, out: &mut Vec<Output>) {
        for (dir, name) in asked.names() {
            self.names.forget_name(dir, name);
        }
        if tries + 1 < TRIES {
            self.led.insert(self.sessions.next(), Led::Again(tries + 1));
            self.request(asked, purpose, out);
        } else if let Purpose::Call(call) | Purpose::Opened(call) = purpose {
            self.end(call, Err(ESTALE));
        }
    }

    // ── several answers ─────────────────────────────────────────────────────────────────

    /// A directory's rank has listed it, except for other ranks' inodes.
    fn page(&mut self, call: CallId, page: Page, out: &mut Vec<Output>) {
        let others: Vec<Ino> = page.elsewhere.iter().map(|other| other.ino).collect();
        let parts = Parts {
            left: others.len(),
            failed: None,
            of: Of::Page(page),
        };
        if others.is_empty() {
            return self.parts_ended(call, parts, out);
        }
        self.parts.insert(call, parts);
        for (part, ino) in others.into_iter().enumerate() {
            if let Some(known) = self.names_at_once(&FsCall::Stat { ino }) {
                let given = known.map(|given| {
                    if let Given::Answer(answer) = given {
                        answer
                    } else {
                        FsAnswer::Done {}
                    }
                });
                self.on_part(call, part, given, out);
            } else if self.has_rank(rank_of(ino)) {
                self.request(FsCall::Stat { ino }, Purpose::Part(call, part), out);
            } else {
                self.seek.look_again(self.now);
                self.on_part(call, part, Err(ESTALE), out);
            }
        }
    }
    /// One of several answers.
    pub(super) fn on_part(
        &mut self,
        call: CallId,
        part: usize,
        given: Result<FsAnswer, u16>,
        out: &mut Vec<Output>,
    ) {
        let Some(parts) = self.parts.get_mut(&call) else {
            return;
        };
        match (&mut parts.of, given) {
            (Of::Page(page), Ok(FsAnswer::Node { node, .. })) => {
                page.entries.push(FsListed {
                    name: page.elsewhere[part].name.clone(),
                    node,
                });
            }
            (Of::Page(page), Err(errno)) if is_gone(errno) => {
                self.names.forget_name(page.dir, &page.elsewhere[part].name);
            }
            (
                Of::Room { bytes, files },
                Ok(FsAnswer::Room {
                    bytes: more_bytes,
                    files: more_files,
                }),
            ) => {
                (*bytes, *files) = (
                    bytes.saturating_add(more_bytes),
                    files.saturating_add(more_files),
                );
            }
            (_, Err(errno)) => drop(parts.failed.get_or_insert(errno)),
            (_, Ok(_)) => {}
        }
        parts.left -= 1;
        if parts.left == 0
            && let Some(parts) = self.parts.remove(&call)
        {
            self.parts_ended(call, parts, out);
        }
    }
    fn parts_ended(
        &mut self,
        call: CallId,
        Parts { failed, of, .. }: Parts,
        out: &mut Vec<Output>,
    ) {
        if let Some(errno) = failed {
            return self.end(call, Err(errno));
        }
        let mut answer = match of {
            // All of it is gone; there may be more after it.
            Of::Page(page)
                if page.entries.is_empty() && !page.end && !page.elsewhere.is_empty() =>
            {
                let next = FsCall::List {
                    dir: page.dir,
                    after: page.last(),
                    bytes_max: page.bytes_max,
                };
                self.request(next, Purpose::Call(call), out);
                return;
            }
            Of::Page(Page {
                mut entries, end, ..
            }) => {
                let place = |listed: &FsListed| (name_hash(&listed.name), listed.name.clone());
                entries.sort_by_cached_key(place);
                FsAnswer::Listed { entries, end }
            }
            Of::Room { bytes, files } => FsAnswer::Room { bytes, files },
            Of::Flush => FsAnswer::Done {},
        };
        // Files may have been written since the first answer.
        self.show(&mut answer);
        self.end(call, Ok(Given::Answer(answer)));
    }
}
