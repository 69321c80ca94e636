//! Photographs, or what looks like them to a filter: light and shade over several scales, shapes
//! with edges, the sensor's noise. Most are JPEGs; among them is what a crawl brings along.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use image::ImageEncoder;
use image::codecs::png::PngEncoder;
use libjpeg_turbo_rs::{PixelFormat, Subsampling};
use parquet::basic::Compression;
use parquet::schema::types::ColumnPath;

use crate::parquet_output::{strings, write_parquet, zstd};
use crate::scatter::{chance, mix};

pub const SHARDS: usize = 4;
const ROWS: usize = 90;

/// Writes one shard of photographs.
pub fn write_photos(root: &Path, shard: usize) -> Result<()> {
    let numbers = (shard * ROWS) as u64..((shard + 1) * ROWS) as u64;
    let images = numbers.clone().map(image).collect::<Result<Vec<_>>>()?;
    let keys = numbers.map(|number| {
        let name = mix(number, 900);
        Some(format!("s3://bucket/source_p/{name:016x}.jpg"))
    });
    let images: ArrayRef = Arc::new(BinaryArray::from_iter(images));
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("s3_path", strings(keys), true),
        ("image", images, true),
    ])?;
    let properties = zstd()
        .set_column_compression(ColumnPath::from("image"), Compression::UNCOMPRESSED)
        .set_column_dictionary_enabled(ColumnPath::from("image"), false)
        .build();
    let path = root.join(format!("photos/shard-{shard:06}.parquet"));
    write_parquet(&path, &batch, properties)
}

/// What one row holds.
fn image(number: u64) -> Result<Option<Vec<u8>>> {
    let photo = Photo::new(number);
    let image = match mix(number, 901) % 40 {
        0 => return Ok(None),
        1 => b"<!DOCTYPE html><title>404 Not Found</title>".to_vec(),
        2 => {
            let mut cut = photo.jpeg()?;
            cut.truncate(cut.len() / 2);
            cut
        }
        // The head of an AVIF.
        3 => b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf".to_vec(),
        4..=6 => photo.png()?,
        7..=12 => turned(&photo.jpeg()?, 1 + (mix(number, 902) % 8) as u8),
        _ => photo.jpeg()?,
    };
    Ok(Some(image))
}

struct Photo {
    number: u64,
    width: usize,
    height: usize,
    samples: Vec<u8>,
}

impl Photo {
    fn new(number: u64) -> Self {
        let width = 320 + (mix(number, 903) % 480) as usize;
        let height = width * 2 / 3;
        let pick = |salt, range: f64| chance(number, 1, salt) * range;
        let tint: [f64; 3] = std::array::from_fn(|channel| pick(910 + channel as u64, 0.5) + 0.6);
        let (light, noise) = (pick(920, 110.0), pick(921, 9.0));
        let (x, y, radius) = (pick(922, 1.0), pick(923, 1.0), pick(924, 0.3));
        let mut samples = Vec::with_capacity(width * height * 3);
        for row in 0..height {
            for column in 0..width {
                let (across, down) = (column as f64 / width as f64, row as f64 / height as f64);
                let clouds: f64 = [(4.0, 60.0), (13.0, 30.0), (47.0, 14.0)]
                    .iter()
                    .map(|(scale, strength)| {
                        strength * smooth(number, across * scale, down * scale)
                    })
                    .sum();
                let is_disc = (across - x).hypot(down - y) < radius;
                let is_line = ((across * 3.0 - down * 2.0) * 5.0).fract() < 0.02;
                let shape = if is_disc { 45.0 } else { 0.0 } - if is_line { 70.0 } else { 0.0 };
                let grain = noise * chance(number, (row * width + column) as u64, 925);
                let tone = light + clouds + shape + grain + 30.0 * (1.0 - down);
                samples.extend(tint.map(|tint| (tone * tint).clamp(0.0, 255.0) as u8));
            }
        }
        Self {
            number,
            width,
            height,
            samples,
        }
    }

    fn jpeg(&self) -> Result<Vec<u8>> {
        let quality = 60 + (mix(self.number, 930) % 36) as u8;
        let sampling = match mix(self.number, 931) % 3 {
            0 => Subsampling::S444,
            _ => Subsampling::S420,
        };
        let encode = match mix(self.number, 932) % 6 {
            0 => libjpeg_turbo_rs::compress_progressive,
            _ => libjpeg_turbo_rs::compress,
        };
        let format = PixelFormat::Rgb;
        Ok(encode(
            &self.samples,
            self.width,
            self.height,
            format,
            quality,
            sampling,
        )?)
    }

    fn png(&self) -> Result<Vec<u8>> {
        let mut file = Cursor::new(Vec::new());
        PngEncoder::new(&mut file).write_image(
            &self.samples,
            self.width as u32,
            self.height as u32,
            image::ExtendedColorType::Rgb8,
        )?;
        Ok(file.into_inner())
    }
}

/// A smooth landscape of random heights, 0..1, on a grid of whole numbers.
fn smooth(number: u64, x: f64, y: f64) -> f64 {
    let height = |column: f64, row: f64| chance(number, (row as u64) << 20 | column as u64, 940);
    let ease = |part: f64| part * part * (3.0 - 2.0 * part);
    let (left, top) = (x.floor(), y.floor());
    let (across, down) = (ease(x - left), ease(y - top));
    let upper = height(left, top) * (1.0 - across) + height(left + 1.0, top) * across;
    let lower = height(left, top + 1.0) * (1.0 - across) + height(left + 1.0, top + 1.0) * across;
    upper * (1.0 - down) + lower * down
}

/// The JPEG with an Exif block that says how the camera was held.
fn turned(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let mut block = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    block.extend([orientation, 0, 0, 0, 0, 0, 0]);
    let mut image = jpeg[..2].to_vec();
    image.extend([0xff, 0xe1]);
    image.extend((block.len() as u16 + 2).to_be_bytes());
    image.extend(block);
    image.extend(&jpeg[2..]);
    image
}
