//! The conditions of `idlewise why --fail-if`.

use idlewise_host::settings::parse_limit;
use idlewise_report::why::{Condition, Measure};

use crate::error::did_you_mean;

/// Parses a condition such as `too-deep>8%`, `residency:C6<20%` or `wake-latency>50us`.
pub(super) fn condition(text: &str) -> Result<Condition, String> {
    let at = text.find(['>', '<', '=']).ok_or_else(|| {
        format!("'{text}' has no limit; give a condition such as 'too-deep>8%', in quotes")
    })?;
    let (what, rest) = text.split_at(at);
    let (operator, limit) = rest.split_at(1);
    let measure = match (what, what.split_once(':')) {
        ("too-deep", _) => Measure::TooDeep,
        ("too-shallow", _) => Measure::TooShallow,
        ("wake-latency", _) => Measure::WakeLatency,
        (_, Some(("residency", state))) if !state.is_empty() => {
            Measure::Residency(state.to_owned())
        }
        _ => {
            let known = ["too-deep", "too-shallow", "wake-latency", "residency:STATE"];
            let all = "there are too-deep, too-shallow, residency:STATE and wake-latency";
            return Err(format!("'{what}' is not known; {}", did_you_mean(what, known, all)));
        }
    };
    let limit = match measure {
        Measure::WakeLatency => match parse_limit(limit)? {
            Some(limit) => limit.as_nanos() as f64,
            None => return Err("give a latency, such as 50us".to_owned()),
        },
        _ => limit
            .strip_suffix('%')
            .and_then(|percent| percent.trim().parse::<f64>().ok())
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(|percent| percent / 100.0)
            .ok_or_else(|| format!("'{limit}' is no share; give 0% to 100%, such as 8%"))?,
    };
    let fails_above = match operator {
        "=" => !matches!(measure, Measure::Residency(_)),
        operator => operator == ">",
    };
    Ok(Condition { text: text.to_owned(), measure, fails_above, limit })
}
