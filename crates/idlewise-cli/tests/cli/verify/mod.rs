//! `idlewise lab verify`.

mod decisions;
mod sources;
