//! `--governor` and its options. An option after a `--governor` applies to that one; an option
//! before all of them applies to every file.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use idlewise_lab::input::NamedLog;
use idlewise_lab::target::in_use;
use idlewise_linux::resolve;
use idlewise_plugin::{Confinement, GovernorSource, Kernel};

use crate::error::{Failure, Result};
use crate::governors::Choice;
use crate::role::{BundleRole, Roles, UNCONFINED};

/// The values of `--unconfined`.
const ALL: &str = "all";
const COMPILER: &str = "compiler";

/// Where the help has the options about files.
const FILES_HEADING: &str = "Governors from C files";

/// Adds the default to the help of `--governor`.
pub fn with_default(default: &'static str) -> impl FnOnce(Arg) -> Arg {
    move |arg| {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        arg.help(format!("{help} [default: {default}]"))
    }
}

/// `--governor` and its options.
pub const ROLES: Roles = &[
    (BundleRole::Governor, &["governor"]),
    (BundleRole::Patch, &["patch"]),
    (BundleRole::Plain, &["kernel"]),
    (BundleRole::KernelSource, &["kernel-source"]),
    (UNCONFINED, &["unconfined"]),
];

/// The governors that the user named, in order.
#[derive(Clone, Debug, Default)]
pub struct GovernorArguments {
    asked: Vec<Asked>,
    /// What of files is confined.
    confinement: Confinement,
}

/// A single `--governor`.
#[derive(Clone, Debug, Default)]
struct Asked {
    name: String,
    patch: Option<String>,
    kernel: Option<String>,
    kernel_source: Option<String>,
}

/// A governor that a file names, with paths as the user would give them.
#[derive(Default, PartialEq, Eq)]
pub struct NamedFile {
    pub name: String,
    pub patch: Option<String>,
    pub kernel: Option<String>,
    pub kernel_source: Option<String>,
}

impl GovernorArguments {
    /// The governors of a manifest.
    pub fn of_files(files: impl IntoIterator<Item = NamedFile>) -> Self {
        let asked = |NamedFile { name, patch, kernel, kernel_source }| Asked {
            name,
            patch,
            kernel,
            kernel_source,
        };
        GovernorArguments {
            asked: files.into_iter().map(asked).collect(),
            confinement: Confinement::All,
        }
    }

    /// Returns whether the user named none.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Returns how many the user named.
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// Returns the named files: governors and patches.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let governors = self.asked.iter().filter(|asked| asked.is_file());
        governors
            .flat_map(|asked| [Some(&asked.name), asked.patch.as_ref()])
            .flatten()
            .map(PathBuf::from)
    }

    /// Like [`GovernorArguments::choices`], with `names` as the default.
    pub fn choices_or(&self, names: &[&str]) -> Result<Vec<Choice>> {
        match self.is_empty() {
            true => names.iter().map(|name| Choice::parse(name)).collect(),
            false => self.choices(),
        }
    }

    /// Adds the governor that was in use while the logs were recorded to the default ones, if it is not among them.
    pub fn with_in_use(&self, mut choices: Vec<Choice>, logs: &[NamedLog]) -> Vec<Choice> {
        let in_use = in_use(logs, None);
        // `menu` stands for one version of it.
        let is_it = |choice: &Choice| {
            let name = choice.name();
            name == in_use.exact || resolve(&name).is_some_and(|spec| spec.id == in_use.exact)
        };
        let is_missing = self.is_empty() && in_use.is_recorded && !choices.iter().any(is_it);
        // A governor that nobody knows here is left to the verdict, which names it.
        if let (true, Ok(choice)) = (is_missing, Choice::parse(&in_use.exact)) {
            choices.insert(0, choice);
        }
        choices
    }

    /// Finds or compiles each governor.
    pub fn choices(&self) -> Result<Vec<Choice>> {
        let labels = labels(&self.asked);
        let choices = self.asked.iter().zip(labels);
        choices.map(|(asked, label)| asked.choice(label, self.confinement)).collect()
    }
}

impl Asked {
    fn is_file(&self) -> bool {
        GovernorSource::is_path(&self.name)
    }

    fn choice(&self, label: String, confinement: Confinement) -> Result<Choice> {
        if !self.is_file() {
            if self.patch.is_some() {
                return Err(Failure::new(format_args!(
                    "--patch goes with a governor's file, and {} is built in; name the file: \
                     --governor menu.c --patch FILE",
                    self.name
                )));
            }
            return Choice::parse(&self.name);
        }
        for file in [Some(&self.name), self.patch.as_ref()].into_iter().flatten() {
            if fs::metadata(file).is_ok_and(|found| found.file_type().is_fifo()) {
                return Err(Failure::new(format_args!(
                    "{file}: a pipe, and the compiler reads a file more than once; save what it gives"
                )));
            }
        }
        let is_library = self.name.ends_with(".so");
        if is_library && self.patch.is_some() {
            return Err(Failure::new(format_args!(
                "{}: --patch needs the .c file; a shared object is compiled already",
                self.name
            )));
        }
        let path = |text: &Option<String>| text.as_ref().map(PathBuf::from);
        let source = GovernorSource {
            path: PathBuf::from(&self.name),
            patch: path(&self.patch),
            kernel: self.kernel.as_deref().map(Kernel::parse).transpose()?,
            kernel_source: path(&self.kernel_source),
            fixed_hz: None,
        };
        let mut origin = self.name.clone();
        if let Some(patch) = &self.patch {
            origin += &format!(" with {patch}");
        }
        if !is_library {
            origin += ", compiled here";
        }
        Choice::load(&source, label, origin, confinement)
    }

    /// The name in results, with `depth` folders of the path.
    fn label(&self, depth: usize) -> String {
        if !self.is_file() {
            return self.name.clone();
        }
        let name = self.name.trim_end_matches('/');
        let parts: Vec<&str> = name.split('/').filter(|part| *part != ".").collect();
        let mut label = parts[parts.len().saturating_sub(1 + depth)..].join("/");
        if !name.ends_with(".c") && !name.ends_with(".so") {
            // A folder called menu isn't the built-in governor.
            label += "/";
        }
        if let Some(patch) = &self.patch {
            let stem = Path::new(patch).file_stem().unwrap_or_default();
            label += &format!("+{}", stem.to_string_lossy());
        }
        label
    }
}

/// A short, unique name for each. If files have equal names, folders are added as far as needed,
/// then the kernel, then a number.
fn labels(asked: &[Asked]) -> Vec<String> {
    let longest = asked.iter().map(|asked| asked.name.matches('/').count()).max().unwrap_or(0);
    let with = |label: &dyn Fn(usize) -> String| (0..asked.len()).map(label).collect::<Vec<_>>();
    let is_twin = |labels: &[String], i: usize| {
        asked[i].is_file() && labels.iter().filter(|label| **label == labels[i]).count() > 1
    };
    let mut labels = with(&|i| asked[i].label(0));
    for depth in 1..=longest {
        labels =
            with(&|i| if is_twin(&labels, i) { asked[i].label(depth) } else { labels[i].clone() });
    }
    labels = with(&|i| match &asked[i].kernel {
        Some(kernel) if is_twin(&labels, i) => format!("{}@{kernel}", labels[i]),
        _ => labels[i].clone(),
    });
    with(&|i| {
        let earlier = labels[..i].iter().filter(|label| **label == labels[i]).count();
        if is_twin(&labels, i) && earlier > 0 {
            format!("{}#{}", labels[i], earlier + 1)
        } else {
            labels[i].clone()
        }
    })
}

impl clap::FromArgMatches for GovernorArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = |id: &'static str| {
            let indices = matches.indices_of(id).into_iter().flatten();
            let texts = matches.get_many::<String>(id).into_iter().flatten().cloned();
            indices.zip(texts).map(move |(index, text)| (index, id, text))
        };
        let mut all: Vec<_> =
            ["governor", "patch", "kernel", "kernel-source"].into_iter().flat_map(values).collect();
        all.sort_by_key(|&(index, ..)| index);
        let mut before = Asked::default();
        let mut asked: Vec<Asked> = Vec::new();
        for (_, id, text) in all {
            if id == "governor" {
                let is_file = GovernorSource::is_path(&text);
                let common = if is_file { before.clone() } else { Asked::default() };
                asked.push(Asked { name: text, ..common });
                continue;
            }
            let to = asked.last_mut().unwrap_or(&mut before);
            match id {
                "patch" => to.patch = Some(text),
                "kernel" => to.kernel = Some(text),
                _ => to.kernel_source = Some(text),
            }
        }
        let confinement = match matches.get_one::<String>("unconfined").map(String::as_str) {
            None => Confinement::All,
            Some(COMPILER) => Confinement::Code,
            Some(_) => Confinement::None,
        };
        Ok(GovernorArguments { asked, confinement })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for GovernorArguments {
    fn augment_args(command: Command) -> Command {
        let option = |id: &'static str, value: &'static str, help: &'static str| {
            Arg::new(id).long(id).value_name(value).help(help).action(ArgAction::Append)
        };
        let of_files =
            |arg: Arg| arg.requires("governor").help_heading(FILES_HEADING).hide_short_help(true);
        command
            .arg(option(
                "governor",
                "NAME|FILE",
                "A governor (`idlewise governors` lists them), or a file with one: a C file, a FOLDER/ of C files or a shared object (.so); may be repeated",
            ))
            .arg(of_files(option(
                "patch",
                "FILE",
                "Apply this patch to a copy of the preceding --governor's C file",
            )))
            .arg(of_files(option(
                "kernel",
                "VERSION",
                "The kernel that the preceding C file is for: 6.1, 6.6, 6.12, 6.18 or 7.2 [default: 6.12]",
            )))
            .arg(of_files(option(
                "kernel-source",
                "DIR",
                "Kernel source tree that contains the preceding C file, such as menu.c, and its headers. Before any \
                 --governor, this option applies to all",
            )))
            .arg(of_files(
                Arg::new("unconfined")
                    .long("unconfined")
                    .value_name("WHAT")
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value(ALL)
                    .value_parser([ALL, COMPILER])
                    .hide_possible_values(true)
                    .help(
                        "Compile and run C files and shared objects without a sandbox, with all your \
                         privileges; `=compiler` does this for compilation only. For files that you trust",
                    ),
            ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn parse(line: &str) -> GovernorArguments {
        let command = GovernorArguments::augment_args(Command::new("x").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        GovernorArguments::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn options_are_about_the_governor_before_them() {
        let arguments = parse(
            "--kernel 6.1 --governor a.c --patch p --governor menu --governor b.c --kernel 6.12",
        );
        let [a, menu, b] = arguments.asked.try_into().unwrap();
        assert_eq!((a.patch.as_deref(), a.kernel.as_deref()), (Some("p"), Some("6.1")));
        assert_eq!((menu.patch, menu.kernel), (None, None));
        assert_eq!((b.patch, b.kernel.as_deref()), (None, Some("6.12")));
    }

    #[test]
    fn names_are_short_and_different() {
        let named = |line| labels(&parse(line).asked);
        assert_eq!(named("--governor ./x/menu.c --governor menu"), ["menu.c", "menu"]);
        assert_eq!(
            named("--governor ./menu --governor menu --governor x/nap/ --governor y/nap"),
            ["menu/", "menu", "x/nap/", "y/nap/"]
        );
        assert_eq!(
            named(
                "--governor a/menu.c --governor b/menu.c --governor b/menu.c --patch d/min.patch"
            ),
            ["a/menu.c", "b/menu.c", "menu.c+min"]
        );
        assert_eq!(
            named(
                "--governor m.c --kernel 6.1 --governor m.c --kernel 6.12 --governor m.c --kernel 6.1"
            ),
            ["m.c@6.1", "m.c@6.12", "m.c@6.1#2"]
        );
    }
}
