//! Types of Parquet files as a manifest would spell them, for messages and comparisons.

use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::schema::types::Type;

/// What kind of values a column holds. Two columns are spelled alike if every reader makes the
/// same of them: whatever their list items are called, and whether they allow nulls.
pub fn spell(field: &Type) -> String {
    if field.get_basic_info().repetition() == Repetition::REPEATED {
        return format!("list<{}>", spell_one(field));
    }
    spell_one(field)
}

fn spell_one(field: &Type) -> String {
    if field.is_primitive() {
        return spell_leaf(field);
    }
    let info = field.get_basic_info();
    let (logical, converted) = (info.logical_type_ref(), info.converted_type());
    let fields = field.get_fields();
    let of_fields = |fields: &[parquet::schema::types::TypePtr]| {
        let fields: Vec<String> = fields
            .iter()
            .map(|field| format!("{}: {}", field.name(), spell(field)))
            .collect();
        format!("struct<{}>", fields.join(", "))
    };
    let is_list = matches!(logical, Some(LogicalType::List)) || converted == ConvertedType::LIST;
    let is_map = matches!(logical, Some(LogicalType::Map))
        || matches!(converted, ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE);
    match fields {
        [items] if is_list => {
            let is_item = items.is_primitive()
                || items.get_fields().len() != 1
                || items.name() == "array"
                || items.name() == format!("{}_tuple", field.name());
            let item = if is_item {
                spell_one(items)
            } else {
                spell(&items.get_fields()[0])
            };
            format!("list<{item}>")
        }
        [entries] if is_map && entries.is_group() => {
            let entries: Vec<String> = entries
                .get_fields()
                .iter()
                .map(|field| spell(field))
                .collect();
            format!("map<{}>", entries.join(", "))
        }
        _ if matches!(logical, Some(LogicalType::Variant(_))) => "variant".to_owned(),
        fields => of_fields(fields),
    }
}

fn spell_leaf(field: &Type) -> String {
    let info = field.get_basic_info();
    let (logical, converted) = (info.logical_type_ref(), info.converted_type());
    let integer =
        |is_signed: bool, bits: i32| format!("{}int{bits}", if is_signed { "" } else { "u" });
    let decimal = |precision: i32, scale: i32| format!("decimal({precision}, {scale})");
    let (precision, scale, length) = match field {
        Type::PrimitiveType {
            precision,
            scale,
            type_length,
            ..
        } => (*precision, *scale, *type_length),
        Type::GroupType { .. } => (0, 0, 0),
    };
    let annotated = match logical {
        Some(LogicalType::String) => "string".to_owned(),
        Some(LogicalType::Integer(of)) => integer(of.is_signed, i32::from(of.bit_width)),
        Some(LogicalType::Decimal(of)) => decimal(of.precision, of.scale),
        Some(LogicalType::Date) => "date".to_owned(),
        Some(LogicalType::Timestamp(of)) => timestamp(&of.unit, of.is_adjusted_to_u_t_c),
        Some(LogicalType::Time(of)) => format!("time({})", unit_of(&of.unit)),
        Some(other) => format!("{other:?}").to_lowercase(),
        None => match converted {
            ConvertedType::UTF8 => "string".to_owned(),
            ConvertedType::INT_8 => integer(true, 8),
            ConvertedType::INT_16 => integer(true, 16),
            ConvertedType::INT_32 => integer(true, 32),
            ConvertedType::INT_64 => integer(true, 64),
            ConvertedType::UINT_8 => integer(false, 8),
            ConvertedType::UINT_16 => integer(false, 16),
            ConvertedType::UINT_32 => integer(false, 32),
            ConvertedType::UINT_64 => integer(false, 64),
            ConvertedType::DECIMAL => decimal(precision, scale),
            ConvertedType::TIMESTAMP_MILLIS => timestamp(&TimeUnit::MILLIS, true),
            ConvertedType::TIMESTAMP_MICROS => timestamp(&TimeUnit::MICROS, true),
            ConvertedType::TIME_MILLIS => "time(milliseconds)".to_owned(),
            ConvertedType::TIME_MICROS => "time(microseconds)".to_owned(),
            ConvertedType::NONE => String::new(),
            other => other.to_string().to_lowercase(),
        },
    };
    if !annotated.is_empty() {
        return annotated;
    }
    match field.get_physical_type() {
        PhysicalType::BOOLEAN => "bool".to_owned(),
        PhysicalType::INT32 => integer(true, 32),
        PhysicalType::INT64 => integer(true, 64),
        PhysicalType::INT96 => "int96".to_owned(),
        PhysicalType::FLOAT => "float32".to_owned(),
        PhysicalType::DOUBLE => "float64".to_owned(),
        PhysicalType::BYTE_ARRAY => "binary".to_owned(),
        PhysicalType::FIXED_LEN_BYTE_ARRAY => format!("binary of {length} bytes"),
    }
}

fn timestamp(unit: &TimeUnit, is_utc: bool) -> String {
    match (unit, is_utc) {
        (TimeUnit::MICROS, true) => "timestamp".to_owned(),
        (unit, true) => format!("timestamp({})", unit_of(unit)),
        (unit, false) => format!("timestamp({}, no time zone)", unit_of(unit)),
    }
}

fn unit_of(unit: &TimeUnit) -> &'static str {
    match unit {
        TimeUnit::MILLIS => "milliseconds",
        TimeUnit::MICROS => "microseconds",
        TimeUnit::NANOS => "nanoseconds",
    }
}

#[cfg(test)]
mod tests {
    use parquet::schema::parser::parse_message_type;

    use super::*;

    #[test]
    fn values_are_spelled_as_in_a_manifest_whatever_the_form_of_the_file() {
        let table = [
            ("required binary c (UTF8);", "string"),
            ("optional int64 c (TIMESTAMP(MICROS, true));", "timestamp"),
            (
                "optional int64 c (TIMESTAMP(NANOS, false));",
                "timestamp(nanoseconds, no time zone)",
            ),
            (
                "optional int64 c (TIMESTAMP_MILLIS);",
                "timestamp(milliseconds)",
            ),
            ("optional int32 c (DATE);", "date"),
            ("optional int32 c (INTEGER(8, false));", "uint8"),
            ("optional int32 c (UINT_8);", "uint8"),
            ("optional int32 c;", "int32"),
            ("optional boolean c;", "bool"),
            ("optional double c;", "float64"),
            (
                "optional fixed_len_byte_array(5) c (DECIMAL(9, 2));",
                "decimal(9, 2)",
            ),
            ("optional binary c (DECIMAL(9, 2));", "decimal(9, 2)"),
            ("optional fixed_len_byte_array(5) c;", "binary of 5 bytes"),
            (
                "optional fixed_len_byte_array(12) c (INTERVAL);",
                "interval",
            ),
            ("repeated float c;", "list<float32>"),
            (
                "optional group c (LIST) { repeated group list { optional group element { required int64 x; } } }",
                "list<struct<x: int64>>",
            ),
            (
                "optional group c (LIST) { repeated group bag { optional int64 item; } }",
                "list<int64>",
            ),
            (
                "optional group c (LIST) { repeated int64 array; }",
                "list<int64>",
            ),
            (
                "optional group c (MAP) { repeated group key_value { required binary key (UTF8); optional int64 value; } }",
                "map<string, int64>",
            ),
        ];
        for (field, expected) in table {
            let message = parse_message_type(&format!("message m {{ {field} }}")).unwrap();
            assert_eq!(spell(&message.get_fields()[0]), expected, "{field}");
        }
    }
}
