//! Tables, by Arrow's PyCapsule interface and as bytes.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

/// Batches with one schema; at least one.
#[pyclass(frozen)]
pub struct Batches(Arc<[RecordBatch]>);

impl Batches {
    pub fn new(batches: Vec<RecordBatch>) -> Self {
        Batches(batches.into())
    }
}

fn fail(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Batches {
    /// Batches of what [`Batches::bytes`] returned.
    #[staticmethod]
    fn of_bytes(bytes: &[u8]) -> PyResult<Self> {
        let reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(fail)?;
        let empty = RecordBatch::new_empty(reader.schema());
        let batches: Vec<_> = reader.collect::<Result<_, _>>().map_err(fail)?;
        Ok(Batches::new(if batches.is_empty() { vec![empty] } else { batches }))
    }

    /// As a stream of Arrow's IPC format.
    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let written = || {
            let mut writer = StreamWriter::try_new(Vec::new(), &self.0[0].schema())?;
            self.0.iter().try_for_each(|batch| writer.write(batch))?;
            writer.into_inner()
        };
        Ok(PyBytes::new(py, &written().map_err(fail)?))
    }

    fn __len__(&self) -> usize {
        self.0.iter().map(RecordBatch::num_rows).sum()
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0[0].schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __arrow_c_stream__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        // Cloning a batch copies references to its columns.
        let batches: Vec<_> = self.0.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, self.0[0].schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
