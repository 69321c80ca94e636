//! Kernels against the plain reference: odd sizes, one-pixel rows and columns, all layouts, all
//! levels of vector instructions.

use crds::{ComputeFilters, DecodeLimits, FilterName, OnRowError};
use proptest::prelude::*;
use shard_worker::filters::judge::{Judge, Judged, Scratch};
use shard_worker::filters::pixels::{Layout, Pixels};
use shard_worker::filters::simd::{Level, levels};

use crate::reference::{Image, Values};

/// A judge of all filters.
pub fn judge(limits: DecodeLimits) -> Judge {
    let spec = ComputeFilters {
        filters: FilterName::ALL.to_vec(),
        on_error: OnRowError::NullRow,
        limits,
    };
    Judge::new(&spec, 1 << 30, 64 << 20, 1)
}

/// What the filters say, under the reference's names.
pub fn values(judged: &Judged) -> Values {
    let mut values = Values::new();
    let mut put = |name, value: f64| {
        values.insert(name, value);
    };
    if let Some(it) = &judged.saturation {
        put("saturation.mean", it.mean);
        put("saturation.std", it.std);
        put("saturation.low_ratio", it.low_ratio);
    }
    if let Some(it) = &judged.color_entropy {
        put("color_entropy.entropy", it.entropy);
        put("color_entropy.colors", f64::from(it.colors));
    }
    if let Some(it) = &judged.luma {
        put("luma.mean", it.mean);
        put("luma.std", it.std);
        put("luma.p05", f64::from(it.percentiles[0]));
        put("luma.p50", f64::from(it.percentiles[1]));
        put("luma.p95", f64::from(it.percentiles[2]));
        put("luma.dark_ratio", it.dark_ratio);
        put("luma.bright_ratio", it.bright_ratio);
    }
    if let Some(it) = &judged.clarity {
        put("clarity.laplacian_var", it.laplacian_var);
    }
    if let Some(it) = &judged.texture {
        put("texture.local_std", it.local_std);
        put("texture.flat_ratio", it.flat_ratio);
    }
    if let Some(it) = &judged.jpeg_artifact {
        put("jpeg_artifact.blockiness", it.blockiness);
    }
    if let Some(it) = &judged.edge_density {
        put("edge_density.edge_pixels", it.edge_pixels as f64);
        put("edge_density.density", it.density);
    }
    values
}

/// Checks values against the reference's: whole numbers exactly, others to a billionth, and the
/// means of roots, which have single precision, to a hundred thousandth.
pub fn check(values: &Values, expected: &Values) -> Result<(), String> {
    if values.keys().ne(expected.keys()) {
        return Err(format!("{values:?} instead of {expected:?}"));
    }
    for (name, expected) in expected {
        let value = values[name];
        let allowed = match *name {
            "texture.local_std" => 1e-5,
            // Differences of large sums: a deviation near nothing has few digits.
            "saturation.std" | "luma.std" => 1e-9 * expected.abs() + 2e-6,
            "clarity.laplacian_var" => 1e-9 * expected.abs() + 1e-9,
            _ => 1e-9 * expected.abs(),
        };
        if (value - expected).abs() > allowed {
            return Err(format!("{name} is {value}, expected {expected}"));
        }
    }
    Ok(())
}

fn samples(image: &Image, layout: Layout) -> Vec<u8> {
    let pixels = image.pixels.iter();
    pixels
        .flat_map(|[red, green, blue]| match layout {
            Layout::Gray => vec![*red],
            Layout::Rgb => vec![*red, *green, *blue],
            Layout::Rgbx => vec![*red, *green, *blue, 77],
        })
        .collect()
}

fn measure(image: &Image, layout: Layout, level: Level, scratch: &mut Scratch) -> Values {
    let samples = samples(image, layout);
    let pixels = Pixels {
        samples: &samples,
        width: image.width,
        height: image.height,
        layout,
    };
    let judge = judge(DecodeLimits::default()).at_level(level);
    values(&judge.measure_pixels(pixels, scratch))
}

fn check_all(image: &Image, is_gray: bool) -> Result<(), String> {
    let expected = image.values();
    let mut scratch = Scratch::default();
    let layouts = if is_gray {
        vec![Layout::Gray, Layout::Rgb]
    } else {
        vec![Layout::Rgb, Layout::Rgbx]
    };
    for layout in layouts {
        let mut first: Option<Values> = None;
        for level in levels() {
            let got = measure(image, layout, level, &mut scratch);
            check(&got, &expected).map_err(|error| format!("{layout:?} {level:?}: {error}"))?;
            // Not almost, but bit for bit, whatever the CPU.
            match &first {
                Some(first) => assert_eq!(&got, first, "{level:?}"),
                None => first = Some(got),
            }
        }
    }
    Ok(())
}

/// Pictures of several kinds: noise of any strength over a slope, lines, plain areas.
fn image() -> impl Strategy<Value = (Image, bool)> {
    let side = prop_oneof![Just(1_usize), 2..12_usize, 12..90_usize];
    let shape = (side.clone(), side, any::<u64>(), any::<bool>());
    (shape, 0..=255_u32, 0..4_u32).prop_map(|((width, height, seed, is_gray), noise, kind)| {
        let mut state = seed | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let base: [u32; 3] = std::array::from_fn(|_| (random() % 256) as u32);
        let pixel = |at: usize| {
            let (row, column) = ((at / width) as u32, (at % width) as u32);
            let noise = noise + 1;
            let mut pixel = base.map(|base| match kind {
                0 => base,
                1 => base + 3 * row + 2 * column,
                2 if (row / 5 + column / 7).is_multiple_of(2) => 255 - base % 256,
                _ => base,
            });
            for sample in &mut pixel {
                *sample += random() as u32 % noise;
            }
            let pixel = pixel.map(|sample| sample.min(255) as u8);
            if is_gray { [pixel[0]; 3] } else { pixel }
        };
        let pixels = (0..width * height).map(pixel).collect();
        (
            Image {
                width,
                height,
                pixels,
            },
            is_gray,
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn kernels_give_what_the_formulas_say((image, is_gray) in image()) {
        check_all(&image, is_gray).map_err(TestCaseError::fail)?;
    }
}

/// More than one band of rows, and rows of more than one run.
#[test]
fn bands_and_runs_meet_without_a_seam() {
    for (width, height) in [(4_999, 60), (300, 1_000), (70_000, 3)] {
        let pixels = (0..width * height).map(|at| {
            let (row, column) = (at / width, at % width);
            let wave = (row * 7 + column * column / 31) % 256;
            [
                wave as u8,
                (wave / 2 + row % 64) as u8,
                (column % 251) as u8,
            ]
        });
        let image = Image {
            width,
            height,
            pixels: pixels.collect(),
        };
        let mut scratch = Scratch::default();
        let best = *levels().last().unwrap();
        let got = measure(&image, Layout::Rgb, best, &mut scratch);
        check(&got, &image.values()).unwrap();
    }
}

/// Edges that wind through the whole image are one edge, however often they turn.
#[test]
fn edges_are_followed_around_every_corner() {
    let (width, height) = (131, 97);
    // A spiral of weak steps that is strong at its inner end only.
    let mut pixels = vec![[100_u8; 3]; width * height];
    let (mut left, mut right, mut top, mut bottom) = (2, width - 3, 2, height - 3);
    while left + 8 < right && top + 8 < bottom {
        for column in left..=right {
            pixels[top * width + column] = [130; 3];
            pixels[bottom * width + column] = [130; 3];
        }
        for row in top..=bottom {
            pixels[row * width + right] = [130; 3];
            pixels[row * width + left] = [130; 3];
        }
        (left, right, top, bottom) = (left + 4, right - 4, top + 4, bottom - 4);
        pixels[(top - 2) * width + left - 2] = [130; 3];
    }
    pixels[(height / 2) * width + width / 2] = [255; 3];
    let image = Image {
        width,
        height,
        pixels,
    };
    check_all(&image, true).unwrap();
}

#[test]
fn one_pixel_has_no_spread() {
    let image = Image {
        width: 1,
        height: 1,
        pixels: vec![[200, 10, 10]],
    };
    let best = *levels().last().unwrap();
    let got = measure(&image, Layout::Rgb, best, &mut Scratch::default());
    for (name, expected) in [
        ("clarity.laplacian_var", 0.0),
        ("texture.local_std", 0.0),
        ("texture.flat_ratio", 1.0),
        ("color_entropy.entropy", 0.0),
        ("color_entropy.colors", 1.0),
        ("edge_density.density", 0.0),
        ("jpeg_artifact.blockiness", 1.0),
        ("luma.std", 0.0),
    ] {
        assert_eq!(got[name], expected, "{name}");
    }
}
