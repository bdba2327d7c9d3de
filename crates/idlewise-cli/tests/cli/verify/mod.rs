//! `idlewise verify`.

mod decisions;
mod sources;
