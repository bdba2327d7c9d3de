//! What CPUID says, read from a dump.
//!
//! Three formats are understood, because most published dumps have one of them: the lines of `cpuid -r`,
//! those of InstLatx64 and AIDA64 (`CPUID 00000005: 00000040-00000040-00000003-00000011`), and libcpuid's
//! (`basic_cpuid[5]=00000040 00000040 00000003 00000011`). Other lines are ignored. Of a dump with many
//! CPUs the first counts, as the kernel asks its boot CPU.

use idlewise_core::words;
use std::fmt;

use super::{BootFacts, Fact, Source, Xen};

words! {
    /// Who made a CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Vendor {
        /// `GenuineIntel`.
        Intel = "Intel",
        /// `AuthenticAMD`.
        Amd = "AMD",
        /// `HygonGenuine`.
        Hygon = "Hygon",
        /// Another.
        Other = "other",
    }
}

impl Vendor {
    /// Reads the name that CPUID and `/proc/cpuinfo` show.
    pub fn from_name(name: &[u8]) -> Self {
        match name {
            b"GenuineIntel" => Self::Intel,
            b"AuthenticAMD" => Self::Amd,
            b"HygonGenuine" => Self::Hygon,
            _ => Self::Other,
        }
    }
}

/// A CPU's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuModel {
    /// Who made it.
    pub vendor: Vendor,
    /// Family, with the extended part.
    pub family: u32,
    /// Model, with the extended part.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
}

impl CpuModel {
    /// Decodes EAX of leaf 1.
    pub const fn from_signature(vendor: Vendor, eax: u32) -> Self {
        let (family, model) = (eax >> 8 & 0xf, eax >> 4 & 0xf);
        let extended_family = if family == 0xf { eax >> 20 & 0xff } else { 0 };
        let extended_model = if family >= 6 { eax >> 16 & 0xf } else { 0 };
        CpuModel {
            vendor,
            family: family + extended_family,
            model: model | extended_model << 4,
            stepping: eax & 0xf,
        }
    }

    /// Whether firmware can limit its CPUID, which Linux undoes.
    pub(super) fn has_cpuid_limit(self) -> bool {
        self.vendor == Vendor::Intel && (self.family, self.model) >= (6, 0xd)
    }
}

impl fmt::Display for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CpuModel { vendor, family, model, stepping } = self;
        write!(f, "{} family {family:#x}, model {model:#x}, stepping {stepping}", vendor.as_str())
    }
}

/// What CPUID leaf 5 says about MWAIT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MwaitLeaf {
    /// ECX bit 0: the leaf enumerates extensions, so its EDX means something.
    pub enumerates_extensions: bool,
    /// ECX bit 1: masked interrupts can end MWAIT.
    pub breaks_on_interrupt: bool,
    /// EDX: four bits for each C-state, C0 first.
    pub substate_counts: u32,
}

impl MwaitLeaf {
    /// Decodes the registers.
    pub const fn new(ecx: u32, edx: u32) -> Self {
        MwaitLeaf {
            enumerates_extensions: ecx & 1 != 0,
            breaks_on_interrupt: ecx & 2 != 0,
            substate_counts: edx,
        }
    }

    /// The number of C1 substates.
    pub const fn c1_substate_count(self) -> u32 {
        self.substate_counts >> 4 & 0xf
    }
}

/// What KVM offers a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kvm {
    /// The hypervisor is KVM.
    pub is_kvm: bool,
    /// The guest's CPUs are never preempted for long (`KVM_HINTS_REALTIME`).
    pub is_realtime: bool,
}

/// Why a dump cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpError {
    /// No line has this leaf.
    NoLeaf(u32),
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLeaf(leaf) => write!(
                f,
                "no CPUID leaf {leaf:#x}: expected lines like those of `cpuid -1 -r`, \
                 0x00000005 0x00: eax=0x00000040 ebx=0x00000040 ecx=0x00000003 edx=0x00000011"
            ),
        }
    }
}

impl std::error::Error for DumpError {}

/// EAX, EBX, ECX and EDX.
pub type Registers = [u32; 4];

/// The leaves that the choice of an idle routine depends on.
pub const LEAVES: [(u32, u32); 9] = [
    (0, 0),
    (1, 0),
    (5, 0),
    (0xb, 0),
    (0x21, 0),
    (0x4000_0000, 0),
    (0x4000_0001, 0),
    (0x8000_0001, 0),
    (0x8000_001e, 0),
];

/// Those leaves of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpuid {
    leaves: [Option<Registers>; LEAVES.len()],
}

impl Cpuid {
    /// Reads a dump.
    ///
    /// # Errors
    /// Fails if leaf 0 or 1 is missing.
    pub fn parse(dump: &str) -> Result<Self, DumpError> {
        let mut found = Cpuid::default();
        for (leaf, subleaf, registers) in dump.lines().filter_map(entry) {
            if found.leaf(leaf, subleaf).is_none() {
                found.set(leaf, subleaf, registers);
            }
        }
        for leaf in [0, 1] {
            found.leaf(leaf, 0).ok_or(DumpError::NoLeaf(leaf))?;
        }
        Ok(found)
    }

    /// Sets a leaf. Leaves that do not matter are ignored.
    pub fn set(&mut self, leaf: u32, subleaf: u32, registers: Registers) {
        if let Some(index) = LEAVES.iter().position(|known| *known == (leaf, subleaf)) {
            self.leaves[index] = Some(registers);
        }
    }

    /// A leaf, if it is one of [`LEAVES`] and was dumped.
    pub fn leaf(&self, leaf: u32, subleaf: u32) -> Option<Registers> {
        let index = LEAVES.iter().position(|known| *known == (leaf, subleaf))?;
        self.leaves[index]
    }

    /// A leaf that the CPU says it has. Beyond its highest leaf a CPU may answer with another's.
    fn valid_leaf(&self, leaf: u32) -> Option<Registers> {
        let highest = self.leaf(0, 0)?[0];
        self.leaf(leaf, 0).filter(|_| leaf <= highest)
    }

    /// Adds what the dump says to `facts`, and replaces what was there.
    pub fn facts(&self, mut facts: BootFacts) -> BootFacts {
        let Some([max_leaf, b, c, d]) = self.leaf(0, 0) else { return facts };
        let Some([signature, _, features, _]) = self.leaf(1, 0) else { return facts };
        let vendor = Vendor::from_name(&name([b, d, c]));
        let fact = |leaf, is| Some(Fact::new(is, Source::Leaf(leaf)));
        facts.max_leaf = Some(Fact::new(max_leaf, Source::Leaf(0)));
        let cpu = CpuModel::from_signature(vendor, signature);
        facts.cpu = Some(Fact::new(cpu, Source::Leaf(1)));
        facts.has_mwait = fact(1, features & 1 << 3 != 0);
        let is_guest = features & 1 << 31 != 0;
        facts.is_guest = fact(1, is_guest);
        facts.leaf5 = self
            .valid_leaf(5)
            .map(|[_, _, ecx, edx]| Fact::new(MwaitLeaf::new(ecx, edx), Source::Leaf(5)));
        facts.is_tdx_guest = match self.valid_leaf(0x21) {
            Some([_, b, c, d]) => fact(0x21, name([b, d, c]) == *b"IntelTDX    "),
            // A guest's dump may have been cut.
            None if is_guest && max_leaf >= 0x21 => facts.is_tdx_guest,
            None => fact(0, false),
        };
        if let Some([_, _, ecx, _]) = self.leaf(0x8000_0001, 0) {
            facts.has_osvw = fact(0x8000_0001, ecx & 1 << 9 != 0);
            facts.has_topoext = fact(0x8000_0001, ecx & 1 << 22 != 0);
        }
        facts.has_smt = self.has_smt(max_leaf).or(facts.has_smt);
        let hypervisor = self.leaf(0x4000_0000, 0).filter(|_| is_guest);
        let hypervisor = hypervisor.map(|[_, b, c, d]| name([b, c, d]));
        facts.kvm = match hypervisor {
            _ if !is_guest => Some(Fact::new(Kvm::default(), Source::Leaf(1))),
            None => facts.kvm,
            Some(name) => {
                let is_kvm = name.starts_with(b"KVMKVMKVM");
                let hints = self.leaf(0x4000_0001, 0).map_or(0, |leaf| leaf[3]);
                let kvm = Kvm { is_kvm, is_realtime: is_kvm && hints & 1 != 0 };
                Some(Fact::new(kvm, Source::Leaf(0x4000_0001)))
            }
        };
        // Xen's leaves do not say which kind of guest this is.
        let is_xen = hypervisor.is_some_and(|name| name == *b"XenVMMXenVMM");
        let is_assumed = facts.xen.is_some_and(|xen| xen.source == Source::Assumed);
        if facts.xen.is_none() || is_assumed {
            let other = Fact::new(Xen::Other, Source::Leaf(0x4000_0000));
            facts.xen = match hypervisor {
                _ if is_xen => None,
                Some(_) => Some(other),
                None if is_guest => facts.xen,
                None => Some(Fact { source: Source::Leaf(1), ..other }),
            };
        }
        facts
    }

    /// Whether a core has several threads, as far as the extended leaves say so.
    fn has_smt(&self, max_leaf: u32) -> Option<Fact<bool>> {
        let intel = self.leaf(0xb, 0).filter(|leaf| max_leaf >= 0xb && leaf[1] != 0);
        let intel = intel.map(|leaf| Fact::new(leaf[1] & 0xffff > 1, Source::Leaf(0xb)));
        let features = self.leaf(0x8000_0001, 0);
        let has_topology = features.is_some_and(|leaf| leaf[2] & 1 << 22 != 0);
        let amd = self.leaf(0x8000_001e, 0).filter(|_| has_topology);
        let amd = amd.map(|leaf| Fact::new(leaf[1] >> 8 & 0xff > 0, Source::Leaf(0x8000_001e)));
        intel.or(amd)
    }
}

/// The bytes of three registers.
fn name(registers: [u32; 3]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (bytes, register) in bytes.chunks_exact_mut(4).zip(registers) {
        bytes.copy_from_slice(&register.to_le_bytes());
    }
    bytes
}

/// A line's leaf, subleaf and registers.
fn entry(line: &str) -> Option<(u32, u32, Registers)> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("CPUID ") {
        let (leaf, rest) = rest.split_at_checked(8)?;
        let registers = rest.trim_start_matches(':').trim_start();
        let subleaf = match rest.split_once("[SL ") {
            Some((_, rest)) => hex(rest.get(..2)?)?,
            None => 0,
        };
        let mut numbers = registers.split(['-', ' ']).map(hex);
        return Some((hex(leaf)?, subleaf, four(&mut numbers)?));
    }
    for (prefix, base) in [("basic_cpuid[", 0), ("ext_cpuid[", 0x8000_0000)] {
        if let Some(rest) = line.strip_prefix(prefix) {
            let (leaf, rest) = rest.split_once("]=")?;
            let leaf = u32::checked_add(base, leaf.parse().ok()?)?;
            return Some((leaf, 0, four(&mut rest.split_ascii_whitespace().map(hex))?));
        }
    }
    let (place, registers) = line.split_once(':')?;
    let mut place = place.split_ascii_whitespace().map(hex_with_prefix);
    let (leaf, subleaf) = (place.next()??, place.next()??);
    let mut words = registers.split_ascii_whitespace();
    let mut numbers = ["eax=", "ebx=", "ecx=", "edx="]
        .into_iter()
        .map(|name| hex_with_prefix(words.next()?.strip_prefix(name)?));
    Some((leaf, subleaf, four(&mut numbers)?))
}

fn four(numbers: &mut dyn Iterator<Item = Option<u32>>) -> Option<Registers> {
    Some([numbers.next()??, numbers.next()??, numbers.next()??, numbers.next()??])
}

fn hex(digits: &str) -> Option<u32> {
    // from_str_radix would take a sign.
    let is_hex = digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(digits, 16).ok())?
}

fn hex_with_prefix(number: &str) -> Option<u32> {
    hex(number.strip_prefix("0x")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZEN3: Registers = [0x40, 0x40, 3, 0x11];

    #[test]
    fn reads_three_formats_alike() {
        let cpuid_r = "CPU:\n   0x00000000 0x00: eax=0x00000010 ebx=0x68747541 ecx=0x444d4163 edx=0x69746e65\n   \
                       0x00000001 0x00: eax=0x00a20f10 ebx=0x00200800 ecx=0x7ed8320b edx=0x178bfbff\n   \
                       0x00000005 0x00: eax=0x00000040 ebx=0x00000040 ecx=0x00000003 edx=0x00000011\n";
        let instlat = "------[ Logical CPU #0 ]------\n\
                       CPUID 00000000: 00000010-68747541-444D4163-69746E65 [AuthenticAMD]\n\
                       CPUID 00000001: 00A20F10-00200800-7ED8320B-178BFBFF\n\
                       CPUID 00000005: 00000040-00000040-00000003-00000011\n\
                       CPUID 00000005 00000000-00000000-00000000-00000000\n";
        let libcpuid = "version=0.5.1\nbasic_cpuid[0]=00000010 68747541 444d4163 69746e65\n\
                        basic_cpuid[1]=00a20f10 00200800 7ed8320b 178bfbff\n\
                        basic_cpuid[5]=00000040 00000040 00000003 00000011\n";
        let read = [cpuid_r, instlat, libcpuid].map(|dump| Cpuid::parse(dump).unwrap());
        assert_eq!(read[0].leaf(5, 0), Some(ZEN3));
        assert!(read[1] == read[0] && read[2] == read[0], "the first CPU counts");
        let facts = read[0].facts(BootFacts::default());
        let zen3 = CpuModel { vendor: Vendor::Amd, family: 0x19, model: 0x21, stepping: 0 };
        assert_eq!(facts.cpu, Some(Fact::new(zen3, Source::Leaf(1))));
        assert_eq!(facts.leaf5.map(|leaf| leaf.value.c1_substate_count()), Some(1));
        assert_eq!(facts.xen.map(|xen| xen.value), Some(Xen::Other));
    }

    #[test]
    fn a_subleaf_is_not_taken_for_the_leaf() {
        let dump = "CPUID 00000000: 00000010-68747541-444D4163-69746E65\n\
                    CPUID 00000001: 00A20F10-00200800-7ED8320B-178BFBFF\n\
                    CPUID 0000000B: 00000004-00000010-00000201-00000000 [SL 01]\n\
                    CPUID 0000000B: 00000001-00000002-00000100-00000000 [SL 00]\n\
                    CPUID 80000001: 00000000-00000000-00000000-00000000\n";
        let cpuid = Cpuid::parse(dump).unwrap();
        assert_eq!(cpuid.leaf(0xb, 0), Some([1, 2, 0x100, 0]));
        let has_smt = cpuid.facts(BootFacts::default()).has_smt;
        assert_eq!(has_smt, Some(Fact::new(true, Source::Leaf(0xb))));
    }

    #[test]
    fn ignores_leaf_5_beyond_the_highest_leaf() {
        // QEMU's old CPU answers with its highest leaf, 4.
        let dump = "basic_cpuid[0]=00000004 756e6547 6c65746e 49656e69\n\
                    basic_cpuid[1]=000006d3 00000800 80002001 078bfbfd\n\
                    basic_cpuid[5]=00000121 01c0003f 0000003f 00000001\n";
        let facts = Cpuid::parse(dump).unwrap().facts(BootFacts::default());
        assert_eq!(facts.leaf5, None);
        assert_eq!(facts.is_guest.map(|is| is.value), Some(true));
        assert_eq!(facts.max_leaf.map(|leaf| leaf.value), Some(4));
    }

    #[test]
    fn xens_leaves_leave_the_kind_of_guest_open() {
        let mut cpuid = Cpuid::default();
        cpuid.set(0, 0, [0xd, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]);
        cpuid.set(1, 0, [0x306f2, 0, 0xfffa_3203, 0]);
        cpuid.set(0x4000_0000, 0, [0x4000_0005, 0x566e_6558, 0x6558_4d4d, 0x4d4d_566e]);
        assert_eq!(cpuid.facts(BootFacts::without_cmdline()).xen, None);
        // A file of the machine knows better.
        let pv = Some(Fact::new(Xen::Pv, Source::File("/sys/hypervisor/guest_type")));
        let known = BootFacts { xen: pv, ..BootFacts::default() };
        assert_eq!(cpuid.facts(known).xen, pv);
    }

    #[test]
    fn a_dump_without_its_first_leaves_is_an_error() {
        assert_eq!(Cpuid::parse("processor: 0\n"), Err(DumpError::NoLeaf(0)));
        let dump = "basic_cpuid[0]=00000004 756e6547 6c65746e 49656e69";
        assert_eq!(Cpuid::parse(dump), Err(DumpError::NoLeaf(1)));
    }

    /// Lines that nearly have one of the formats.
    #[test]
    fn damaged_lines_are_ignored() {
        for line in [
            "",
            "CPUID",
            "CPUID 0000000é: 00000010-68747541-444D4163-69746E65",
            "CPUID 00000000: 00000010-68747541-444D4163",
            "CPUID 00000000: 000000100-68747541-444D4163-69746E65",
            "CPUID 00000000: +0000010-68747541-444D4163-69746E65",
            "CPUID 00000000: 00000010-68747541-444D4163-69746E65 [SL é",
            "basic_cpuid[4294967296]=0 0 0 0",
            "ext_cpuid[2147483648]=0 0 0 0",
            "basic_cpuid[]=0 0 0 0",
            "0x0 0x0 eax=0x0",
            "0x0 0x0: eax=0x0 ebx=0x0 edx=0x0 ecx=0x0",
            "0x0: eax=0x0 ebx=0x0 ecx=0x0 edx=0x0",
            ": : :",
        ] {
            assert_eq!(entry(line), None, "{line}");
        }
    }
}
