//! Messages that a daemon sends unasked: pings, reports of silence, boots, beacons, lines for the
//! cluster log.

use super::{Osd, Phase};
use crate::shared::Once;
use nacre_role::Output;
use nacre_types::{Entity, PgId};
use nacre_wire::Message;
use nacre_wire::msg::monitor::{Beacon, Boot, ClusterLog, FailureReport, LogLine, PgReport};
use nacre_wire::msg::replication::Ping;
use std::collections::BTreeMap;

/// Beacon intervals between two reports of all PGs.
const REPORT_ALL_EVERY: u32 = 15;

impl Osd {
    pub(super) fn ping(&mut self) {
        let now = self.sh.now;
        for osd in self.sh.peers.due_pings(now) {
            self.sh.send(osd, Message::Ping(Ping { stamp: now.0 }));
        }
    }

    pub(super) fn accuse(&mut self) {
        if !self.is_live() {
            return;
        }
        for accusation in self.sh.peers.accusations(self.sh.now) {
            let report = FailureReport {
                target: accusation.target,
                instance: accusation.instance,
                reporter: self.id(),
                silent_ms: u64::try_from(accusation.silent.as_millis()).unwrap_or(u64::MAX),
                alive: accusation.alive,
                refused: accusation.refused,
                itself: false,
                stalled: false,
            };
            self.sh.out.push(Output::SendMon {
                message: Message::FailureReport(report),
            });
        }
    }

    /// Reports to the monitors that this daemon stops: others need not wait for a timeout.
    pub(super) fn report_itself(&mut self) {
        let report = self.own_report();
        self.sh.out.push(Output::SendMon {
            message: Message::FailureReport(report),
        });
    }

    /// Reports to the monitors that this daemon's device does not answer, or answers again.
    pub(super) fn report_stall(&mut self, alive: bool) {
        let report = FailureReport {
            stalled: true,
            alive,
            ..self.own_report()
        };
        self.sh.out.push(Output::SendMon {
            message: Message::FailureReport(report),
        });
    }

    pub(super) const fn own_report(&self) -> FailureReport {
        FailureReport {
            target: self.id(),
            instance: self.instance(),
            reporter: self.id(),
            silent_ms: 0,
            alive: false,
            refused: false,
            itself: true,
            stalled: false,
        }
    }

    pub(super) fn announce(&mut self) {
        let every = self.sh.config.timing.retry_interval;
        self.phase = Phase::Waiting {
            at: self.sh.now + every,
        };
        self.sh.wake_at(self.sh.now + every);
        if self.device.is_stalled() {
            // If it booted again, it would be marked down again.
            return;
        }
        let config = &self.sh.config;
        let boot = Boot {
            osd: config.id,
            instance: self.sh.instance_known,
            address: config.address.clone(),
            store: config.store,
            features: 0,
            class: config.class.clone(),
            capacity: config.capacity,
            host: config.host.clone(),
            process: config.process,
        };
        self.sh.out.push(Output::SendMon {
            message: Message::Boot(boot),
        });
        if self.sh.map.is_none() {
            self.subscribe();
        }
    }

    pub(super) fn beacon(&mut self) {
        let now = self.sh.now;
        self.beacon_at = now + self.sh.config.timing.beacon_interval;
        // An OSD without PGs has no peers that send it a new map, and a monitor's message may have
        // been lost.
        if !matches!(self.phase, Phase::Loading(_))
            && now.since(self.map_asked) >= self.sh.config.timing.beacon_interval * 5
        {
            self.subscribe();
        }
        if !self.is_live() {
            return;
        }
        let reports: BTreeMap<PgId, PgReport> = self
            .pgs
            .iter()
            .filter_map(|(id, pg)| Some((*id, pg.report()?)))
            .collect();
        if self.report_all_at <= now {
            self.report_all_at = now + self.sh.config.timing.beacon_interval * REPORT_ALL_EVERY;
            self.reported.clear();
        }
        let all = self.reported.is_empty();
        let changed = reports
            .iter()
            .filter(|(id, report)| all || self.reported.get(id) != Some(report));
        let pgs: Vec<PgReport> = changed.map(|(_, report)| report.clone()).collect();
        let unfinished = reports
            .values()
            .any(|report| report.state & nacre_wire::msg::monitor::pg_state::CLEAN == 0);
        self.reported = reports;
        let (total, used) = self.usage;
        let limit = self.sh.config.timing.complain_after;
        let mut slow = Vec::new();
        for pg in self.pgs.values() {
            if let Some(primary) = pg.as_primary() {
                primary.slow(&pg.interval, self.sh.config.id, now, limit, &mut slow);
            }
        }
        let (device, space) = (self.device.text(now), self.space.clone());
        let no_room = self.sh.has_no_room();
        let beacon = Beacon {
            osd: self.id(),
            instance: self.instance(),
            total,
            used,
            pgs,
            all,
            slow,
            device,
            space,
            no_room,
        };
        self.sh.out.push(Output::SendMon {
            message: Message::Beacon(beacon),
        });
        if unfinished {
            self.beacon_at = now + self.sh.config.timing.beacon_interval / 8;
        }
        self.sh.wake_at(self.beacon_at);
        self.send_log();
    }

    pub(super) fn send_log(&mut self) {
        if self.sh.log.is_empty() {
            return;
        }
        let (from, instance) = (Entity::Osd(self.id()), self.instance());
        let lines = std::mem::take(&mut self.sh.log);
        let number = |n: &mut u64| {
            *n += 1;
            *n
        };
        let lines = lines
            .into_iter()
            .map(|(severity, text, Once(once))| {
                let number = number(&mut self.log_number);
                LogLine {
                    from,
                    instance,
                    number,
                    severity,
                    text,
                    once,
                }
            })
            .collect();
        self.sh.out.push(Output::SendMon {
            message: Message::ClusterLog(ClusterLog { lines }),
        });
    }
}
