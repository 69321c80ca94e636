//! What the filters say, as columns.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, LargeStringArray,
    StructArray,
};
use arrow::datatypes::{DataType as Arrow, Field, FieldRef, Fields};
use arrow::error::ArrowError;
use crds::FilterName;

use crate::filters::exif_metadata::ExifMetadata;
use crate::filters::exif_rotation::ExifRotation;
use crate::filters::judge::Judged;

/// Name of the column that says why a row has no values, if it is declared.
pub const ERRORS: &str = "filter_errors";

/// The column of a filter: a row an image, present structs whose fields are null where the
/// filter says nothing.
pub fn column(filter: FilterName, judged: &[Judged]) -> Result<ArrayRef, ArrowError> {
    let children = match filter {
        FilterName::ExifRotation => {
            let of = Of(judged, |judged| judged.exif_rotation.as_ref());
            vec![
                of.bool("passed", ExifRotation::passed),
                of.int("orientation", |it| it.orientation),
                of.int("rotation", |it| Some(it.rotation())),
                of.bool("mirrored", ExifRotation::mirrored),
            ]
        }
        FilterName::ExifMetadata => {
            let of = Of(judged, |judged| judged.exif_metadata.as_ref());
            let bytes = |it: &ExifMetadata| Some(i32::try_from(it.bytes).unwrap_or(i32::MAX));
            vec![
                of.bool("passed", |_| true),
                of.bool("has_exif", |it| it.bytes > 0),
                of.int("exif_bytes", bytes),
                of.text("make", |it| it.make.as_deref()),
                of.text("model", |it| it.model.as_deref()),
                of.text("software", |it| it.software.as_deref()),
                of.text("datetime", |it| it.datetime.as_deref()),
                of.int("iso", |it| it.iso),
                of.float("exposure_time", |it| it.exposure_time),
                of.float("f_number", |it| it.f_number),
                of.float("focal_length", |it| it.focal_length),
                of.bool("has_gps", |it| it.has_gps),
            ]
        }
        FilterName::Saturation => {
            let of = Of(judged, |judged| judged.saturation.as_ref());
            vec![
                of.bool("passed", |it| it.passed()),
                of.float("mean", |it| Some(it.mean)),
                of.float("std", |it| Some(it.std)),
                of.float("low_ratio", |it| Some(it.low_ratio)),
            ]
        }
        FilterName::JpegArtifact => {
            let of = Of(judged, |judged| judged.jpeg_artifact.as_ref());
            vec![
                of.bool("passed", |it| it.passed()),
                of.bool("is_jpeg", |it| it.is_jpeg),
                of.float("blockiness", |it| Some(it.blockiness)),
                of.int("quality", |it| it.quality),
            ]
        }
        FilterName::Clarity => {
            let of = Of(judged, |judged| judged.clarity.as_ref());
            vec![
                of.bool("passed", |it| it.passed()),
                of.float("laplacian_var", |it| Some(it.laplacian_var)),
                of.float("score", |it| Some(it.score())),
            ]
        }
        FilterName::Texture => {
            let of = Of(judged, |judged| judged.texture.as_ref());
            vec![
                of.bool("passed", |it| it.passed()),
                of.float("local_std", |it| Some(it.local_std)),
                of.float("flat_ratio", |it| Some(it.flat_ratio)),
            ]
        }
        FilterName::Luma => {
            let of = Of(judged, |judged| judged.luma.as_ref());
            vec![
                of.bool("passed", |it| it.passed()),
                of.float("mean", |it| Some(it.mean)),
                of.float("std", |it| Some(it.std)),
                of.int("p05", |it| Some(it.percentiles[0])),
                of.int("p50", |it| Some(it.percentiles[1])),
                of.int("p95", |it| Some(it.percentiles[2])),
                of.float("dark_ratio", |it| Some(it.dark_ratio)),
                of.float("bright_ratio", |it| Some(it.bright_ratio)),
            ]
        }
        FilterName::ColorEntropy => {
            let of = Of(judged, |judged| judged.color_entropy.as_ref());
            vec![
                of.bool("passed", |it| it.passed()),
                of.float("entropy", |it| Some(it.entropy)),
                of.float("normalized", |it| Some(it.normalized())),
                of.int("colors", |it| Some(it.colors)),
            ]
        }
        FilterName::EdgeDensity => {
            let of = Of(judged, |judged| judged.edge_density.as_ref());
            let pixels = judged.iter().map(|judged| judged.edge_density.as_ref());
            let pixels = pixels.map(|it| it.map(|it| it.edge_pixels as i64));
            vec![
                of.bool("passed", |it| it.passed()),
                of.float("density", |it| Some(it.density)),
                named("edge_pixels", Int64Array::from_iter(pixels)),
            ]
        }
    };
    let (fields, arrays): (Vec<FieldRef>, Vec<ArrayRef>) = children.into_iter().unzip();
    let fields = Fields::from(fields);
    let column = StructArray::try_new_with_length(fields, arrays, None, judged.len())?;
    Ok(Arc::new(column))
}

/// Names of the reasons, null where there is none.
pub fn errors(judged: &[Judged]) -> ArrayRef {
    let reasons = judged.iter().map(|judged| judged.reason);
    let names = reasons.map(|reason| reason.map(|reason| reason.name()));
    Arc::new(LargeStringArray::from_iter(names))
}

type Child = (FieldRef, ArrayRef);

/// Fields of a filter's struct.
struct Of<'a, T>(&'a [Judged], fn(&Judged) -> Option<&T>);

impl<'a, T: 'a> Of<'a, T> {
    fn bool(&self, name: &str, get: impl Fn(&T) -> bool) -> Child {
        let values = self.0.iter().map(|judged| (self.1)(judged).map(&get));
        named(name, BooleanArray::from_iter(values))
    }

    fn int(&self, name: &str, get: impl Fn(&T) -> Option<i32>) -> Child {
        let values = self.0.iter().map(|judged| (self.1)(judged).and_then(&get));
        named(name, Int32Array::from_iter(values))
    }

    fn float(&self, name: &str, get: impl Fn(&T) -> Option<f64>) -> Child {
        let values = self.0.iter().map(|judged| (self.1)(judged).and_then(&get));
        named(name, Float64Array::from_iter(values))
    }

    fn text(&self, name: &str, get: impl for<'b> Fn(&'b T) -> Option<&'b str>) -> Child {
        let values = self.0.iter().map(|judged| (self.1)(judged).and_then(&get));
        named(name, LargeStringArray::from_iter(values))
    }
}

fn named(name: &str, array: impl Array + 'static) -> Child {
    let data_type: Arrow = array.data_type().clone();
    (Arc::new(Field::new(name, data_type, true)), Arc::new(array))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrow_types::arrow_type;

    #[test]
    fn columns_have_the_types_that_the_api_declares() {
        for filter in FilterName::ALL {
            let declared = crds::types::built_in(&filter.type_name()).unwrap();
            let column = column(filter, &[Judged::default(), Judged::default()]).unwrap();
            assert_eq!(*column.data_type(), arrow_type(&declared), "{filter}");
            assert_eq!((column.len(), column.null_count()), (2, 0));
        }
    }
}
