//! Atomics from `core`, or loom's, which explore every order that the memory model allows.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(all(not(loom), target_has_atomic = "64"))]
pub(crate) use core::sync::atomic::{AtomicU64, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Protocols broken on purpose, so that a test can see loom catch each of them. A check that can't
/// fail is no check.
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
        // Of idlewise-park.
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

    /// Runs `model` with one thing broken. Loom runs all threads of a model on one of ours.
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

    /// Whether this model breaks that.
    pub fn is(candidate: Break) -> bool {
        BROKEN.get() == Some(candidate)
    }

    /// The ordering, or a relaxed one if this model breaks that.
    pub fn weaken(ordering: Ordering, candidate: Break) -> Ordering {
        if is(candidate) { Ordering::Relaxed } else { ordering }
    }
}

/// `true` in a model that breaks the protocol in this way, and nowhere else.
#[cfg(loom)]
macro_rules! breaks {
    ($how:ident) => {
        $crate::sync::broken::is($crate::sync::broken::Break::$how)
    };
}

/// `true` in a model that breaks the protocol in this way, and nowhere else.
#[cfg(not(loom))]
macro_rules! breaks {
    ($how:ident) => {
        false
    };
}

/// The ordering, or a relaxed one in a model that weakens just this one.
#[cfg(loom)]
macro_rules! order {
    ($ordering:ident unless $how:ident) => {
        $crate::sync::broken::weaken(
            $crate::sync::Ordering::$ordering,
            $crate::sync::broken::Break::$how,
        )
    };
}

/// The ordering, or a relaxed one in a model that weakens just this one.
#[cfg(not(loom))]
macro_rules! order {
    ($ordering:ident unless $how:ident) => {
        $crate::sync::Ordering::$ordering
    };
}

pub(crate) use {breaks, order};
