//! The configuration: what loads, and what is said about what does not.

use weir::config::Config;
use weir::policy::{Mode, OnFailure};
use weir::time::Micros;

const SMALLEST: &str = r#"{"policies": [{"name": "per-client", "limits": [
    {"name": "steady", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 10}]}]}"#;

#[test]
fn the_smallest_useful_configuration_has_every_default() {
    let config = Config::parse(SMALLEST.as_bytes()).unwrap();
    assert_eq!(config.store.cluster, "weir-bridge");
    assert_eq!(config.store.deadline, Micros::from_millis(50));
    assert_eq!(config.store.on_failure, OnFailure::Allow);
    assert!(config.trust.is_connection());
    let policy = &config.policies[0];
    assert_eq!(
        (policy.name.as_str(), policy.mode, policy.enforce_percent),
        ("per-client", Mode::Enforce, 100)
    );
    assert_eq!(policy.subject.len(), 1);
    assert_eq!(policy.tiers.tiers[0].faces[0].quota, 10);
    assert_eq!(policy.tiers.tiers[0].faces[0].window, Some(Micros::from_secs(10)));
}
