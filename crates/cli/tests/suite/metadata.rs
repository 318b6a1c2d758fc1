//! Programs of metadata through the command line, on a cluster of processes whose leader dies in
//! between (MAL-13).

use super::operator::Site;

const POSITIVE: &str = "-- Balances are whole numbers, and positive.
function validate(key, old, new, who, revision)
  if new == nil then
    return false, key .. \" stays\"
  end
  local n = tonumber(new)
  if n == nil or n < 0 then
    error(\"a balance is a number from 0 on\")
  end
  return tostring(math.floor(n))
end
";

const AUDIT: &str = "-- Keeps the last value of every key, and says that it did.
function trigger(name, revision, events)
  local list = {}
  for _, event in events do
    table.insert(list, { put = { \"audit/\" .. string.sub(event.key, 10), event.value or \"\" } })
  end
  table.insert(list, \"audited \" .. events[1].key)
  return list
end
";

fn save(site: &Site, name: &str, text: &str) -> String {
    let file = site.dir().join(name);
    std::fs::write(&file, text).expect("writable");
    file.to_str().expect("readable").to_owned()
}

fn leader(site: &Site) -> String {
    let mut leader = String::new();
    site.until("led", |site| {
        leader = site.json(&["status"])["mons"]["leader"].to_string();
        leader.parse::<u32>().is_ok()
    });
    format!("mon.{leader}")
}

#[test]
fn programs_judge_and_follow_changes_also_after_the_leaders_death() {
    let site = Site::new("metadata", 10);
    site.up(&["--processes", "--mons", "3", "--osds", "1"]);
    let said = site.text(&[
        "meta",
        "program",
        "install",
        "positive",
        &save(&site, "positive.lua", POSITIVE),
    ]);
    assert!(said.starts_with("program positive: revision "), "{said}");
    let broken = save(
        &site,
        "broken.lua",
        "function validate(key)\n  return key ..\nend\n",
    );
    assert!(
        site.fails(&["meta", "program", "install", "positive", &broken])
            .contains("program positive is refused: positive:3:")
    );
    // Only the monitors detect a text that compiles but is not a program.
    let nothing = save(&site, "nothing.lua", "local x = 1\n");
    assert!(
        site.fails(&["meta", "program", "install", "x", &nothing])
            .contains("neither a function `validate(")
    );
    site.text(&[
        "meta",
        "program",
        "install",
        "audit",
        &save(&site, "audit.lua", AUDIT),
    ]);
    let settings =
        r#"{"validator": "positive", "triggers": [{"name": "keep", "program": "audit"}]}"#;
    assert!(
        site.fails(&["meta", "namespace", "balances", r#"{"validator": "gone"}"#])
            .contains("no program `gone`")
    );
    site.text(&["meta", "namespace", "balances", settings]);
    assert!(
        site.fails(&["meta", "program", "rm", "audit"])
            .contains("it is the trigger `keep` of namespace `balances`")
    );

    site.text(&["meta", "put", "balances/ada", "7.9"]);
    assert_eq!(
        site.text(&["meta", "get", "balances/ada"]),
        "7\n",
        "rewritten before it was stored"
    );
    let rejected = site.fails(&["meta", "put", "balances/ada", "-3"]);
    assert!(
        rejected
            .contains("validator positive, line 8, rejects it: a balance is a number from 0 on"),
        "{rejected}"
    );
    let audited = |site: &Site, key: &str, value: &str| {
        let output = site.run(&["meta", "get", key]);
        output.status.success() && output.stdout == value.as_bytes()
    };
    site.until("audited", |site| audited(site, "audit/ada", "7\n"));

    let killed = leader(&site);
    site.kill(&killed);
    // The next leader, which has never run them, has the same rules and programs.
    let rejected = site.fails(&["meta", "put", "balances/ada", "much"]);
    assert!(rejected.contains("line 8, rejects it"), "{rejected}");
    let rejected = site.fails(&["meta", "rm", "balances/ada"]);
    assert!(
        rejected.contains("line 2, rejects it: balances/ada stays"),
        "{rejected}"
    );
    site.text(&["meta", "put", "balances/ada", "12"]);
    site.until("audited", |site| audited(site, "audit/ada", "12\n"));
    assert_ne!(leader(&site), killed);
    let log = site.text(&["log", "last", "100"]);
    assert_eq!(log.matches("audited balances/ada").count(), 2, "{log}");

    let listed = site.json(&["meta", "program", "ls"]);
    let used = |at: usize| {
        (
            listed["programs"][at]["name"].clone(),
            listed["programs"][at]["used"].clone(),
        )
    };
    assert_eq!(used(0), ("audit".into(), "trigger balances/keep".into()));
    assert_eq!(used(1), ("positive".into(), "validator of balances".into()));
    assert_eq!(site.text(&["meta", "program", "show", "audit"]), AUDIT);
    site.text(&["meta", "namespace", "balances", "{}"]);
    site.text(&["meta", "program", "rm", "audit"]);
    assert!(
        site.fails(&["meta", "program", "rm", "audit"])
            .contains("there is no program `audit`")
    );
    site.text(&["meta", "put", "balances/ada", "--", "-3"]);
}
