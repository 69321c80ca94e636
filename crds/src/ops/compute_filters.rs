//! `computeFilters`: quality metrics of the images themselves.

use std::fmt;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// Decodes the image of each row once and computes quality metrics from it. Filter
/// `edgeDensity` fills the column `filter_edge_density` of type `filter_edge_density_v1`,
/// and so on; columns that `spec.columns` does not declare are added after those that it
/// does. A column `filter_errors` of type `string`, if declared, says why a row has no values.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeFilters {
    /// The metrics to compute.
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(validation = rules::names_are_unique())]
    pub filters: Vec<FilterName>,
    /// What a row with an image that can't be judged does: `NullRow` gives it empty
    /// values and counts the reason.
    #[serde(default)]
    pub on_error: OnRowError,
    /// What an image may cost before its row counts as one that can't be judged.
    #[serde(default)]
    pub limits: DecodeLimits,
}

/// A quality metric of an image.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "camelCase")]
pub enum FilterName {
    /// Orientation tag and what it asks for.
    ExifRotation,
    /// What the camera wrote about the picture.
    ExifMetadata,
    /// Saturation of colours.
    Saturation,
    /// Blocking artefacts and quality of JPEG compression.
    JpegArtifact,
    /// Sharpness: variance of the Laplacian of luma.
    Clarity,
    /// Local contrast of luma.
    Texture,
    /// Distribution of luma.
    Luma,
    /// Variety of colours: entropy of their histogram.
    ColorEntropy,
    /// Share of pixels on edges.
    EdgeDensity,
}

/// What a row with an image that can't be judged does.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnRowError {
    /// The row gets empty values; the reason is counted and reported.
    #[default]
    NullRow,
}

/// What an image may cost before its row counts as one that can't be judged.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecodeLimits {
    /// Pixels of an image, width times height, judged from its header.
    #[serde(default = "default_max_pixels")]
    #[schemars(range(min = 1, max = 4_294_967_296_i64))]
    pub max_pixels: i64,
    /// Bytes of an encoded image.
    #[serde(default = "default_max_bytes")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_bytes: i64,
    /// Milliseconds that decoding one image may take. Judged by work, so that every machine
    /// has the same answer: pixels times scans, at 50,000 a millisecond.
    #[serde(default = "default_max_decode_millis")]
    #[schemars(range(min = 1, max = 3_600_000))]
    pub max_decode_millis: i64,
}

fn default_max_pixels() -> i64 {
    200_000_000
}

fn default_max_bytes() -> i64 {
    256 * 1024 * 1024
}

fn default_max_decode_millis() -> i64 {
    30_000
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            max_pixels: default_max_pixels(),
            max_bytes: default_max_bytes(),
            max_decode_millis: default_max_decode_millis(),
        }
    }
}

impl FilterName {
    /// Every filter, in the order of the reference.
    pub const ALL: [Self; 9] = [
        Self::ExifRotation,
        Self::ExifMetadata,
        Self::Saturation,
        Self::JpegArtifact,
        Self::Clarity,
        Self::Texture,
        Self::Luma,
        Self::ColorEntropy,
        Self::EdgeDensity,
    ];

    /// The name in snake case: `edge_density`.
    pub fn snake_case(self) -> &'static str {
        match self {
            Self::ExifRotation => "exif_rotation",
            Self::ExifMetadata => "exif_metadata",
            Self::Saturation => "saturation",
            Self::JpegArtifact => "jpeg_artifact",
            Self::Clarity => "clarity",
            Self::Texture => "texture",
            Self::Luma => "luma",
            Self::ColorEntropy => "color_entropy",
            Self::EdgeDensity => "edge_density",
        }
    }

    /// The column that the filter fills: `filter_edge_density`.
    pub fn column_name(self) -> String {
        format!("filter_{}", self.snake_case())
    }

    /// The struct type of that column: `filter_edge_density_v1`.
    pub fn type_name(self) -> String {
        format!("filter_{}_v1", self.snake_case())
    }
}

impl fmt::Display for FilterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.snake_case())
    }
}
