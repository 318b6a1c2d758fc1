//! One client's random calls.

use super::author::{self, CLASSES, METHODS, VERSIONS};
use super::diary::{Act, Asked, Diary, Fate, Look, Saw};
use super::plain::Plain;
use super::{Counts, OBJECTS};
use crate::ledger::Ledger;
use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::workload::{Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Done, Failure, OpId, Operation};
use nacre_types::ObjectId;
use nacre_wire::ClusterMap;
use nacre_wire::map::programs::{PROGRAM_POOL, source_object};
use nacre_wire::map::{ProgramKind, SourceDigest};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};

const CLASS: ProgramKind = ProgramKind::Class {};

#[derive(Debug)]
enum Doing {
    Store(usize, usize),
    Act(Act),
    Look {
        object: u64,
        begun: u64,
        whole: bool,
        last: bool,
    },
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Caller {
    /// This client stores the sources, and looks at everything in the end.
    leads: bool,
    current: Option<(OpId, Doing, u64)>,
    next_at: u64,
    /// Objects that have had their last look.
    looked: u64,
}

fn object(number: u64) -> ObjectId {
    ObjectId::named(&format!("random-{number}"))
}

/// Number of installed versions of a class.
fn installed(map: &ClusterMap, class: usize) -> usize {
    map.programs
        .get(&(CLASS, author::name(class).as_str().into()))
        .map_or(0, |program| program.versions.len())
}

impl Workload for Caller {
    type Records = Diary;
    type Counts = Counts;

    fn new(plan: &Plan, place: &Place) -> Option<Self> {
        place.does(plan.randoms).then(|| Self {
            leads: place.index == 0,
            ..Self::default()
        })
    }
    fn records(plan: &Plan) -> Diary {
        Diary::new(plan.seed)
    }
    fn next_at(&self, finished: bool) -> u64 {
        match &self.current {
            Some((.., give_up)) => *give_up,
            None if finished && self.has_looked() => u64::MAX,
            None => self.next_at,
        }
    }
    fn is_settled(&self, _: &Client, _: &Diary) -> bool {
        self.current.is_none() && self.has_looked()
    }
    fn counts(diary: &Diary) -> Counts {
        diary.counts()
    }
    fn check(diary: &Diary, ledger: &Ledger) {
        diary.check(ledger);
    }

    fn on_completion(
        &mut self,
        ended: &Completion,
        turn: &mut Turn<'_>,
        diary: &mut Diary,
    ) -> bool {
        let now = turn.now;
        let Some((_, doing, _)) = self.current.take_if(|(id, ..)| *id == ended.id) else {
            return false;
        };
        match doing {
            Doing::Store(class, version) => {
                if ended.result.is_ok() {
                    diary.stored.insert((class, version));
                }
            }
            Doing::Act(act) => {
                diary.under_way -= 1;
                diary.acts.push(Act {
                    ended: now,
                    fate: fate(&act, &ended.result),
                    ..act
                });
            }
            Doing::Look {
                object,
                begun,
                whole,
                last,
            } => {
                let Some(saw) = saw(whole, &ended.result) else {
                    return true;
                };
                if last {
                    self.looked += 1;
                }
                diary.looks.push(Look {
                    object,
                    begun,
                    ended: now,
                    saw,
                });
            }
        }
        true
    }

    fn advance(&mut self, turn: &mut Turn<'_>, diary: &mut Diary) {
        let now = turn.now;
        if let Some((id, .., give_up)) = &self.current
            && *give_up <= now
        {
            // Its completion will report an unknown outcome.
            turn.role.abandon(*id);
        }
        if self.current.is_some() || self.next_at(turn.finished) > now {
            return;
        }
        self.next_at = now + turn.rng.between(5 * MS, 120 * MS);
        let Some((doing, operation)) = turn
            .role
            .map()
            .and_then(|map| self.choose(map, now, turn.finished, diary, turn.rng))
        else {
            return;
        };
        if let Some(id) = turn.submit(operation) {
            diary.under_way += usize::from(matches!(doing, Doing::Act(_)));
            let give_up = now + turn.rng.between(2_000 * MS, 12_000 * MS);
            self.current = Some((id, doing, give_up));
        }
    }
}

impl Caller {
    /// The client that looks at everything in the end has done so.
    const fn has_looked(&self) -> bool {
        !self.leads || self.looked >= OBJECTS
    }

    fn choose(
        &self,
        map: &ClusterMap,
        now: u64,
        finished: bool,
        diary: &mut Diary,
        rng: &mut Rng,
    ) -> Option<(Doing, Operation)> {
        if finished && diary.under_way > 0 {
            return None;
        }
        if finished || rng.one_in(8) {
            let number = if finished {
                self.looked
            } else {
                rng.below(OBJECTS)
            };
            let ops = vec![
                SubOp::Read {
                    offset: 0,
                    length: 1 << 20,
                },
                SubOp::ListAttrs {},
                SubOp::OmapList {
                    after: Bytes::new(),
                    limit: 1000,
                },
            ];
            let doing = Doing::Look {
                object: number,
                begun: now,
                whole: true,
                last: finished,
            };
            return Some((doing, operation(object(number), ops, vec![])));
        }
        if let Some(next) = self.store(map, diary, rng) {
            return Some(next);
        }
        let ready: Vec<usize> = (0..CLASSES)
            .filter(|class| installed(map, *class) > 0)
            .collect();
        if ready.is_empty() {
            return None;
        }
        let number = rng.below(OBJECTS);
        let call = |class: usize, method: &str, input: &Bytes| SubOp::Call {
            class: author::name(class).as_str().into(),
            method: method.into(),
            length: input.len() as u64,
        };
        if rng.one_in(8) {
            let input: Bytes = if rng.one_in(4) { "0 o" } else { "0 -" }.into();
            let ops = vec![call(*rng.pick(&ready), "look", &input)];
            let doing = Doing::Look {
                object: number,
                begun: now,
                whole: false,
                last: false,
            };
            return Some((doing, operation(object(number), ops, vec![input])));
        }
        let calls: Vec<Asked> = (0..if rng.one_in(6) { 2 } else { 1 })
            .map(|_| {
                let id = diary.next_id();
                // n: only its body; e: fails in the end; h: long; l: endless; g: uses all memory;
                // o: returns too much.
                let kind = match rng.below(60) {
                    0..=4 => "e",
                    5..=7 => "h",
                    8 => "l",
                    9 => "g",
                    10 => "o",
                    _ => "n",
                };
                let arg: String = (0..rng.below(40))
                    .map(|_| char::from(b'a' + rng.below(26) as u8))
                    .collect();
                let method = format!("m{}", rng.below(METHODS));
                Asked {
                    id,
                    class: *rng.pick(&ready),
                    method,
                    input: format!("{id} {kind} {arg}").into(),
                }
            })
            .collect();
        let ops = calls
            .iter()
            .map(|asked| call(asked.class, &asked.method, &asked.input))
            .collect();
        let payload = calls.iter().map(|asked| asked.input.clone()).collect();
        let act = Act {
            object: number,
            calls,
            begun: now,
            ended: 0,
            fate: Fate::Unknown,
        };
        Some((Doing::Act(act), operation(object(number), ops, payload)))
    }

    /// The next version of some class, once the previous one is installed.
    fn store(&self, map: &ClusterMap, diary: &Diary, rng: &mut Rng) -> Option<(Doing, Operation)> {
        let (pool, _) = map
            .pool_named(&PROGRAM_POOL.into())
            .filter(|_| self.leads)?;
        let class = rng.below(CLASSES as u64) as usize;
        let version = installed(map, class) + 1;
        let due = version <= VERSIONS
            && !diary.stored.contains(&(class, version))
            && (version == 1 || rng.one_in(8));
        let source = Bytes::from(
            diary.sources[class]
                .get(version - 1)
                .filter(|_| due)?
                .clone(),
        );
        let digest = SourceDigest(*blake3::hash(&source).as_bytes());
        let object = source_object(CLASS, &author::name(class).as_str().into(), &digest);
        let ops = vec![SubOp::WriteFull {
            length: source.len() as u64,
        }];
        Some((
            Doing::Store(class, version),
            Operation {
                pool,
                ..operation(object, ops, vec![source])
            },
        ))
    }
}

fn fate(act: &Act, result: &Result<Done, Failure>) -> Fate {
    match result {
        Ok(Done { results, .. }) => {
            let output = |reply: &SubReply| match reply {
                SubReply::Called {
                    activation, output, ..
                } => (*activation, output.clone()),
                other => panic!("a call was answered {other:?}"),
            };
            Fate::Done(results.iter().map(output).collect())
        }
        Err(Failure::Refused(OpFailure::Method {
            index, errno, why, ..
        })) => Fate::Failed {
            index: *index as usize,
            errno: *errno,
            why: why.clone(),
        },
        Err(Failure::Refused(OpFailure::Full {} | OpFailure::Expired {})) => Fate::Nothing,
        Err(Failure::Refused(OpFailure::Invalid { why })) => {
            let long = act
                .calls
                .iter()
                .any(|call| call.input.split(|byte| *byte == b' ').nth(1) == Some(b"o"));
            assert!(long && why.contains("may return"), "{act:?}: {why}");
            Fate::Nothing
        }
        Err(failure) if failure.may_have_happened() => Fate::Unknown,
        Err(failure) => panic!("{act:?}: {failure}"),
    }
}

fn saw(whole: bool, result: &Result<Done, Failure>) -> Option<Saw> {
    match (whole, result) {
        (false, Ok(Done { results, .. })) => {
            let [SubReply::Called { output, .. }] = &results[..] else {
                panic!("{results:?}")
            };
            Some(Saw::Told(output.clone()))
        }
        (
            true,
            Ok(Done {
                results, payload, ..
            }),
        ) => {
            let [
                _,
                SubReply::Entries {
                    entries: attributes,
                    ..
                },
                SubReply::Entries {
                    entries: omap,
                    more: false,
                },
            ] = &results[..]
            else {
                panic!("{results:?}")
            };
            Some(Saw::Whole(Plain {
                data: Some(payload.concat()),
                attributes: attributes.iter().cloned().collect(),
                omap: omap.iter().cloned().collect(),
                header: Bytes::new(),
            }))
        }
        (true, Err(Failure::Refused(OpFailure::NotFound {}))) => Some(Saw::Whole(Plain::default())),
        (_, Err(Failure::Refused(OpFailure::Full {}))) => None,
        (_, Err(failure)) if failure.may_have_happened() => None,
        (_, Err(failure)) => panic!("a look at a random object: {failure}"),
    }
}
