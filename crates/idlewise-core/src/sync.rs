//! Atomics from `core`, or from loom, which explores every order that the memory model allows.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(all(not(loom), target_has_atomic = "64"))]
pub(crate) use core::sync::atomic::{AtomicU64, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Ways to break protocols on purpose. They let tests show that loom catches each of them.
#[cfg(loom)]
pub mod broken {
    extern crate std;

    use core::cell::Cell;

    use loom::sync::atomic::Ordering;

    /// One way to get a protocol wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs, reason = "each is explained where it is asked for")]
    pub enum Break {
        RingRelaxed,
        FreeRideOnlyLooks,
        SleeperGetsNoCall,
        TakeRelaxed,
        TakeInTwoSteps,
        FallAsleepBlindly,
        MarkRelaxed,
        CollectRelaxed,
        RingBeforeMark,
        EnlistWithoutFence,
        ClaimWithoutFence,
        ClaimInTwoSteps,
        // For idlewise-park.
        EnterLineWithoutFence,
        PushWithoutFence,
        PopWithoutFence,
        StampRelaxed,
        ClosedUnseen,
        CallKept,
        HandOnKept,
        WriteForgotten,
        PollWithoutSleep,
        SleepWithoutLook,
        SearchEndsAfterLook,
    }

    std::thread_local! {
        static BROKEN: Cell<Option<Break>> = const { Cell::new(None) };
    }

    /// Runs `model` with one thing broken. Loom runs all of a model's threads on one real thread.
    pub fn with<R>(broken: Break, model: impl FnOnce() -> R) -> R {
        struct Mend;
        impl Drop for Mend {
            fn drop(&mut self) {
                BROKEN.set(None);
            }
        }
        let _mend = Mend;
        BROKEN.set(Some(broken));
        model()
    }

    /// Whether the current model breaks this.
    pub fn is(candidate: Break) -> bool {
        BROKEN.get() == Some(candidate)
    }

    /// The given ordering, or a relaxed one if the current model breaks this.
    pub fn weaken(ordering: Ordering, candidate: Break) -> Ordering {
        if is(candidate) { Ordering::Relaxed } else { ordering }
    }
}

/// `true` only in a model that breaks the protocol in this way.
#[cfg(loom)]
macro_rules! breaks {
    ($how:ident) => {
        $crate::sync::broken::is($crate::sync::broken::Break::$how)
    };
}

/// `true` only in a model that breaks the protocol in this way.
#[cfg(not(loom))]
macro_rules! breaks {
    ($how:ident) => {
        false
    };
}

/// The given ordering, or a relaxed one in a model that weakens just this one.
#[cfg(loom)]
macro_rules! order {
    ($ordering:ident unless $how:ident) => {
        $crate::sync::broken::weaken(
            $crate::sync::Ordering::$ordering,
            $crate::sync::broken::Break::$how,
        )
    };
}

/// The given ordering, or a relaxed one in a model that weakens just this one.
#[cfg(not(loom))]
macro_rules! order {
    ($ordering:ident unless $how:ident) => {
        $crate::sync::Ordering::$ordering
    };
}

pub(crate) use {breaks, order};
