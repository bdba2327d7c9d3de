//! Profiles of tuned: sections with options, what they include, and variables.
//!
//! An included profile comes first, and the options of the one that includes it override those of the same section. A
//! profile that includes its own name means the one of that name in the next folder.

use std::path::{Path, PathBuf};

use idlewise_machine::nearest_name;

use super::wishes::{Profile, ProfileError, Wish, text};
use crate::Root;

/// Where tuned looks for profiles, the first first. It has the folders `profiles` since 2.23.
const FOLDERS: [&str; 4] =
    ["etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned"];

/// The folder of the files that its plug-in `sysfs` writes.
const CPU_FOLDER: &str = "/sys/devices/system/cpu/";

/// An option: its section, name, value, and the file that it is from.
struct Entry {
    section: String,
    name: String,
    value: String,
    path: PathBuf,
}

/// What was read so far.
struct Reader<'a> {
    root: &'a Root,
    /// Beside this folder there may be included profiles too.
    beside: Option<PathBuf>,
    read: Vec<PathBuf>,
    entries: Vec<Entry>,
}

/// Reads the profile of that name.
pub(super) fn named(root: &Root, name: &str) -> Result<Profile, ProfileError> {
    let mut reader = Reader { root, beside: None, read: Vec::new(), entries: Vec::new() };
    reader.add_named(name, None)?;
    let mut profile = reader.profile(format!("tuned:{name}"));
    match root.text("etc/tuned/active_profile") {
        Some(active) if active != name => {
            profile.notes.push(format!("the active profile of tuned is {active}, not {name}"));
        }
        Some(_) => {}
        None => profile.notes.push(
            "tuned does not say which profile is active (/etc/tuned/active_profile)".to_owned(),
        ),
    }
    Ok(profile)
}

/// Reads a profile's file.
pub(super) fn of_file(root: &Root, path: &Path, text: &str) -> Result<Profile, ProfileError> {
    let beside = path.parent().and_then(Path::parent).map(Path::to_owned);
    let mut reader = Reader { root, beside, read: vec![path.to_owned()], entries: Vec::new() };
    reader.add(path, text, &path.display().to_string())?;
    Ok(reader.profile(path.display().to_string()))
}

impl Reader<'_> {
    fn add_named(&mut self, name: &str, by: Option<&str>) -> Result<(), ProfileError> {
        let folders = FOLDERS.map(|folder| self.root.path(folder));
        let places =
            folders.iter().chain(&self.beside).map(|folder| folder.join(name).join("tuned.conf"));
        let is_name = !name.is_empty() && !name.contains('/');
        let Some(path) =
            places.filter(|_| is_name).find(|path| path.is_file() && !self.read.contains(path))
        else {
            // tuned, too, reads each file once.
            if by.is_some()
                && self
                    .read
                    .iter()
                    .any(|path| path.parent().is_some_and(|folder| folder.ends_with(name)))
            {
                return Ok(());
            }
            return Err(ProfileError::NoProfile {
                name: name.to_owned(),
                folders: FOLDERS.map(|folder| format!("/{folder}")).join(", "),
                included: by.map_or(String::new(), |by| format!("; {by} includes it")),
                hint: self.hint(name),
            });
        };
        self.read.push(path.clone());
        let text = text(&path)?;
        self.add(&path, &text, name)
    }

    /// Suggests a profile that there is.
    fn hint(&self, name: &str) -> String {
        let folders = FOLDERS.map(|folder| self.root.path(folder));
        let entries =
            folders.iter().chain(&self.beside).filter_map(|folder| folder.read_dir().ok());
        let profiles =
            entries.flatten().flatten().filter(|entry| entry.path().join("tuned.conf").is_file());
        let names: Vec<String> =
            profiles.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let nearest = nearest_name(name, names.iter().map(String::as_str));
        nearest.map_or(String::new(), |nearest| format!("; did you mean '{nearest}'?"))
    }

    fn add(&mut self, path: &Path, text: &str, name: &str) -> Result<(), ProfileError> {
        let options = options(text);
        let of = |section: &str, name: &str| {
            let found = options.iter().rev().find(|one| one.0 == section && one.1 == name);
            found.map(|(_, _, value)| value.clone())
        };
        for included in of("main", "include").unwrap_or_default().split([',', ';']) {
            if !included.trim().is_empty() {
                self.add_named(&self.expanded(included.trim()), Some(name))?;
            }
        }
        for (section, name, value) in options {
            if name == "replace" && value == "1" {
                self.entries.retain(|entry| entry.section != section);
            }
            if section == "variables" && name == "include" {
                // A file of variables that is absent is no error to tuned either.
                let file = self.root.path(self.expanded(&value).trim_start_matches('/'));
                let text = self::text(&file).unwrap_or_default();
                for (_, name, value) in self::options(&text) {
                    self.set("variables", name, value, &file);
                }
                continue;
            }
            self.set(&section, name, value, path);
        }
        Ok(())
    }

    fn set(&mut self, section: &str, name: String, value: String, path: &Path) {
        let section = section.to_owned();
        self.entries.retain(|entry| entry.section != section || entry.name != name);
        self.entries.push(Entry { section, name, value, path: path.to_owned() });
    }

    /// The text with its variables replaced. What tuned computes (`${f:...}`) stays as it is.
    fn expanded(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // A variable may contain others.
        for _ in 0..8 {
            for entry in self.entries.iter().filter(|entry| entry.section == "variables") {
                text = text.replace(&format!("${{{}}}", entry.name), &entry.value);
            }
        }
        text
    }

    fn profile(self, name: String) -> Profile {
        let mut profile = Profile { name, form: "tuned profile", ..Profile::default() };
        let plugin = |section: &str| {
            let of_section = |entry: &&Entry| entry.section == section && entry.name == "type";
            self.entries
                .iter()
                .find(of_section)
                .map_or(section.to_owned(), |entry| entry.value.clone())
        };
        for Entry { section, name, value, path } in &self.entries {
            let value = self.expanded(value);
            let source = format!("{} [{section}]", path.display());
            let setting = format!("{name}={value}");
            let wish = match (plugin(section).as_str(), name.as_str()) {
                ("cpu", "force_latency") => Wish::MachineLatency(value),
                ("cpu", "pm_qos_resume_latency_us") => Wish::CpuLatency(value),
                ("sysfs", file) if file.starts_with(CPU_FOLDER) => {
                    let file = &file[CPU_FOLDER.len()..];
                    let is_idle =
                        file.contains("cpuidle") || file.ends_with("pm_qos_resume_latency_us");
                    if !is_idle {
                        continue;
                    }
                    Wish::File(file.to_owned(), value)
                }
                ("bootloader", option) if option.starts_with("cmdline") => {
                    // `-` removes parameters that another profile added.
                    if let Some(added) = value
                        .strip_prefix('+')
                        .or(Some(&*value))
                        .filter(|value| !value.starts_with('-'))
                    {
                        profile.add_parameters(&source, added);
                    }
                    continue;
                }
                _ => continue,
            };
            profile.wishes.push((source, setting, wish));
        }
        profile
    }
}

/// The options of a file: section, name and value.
fn options(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut options = Vec::new();
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((name, value)) = line.split_once('=') {
            options.push((section.clone(), name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    options
}
