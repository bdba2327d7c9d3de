//! From runs to rows. Runs with all their steps would take gigabytes, so each is summed up when it is over.

use idlewise_report::predict::{ALL_TASKS, PredictedRun, PredictedTask};
use idlewise_sim::CostModel;
use idlewise_sim::predict::{Durations, MARGINS, Margin, Outcome, Reproduction, Vouched, Waited};

/// What is shown: a name, and the tasks or requests whose latencies it names.
pub(super) enum Of {
    All,
    Tasks(String, Vec<u32>),
    Requests(String, Vec<(usize, usize)>),
}

/// The same, with what the recording shows of it.
pub(super) struct Shown {
    pub of: Of,
    recorded: Durations,
}

impl Shown {
    pub fn new(of: Of, recorded: &Outcome) -> Self {
        let recorded = of.waited(recorded).durations;
        Shown { of, recorded }
    }
}

impl Of {
    pub fn name(&self) -> &str {
        match self {
            Of::All => ALL_TASKS,
            Of::Tasks(name, _) | Of::Requests(name, _) => name,
        }
    }

    /// How far a kernel's figures are from it.
    fn margin(&self) -> Margin {
        match self {
            Of::All => MARGINS.all,
            Of::Tasks(..) => MARGINS.tasks,
            Of::Requests(..) => MARGINS.requests,
        }
    }

    pub fn waited(&self, run: &Outcome) -> Waited {
        Waited::new(&match self {
            Of::All => run.waits(&|_| true),
            Of::Tasks(_, tasks) => run.waits(&|task| tasks.contains(&task)),
            Of::Requests(_, requests) => run.request_waits(requests),
        })
    }
}

/// What is kept of a run: its sums, and the waits of what is shown.
pub(super) struct Kept {
    sums: Outcome,
    waited: Vec<Waited>,
}

impl Kept {
    pub fn new(mut run: Outcome, shown: &[Shown]) -> Self {
        let waited = shown.iter().map(|shown| shown.of.waited(&run)).collect();
        run.forget_steps();
        Kept { sums: run, waited }
    }
}

/// The rows of the recorded setting and of the others.
pub(super) struct Rows<'a> {
    shown: &'a [Shown],
    vouched: Vouched,
    /// Of the machine, if all runs have one, and CPUs one speed.
    costs: Option<CostModel>,
    /// How near the recorded setting's runs are to the recording, in the waits of each of `shown`.
    likenesses: Vec<Reproduction>,
    base: Vec<Outcome>,
    pub runs: Vec<PredictedRun>,
    /// Those of each of `shown`.
    tasks: Vec<Vec<PredictedTask>>,
}

impl<'a> Rows<'a> {
    pub fn new(
        name: &str,
        base: Vec<Kept>,
        shown: &'a [Shown],
        vouched: Vouched,
        costs: Option<CostModel>,
    ) -> Self {
        let likeness = |(at, shown): (usize, &Shown)| {
            let of_run =
                |run: &Kept| Reproduction::of_waits(&shown.recorded, &run.waited[at].durations);
            Reproduction::median(&base.iter().map(of_run).collect::<Vec<_>>())
        };
        let likenesses = shown.iter().enumerate().map(likeness).collect();
        let tasks = shown.iter().map(|_| Vec::new()).collect();
        let (runs, no_base) = (Vec::new(), Vec::new());
        let mut rows = Rows { shown, vouched, costs, likenesses, base: no_base, runs, tasks };
        rows.base = rows.push(name, base);
        rows
    }

    /// Adds a setting. Returns what is left of its runs.
    pub fn push(&mut self, name: &str, runs: Vec<Kept>) -> Vec<Outcome> {
        let (sums, waited): (Vec<Outcome>, Vec<Vec<Waited>>) =
            runs.into_iter().map(|run| (run.sums, run.waited)).unzip();
        let mut waited: Vec<_> = waited.into_iter().map(Vec::into_iter).collect();
        for (shown, rows) in self.shown.iter().zip(&mut self.tasks) {
            let of_shown: Vec<Waited> = waited.iter_mut().filter_map(Iterator::next).collect();
            let margin = shown.of.margin();
            rows.push(PredictedTask::new(name, shown.of.name(), &of_shown, rows.first(), margin));
        }
        self.runs.push(PredictedRun::new(name, &sums, &self.base, self.costs.as_ref()));
        sums
    }

    /// The tasks and requests whose waits the recorded setting's runs do not reproduce, and how far they are off.
    pub fn not_reproduced(&self) -> Vec<(&'a str, Reproduction)> {
        let each = self.shown.iter().zip(&self.likenesses);
        let off = each.filter(|(shown, likeness)| {
            !matches!(shown.of, Of::All) && !likeness.misses().is_empty()
        });
        off.map(|(shown, likeness)| (shown.of.name(), *likeness)).collect()
    }

    /// What a row may show: of single tasks, what they and all together reproduce. Where only a task's own tail was
    /// reproduced, a kernel's was within 10 % in 6 of 25 cases.
    fn vouched_for(&self, at: usize) -> Vouched {
        if matches!(self.shown[at].of, Of::All) {
            return self.vouched;
        }
        let own = self.likenesses[at].vouches();
        Vouched { tail: own.tail && self.vouched.tail, ..own }
    }

    /// The rows, with the figures cleared that the reproduction does not vouch for.
    pub fn vouched(self) -> (Vec<PredictedRun>, Vec<PredictedTask>) {
        let of_shown: Vec<Vouched> = (0..self.shown.len()).map(|at| self.vouched_for(at)).collect();
        let Rows { vouched, runs, tasks, .. } = self;
        let runs = runs.into_iter().map(|row| row.only(vouched));
        let tasks = tasks
            .into_iter()
            .zip(of_shown)
            .flat_map(|(rows, vouched)| rows.into_iter().map(move |row| row.only(vouched)));
        (runs.collect(), tasks.collect())
    }
}
