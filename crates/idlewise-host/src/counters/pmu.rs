//! A counting unit of perf as sysfs shows it (Documentation/ABI/testing/sysfs-bus-event_source-devices-*):
//! its type, the CPUs on which it counts, its events as text, and which bits of which word each part of
//! an event's text stands for.

use crate::Root;
use crate::root::cpu_list;

/// A counting unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    name: String,
    /// The number to open it by.
    pub type_number: u32,
    /// The CPUs on which it is opened; `None` for each online one.
    pub cpus: Option<Vec<u16>>,
}

/// An event as perf_event_open takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The first word.
    pub config: u64,
    /// The second word.
    pub config1: u64,
    /// The third word.
    pub config2: u64,
}

impl Pmu {
    /// Reads a unit; `None` if the machine has none of that name.
    pub fn read(root: &Root, name: &str) -> Option<Self> {
        let folder = folder(name);
        let type_number = root.text(&format!("{folder}/type"))?.parse().ok()?;
        // Units of cores of one kind list their CPUs in `cpus`, those of packages one each in `cpumask`.
        let list = |file: &str| root.text(&format!("{folder}/{file}"));
        let cpus = list("cpumask").or_else(|| list("cpus")).map(|list| cpu_list(&list));
        Some(Pmu { name: name.to_owned(), type_number, cpus: cpus.filter(|cpus| !cpus.is_empty()) })
    }

    /// Returns the event that sysfs names so; `None` if there is none, or if it is not understood.
    pub fn named(&self, root: &Root, event: &str) -> Option<Event> {
        let text = root.text(&format!("{}/events/{event}", folder(&self.name)))?;
        self.event(root, &text)
    }

    /// Converts an event's text, such as `event=0xec,umask=0x20`.
    pub fn event(&self, root: &Root, text: &str) -> Option<Event> {
        let mut event = Event::default();
        for term in text.split(',') {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            let value = number(value.trim())?;
            match name.trim() {
                "config" => event.config |= value,
                "config1" => event.config1 |= value,
                "config2" => event.config2 |= value,
                name => {
                    let format = root.text(&format!("{}/format/{name}", folder(&self.name)))?;
                    place(&mut event, &format, value)?;
                }
            }
        }
        Some(event)
    }

    /// Returns how many of its unit one count of an event is, if sysfs says so.
    pub fn scale(&self, root: &Root, event: &str) -> Option<(f64, String)> {
        let file =
            |ending: &str| root.text(&format!("{}/events/{event}.{ending}", folder(&self.name)));
        let scale: f64 = file("scale")?.parse().ok()?;
        (scale.is_finite() && scale > 0.0).then_some((scale, file("unit")?))
    }
}

fn folder(name: &str) -> String {
    format!("sys/bus/event_source/devices/{name}")
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Sets the bits that a format such as `config:0-7,32-35` names, the value's lowest bits first.
fn place(event: &mut Event, format: &str, mut value: u64) -> Option<()> {
    let (word, ranges) = format.split_once(':')?;
    let word = match word {
        "config" => &mut event.config,
        "config1" => &mut event.config1,
        "config2" => &mut event.config2,
        _ => return None,
    };
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last > 63 {
            return None;
        }
        for bit in first..=last {
            *word |= (value & 1) << bit;
            value >>= 1;
        }
    }
    // A value that does not fit would be another event.
    (value == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn an_events_parts_are_placed_where_the_format_says() {
        let folder = "sys/bus/event_source/devices/cpu";
        let (_folder, root) = machine(&[
            (&format!("{folder}/type"), "4\n"),
            (&format!("{folder}/format/event"), "config:0-7,32-35\n"),
            (&format!("{folder}/format/umask"), "config:8-15\n"),
            (&format!("{folder}/format/edge"), "config:18\n"),
            (&format!("{folder}/format/ldlat"), "config1:0-15\n"),
            (&format!("{folder}/format/odd"), "config7:0\n"),
            (&format!("{folder}/events/cycles"), "event=0x3c\n"),
            (&format!("{folder}/events/cycles.scale"), "2.5e-1\n"),
            (&format!("{folder}/events/cycles.unit"), "Joules\n"),
        ]);
        let pmu = Pmu::read(&root, "cpu").unwrap();
        assert_eq!((pmu.type_number, &pmu.cpus), (4, &None));
        assert_eq!(pmu.named(&root, "cycles").unwrap().config, 0x3c);
        assert_eq!(pmu.scale(&root, "cycles"), Some((0.25, "Joules".to_owned())));
        let event = |text| pmu.event(&root, text);
        assert_eq!(event("event=0xec,umask=0x20").unwrap().config, 0x20ec);
        assert_eq!(
            event("event=0x5ec,edge,ldlat=3").map(|e| (e.config, e.config1)),
            Some((0x5_0004_00ec, 3))
        );
        assert_eq!(event("config=0x1234").unwrap().config, 0x1234);
        for text in ["event=0x10000", "nothing=1", "event=x", "odd=1", ""] {
            assert_eq!(event(text), None, "{text}");
        }
        assert_eq!(Pmu::read(&root, "power"), None);
    }
}
