//! From runs to rows. Runs with all their steps would take gigabytes, so each is summed up when it is over.

use idlewise_report::predict::{PredictedRun, PredictedTask};
use idlewise_sim::predict::{Outcome, Vouched, Waited};

/// What stands for all tasks together.
const ALL: &str = "all";

/// What is shown: a name, and the tasks or requests whose latencies it names.
pub(super) enum Shown {
    All,
    Tasks(String, Vec<u32>),
    Requests(String, Vec<(usize, usize)>),
}

impl Shown {
    fn name(&self) -> &str {
        match self {
            Shown::All => ALL,
            Shown::Tasks(name, _) | Shown::Requests(name, _) => name,
        }
    }

    fn waited(&self, run: &Outcome) -> Waited {
        Waited::new(&match self {
            Shown::All => run.waits(&|_| true),
            Shown::Tasks(_, tasks) => run.waits(&|task| tasks.contains(&task)),
            Shown::Requests(_, requests) => run.request_waits(requests),
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
        let waited = shown.iter().map(|shown| shown.waited(&run)).collect();
        run.forget_steps();
        Kept { sums: run, waited }
    }
}

/// The rows of the recorded setting and of the others.
pub(super) struct Rows<'a> {
    shown: &'a [Shown],
    vouched: Vouched,
    base: Vec<Outcome>,
    pub runs: Vec<PredictedRun>,
    /// Those of each of `shown`.
    tasks: Vec<Vec<PredictedTask>>,
}

impl<'a> Rows<'a> {
    pub fn new(name: &str, base: Vec<Kept>, shown: &'a [Shown], vouched: Vouched) -> Self {
        let tasks = shown.iter().map(|_| Vec::new()).collect();
        let mut rows = Rows { shown, vouched, base: Vec::new(), runs: Vec::new(), tasks };
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
            let is_all = matches!(shown, Shown::All);
            rows.push(PredictedTask::new(name, shown.name(), &of_shown, rows.first(), is_all));
        }
        self.runs.push(PredictedRun::new(name, &sums, &self.base));
        sums
    }

    /// The rows, with the figures cleared that the reproduction does not vouch for.
    pub fn vouched(self) -> (Vec<PredictedRun>, Vec<PredictedTask>) {
        let Rows { vouched, runs, tasks, .. } = self;
        let runs = runs.into_iter().map(|row| row.only(vouched));
        (runs.collect(), tasks.into_iter().flatten().map(|row| row.only(vouched)).collect())
    }
}
