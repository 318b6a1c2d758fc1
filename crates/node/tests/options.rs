//! Options that the monitors check and the OSDs use: two tables, which only this crate sees
//! together.

use nacre_mon::options::{self, Kind};
use nacre_osd::{Limits, Timing};

#[test]
fn the_monitors_table_has_every_option_of_the_osds_with_the_same_bounds_and_default() {
    for option in nacre_osd::options::OPTIONS {
        let spec = options::find(option.name)
            .unwrap_or_else(|| panic!("the monitors do not know {}", option.name));
        assert_eq!(
            spec.kind,
            Kind::Whole {
                min: option.min,
                max: option.max
            },
            "{}",
            option.name
        );
        let default = (option.get)(&Timing::default(), &Limits::default());
        assert_eq!(spec.default, default.to_string(), "{}", option.name);
    }
    // One belongs to the monitors, although it concerns OSDs.
    let of_osds = options::OPTIONS
        .iter()
        .filter(|spec| spec.name.starts_with("osd."));
    assert_eq!(of_osds.count(), nacre_osd::options::OPTIONS.len() + 1);
}
