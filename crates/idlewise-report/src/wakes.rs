//! The output of `idlewise measure wakes`: how the stays of each CPU ended, and who woke whom.

use idlewise_trace::wakes::{PairCounts, WakeCause, WakeCounts, WokenCounts};

use crate::{Column, Table, counted};

/// A CPU's stays.
pub type Woken = (u16, WokenCounts);

/// Returns the columns of the woken CPUs.
pub fn woken_columns() -> Vec<Column<Woken>> {
    type C = Column<Woken>;
    vec![
        C::count("cpu", "CPU", |row| u64::from(row.0).into())
            .means("The CPU that was woken.")
            .key(),
        C::count("stay_count", "stays", |row| row.1.stay_count().into())
            .means("Stays in idle states that ended."),
        C::count("store_count", "by store", |row| row.1.of(WakeCause::Store).into())
            .means("Stays that another CPU's store ended, without an interrupt; measured."),
        C::count("ipi_count", "by IPI", |row| row.1.of(WakeCause::Ipi).into()).means(
            "Stays that another CPU's interrupt ended: a request to reschedule or a function call; \
             measured.",
        ),
        C::count("timer_count", "by timer", |row| row.1.of(WakeCause::Timer).into()).means(
            "Stays that a timer of the CPU ended: its tick, a promotion's timer or another; \
             measured.",
        ),
        C::count("device_count", "by device", |row| row.1.of(WakeCause::Device).into()).means(
            "Stays that a device's interrupt ended, or any other that no CPU sends; measured.",
        ),
        C::count("deadline_count", "by UMWAIT's limit", |row| row.1.of(WakeCause::Deadline).into())
            .means("Stays that UMWAIT's deadline ended (idlewise_idle's C0.1 and C0.2).")
            .detail(),
        C::count("unknown_count", "unknown", |row| row.1.of(WakeCause::Unknown).into())
            .means("Stays that ended for no recorded reason."),
    ]
}

/// What one CPU did to wake another; the waker is `None` if it is unknown.
pub type WakePair = ((Option<u16>, u16), PairCounts);

/// Returns the columns of the pairs of CPUs.
pub fn pair_columns() -> Vec<Column<WakePair>> {
    type C = Column<WakePair>;
    vec![
        C::text("waker", "waker", |row| {
            row.0.0.map_or("unknown".to_owned(), |cpu| format!("CPU {cpu}")).into()
        })
        .means("The CPU that woke the other, or `unknown`.")
        .key(),
        C::text("woken", "woken", |row| format!("CPU {}", row.0.1).into())
            .means("The CPU that was woken.")
            .key(),
        C::count("store_count", "by store", |row| row.1.store_count.into()).means(
            "Stays of the woken CPU that the waker's store ended, without an interrupt; measured.",
        ),
        C::count("ipi_count", "by IPI", |row| row.1.ipi_count.into())
            .means("Stays of the woken CPU that the waker's interrupt ended; measured."),
        C::count("free_ride_count", "free rides", |row| row.1.free_ride_count.into())
            .means("Stores that found the other CPU being woken already."),
        C::count("awake_count", "found awake", |row| row.1.awake_count.into()).means(
            "Stores that found the other CPU awake in its idle loop, or leaving a state for a \
             reason of its own.",
        ),
        C::count("late_ipi_count", "late IPIs", |row| row.1.late_ipi_count.into())
            .means("Interrupts sent to a CPU that was waking already."),
        C::count("unknown_count", "unknown", |row| row.1.unknown_count.into()).means(
            "Stores and interrupts that may or may not have woken the other CPU: something else \
             may have come first, or its idle task was not recorded.",
        ),
    ]
}

/// Returns a line for each CPU that was woken.
pub fn woken_table(title: &str, counts: &WakeCounts) -> Table {
    let rows = counts.woken.iter().map(|(&cpu, &counts)| (cpu, counts));
    Table::new(title, &woken_columns(), rows)
}

/// The pairs, those with the most wake-ups first.
fn sorted_pairs(counts: &WakeCounts) -> Vec<WakePair> {
    let mut pairs: Vec<WakePair> = counts.pairs.iter().map(|(&pair, &of)| (pair, of)).collect();
    let all = |of: &PairCounts| {
        of.store_count
            + of.ipi_count
            + of.free_ride_count
            + of.awake_count
            + of.late_ipi_count
            + of.unknown_count
    };
    pairs.retain(|(_, of)| all(of) > 0);
    pairs.sort_by_key(|(pair, of)| (std::cmp::Reverse(all(of)), *pair));
    pairs
}

/// Returns a line for each pair of CPUs, those with the most wake-ups first.
pub fn pair_table(title: &str, counts: &WakeCounts) -> Table {
    Table::new(title, &pair_columns(), sorted_pairs(counts))
}

/// Returns the first lines of [`pair_table`], and how many pairs are left out.
pub fn short_pair_table(title: &str, counts: &WakeCounts, count_max: usize) -> (Table, usize) {
    let pairs = sorted_pairs(counts);
    let shown = pairs.len().min(count_max);
    (Table::new(title, &pair_columns(), &pairs[..shown]), pairs.len() - shown)
}

/// Returns how CPUs woke each other, in a sentence.
pub fn sentence(counts: &WakeCounts) -> String {
    let sum = |of: fn(&PairCounts) -> u64| counts.pairs.values().map(of).sum::<u64>();
    let (stores, ipis) = (sum(|of| of.store_count), sum(|of| of.ipi_count));
    let (rides, unknown) = (sum(|of| of.free_ride_count), sum(|of| of.unknown_count));
    let all = stores + ipis + rides;
    if all + unknown == 0 {
        return "No CPU woke another.".to_owned();
    }
    if all == 0 {
        return format!(
            "CPUs sent each other {unknown} stores and interrupts; whether one of them woke a CPU is unknown."
        );
    }
    let percent = |count: u64| 100.0 * count as f64 / all as f64;
    let rest = match unknown {
        0 => String::new(),
        count => format!(" {count} more are unknown."),
    };
    format!(
        "CPUs woke each other {}: {stores} by store ({:.1} %), {ipis} by IPI ({:.1} %), {rides} \
         as a free ride ({:.1} %).{rest}",
        counted(all, "time"),
        percent(stores),
        percent(ipis),
        percent(rides),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextStyle;

    fn counts() -> WakeCounts {
        let mut counts = WakeCounts::default();
        let pair =
            |store_count, ipi_count| PairCounts { store_count, ipi_count, ..PairCounts::default() };
        counts.pairs.insert((Some(0), 1), pair(30, 10));
        counts.pairs.insert((None, 1), pair(0, 50));
        counts.pairs.insert((Some(1), 0), pair(5, 0));
        counts.pairs.insert((Some(2), 0), pair(0, 0));
        counts.woken.insert(1, WokenCounts { causes: [30, 60, 7, 0, 0, 3] });
        counts
    }

    #[test]
    fn pairs_come_by_their_wakes_and_the_rest_is_counted() {
        let csv = pair_table("", &counts()).to_csv();
        let lines: Vec<&str> = csv.lines().skip(1).collect();
        assert_eq!(
            lines,
            ["unknown,CPU 1,0,50,0,0,0,0", "CPU 0,CPU 1,30,10,0,0,0,0", "CPU 1,CPU 0,5,0,0,0,0,0"]
        );
        let (table, left_out) = short_pair_table("", &counts(), 2);
        assert_eq!((table.row_count(), left_out), (2, 1));
        assert_eq!(woken_table("", &counts()).to_csv().lines().nth(1), Some("1,100,30,60,7,0,0,3"));
        let texts = [pair_table("", &counts()), woken_table("", &counts())];
        for text in texts.map(|table| table.to_text(&TextStyle::default())) {
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
    }

    #[test]
    fn a_sentence_sums_up() {
        assert_eq!(
            sentence(&counts()),
            "CPUs woke each other 95 times: 35 by store (36.8 %), 60 by IPI (63.2 %), 0 as a free ride \
             (0.0 %)."
        );
        assert_eq!(sentence(&WakeCounts::default()), "No CPU woke another.");
    }
}
