//! Damages files. Each mutation either happens to real files, or aims at what a reader trusts:
//! lengths, times, counts, numbers in text.

use std::ops::Range;

use crate::seeds::Seed;

/// SplitMix64, which gives the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A part of a file, usually small.
    fn range(&mut self, byte_count: usize) -> Range<usize> {
        let longest = match self.below(3) {
            0 => 16,
            1 => 512,
            _ => byte_count,
        };
        let start = self.below(byte_count);
        let end = start + 1 + self.below(longest);
        start..end.min(byte_count)
    }
}

/// Numbers at which arithmetic may fail.
const NUMBERS: [u64; 24] = [
    0,
    1,
    2,
    7,
    9,
    10,
    255,
    256,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    1 << 32,
    1_000_000_000,
    86_400_000_000_000,
    31_536_000_000_000_000,
    1 << 53,
    (1 << 53) + 1,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fff0,
    u64::MAX,
];

/// The mutant with that number.
pub fn mutant(number: u64, seeds: &[Seed]) -> (&Seed, Vec<u8>) {
    let mut random = Random(number);
    let seed = random.pick(seeds);
    let other = random.pick(seeds);
    let mut bytes = seed.bytes.clone();
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            break;
        }
        if seed.is_text && random.below(4) > 0 {
            mutate_text(&mut bytes, &mut random);
        } else {
            mutate_bytes(&mut bytes, &other.bytes, &mut random);
        }
    }
    (seed, bytes)
}

fn mutate_bytes(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    match random.below(12) {
        0 | 1 => {
            for _ in 0..1 + random.below(8) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        2 => {
            let range = random.range(bytes.len());
            let value = *random.pick(&[0, 0xff, 0x80, 0x7f, b' ']);
            bytes[range].fill(value);
        }
        3 => bytes.truncate(random.below(bytes.len())),
        4 => {
            let range = random.range(bytes.len());
            bytes.drain(range);
        }
        5 => {
            let copy = bytes[random.range(bytes.len())].to_vec();
            let at = random.below(bytes.len());
            bytes.splice(at..at, copy);
        }
        // Swap two blocks.
        6 => {
            let range = random.range(bytes.len());
            let block: Vec<u8> = bytes.drain(range).collect();
            let at = random.below(bytes.len() + 1);
            bytes.splice(at..at, block);
        }
        7 => {
            let part = &other[random.range(other.len())];
            let part = &part[..part.len().min(4_096)];
            let at = random.below(bytes.len());
            let end = (at + part.len()).min(bytes.len());
            bytes.splice(at..end, part.iter().copied());
        }
        8 => {
            let number = *random.pick(&NUMBERS);
            let at = random.below(bytes.len());
            put(bytes, at, number, *random.pick(&[1, 2, 4, 8]), random.below(2) == 0);
        }
        9 | 10 => mutate_length(bytes, random),
        // Change a time, or another 64-bit number, by a power of two.
        _ => {
            let at = random.below(bytes.len()) & !7;
            let is_big = random.below(2) == 0;
            if let Some(word) = word(bytes, at, 8, is_big) {
                let step = 1_u64 << random.below(64);
                put(bytes, at, word.wrapping_add(step), 8, is_big);
            }
        }
    }
}

/// Changes something that looks like a length: a number of two, four or eight bytes that is at most
/// the number of bytes after it.
fn mutate_length(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..64 {
        let (at, width) = (random.below(bytes.len()) & !1, *random.pick(&[2, 4, 8]));
        let is_big = random.below(3) == 0;
        let Some(length) = word(bytes, at, width, is_big) else { continue };
        if !(4..=(bytes.len() - at) as u64).contains(&length) {
            continue;
        }
        let changed = match random.below(6) {
            0 => length + 1,
            1 => length - 1,
            2 => length * 2,
            3 => length ^ 1 << random.below(8 * width),
            4 => (bytes.len() - at) as u64 + random.below(9) as u64,
            _ => *random.pick(&NUMBERS),
        };
        put(bytes, at, changed, width, is_big);
        return;
    }
}

fn word(bytes: &[u8], at: usize, width: usize, is_big: bool) -> Option<u64> {
    let part = bytes.get(at..at + width)?;
    let fold = |word: u64, &byte: &u8| word << 8 | u64::from(byte);
    Some(if is_big { part.iter().fold(0, fold) } else { part.iter().rev().fold(0, fold) })
}

fn put(bytes: &mut [u8], at: usize, number: u64, width: usize, is_big: bool) {
    let little = number.to_le_bytes();
    for (index, &byte) in little[..width].iter().enumerate() {
        let index = if is_big { width - 1 - index } else { index };
        if let Some(place) = bytes.get_mut(at + index) {
            *place = byte;
        }
    }
}

fn mutate_text(bytes: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    let line = random.below(lines.len());
    let other = random.below(lines.len());
    match random.below(8) {
        0 => {
            lines.remove(line);
        }
        1 => lines.insert(other, lines[line]),
        2 => lines.swap(line, other),
        // Move or remove a run of lines.
        3 => {
            let end = (line + 1 + random.below(50)).min(lines.len());
            let run: Vec<&[u8]> = lines.drain(line..end).collect();
            if random.below(2) == 0 {
                let at = random.below(lines.len() + 1);
                lines.splice(at..at, run);
            }
        }
        _ => {
            let changed = mutate_number(lines[line], random);
            *bytes = [lines[..line].concat(), changed, lines[line + 1..].concat()].concat();
            return;
        }
    }
    *bytes = lines.concat();
}

/// Replaces one of a line's numbers.
fn mutate_number(line: &[u8], random: &mut Random) -> Vec<u8> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, byte) in line.iter().enumerate() {
        match runs.last_mut() {
            _ if !byte.is_ascii_digit() => {}
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    if runs.is_empty() {
        return line.to_vec();
    }
    let run = random.pick(&runs).clone();
    let old =
        std::str::from_utf8(&line[run.clone()]).ok().and_then(|text| text.parse::<u64>().ok());
    let number = match (random.below(4), old) {
        (0, Some(old)) => old.wrapping_add(1 << random.below(64)).to_string(),
        (1, Some(old)) => old.saturating_sub(1 + random.below(1_000) as u64).to_string(),
        (2, _) => format!("-{}", random.pick(&NUMBERS)),
        _ => random.pick(&NUMBERS).to_string(),
    };
    [&line[..run.start], number.as_bytes(), &line[run.end..]].concat()
}
