//! Rows: one for each gap, with the governors' first stays.

use idlewise_core::Verdict;
use idlewise_sim::replay::{GapCourse, Observer, ReplayedStay};
use idlewise_trace::IdleGap;
use idlewise_trace::export::{ArrowWriter, CsvWriter, FirstStay, RowWriter};

use super::{Output, Replays};
use crate::error::Result;
use crate::governors::Choice;
use crate::input::{NamedLog, each_cpu};

/// How many gaps are replayed before they are written.
const GAPS_AT_ONCE: usize = 1 << 14;

/// Collects the first stay of each gap.
#[derive(Default)]
struct FirstStays {
    stays: Vec<FirstStay>,
    first: Option<FirstStay>,
}

impl Observer for FirstStays {
    fn gap(&mut self, _gap: &IdleGap, course: GapCourse) {
        let state = course.first.state as u8;
        let stay = self.first.take().unwrap_or(FirstStay { state, verdict: Verdict::Fit });
        self.stays.push(stay);
    }

    // The first stay is seen before any repetition.
    fn stay(&mut self, _gap: &IdleGap, stay: ReplayedStay) {
        let ReplayedStay { state, verdict, .. } = stay;
        self.first.get_or_insert(FirstStay { state: state as u8, verdict });
    }
}

/// Writes all rows.
pub fn write(named: &NamedLog, replays: &Replays, is_arrow: bool, output: &Output) -> Result<()> {
    let names: Vec<String> = replays.choices.iter().map(Choice::name).collect();
    let fail = |error| output.failure(error);
    let mut writer: Box<dyn RowWriter> = match is_arrow {
        true => {
            let writer = ArrowWriter::new(output.writer()?, &named.log.metadata, &names);
            Box::new(writer.map_err(fail)?)
        }
        false => {
            Box::new(CsvWriter::new(output.writer()?, &named.log.metadata, &names).map_err(fail)?)
        }
    };
    each_cpu(named, |cpu_gaps| {
        let lane = |choice| replays.lane(choice, FirstStays::default());
        let mut lanes: Vec<_> = replays.choices.iter().map(lane).collect::<Result<_, _>>()?;
        cpu_gaps(&mut |gaps| {
            for gaps in gaps.chunks(GAPS_AT_ONCE) {
                for lane in &mut lanes {
                    lane.observer_mut().stays.clear();
                    lane.replay(gaps);
                }
                let stays: Vec<&[FirstStay]> =
                    lanes.iter_mut().map(|lane| &*lane.observer_mut().stays).collect();
                writer.write(gaps, &stays).map_err(fail)?;
            }
            Ok(())
        })
    })?;
    writer.finish().map_err(fail)
}
