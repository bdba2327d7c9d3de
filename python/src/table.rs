//! A table for Python, by Arrow's PyCapsule interface.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::RecordBatchIterator;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

#[pyclass(frozen)]
#[derive(Clone)]
/// Batches with one schema; at least one.
pub struct Table(Arc<[RecordBatch]>);

impl Table {
    pub fn new(batches: Vec<RecordBatch>) -> Self {
        Table(batches.into())
    }

    fn rows(&self) -> usize {
        self.0.iter().map(RecordBatch::num_rows).sum()
    }
}

#[pymethods]
impl Table {
    #[getter]
    fn row_count(&self) -> usize {
        self.rows()
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0[0].schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.rows()
    }

    /// The columns are shared, not copied. A requested schema is a wish, and is not obeyed.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        // Cloning a batch copies references to its columns.
        let batches: Vec<_> = self.0.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, self.0[0].schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __repr__(&self) -> String {
        format!("<idlewise.Table: {} rows, {} columns>", self.rows(), self.0[0].num_columns())
    }
}
