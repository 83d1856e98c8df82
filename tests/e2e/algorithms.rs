//! Every algorithm, through the filter.

use crate::support::weir::PATIENT;
use crate::support::weir::Statuses;
use crate::support::weir::World;
use crate::support::weir::get;

pub const TESTS: &[(&str, fn())] = &[("max_delay holds requests until their turn", max_delay_holds)];

fn max_delay_holds() {
    let limit =
        r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "10/s", "burst": 1, "max_delay": "300ms"}"#;
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [{limit}]}}]}}"#
    ));
    // One goes at once, three wait for 100, 200 and 300 ms, and there is no place for more.
    assert_eq!(world.burst(10, &get()), Statuses(vec![(200, 4), (429, 6)]));
}
