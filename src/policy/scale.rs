// SPDX-License-Identifier: Apache-2.0
//! The factor of a subject's limits, as trusted data of its requests says: a claim of a verified token, or the finding of an earlier filter
//! of Envoy. The number has bounds.

use std::cell::RefCell;
use std::rc::Rc;

use super::cost::number;
use super::subject::{SubjectPart, Value};
use crate::request::Request;
use crate::script::Plan;
use crate::sorted_map::SortedMap;

/// The place of the number, and its bounds.
#[derive(Debug)]
pub struct Scale {
    /// The place of the number.
    pub from: SubjectPart,
    /// The smallest number.
    pub min: u64,
    /// The largest number; at least `min`.
    pub max: u64,
    /// The number of requests that have none.
    pub default: u64,
}

impl Scale {
    /// The number of `request`. If it is not known, as where a header has several lines, the smallest counts.
    #[must_use]
    pub fn of<'a>(&'a self, request: &Request<'a>) -> u64 {
        match self.from.value(request) {
            Value::Is(text) => match number(text.trim_ascii()).or_else(|| whole(&text)) {
                Some(number) => number.clamp(self.min, self.max.max(self.min)),
                None => self.default,
            },
            Value::Absent => self.default,
            Value::Ambiguous => self.min,
        }
    }
}

/// A whole number as Envoy hands over a number of its metadata: a double in eight bytes, little-endian. No number of practical size
/// looks like eight digits.
fn whole(bytes: &[u8]) -> Option<u64> {
    let bits = u64::from_le_bytes(bytes.try_into().ok()?);
    if bits == 0 {
        return Some(0);
    }
    // The sign is part of the exponent here: a negative number has one that is too large.
    let (exponent, fraction) = (bits >> 52, bits & ((1 << 52) - 1) | 1 << 52);
    match exponent.checked_sub(1_023 + 52) {
        Some(more @ 0..=11) => Some(fraction << more),
        Some(_) => None,
        None => {
            let less = u32::try_from((1_023_u64 + 52).checked_sub(exponent)?).ok()?;
            let number = fraction.checked_shr(less)?;
            (number << less == fraction).then_some(number)
        }
    }
}

/// Plans of this many scales of one tier are kept.
const MAX_PLANS: usize = 256;

/// The plans of one tier at other scales than one, as far as they were needed.
#[derive(Debug, Default)]
pub struct ScaledPlans(RefCell<SortedMap<u64, Rc<Plan>>>);

impl ScaledPlans {
    /// `plan` at this scale.
    pub(super) fn plan(&self, plan: &Rc<Plan>, scale: u64) -> Rc<Plan> {
        if scale == 1 {
            return Rc::clone(plan);
        }
        let mut plans = self.0.borrow_mut();
        if let Some(scaled) = plans.get_mut(&scale) {
            return Rc::clone(scaled);
        }
        // The configuration allows no scale at which there is no plan.
        let scaled = plan.scaled(scale).map_or_else(|_| Rc::clone(plan), Rc::new);
        if plans.len() >= MAX_PLANS {
            *plans = SortedMap::default();
        }
        plans.insert(scale, Rc::clone(&scaled));
        scaled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{FixedWindow, Limit};
    use crate::script::{NamedLimit, Options};
    use crate::time::Micros;

    #[test]
    fn whole_numbers_are_told_from_doubles() {
        let rows = [
            (0.0, Some(0)),
            (1.0, Some(1)),
            (2.0, Some(2)),
            (250.0, Some(250)),
            (1e12, Some(1_000_000_000_000)),
            (9_007_199_254_740_993.0, Some(9_007_199_254_740_992)),
            (18_014_398_509_481_984.0, Some(18_014_398_509_481_984)),
            (9_223_372_036_854_775_808.0, Some(1 << 63)),
            (18_446_744_073_709_551_616.0, None),
            (0.5, None),
            (1.5, None),
            (1e-300, None),
            (-1.0, None),
            (-0.0, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
            (f64::NEG_INFINITY, None),
            (f64::MIN_POSITIVE / 2.0, None),
        ];
        for (double, wanted) in rows {
            assert_eq!(whole(&f64::to_le_bytes(double)), wanted, "{double}");
        }
        assert_eq!([whole(b""), whole(b"1234567"), whole(b"123456789")], [None; 3]);
        for text in [b"00000000", b"99999999", b"12345678"] {
            assert_eq!(whole(text), None, "eight digits are no double of practical size");
        }
    }

    #[test]
    fn the_plans_that_are_kept_are_bounded() {
        let limit = FixedWindow::new(1, Micros::from_secs(60), crate::limit::Align::First).unwrap().into();
        let plan =
            Rc::new(Plan::new(vec![NamedLimit { name: "l".into(), limit }], Options::default()).unwrap());
        let plans = ScaledPlans::default();
        let twice = plans.plan(&plan, 2);
        plans.plan(&plan, 3);
        assert!(Rc::ptr_eq(&twice, &plans.plan(&plan, 2)), "it is kept beside others");
        for scale in 1..=3 * MAX_PLANS as u64 {
            let scaled = plans.plan(&plan, scale);
            assert_eq!(scaled.limits().iter().map(Limit::quota).collect::<Vec<_>>(), [scale]);
            assert!(Rc::ptr_eq(&scaled, &plans.plan(&plan, scale)), "one plan for requests of one task");
            assert!(plans.0.borrow().len() <= MAX_PLANS);
        }
        assert!(Rc::ptr_eq(&plan, &plans.plan(&plan, 1)));
    }
}
