//! The BPF programs.
//!
//! `cpu_idle` has the state when a CPU goes idle, and 4294967295 when it is back. The length of the stay is known
//! then; what ended it often is not: with MWAIT, the interrupt is handled after that event, with HLT before it.
//! So a stay is counted in one of three moments:
//!
//! - at its end, as ended by a timer, if a timer expired while it lasted;
//! - when a timer expires within 20 us of its end, as ended by a timer;
//! - otherwise at the next idle entry, as ended by something else.
//!
//! A timer is an hrtimer that expires, the tick included (`hrtimer_expire_entry`). That is what all architectures
//! have. Interrupts are disabled at all of these places, so a CPU's values need no atomics.

use idlewise_trace::histogram::{BIN_COUNT, FIRST_HALF_OCTAVE};

use super::{BEYOND_AT, Layout, SLOT_BYTE_COUNT, slot_at};

/// A tracepoint by the kernel's name.
pub type Tracepoint = &'static str;

/// After this time, a timer did not end the stay.
const TIMER_WITHIN_NS: i32 = 20_000;

// What a CPU remembers, by offset. All are 64 bits.
/// When the present stay began; 0 if there is none.
const START_NS: i16 = 0;
const STATE: i16 = 8;
/// Whether a timer expired during the present stay.
const TIMER_SEEN: i16 = 16;
/// The slot of a stay that is over and not counted yet, as if no timer had ended it; 0 if there is none.
const PENDING: i16 = 24;
const PENDING_NS: i16 = 32;
const END_NS: i16 = 40;
const BEYOND: i16 = BEYOND_AT as i16;

/// From the slot of other stays to that of those that a timer ended.
const TO_TIMER: i32 = (BIN_COUNT * SLOT_BYTE_COUNT) as i32;

/// Helpers of `include/uapi/linux/bpf.h`.
const MAP_LOOKUP_ELEM: i32 = 1;
const KTIME_GET_NS: i32 = 5;

/// A register. R0 has results, R1 to R5 arguments, R6 to R9 survive calls, R10 is the stack.
#[derive(Clone, Copy)]
enum R {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R10 = 10,
}
use R::*;

/// A jump's condition on two unsigned numbers, or (`SignedLess`) signed ones.
#[derive(Clone, Copy)]
enum If {
    Equal = 0x10,
    Greater = 0x20,
    NotEqual = 0x50,
    SignedLess = 0xc0,
}

/// Instructions in the making. Jumps go to labels, which are resolved at the end.
#[derive(Default)]
struct Assembler {
    code: Vec<u64>,
    /// Where a jump is, and to which label.
    jumps: Vec<(usize, &'static str)>,
    labels: Vec<(&'static str, usize)>,
}

impl Assembler {
    fn emit(&mut self, operation: u8, to: R, from: R, offset: i16, number: i32) {
        let registers = (to as u64) | (from as u64) << 4;
        let offset = u64::from(offset.cast_unsigned());
        let number = u64::from(number.cast_unsigned());
        self.code.push(u64::from(operation) | registers << 8 | offset << 16 | number << 32);
    }

    fn set(&mut self, to: R, number: i32) {
        self.emit(0xb7, to, R0, 0, number);
    }

    fn copy(&mut self, to: R, from: R) {
        self.emit(0xbf, to, from, 0, 0);
    }

    /// The lower 32 bits.
    fn copy_low(&mut self, to: R, from: R) {
        self.emit(0xbc, to, from, 0, 0);
    }

    fn add(&mut self, to: R, number: i32) {
        self.emit(0x07, to, R0, 0, number);
    }

    fn add_register(&mut self, to: R, from: R) {
        self.emit(0x0f, to, from, 0, 0);
    }

    fn subtract(&mut self, to: R, from: R) {
        self.emit(0x1f, to, from, 0, 0);
    }

    fn multiply(&mut self, to: R, number: i32) {
        self.emit(0x27, to, R0, 0, number);
    }

    fn multiply_register(&mut self, to: R, from: R) {
        self.emit(0x2f, to, from, 0, 0);
    }

    fn and(&mut self, to: R, number: i32) {
        self.emit(0x57, to, R0, 0, number);
    }

    fn shift_left_register(&mut self, to: R, from: R) {
        self.emit(0x6f, to, from, 0, 0);
    }

    fn shift_right(&mut self, to: R, bits: i32) {
        self.emit(0x77, to, R0, 0, bits);
    }

    fn load(&mut self, to: R, from: R, offset: i16) {
        self.emit(0x79, to, from, offset, 0);
    }

    fn store(&mut self, to: R, offset: i16, from: R) {
        self.emit(0x7b, to, from, offset, 0);
    }

    fn store_number(&mut self, to: R, offset: i16, number: i32) {
        self.emit(0x7a, to, R0, offset, number);
    }

    fn call(&mut self, helper: i32) {
        self.emit(0x85, R0, R0, 0, helper);
    }

    fn jump_if(&mut self, register: R, condition: If, number: i32, label: &'static str) {
        self.jumps.push((self.code.len(), label));
        self.emit(0x05 | condition as u8, register, R0, 0, number);
    }

    fn jump(&mut self, label: &'static str) {
        self.jumps.push((self.code.len(), label));
        self.emit(0x05, R0, R0, 0, 0);
    }

    fn label(&mut self, label: &'static str) {
        self.labels.push((label, self.code.len()));
    }

    fn finish(mut self) -> Vec<u64> {
        self.label("end");
        self.set(R0, 0);
        self.emit(0x95, R0, R0, 0, 0);
        for (at, label) in &self.jumps {
            let target = self.labels.iter().find(|(known, _)| known == label);
            let (_, target) = target.expect("every label is set");
            let distance = *target as i64 - *at as i64 - 1;
            let distance = i16::try_from(distance).expect("programs are short").cast_unsigned();
            self.code[*at] |= u64::from(distance) << 16;
        }
        self.code
    }

    /// R8 = this CPU's value, and R7 = the time. Keeps R6.
    fn begin(&mut self, map_fd: i32) {
        self.call(KTIME_GET_NS);
        self.copy(R7, R0);
        // The key, 0, on the stack.
        self.store_number(R10, -8, 0);
        self.copy(R2, R10);
        self.add(R2, -8);
        // A map's descriptor takes two instructions; the source register says what the number is.
        self.emit(0x18, R1, R1, 0, map_fd);
        self.code.push(0);
        self.call(MAP_LOOKUP_ELEM);
        self.jump_if(R0, If::Equal, 0, "end");
        self.copy(R8, R0);
    }

    /// Counts a stay of R2 ns in the slot at R3. Spoils R3 and R4.
    fn count(&mut self, layout: Layout) {
        // The kernel must see that the place is inside, whatever the memory holds.
        self.and(R3, -(size_of::<u64>() as i32));
        self.jump_if(R3, If::Greater, (layout.byte_count() - SLOT_BYTE_COUNT) as i32, "end");
        self.add_register(R3, R8);
        self.load(R4, R3, 0);
        self.add(R4, 1);
        self.store(R3, 0, R4);
        self.load(R4, R3, 8);
        self.add_register(R4, R2);
        self.store(R3, 8, R4);
    }

    /// R3 = the place of a stay of R2 ns: half-octaves, from the first one on. Spoils R4 and R5.
    fn place(&mut self) {
        // R3 = the position of the highest bit, by halving.
        self.set(R3, 0);
        self.copy(R4, R2);
        const STEPS: [(i32, &str); 6] =
            [(32, "s32"), (16, "s16"), (8, "s8"), (4, "s4"), (2, "s2"), (1, "s1")];
        for (bits, label) in STEPS {
            self.copy(R5, R4);
            self.shift_right(R5, bits);
            self.jump_if(R5, If::Equal, 0, label);
            self.copy(R4, R5);
            self.add(R3, bits);
            self.label(label);
        }
        // R4 = the highest 16 bits, 2^15 to 2^16. Its square reaches 2^31 from the root of 2 on.
        self.set(R5, 63);
        self.subtract(R5, R3);
        self.copy(R4, R2);
        self.shift_left_register(R4, R5);
        self.shift_right(R4, 48);
        self.multiply_register(R4, R4);
        self.shift_right(R4, 31);
        self.add_register(R3, R3);
        self.add_register(R3, R4);
        self.add(R3, -i32::from(FIRST_HALF_OCTAVE));
        self.jump_if(R3, If::SignedLess, 1, "least");
        self.jump_if(R3, If::Greater, BIN_COUNT as i32 - 1, "greatest");
        self.jump("placed");
        self.label("least");
        self.set(R3, 0);
        self.jump("placed");
        self.label("greatest");
        self.set(R3, BIN_COUNT as i32 - 1);
        self.label("placed");
    }
}

pub(super) fn programs(layout: Layout, map_fd: i32) -> [(Tracepoint, Vec<u64>); 2] {
    [("cpu_idle", at_cpu_idle(layout, map_fd)), ("hrtimer_expire_entry", at_timer(layout, map_fd))]
}

/// The arguments of `cpu_idle` are the state and the CPU.
fn at_cpu_idle(layout: Layout, map_fd: i32) -> Vec<u64> {
    let mut code = Assembler::default();
    code.load(R6, R1, 0);
    code.copy_low(R6, R6);
    code.begin(map_fd);
    // 4294967295, PWR_EVENT_EXIT, as a number of 64 bits: compare the sum with 2^32.
    code.copy(R1, R6);
    code.add(R1, 1);
    code.shift_right(R1, 32);
    code.jump_if(R1, If::NotEqual, 0, "exit");

    // An entry. What is still pending was ended by something else.
    code.load(R3, R8, PENDING);
    code.jump_if(R3, If::Equal, 0, "counted");
    code.store_number(R8, PENDING, 0);
    code.load(R2, R8, PENDING_NS);
    code.count(layout);
    code.label("counted");
    code.store_number(R8, TIMER_SEEN, 0);
    code.store(R8, STATE, R6);
    code.store(R8, START_NS, R7);
    code.jump("end");

    code.label("exit");
    code.load(R1, R8, START_NS);
    // The first event of all, or an exit without an entry.
    code.jump_if(R1, If::Equal, 0, "end");
    code.store_number(R8, START_NS, 0);
    code.copy(R2, R7);
    code.subtract(R2, R1);
    code.load(R6, R8, STATE);
    code.jump_if(R6, If::Greater, layout.state_count as i32 - 1, "beyond");
    code.place();
    // The slot: those of its state, then its place.
    code.multiply(R6, 2 * TO_TIMER);
    code.multiply(R3, SLOT_BYTE_COUNT as i32);
    code.add_register(R3, R6);
    code.add(R3, slot_at(0, false, 0) as i32);
    code.load(R1, R8, TIMER_SEEN);
    code.jump_if(R1, If::NotEqual, 0, "timer");
    code.store(R8, PENDING, R3);
    code.store(R8, PENDING_NS, R2);
    code.store(R8, END_NS, R7);
    code.jump("end");
    code.label("timer");
    code.add(R3, TO_TIMER);
    code.count(layout);
    code.jump("end");
    code.label("beyond");
    code.load(R1, R8, BEYOND);
    code.add(R1, 1);
    code.store(R8, BEYOND, R1);
    code.finish()
}

fn at_timer(layout: Layout, map_fd: i32) -> Vec<u64> {
    let mut code = Assembler::default();
    code.begin(map_fd);
    code.load(R1, R8, START_NS);
    code.jump_if(R1, If::Equal, 0, "awake");
    code.store_number(R8, TIMER_SEEN, 1);
    code.jump("end");
    code.label("awake");
    code.load(R3, R8, PENDING);
    code.jump_if(R3, If::Equal, 0, "end");
    code.load(R1, R8, END_NS);
    code.subtract(R7, R1);
    // It stays pending, and the next entry counts it.
    code.jump_if(R7, If::Greater, TIMER_WITHIN_NS, "end");
    code.store_number(R8, PENDING, 0);
    code.load(R2, R8, PENDING_NS);
    code.add(R3, TO_TIMER);
    code.count(layout);
    code.finish()
}

#[cfg(test)]
mod tests {
    use idlewise_trace::histogram::place_of;

    use super::*;

    const EXIT: u64 = 4_294_967_295;
    const STACK: u64 = 1 << 40;
    const VALUE: u64 = 1 << 41;
    const ARGUMENTS: u64 = 1 << 42;

    /// Runs a program as the kernel would, on one CPU's value. Everything outside of it is a panic.
    fn run(code: &[u64], value: &mut [u8], argument: u64, now_ns: u64) {
        let mut registers = [0_u64; 11];
        let mut stack = [0_u8; 512];
        (registers[1], registers[10]) = (ARGUMENTS, STACK + 512);
        let mut at = 0;
        loop {
            let word = code[at];
            let (to, from) = ((word >> 8 & 15) as usize, (word >> 12 & 15) as usize);
            let offset = (word >> 16) as u16 as i16;
            let number = i64::from((word >> 32) as u32 as i32) as u64;
            at += 1;
            let place = |base: u64| base.wrapping_add(i64::from(offset) as u64);
            match word & 0xff {
                0xb7 => registers[to] = number,
                0xbf => registers[to] = registers[from],
                0xbc => registers[to] = registers[from] & 0xffff_ffff,
                0x07 => registers[to] = registers[to].wrapping_add(number),
                0x0f => registers[to] = registers[to].wrapping_add(registers[from]),
                0x1f => registers[to] = registers[to].wrapping_sub(registers[from]),
                0x27 => registers[to] = registers[to].wrapping_mul(number),
                0x2f => registers[to] = registers[to].wrapping_mul(registers[from]),
                0x57 => registers[to] &= number,
                0x6f => registers[to] <<= registers[from] & 63,
                0x77 => registers[to] >>= number,
                0x18 => at += 1,
                0x79 => {
                    let place = place(registers[from]);
                    let bytes = match place {
                        ARGUMENTS => argument.to_ne_bytes(),
                        _ => *value[(place - VALUE) as usize..].first_chunk().unwrap(),
                    };
                    registers[to] = u64::from_ne_bytes(bytes);
                }
                0x7a | 0x7b => {
                    let place = place(registers[to]);
                    let stored = if word & 0xff == 0x7a { number } else { registers[from] };
                    let memory = if place < VALUE { &mut stack[..] } else { &mut *value };
                    let start = if place < VALUE { STACK } else { VALUE };
                    let at = (place - start) as usize;
                    memory[at..at + 8].copy_from_slice(&stored.to_ne_bytes());
                }
                0x85 if number == KTIME_GET_NS as u64 => registers[0] = now_ns,
                0x85 => registers[0] = VALUE,
                0x95 => return,
                jump => {
                    let is_taken = match jump {
                        0x05 => true,
                        0x15 => registers[to] == number,
                        0x25 => registers[to] > number,
                        0x55 => registers[to] != number,
                        0xc5 => registers[to].cast_signed() < number.cast_signed(),
                        other => panic!("no instruction {other:x}"),
                    };
                    if is_taken {
                        at = at.wrapping_add_signed(offset.into());
                    }
                }
            }
        }
    }

    /// A CPU with three states, and what happens on it.
    struct Cpu {
        layout: Layout,
        programs: [(Tracepoint, Vec<u64>); 2],
        value: Vec<u8>,
        now_ns: u64,
    }

    impl Cpu {
        fn new() -> Self {
            let layout = Layout { state_count: 3 };
            let value = vec![0; layout.byte_count()];
            Cpu { layout, programs: layout.programs(7), value, now_ns: 1_000_000 }
        }

        fn idle(&mut self, state: u64) {
            run(&self.programs[0].1, &mut self.value, state, self.now_ns);
        }

        fn timer(&mut self) {
            run(&self.programs[1].1, &mut self.value, 0, self.now_ns);
        }

        /// State, timer, place, count and sum of each slot that has any.
        fn counts(&self) -> Vec<(u8, bool, u8, u64, u64)> {
            let histogram = self.layout.histogram(0, &self.value);
            let states = histogram.states.iter().flat_map(|one| {
                let slot = |bin: &idlewise_trace::histogram::Bin| {
                    (one.state, one.is_timer, bin.place, bin.stay_count, bin.stay_sum_ns)
                };
                one.bins.iter().map(slot)
            });
            states.collect()
        }
    }

    #[test]
    fn a_stay_is_counted_in_its_half_octave_by_what_ended_it() {
        let mut cpu = Cpu::new();
        // An exit without an entry says nothing.
        cpu.idle(EXIT);
        cpu.idle(2);
        cpu.now_ns += 50_000;
        cpu.idle(EXIT);
        assert_eq!(cpu.counts(), [], "it is not known yet what ended it");
        // The interrupt is handled after the event, as with MWAIT.
        cpu.now_ns += 300;
        cpu.timer();
        assert_eq!(cpu.counts(), [(2, true, place_of(50_000), 1, 50_000)]);
        // A second timer has nothing to do with it, and the next stay ends otherwise.
        cpu.timer();
        cpu.idle(1);
        cpu.now_ns += 700;
        cpu.idle(EXIT);
        cpu.now_ns += 1_000_000;
        cpu.timer();
        cpu.idle(0);
        // HLT: the timer expires before the event.
        cpu.now_ns += 600;
        cpu.timer();
        cpu.idle(EXIT);
        let expected = [
            (0, true, place_of(600), 1, 600),
            (1, false, place_of(700), 1, 700),
            (2, true, place_of(50_000), 1, 50_000),
        ];
        assert_eq!(cpu.counts(), expected);
    }

    #[test]
    fn states_beyond_the_table_are_counted_apart() {
        let mut cpu = Cpu::new();
        for state in [3, 9, 4_000_000_000] {
            cpu.idle(state);
            cpu.now_ns += 1_000;
            cpu.idle(EXIT);
        }
        assert_eq!(cpu.counts(), []);
        assert_eq!(cpu.layout.histogram(0, &cpu.value).beyond_count, 3);
    }

    /// Many stays, against a count in Rust.
    #[test]
    fn agrees_with_a_count_that_is_plain() {
        let mut cpu = Cpu::new();
        let mut plain = std::collections::BTreeMap::<(u8, bool, u8), (u64, u64)>::new();
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (state, is_timer) = ((random >> 60) % 3, random >> 40 & 1 != 0);
            let stay_ns = random >> 16 >> (random % 48);
            cpu.idle(state);
            cpu.now_ns += stay_ns;
            cpu.idle(EXIT);
            if is_timer {
                cpu.timer();
            }
            let slot = plain.entry((state as u8, is_timer, place_of(stay_ns))).or_default();
            (slot.0, slot.1) = (slot.0 + 1, slot.1 + stay_ns);
        }
        cpu.idle(0);
        let plain: Vec<_> =
            plain.into_iter().map(|((s, t, p), (n, sum))| (s, t, p, n, sum)).collect();
        assert_eq!(cpu.counts(), plain);
        // Both ends are reached.
        assert!(
            plain.iter().any(|slot| slot.2 == 0)
                && plain.iter().any(|slot| slot.2 as usize == BIN_COUNT - 1)
        );
    }
}
