//! Energy that the machine counts: RAPL, as the kernel's powercap folder shows it, or a battery.
//!
//! RAPL's counters wrap around. [`EnergyMeter::read_uj`] adds the wraps up, so it has to be called at least
//! twice while a counter runs through its range ([`EnergyDomain::range_uj`]; 262 kJ on many servers: 20
//! minutes at 200 W). A counter that seems to have run through more than half of its range since the last
//! call has not wrapped but was set back, by a resume or a reloaded driver: an error, because nobody knows
//! what it counted meanwhile.
//!
//! A battery counts what the whole machine takes, in steps of some milliwatt hours (10 mWh are 36 J), and
//! only while it discharges. Watts from a battery need minutes.
//!
//! Not here: the energy counters of perf (`counters/`), which need no powercap, and what a domain's watts
//! say about an idle state.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::Root;

/// Where zones of RAPL are, and what their folders' names begin with. The second is the same package read
/// by another way; it is used where the first is missing.
const POWERCAP: &str = "sys/class/powercap";
const RAPL_CONTROLS: [&str; 2] = ["intel-rapl:", "intel-rapl-mmio:"];
/// Where batteries are.
const POWER_SUPPLY: &str = "sys/class/power_supply";
/// A watt hour is 3600 J.
const JOULES_PER_WATT_HOUR: u64 = 3_600;

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnergySource {
    /// Counters of the processor.
    Rapl,
    /// A battery that discharges.
    Battery,
}

/// Whose energy a domain counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnergyKind {
    /// A processor package, or a die of one.
    Package,
    /// Part of a package: its cores, its graphics and others. Never add these to packages.
    PartOfPackage,
    /// Memory. Servers do not include it in the package.
    Memory,
    /// The platform (psys), with the packages in it.
    Platform,
    /// The whole machine, on battery.
    Machine,
}

/// A counter of energy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnergyDomain {
    /// Its name, such as `package-0`. Each domain has another one.
    pub name: String,
    /// Its folder's name in sysfs, such as `intel-rapl:0`.
    pub zone: String,
    /// What counts.
    pub source: EnergySource,
    /// Whose energy.
    pub kind: EnergyKind,
    /// Where its counter wraps around; `None` if it does not.
    pub range_uj: Option<u64>,
}

/// Why energy cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnergyError {
    /// The machine has nothing that counts.
    #[error(
        "this machine shows no energy counter: no RAPL in /sys/class/powercap (virtual machines have none; \
         elsewhere, as root: modprobe intel_rapl_msr) and no battery"
    )]
    Absent,
    /// Only root may read RAPL.
    #[error("{}: {source}; since Linux 5.10 only root may read energy counters: run it as root", path.display())]
    NotPermitted {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file has no number, or one outside its range.
    #[error("{}: expected {expected}, found '{found}'", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: String,
        /// What is in it.
        found: String,
    },
    /// The battery does not discharge.
    #[error(
        "the battery {battery} is {status}, so it does not count what the machine takes; unplug the machine"
    )]
    NotDischarging {
        /// The battery.
        battery: String,
        /// What its status says, in lower case.
        status: String,
    },
    /// A counter was set back.
    #[error(
        "the energy counter {domain} went from {before_uj} to {now_uj} uJ, which is no wrap at {range_uj} uJ: it \
         was set back (suspend, driver reloaded) or was not read for too long; measure again"
    )]
    SetBack {
        /// The domain.
        domain: String,
        /// The last count.
        before_uj: u64,
        /// This count.
        now_uj: u64,
        /// Where it would wrap.
        range_uj: u64,
    },
}

/// All counters of energy that a machine has of one source, opened.
#[derive(Debug)]
pub struct EnergyMeter {
    domains: Vec<EnergyDomain>,
    counters: Vec<Counter>,
    used_uj: Vec<u64>,
}

impl EnergyMeter {
    /// Opens RAPL's counters or, where there are none, the batteries.
    ///
    /// # Errors
    /// Fails if there is nothing to open or nothing may be read, with what to do.
    pub fn open(root: &Root) -> Result<Self, EnergyError> {
        match Self::open_source(root, EnergySource::Rapl) {
            Err(EnergyError::Absent) => Self::open_source(root, EnergySource::Battery),
            opened => opened,
        }
    }

    /// Opens the counters of one source.
    ///
    /// # Errors
    /// Fails like [`EnergyMeter::open`].
    pub fn open_source(root: &Root, source: EnergySource) -> Result<Self, EnergyError> {
        let found = match source {
            EnergySource::Rapl => open_rapl(root)?,
            EnergySource::Battery => open_batteries(root)?,
        };
        if found.is_empty() {
            return Err(EnergyError::Absent);
        }
        let used_uj = vec![0; found.len()];
        let (mut domains, counters): (Vec<_>, _) = found.into_iter().unzip();
        tell_apart(&mut domains);
        Ok(EnergyMeter { domains, counters, used_uj })
    }

    /// Returns the domains, parents before their parts.
    pub fn domains(&self) -> &[EnergyDomain] {
        &self.domains
    }

    /// Reads all counters. Returns the energy of each domain since the meter was opened, in microjoules.
    ///
    /// # Errors
    /// Fails if a counter cannot be read or was set back, or a battery no longer discharges.
    pub fn read_uj(&mut self) -> Result<&[u64], EnergyError> {
        for ((domain, counter), used_uj) in
            self.domains.iter().zip(&mut self.counters).zip(&mut self.used_uj)
        {
            counter.read(domain, used_uj)?;
        }
        Ok(&self.used_uj)
    }
}

#[derive(Debug)]
enum Counter {
    Rapl { energy: NumberFile, last_uj: u64 },
    Battery { battery: Battery, start_uj: u64 },
}

impl Counter {
    fn read(&mut self, domain: &EnergyDomain, used_uj: &mut u64) -> Result<(), EnergyError> {
        match self {
            Counter::Rapl { energy, last_uj } => {
                let now_uj = energy.read()?;
                *used_uj += since(domain, *last_uj, now_uj)?;
                *last_uj = now_uj;
            }
            Counter::Battery { battery, start_uj } => {
                let left_uj = battery.left_uj()?;
                // The battery's own estimate may rise a little.
                *used_uj = start_uj.saturating_sub(left_uj).max(*used_uj);
            }
        }
        Ok(())
    }
}

/// What a counter counted from one reading to the next.
fn since(domain: &EnergyDomain, before_uj: u64, now_uj: u64) -> Result<u64, EnergyError> {
    if now_uj >= before_uj {
        return Ok(now_uj - before_uj);
    }
    let range_uj = domain.range_uj.unwrap_or(0);
    // The counter goes to range_uj, and then to 0.
    let counted_uj = range_uj.checked_sub(before_uj).map(|rest_uj| rest_uj + now_uj + 1);
    counted_uj.filter(|&counted_uj| counted_uj <= range_uj / 2).ok_or_else(|| {
        EnergyError::SetBack { domain: domain.name.clone(), before_uj, now_uj, range_uj }
    })
}

type Opened = Vec<(EnergyDomain, Counter)>;

fn open_rapl(root: &Root) -> Result<Opened, EnergyError> {
    let names = root.names(POWERCAP);
    for control in RAPL_CONTROLS {
        let mut zones: Vec<&String> =
            names.iter().filter(|name| zone_number(name, control).is_some()).collect();
        zones.sort_by_key(|name| zone_number(name, control));
        let opened: Opened = zones
            .into_iter()
            .filter_map(|zone| open_zone(root, control, zone).transpose())
            .collect::<Result<_, _>>()?;
        if !opened.is_empty() {
            return Ok(opened);
        }
    }
    Ok(Vec::new())
}

/// The numbers in a zone's name: `intel-rapl:1:0` is part 0 of zone 1.
fn zone_number(name: &str, control: &str) -> Option<Vec<u32>> {
    name.strip_prefix(control)?.split(':').map(|number| number.parse().ok()).collect()
}

/// Puts the package before a name that several domains have: `package-1-dram`. Without a package, the zone.
fn tell_apart(domains: &mut [EnergyDomain]) {
    let all = domains.to_vec();
    for domain in domains {
        if all.iter().filter(|other| other.name == domain.name).count() > 1 {
            let parent = domain.zone.rsplit_once(':').map(|(parent, _)| parent);
            let package = all.iter().find(|other| Some(other.zone.as_str()) == parent);
            let before = package.map_or(&domain.zone, |package| &package.name);
            domain.name = format!("{before}-{}", domain.name);
        }
    }
}

/// `None` if the zone has no counter: a folder without files, or one that only limits power.
fn open_zone(
    root: &Root,
    control: &str,
    zone: &str,
) -> Result<Option<(EnergyDomain, Counter)>, EnergyError> {
    let folder = format!("{POWERCAP}/{zone}");
    let Some(name) = root.text(&format!("{folder}/name")) else { return Ok(None) };
    let Some(energy) = NumberFile::open(root, &format!("{folder}/energy_uj"))? else {
        return Ok(None);
    };
    let is_part = zone_number(zone, control).is_some_and(|numbers| numbers.len() > 1);
    let kind = match name.as_str() {
        "psys" => EnergyKind::Platform,
        "dram" => EnergyKind::Memory,
        _ if is_part => EnergyKind::PartOfPackage,
        _ => EnergyKind::Package,
    };
    let range_uj =
        root.number(&format!("{folder}/max_energy_range_uj")).filter(|&range_uj| range_uj > 0);
    let last_uj = energy.read()?;
    let domain =
        EnergyDomain { name, zone: zone.to_owned(), source: EnergySource::Rapl, kind, range_uj };
    Ok(Some((domain, Counter::Rapl { energy, last_uj })))
}

fn open_batteries(root: &Root) -> Result<Opened, EnergyError> {
    let mut names = root.names(POWER_SUPPLY);
    names.sort();
    let mut opened = Vec::new();
    for name in names {
        let folder = format!("{POWER_SUPPLY}/{name}");
        let text = |file: &str| root.text(&format!("{folder}/{file}"));
        // A mouse has a battery too.
        if text("type").as_deref() != Some("Battery") || text("scope").as_deref() == Some("Device")
        {
            continue;
        }
        let charge = match NumberFile::open(root, &format!("{folder}/energy_now"))? {
            Some(energy) => Charge::MicrowattHours(energy),
            None => {
                let file = |name: &str| NumberFile::open(root, &format!("{folder}/{name}"));
                let (Some(charge), Some(voltage)) = (file("charge_now")?, file("voltage_now")?)
                else {
                    continue;
                };
                Charge::MicroampereHours { charge, voltage }
            }
        };
        let battery = Battery {
            name: name.clone(),
            root: root.clone(),
            status: format!("{folder}/status"),
            charge,
        };
        let start_uj = battery.left_uj()?;
        let domain = EnergyDomain {
            name: name.clone(),
            zone: name,
            source: EnergySource::Battery,
            kind: EnergyKind::Machine,
            range_uj: None,
        };
        opened.push((domain, Counter::Battery { battery, start_uj }));
    }
    Ok(opened)
}

#[derive(Debug)]
struct Battery {
    name: String,
    root: Root,
    /// The file that says whether it discharges.
    status: String,
    charge: Charge,
}

#[derive(Debug)]
enum Charge {
    MicrowattHours(NumberFile),
    MicroampereHours { charge: NumberFile, voltage: NumberFile },
}

impl Battery {
    fn left_uj(&self) -> Result<u64, EnergyError> {
        let status = self.root.text(&self.status).unwrap_or_else(|| "of unknown status".to_owned());
        if status != "Discharging" {
            let status = status.to_lowercase();
            return Err(EnergyError::NotDischarging { battery: self.name.clone(), status });
        }
        let microwatt_hours = match &self.charge {
            Charge::MicrowattHours(energy) => energy.read()?,
            Charge::MicroampereHours { charge, voltage } => {
                let microvolts = u128::from(voltage.read()?);
                (u128::from(charge.read()?) * microvolts / 1_000_000) as u64
            }
        };
        Ok(microwatt_hours.saturating_mul(JOULES_PER_WATT_HOUR))
    }
}

/// A file with a number, which is read again and again.
#[derive(Debug)]
struct NumberFile {
    file: File,
    path: PathBuf,
}

impl NumberFile {
    /// `None` if there is no such file.
    fn open(root: &Root, name: &str) -> Result<Option<Self>, EnergyError> {
        let path = root.path(name);
        match root.open(name) {
            Ok(file) => Ok(Some(NumberFile { file, path })),
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed(&path, source)),
        }
    }

    fn read(&self) -> Result<u64, EnergyError> {
        let mut bytes = [0; 32];
        let byte_count =
            self.file.read_at(&mut bytes, 0).map_err(|source| failed(&self.path, source))?;
        let text = String::from_utf8_lossy(&bytes[..byte_count]).trim().to_owned();
        let content = || EnergyError::Content {
            path: self.path.clone(),
            expected: "a whole number".to_owned(),
            found: text.escape_default().to_string(),
        };
        // The digits that did not fit would make another number.
        let is_whole = byte_count < bytes.len();
        text.parse().ok().filter(|_| is_whole).ok_or_else(content)
    }
}

fn failed(path: &Path, source: io::Error) -> EnergyError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::PermissionDenied => EnergyError::NotPermitted { path, source },
        _ => EnergyError::Read { path, source },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::root::tests::machine;

    const ZONE: &str = "sys/class/powercap/intel-rapl:0";
    const RANGE_UJ: u64 = 262_143_328_850;

    fn rapl() -> (tempfile::TempDir, Root) {
        machine(&[
            ("sys/class/powercap/intel-rapl/enabled", "1\n"),
            ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
            ("sys/class/powercap/intel-rapl:0/energy_uj", "1000\n"),
            ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n"),
            ("sys/class/powercap/intel-rapl:0:0/name", "core\n"),
            ("sys/class/powercap/intel-rapl:0:0/energy_uj", "5\n"),
            ("sys/class/powercap/intel-rapl:0:1/name", "dram\n"),
            ("sys/class/powercap/intel-rapl:0:1/energy_uj", "7\n"),
            ("sys/class/powercap/intel-rapl:10/name", "psys\n"),
            ("sys/class/powercap/intel-rapl:10/energy_uj", "9\n"),
            ("sys/class/powercap/intel-rapl:2/name", "package-1\n"),
            ("sys/class/powercap/intel-rapl:2/energy_uj", "9\n"),
            // The same package by another way, and what is not RAPL.
            ("sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n"),
            ("sys/class/powercap/intel-rapl-mmio:0/energy_uj", "1000\n"),
            ("sys/class/powercap/dtpm:0/name", "package\n"),
        ])
    }

    fn set(root: &Root, value: u64) {
        fs::write(root.path(&format!("{ZONE}/energy_uj")), format!("{value}\n")).unwrap();
    }

    #[test]
    fn lists_each_domain_once_with_what_it_is() {
        let (_folder, root) = rapl();
        let meter = EnergyMeter::open(&root).unwrap();
        let found: Vec<(&str, EnergyKind)> =
            meter.domains().iter().map(|domain| (domain.name.as_str(), domain.kind)).collect();
        let expected = [
            ("package-0", EnergyKind::Package),
            ("core", EnergyKind::PartOfPackage),
            ("dram", EnergyKind::Memory),
            ("package-1", EnergyKind::Package),
            ("psys", EnergyKind::Platform),
        ];
        assert_eq!(found, expected);
        assert_eq!(meter.domains()[0].range_uj, Some(RANGE_UJ));
    }

    #[test]
    fn domains_of_one_name_have_their_package_before_it() {
        let (_folder, root) = rapl();
        for (zone, name) in [("2:0", "dram"), ("11", "psys")] {
            let folder = root.path(&format!("sys/class/powercap/intel-rapl:{zone}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("name"), name).unwrap();
            fs::write(folder.join("energy_uj"), "3").unwrap();
        }
        let meter = EnergyMeter::open(&root).unwrap();
        let found: Vec<&str> = meter.domains().iter().map(|one| one.name.as_str()).collect();
        let expected = [
            "package-0",
            "core",
            "package-0-dram",
            "package-1",
            "package-1-dram",
            "intel-rapl:10-psys",
            "intel-rapl:11-psys",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn wraps_are_added_up() {
        let (_folder, root) = rapl();
        set(&root, RANGE_UJ - 10);
        let mut meter = EnergyMeter::open(&root).unwrap();
        let mut read = |value| {
            set(&root, value);
            meter.read_uj().map(|used_uj| used_uj[0]).map_err(|error| error.to_string())
        };
        assert_eq!(read(RANGE_UJ - 4), Ok(6));
        // Four to the end of the range, one to 0, five more.
        assert_eq!(read(5), Ok(16));
        assert_eq!(read(RANGE_UJ / 2), Ok(16 + RANGE_UJ / 2 - 5));
        assert_eq!(read(RANGE_UJ - 1), Ok(10 + RANGE_UJ));
        assert_eq!(read(9), Ok(10 + RANGE_UJ + 11));
    }

    #[test]
    fn a_counter_that_was_set_back_has_not_wrapped() {
        let (_folder, root) = rapl();
        set(&root, 5_000_000);
        let mut meter = EnergyMeter::open(&root).unwrap();
        set(&root, 400);
        let error = meter.read_uj().unwrap_err().to_string();
        assert!(
            error.starts_with("the energy counter package-0 went from 5000000 to 400 uJ"),
            "{error}"
        );
        assert!(error.ends_with("measure again"), "{error}");
    }

    #[test]
    fn a_counter_without_a_range_that_goes_back_is_an_error() {
        let (_folder, root) = rapl();
        let mut meter = EnergyMeter::open(&root).unwrap();
        fs::write(root.path("sys/class/powercap/intel-rapl:0:0/energy_uj"), "4\n").unwrap();
        assert!(matches!(meter.read_uj(), Err(EnergyError::SetBack { range_uj: 0, .. })));
    }

    #[test]
    fn the_other_way_to_a_package_is_used_where_the_first_is_missing() {
        let (_folder, root) = machine(&[
            ("sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n"),
            ("sys/class/powercap/intel-rapl-mmio:0/energy_uj", "1000\n"),
        ]);
        assert_eq!(EnergyMeter::open(&root).unwrap().domains()[0].zone, "intel-rapl-mmio:0");
    }

    #[test]
    fn nothing_that_counts_says_what_to_do() {
        let (_folder, root) = machine(&[("sys/class/power_supply/AC/type", "Mains\n")]);
        let error = EnergyMeter::open(&root).unwrap_err().to_string();
        assert!(error.contains("no RAPL") && error.contains("no battery"), "{error}");
    }

    #[test]
    fn what_is_no_number_is_named() {
        let (_folder, root) = rapl();
        fs::write(root.path(&format!("{ZONE}/energy_uj")), "many\n").unwrap();
        let error = EnergyMeter::open(&root).unwrap_err().to_string();
        assert!(error.ends_with("energy_uj: expected a whole number, found 'many'"), "{error}");
    }

    #[test]
    fn counters_behind_a_link_that_leads_outside_are_none() {
        let (folder, root) = machine(&[("sys/class/power_supply/AC/type", "Mains\n")]);
        let (elsewhere, _) = rapl();
        let link = folder.path().join("sys/class/powercap");
        symlink(elsewhere.path().join("sys/class/powercap"), &link).unwrap();
        assert!(matches!(EnergyMeter::open(&root), Err(EnergyError::Absent)));
        fs::remove_file(&link).unwrap();
        fs::create_dir(&link).unwrap();
        symlink(elsewhere.path().join(ZONE), link.join("intel-rapl:0")).unwrap();
        assert!(matches!(EnergyMeter::open(&root), Err(EnergyError::Absent)));
    }

    #[test]
    fn a_battery_counts_only_while_it_discharges() {
        let (_folder, root) = machine(&[
            ("sys/class/power_supply/BAT0/type", "Battery\n"),
            ("sys/class/power_supply/BAT0/status", "Discharging\n"),
            ("sys/class/power_supply/BAT0/energy_now", "50000000\n"),
            ("sys/class/power_supply/BAT1/type", "Battery\n"),
            ("sys/class/power_supply/BAT1/status", "Discharging\n"),
            ("sys/class/power_supply/BAT1/charge_now", "4000000\n"),
            ("sys/class/power_supply/BAT1/voltage_now", "12000000\n"),
            ("sys/class/power_supply/hidpp_battery_0/type", "Battery\n"),
            ("sys/class/power_supply/hidpp_battery_0/scope", "Device\n"),
        ]);
        let mut meter = EnergyMeter::open(&root).unwrap();
        let write = |name: &str, text: &str| fs::write(root.path(name), text).unwrap();
        // 10 mWh are 36 J, and so are 1 mAh at 10 V.
        write("sys/class/power_supply/BAT0/energy_now", "49990000\n");
        write("sys/class/power_supply/BAT1/charge_now", "3999000\n");
        assert_eq!(meter.read_uj().unwrap(), [36_000_000, 43_200_000]);
        // Its estimate rises: nothing was given back.
        write("sys/class/power_supply/BAT0/energy_now", "49995000\n");
        assert_eq!(meter.read_uj().unwrap()[0], 36_000_000);
        write("sys/class/power_supply/BAT0/status", "Charging\n");
        let error = meter.read_uj().unwrap_err().to_string();
        assert!(
            error.starts_with("the battery BAT0 is charging")
                && error.ends_with("unplug the machine")
        );
    }
}
