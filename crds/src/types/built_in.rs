//! Struct types that every job knows. A changed formula or field is a new type with a
//! higher version, so that a name always means the same.

use super::{DataType, Field};

/// Names of the built-in struct types.
pub const BUILT_IN_NAMES: [&str; 10] = [
    "filter_exif_rotation_v1",
    "filter_exif_metadata_v1",
    "filter_saturation_v1",
    "filter_jpeg_artifact_v1",
    "filter_clarity_v1",
    "filter_texture_v1",
    "filter_luma_v1",
    "filter_color_entropy_v1",
    "filter_edge_density_v1",
    "score_v1",
];

/// The built-in struct type of this name.
pub fn built_in(name: &str) -> Option<DataType> {
    use DataType::{Boolean, Float64, Int32, Int64, String};
    let fields: &[(&str, DataType)] = match name {
        "filter_exif_rotation_v1" => &[
            ("passed", Boolean),
            ("orientation", Int32),
            ("rotation", Int32),
            ("mirrored", Boolean),
        ],
        "filter_exif_metadata_v1" => &[
            ("passed", Boolean),
            ("has_exif", Boolean),
            ("exif_bytes", Int32),
            ("make", String),
            ("model", String),
            ("software", String),
            ("datetime", String),
            ("iso", Int32),
            ("exposure_time", Float64),
            ("f_number", Float64),
            ("focal_length", Float64),
            ("has_gps", Boolean),
        ],
        "filter_saturation_v1" => &[
            ("passed", Boolean),
            ("mean", Float64),
            ("std", Float64),
            ("low_ratio", Float64),
        ],
        "filter_jpeg_artifact_v1" => &[
            ("passed", Boolean),
            ("is_jpeg", Boolean),
            ("blockiness", Float64),
            ("quality", Int32),
        ],
        "filter_clarity_v1" => &[
            ("passed", Boolean),
            ("laplacian_var", Float64),
            ("score", Float64),
        ],
        "filter_texture_v1" => &[
            ("passed", Boolean),
            ("local_std", Float64),
            ("flat_ratio", Float64),
        ],
        "filter_luma_v1" => &[
            ("passed", Boolean),
            ("mean", Float64),
            ("std", Float64),
            ("p05", Int32),
            ("p50", Int32),
            ("p95", Int32),
            ("dark_ratio", Float64),
            ("bright_ratio", Float64),
        ],
        "filter_color_entropy_v1" => &[
            ("passed", Boolean),
            ("entropy", Float64),
            ("normalized", Float64),
            ("colors", Int32),
        ],
        "filter_edge_density_v1" => &[
            ("passed", Boolean),
            ("density", Float64),
            ("edge_pixels", Int64),
        ],
        "score_v1" => &[
            ("raw_score", Float64),
            ("score", Float64),
            ("error", String),
        ],
        _ => return None,
    };
    let fields = fields
        .iter()
        .map(|(name, data_type)| Field::new(*name, data_type.clone()))
        .collect();
    Some(DataType::Struct(fields))
}
