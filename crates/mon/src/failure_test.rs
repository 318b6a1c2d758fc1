//! Cases of [`super::FailureFilter`] as a table: hosts, reports, verdicts.

use super::*;
use crate::testing::map_with_osds;

struct Case {
    map: ClusterMap,
    hosts: BTreeMap<OsdId, String>,
    filter: FailureFilter,
    awake: Time,
    /// Whether a PG waits for an OSD that asks to come up.
    awaited: bool,
}

/// Runs a script; one line per step, with the expected output beside it.
///
/// ```text
/// hosts a a b b c         osd.0 and osd.1 on a, and so on
/// 3 > 1 silent 2500       osd.3 reports osd.1 silent for 2500 ms (also: refused, alive, itself)
/// after 700               milliseconds of awake time
/// group 0 1 2             a PG with these last members; two have to be up
/// awaited                 a PG reports that it stalls without the OSD that asks to come up
/// comes 1 yes             whether osd.1 may come up now
/// => down 1               the result of verdicts() now (`-`: none)
/// ```
fn run(script: &str) {
    let mut case: Option<Case> = None;
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == "hosts" {
            let map = map_with_osds(words.len() - 1);
            let hosts = (0..)
                .zip(&words[1..])
                .map(|(osd, host)| (OsdId(osd), (*host).to_owned()))
                .collect();
            case = Some(Case {
                map,
                hosts,
                filter: FailureFilter::default(),
                awake: Time(1_000_000_000),
                awaited: false,
            });
            continue;
        }
        let case = case.as_mut().expect("hosts come first");
        let ms = |text: &str| Duration::from_millis(text.parse().expect("milliseconds"));
        match words.as_slice() {
            ["after", text] => case.awake = case.awake + ms(text),
            ["awaited"] => case.awaited = true,
            ["flag", "nodown"] => case.map.flags = flag::NO_DOWN,
            ["group", members @ ..] => {
                case.map = crate::testing::with_pool(case.map.clone(), 1);
                let members: Vec<OsdId> = members
                    .iter()
                    .map(|osd| OsdId(osd.parse().expect("id")))
                    .collect();
                let record = case.map.pgs.values_mut().next().expect("one group");
                record.raw.clone_from(&members);
                record.activated.members = members;
            }
            ["comes", osd, answer] => {
                let osd = OsdId(osd.parse().expect("id"));
                let may = case
                    .filter
                    .may_come(case.awake, &case.map, osd, || case.awaited);
                assert_eq!(may, *answer == "yes", "at `{line}` of:\n{script}");
            }
            ["=>", rest @ ..] => {
                let down = case.filter.verdicts(case.awake, &case.map, &case.hosts);
                let seen: Vec<String> = down.iter().map(|down| down.osd.0.to_string()).collect();
                let expected: Vec<&str> = rest
                    .iter()
                    .filter(|w| **w != "down" && **w != "-")
                    .copied()
                    .collect();
                assert_eq!(seen, expected, "at `{line}` of:\n{script}");
                for down in down {
                    case.map.osds.get_mut(&down.osd).expect("exists").up = false;
                    case.filter.on_silenced(case.awake, down.osd);
                    if down.parted {
                        case.filter.on_parted(case.awake, down.osd);
                    }
                }
                case.filter.on_map(&case.map);
            }
            ["up", osd] => {
                let osd = OsdId(osd.parse().expect("id"));
                let info = case.map.osds.get_mut(&osd).expect("exists");
                info.up = true;
                info.instance.0 += 1;
                case.filter.on_up(case.awake, osd);
                case.filter.on_map(&case.map);
            }
            [reporter, ">", target, what @ ..] => {
                let (reporter, target) = (
                    OsdId(reporter.parse().expect("id")),
                    OsdId(target.parse().expect("id")),
                );
                let silent_ms = if what[0] == "silent" {
                    what[1].parse().expect("milliseconds")
                } else {
                    0
                };
                let report = FailureReport {
                    target,
                    instance: case.map.osds[&target].instance,
                    reporter,
                    silent_ms,
                    alive: what[0] == "alive",
                    refused: what[0] == "refused",
                    itself: what[0] == "itself",
                    stalled: false,
                };
                case.filter.report(case.awake, &case.map, &report);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn two_reporters_beyond_the_grace() {
    run("hosts a b c
         1 > 0 silent 1900
         2 > 0 silent 1900
         => -
         after 100
         => down 0");
}

#[test]
fn one_reporter_is_not_enough_while_others_could_speak() {
    run("hosts a b c d
         1 > 0 silent 7900
         => -
         2 > 0 silent 2000
         => down 0");
}

// F31: two OSDs did not hear each other as long as the network between them was cut, neither was
// marked down, and operations of their PGs ended with an unknown result. Failed when `judge_silent`
// ended before its edges.
#[test]
fn of_two_that_do_not_hear_each_other_always_the_same_one_goes() {
    run("hosts a b c d
         1 > 2 silent 7900
         2 > 1 silent 7900
         => -
         1 > 2 silent 8000
         2 > 1 silent 8000
         => down 2
         up 2
         1 > 2 silent 8000
         2 > 1 silent 8000
         => down 2");
    // One way only.
    run("hosts a b c d
         2 > 1 silent 8000
         => down 2");
}

#[test]
fn the_one_that_is_parted_from_more_goes() {
    run("hosts a b c d e f
         1 > 0 silent 8000
         2 > 0 silent 4000
         => down 0");
    run("hosts a a a b b b c
         # osd.0 and two of host b
         3 > 0 silent 8000
         4 > 0 silent 8000
         => down 0
         => -");
    run("hosts a b c d e f g
         # osd.1 hears neither osd.4 nor osd.5; they hear it
         1 > 4 silent 8000
         1 > 5 silent 8000
         => down 1");
}

// Both were marked down, came up, and were marked down again.
#[test]
fn of_two_that_are_all_there_is_one_stays() {
    run("hosts a b
         0 > 1 silent 2000
         1 > 0 silent 2000
         => down 1
         => -");
}

#[test]
fn racks_that_do_not_hear_each_other_do_not_both_go() {
    let mut script = "hosts a b c d e f g h i\n".to_owned();
    for one in 0..3 {
        for other in 3..6 {
            script += &format!("{one} > {other} silent 3000\n{other} > {one} silent 3000\n");
        }
    }
    // The third rack hears both.
    run(&format!("{script}=> down 3 4 5\n=> -"));
}

/// Simulator, seeds 852 and 914: of two that did not hear each other, the only one with a PG's
/// acknowledged writes was kept down for half a minute, and no other OSD could serve.
#[test]
fn the_one_that_a_group_needs_stays_or_comes_back() {
    run("hosts a b c d
         group 0 2 3
         => -
         0 > 2 silent 2000
         3 > 2 refused
         => down 2
         # 3 would go, were it not needed
         1 > 3 silent 8000
         3 > 1 silent 8000
         => down 1
         comes 1 no
         up 2
         0 > 3 silent 8000
         3 > 0 silent 8000
         => down 3
         comes 3 no
         after 5000
         comes 3 no
         3 > 2 itself
         2 > 2 itself
         => down 2
         # It is needed now, and comes when it has been needed for as long as it took to send it away.
         comes 3 no
         after 7999
         comes 3 no
         after 1
         comes 3 yes
         # Needed no more: it stays down.
         up 2
         comes 3 no");
}

// Failed when only the map was checked (simulator, seed 5396): an OSD is up that took part in the
// PG's last activation, by number, but has a new store.
#[test]
fn the_one_that_a_group_waits_for_comes_back() {
    run("hosts a b c d
         group 0 1 2
         1 > 3 silent 8000
         3 > 1 silent 8000
         => down 3
         comes 3 no
         after 9000
         comes 3 no
         awaited
         comes 3 no
         after 8000
         comes 3 yes");
}

// Failed when no OSD was kept down: it came up at once, and was marked down again.
#[test]
fn who_went_for_being_parted_is_kept_down_for_a_while_and_longer_each_time() {
    let mut filter = FailureFilter::default();
    let mut now = Time(1_000_000_000);
    for seconds in [30, 60, 120, 240, 240] {
        assert_eq!(filter.held(now).count(), 0);
        filter.on_parted(now, OsdId(2));
        assert_eq!(
            filter.held(now).collect::<Vec<_>>(),
            [(OsdId(2), Duration::from_secs(seconds))]
        );
        now = now + Duration::from_secs(seconds);
    }
    now = now + PARTED_MEMORY + Duration::from_secs(1);
    filter.on_parted(now, OsdId(2));
    assert_eq!(filter.held(now).collect::<Vec<_>>(), [(OsdId(2), HELD)]);
}

// Failed when hosts were not counted.
#[test]
fn reporters_of_one_host_are_one_voice() {
    run("hosts a a a b c
         # all of host a miss osd.3: perhaps a's link
         0 > 3 silent 5000
         1 > 3 silent 5000
         2 > 3 silent 5000
         => -
         4 > 3 silent 2000
         => down 3");
}

// Failed when `suffice` did not check the number of reporters.
#[test]
fn on_one_host_two_reporters_do() {
    run("hosts a a a
         0 > 2 silent 2100
         => -
         1 > 2 silent 2100
         => down 2");
}

#[test]
fn a_refused_connection_and_a_confession_are_believed_at_once() {
    run("hosts a b c
         1 > 0 refused
         => down 0
         2 > 2 itself
         => down 2");
}

#[test]
fn no_osd_confesses_for_another() {
    run("hosts a b c
         1 > 0 itself
         => -");
}

#[test]
fn alive_withdraws() {
    run("hosts a b c
         1 > 0 silent 2500
         1 > 0 alive
         2 > 0 silent 2500
         => -");
}

// Failed when cut-off reporters counted.
#[test]
fn a_reporter_that_is_cut_off_itself_is_ignored() {
    run("hosts a b c d e
         0 > 1 silent 9000
         0 > 2 silent 9000
         0 > 3 silent 9000
         0 > 4 refused
         1 > 0 silent 2500
         1 > 4 silent 2500
         # osd.4 has only one honest accuser besides the one that accuses everybody
         => -
         2 > 0 silent 2500
         => down 0
         => -");
}

#[test]
fn the_survivors_of_a_power_loss_are_believed_after_twice_the_grace() {
    run("hosts a b c d e f
         0 > 2 silent 2500
         0 > 3 silent 2500
         0 > 4 silent 2500
         0 > 5 silent 2500
         1 > 2 silent 2500
         1 > 3 silent 2500
         1 > 4 silent 2500
         1 > 5 silent 2500
         => -
         after 1000
         0 > 2 silent 4000
         0 > 3 silent 4000
         0 > 4 silent 4000
         0 > 5 silent 4000
         1 > 2 silent 4000
         1 > 3 silent 4000
         1 > 4 silent 4000
         1 > 5 silent 4000
         => down 2 3 4 5");
}

#[test]
fn refusals_of_most_need_a_second_voice_but_no_grace() {
    run("hosts a b c d e
         0 > 1 refused
         0 > 2 refused
         0 > 3 refused
         => -
         4 > 1 refused
         4 > 2 refused
         4 > 3 refused
         => down 1 2 3");
}

#[test]
fn the_last_survivor_of_three_speaks_alone() {
    run("hosts a b c
         0 > 1 silent 4100
         0 > 2 silent 4100
         => down 1 2");
}

#[test]
fn two_halves_that_accuse_each_other_stay_up() {
    run("hosts a b c d
         0 > 2 silent 9000
         0 > 3 silent 9000
         1 > 2 silent 9000
         1 > 3 silent 9000
         2 > 0 silent 9000
         2 > 1 silent 9000
         3 > 0 silent 9000
         3 > 1 silent 9000
         => -");
}

#[test]
fn a_report_that_is_not_repeated_is_forgotten() {
    run("hosts a b c
         1 > 0 silent 2500
         after 10500
         2 > 0 silent 2500
         => -");
}

#[test]
fn silence_is_extrapolated_for_a_second_only() {
    run("hosts a b c
         1 > 0 silent 900
         2 > 0 silent 900
         after 5000
         => -");
}

// The second time an OSD was stopped within half a minute, writes waited for exactly 3 s: the grace
// was half as long again after one flap.
#[test]
fn an_osd_that_flaps_gets_more_time_little_at_first() {
    let graces = [2000, 2400, 2800, 4000, 6000, 6000];
    let script = graces.map(|ms| {
        format!(
            "1 > 0 silent {early}
             2 > 0 silent {early}
             => -
             1 > 0 silent {ms}
             2 > 0 silent {ms}
             => down 0
             after 3000
             up 0
            ",
            early = ms - 100,
        )
    });
    run(&format!("hosts a b c\n{}", script.concat()));
}

#[test]
fn flaps_are_forgotten_one_by_one() {
    run("hosts a b c
         1 > 0 silent 2000
         2 > 0 silent 2000
         => down 0
         up 0
         1 > 0 silent 2300
         2 > 0 silent 2300
         => -
         after 600000
         1 > 0 silent 2000
         2 > 0 silent 2000
         => down 0");
}

#[test]
fn no_down_holds_back_all_but_confessions() {
    run("hosts a b c
         flag nodown
         1 > 0 silent 9000
         2 > 0 refused
         1 > 1 itself
         => down 1");
}

#[test]
fn a_report_about_an_earlier_instance_is_dropped() {
    let map = map_with_osds(3);
    let mut filter = FailureFilter::default();
    let mut report = FailureReport {
        target: OsdId(0),
        instance: Instance(map.osds[&OsdId(0)].instance.0 + 1),
        reporter: OsdId(1),
        silent_ms: 9_000,
        alive: false,
        refused: true,
        itself: false,
        stalled: false,
    };
    assert!(!filter.report(Time(1), &map, &report));
    report.instance.0 -= 1;
    assert!(filter.report(Time(1), &map, &report));
}

/// F30: a hung flush was never noticed. One stalled disk takes its OSD down at once; if most stall
/// at a time no OSD is marked down: the cause is one shared disk, or one event.
#[test]
fn a_stalled_disk_takes_its_osd_down_unless_most_stall() {
    let map = map_with_osds(3);
    let stall = |osd: u32, alive: bool| FailureReport {
        target: OsdId(osd),
        instance: map.osds[&OsdId(osd)].instance,
        reporter: OsdId(osd),
        silent_ms: 0,
        alive,
        refused: false,
        itself: true,
        stalled: true,
    };
    let mut filter = FailureFilter::default();
    let hosts = BTreeMap::new();
    let down = |filter: &mut FailureFilter| -> Vec<u32> {
        filter
            .verdicts(Time(2), &map, &hosts)
            .iter()
            .map(|down| down.osd.0)
            .collect()
    };
    assert!(filter.report(Time(1), &map, &stall(1, false)));
    assert_eq!(down(&mut filter), [1]);
    assert!(filter.report(Time(1), &map, &stall(2, false)));
    assert!(down(&mut filter).is_empty(), "two of three");
    assert!(
        filter.report(Time(1), &map, &stall(1, true)),
        "it answers again"
    );
    assert_eq!(down(&mut filter), [2]);
}

/// (Planted by a reviewer.) Half of them are not most: of two OSDs one disk hangs, and the other
/// serves.
#[test]
fn half_of_the_disks_may_stall() {
    for osds in [2, 4] {
        let map = map_with_osds(osds);
        let mut filter = FailureFilter::default();
        let half: Vec<u32> = (0..osds as u32 / 2).collect();
        for osd in half.iter().map(|osd| OsdId(*osd)) {
            let instance = map.osds[&osd].instance;
            let (silent_ms, alive, refused, itself, stalled) = (0, false, false, true, true);
            let report = FailureReport {
                target: osd,
                instance,
                reporter: osd,
                silent_ms,
                alive,
                refused,
                itself,
                stalled,
            };
            assert!(filter.report(Time(1), &map, &report));
        }
        let down = filter.verdicts(Time(2), &map, &BTreeMap::new());
        assert_eq!(down.iter().map(|down| down.osd.0).collect::<Vec<_>>(), half);
    }
}
