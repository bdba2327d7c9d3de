//! What the columns of a file look like: of an idle log or a workload log.

use std::sync::Arc;

use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as PhysicalType,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::{Type, TypePtr};

/// What a column looks like in a file.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    pub(crate) physical: PhysicalType,
    /// The width of numbers that are never negative.
    unsigned_bits: Option<i8>,
    pub(crate) is_nullable: bool,
    /// Whether the same few values come again and again, so that a dictionary pays.
    is_repetitive: bool,
    /// For a column of names: a name's number, as which it is decoded.
    pub(crate) number_of: Option<fn(&[u8]) -> i32>,
}

impl Form {
    pub(crate) const fn required(name: &'static str, physical: PhysicalType) -> Self {
        Form {
            name,
            physical,
            unsigned_bits: None,
            is_nullable: false,
            is_repetitive: false,
            number_of: None,
        }
    }

    pub(crate) const fn nullable(name: &'static str, physical: PhysicalType) -> Self {
        Form { is_nullable: true, ..Form::required(name, physical) }
    }

    pub(crate) const fn names(name: &'static str, number_of: fn(&[u8]) -> i32) -> Self {
        let form = Form::required(name, PhysicalType::BYTE_ARRAY);
        Form { is_repetitive: true, number_of: Some(number_of), ..form }
    }

    pub(crate) const fn unsigned(self, bits: i8) -> Self {
        Form { unsigned_bits: Some(bits), ..self }
    }

    pub(crate) const fn repetitive(self) -> Self {
        Form { is_repetitive: true, ..self }
    }
}

/// The schema of a file with these columns.
pub(crate) fn schema(name: &str, forms: &[Form]) -> TypePtr {
    let field = |form: &Form| {
        let logical = match form.physical {
            PhysicalType::BYTE_ARRAY => Some(LogicalType::String),
            _ => form.unsigned_bits.map(|bits| LogicalType::integer(bits, false)),
        };
        let repetition = if form.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(form.name, form.physical)
            .with_repetition(repetition)
            .with_converted_type(ConvertedType::NONE)
            .with_logical_type(logical);
        Arc::new(field.build().expect("the schema is a constant"))
    };
    let fields = forms.iter().map(field).collect();
    let schema = Type::group_type_builder(name).with_fields(fields).build();
    Arc::new(schema.expect("the schema is a constant"))
}

/// How a file with these columns is encoded.
pub(crate) fn properties(forms: &[Form], compression: Compression) -> WriterPropertiesBuilder {
    let mut builder = WriterProperties::builder()
        .set_compression(compression)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_enabled(false)
        .set_offset_index_disabled(true);
    for form in forms {
        let name = form.name.into();
        builder = match form.physical {
            _ if form.is_repetitive => builder.set_column_dictionary_enabled(name, true),
            PhysicalType::BOOLEAN => builder.set_column_encoding(name, Encoding::RLE),
            _ => builder.set_column_encoding(name, Encoding::DELTA_BINARY_PACKED),
        };
    }
    builder
}
