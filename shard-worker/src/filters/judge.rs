//! One image, all filters: its header is read once, its pixels are decoded once, planes are
//! shared.

use std::time::Duration;

use crds::{ComputeFilters, DecodeLimits, FilterName};

use crate::filters::blockiness::Steps;
use crate::filters::clarity::{Clarity, Laplacian};
use crate::filters::color_entropy::{Bins, ColorEntropy};
use crate::filters::decode::{self, Limits};
use crate::filters::edge_density::{Canny, EdgeDensity};
use crate::filters::exif_metadata::ExifMetadata;
use crate::filters::exif_rotation::ExifRotation;
use crate::filters::gate::MemoryGate;
use crate::filters::header::{Format, Header};
use crate::filters::jpeg_artifact::JpegArtifact;
use crate::filters::luma::{Levels, LumaSpread};
use crate::filters::pixels::{ColourRun, Luma, Pixels, RUN};
use crate::filters::reason::Reason;
use crate::filters::saturation::{Saturation, Sums};
use crate::filters::simd::{self, Level};
use crate::filters::texture::{Texture, Windows};
use crate::panics::caught;

/// Luma of a band of rows; all filters see a band before the next one is made, while it is in
/// the second-level cache.
const BAND: usize = 128 << 10;
/// Rows that filters look at after the one that they judge.
const ROWS_AHEAD: usize = 2;
/// Buffers of more bytes than this are not kept for the next image.
const KEPT: usize = 48 << 20;

/// What the wanted filters say of an image. A filter that is not wanted, or that cannot judge
/// the image, says nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Judged {
    /// `exif_rotation`.
    pub exif_rotation: Option<ExifRotation>,
    /// `exif_metadata`.
    pub exif_metadata: Option<ExifMetadata>,
    /// `saturation`.
    pub saturation: Option<Saturation>,
    /// `jpeg_artifact`.
    pub jpeg_artifact: Option<JpegArtifact>,
    /// `clarity`.
    pub clarity: Option<Clarity>,
    /// `texture`.
    pub texture: Option<Texture>,
    /// `luma`.
    pub luma: Option<LumaSpread>,
    /// `color_entropy`.
    pub color_entropy: Option<ColorEntropy>,
    /// `edge_density`.
    pub edge_density: Option<EdgeDensity>,
    /// Why some filter says nothing.
    pub reason: Option<Reason>,
}

/// Which filters are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Wanted {
    exif_rotation: bool,
    exif_metadata: bool,
    saturation: bool,
    jpeg_artifact: bool,
    clarity: bool,
    texture: bool,
    luma: bool,
    color_entropy: bool,
    edge_density: bool,
}

impl Wanted {
    fn new(filters: &[FilterName]) -> Self {
        let has = |filter| filters.contains(&filter);
        Self {
            exif_rotation: has(FilterName::ExifRotation),
            exif_metadata: has(FilterName::ExifMetadata),
            saturation: has(FilterName::Saturation),
            jpeg_artifact: has(FilterName::JpegArtifact),
            clarity: has(FilterName::Clarity),
            texture: has(FilterName::Texture),
            luma: has(FilterName::Luma),
            color_entropy: has(FilterName::ColorEntropy),
            edge_density: has(FilterName::EdgeDensity),
        }
    }

    fn colour(self) -> bool {
        self.saturation || self.color_entropy
    }

    /// Filters that look at a pixel's neighbours.
    fn surroundings(self) -> bool {
        self.jpeg_artifact || self.clarity || self.texture || self.edge_density
    }

    /// Whether no other filter looks at pixels.
    fn only_edges(self) -> bool {
        let others = Self {
            edge_density: false,
            ..self
        };
        self.edge_density && !others.pixels()
    }

    fn pixels(self) -> bool {
        self.colour() || self.surroundings() || self.luma
    }
}

/// Buffers of a thread, used for one image after the other.
#[derive(Debug, Default)]
pub struct Scratch {
    samples: Vec<u8>,
    planes: Planes,
}

#[derive(Debug, Default)]
struct Planes {
    luma: Vec<u8>,
    run: ColourRun,
    sums: Sums,
    bins: Bins,
    levels: Levels,
    laplacian: Laplacian,
    windows: Windows,
    steps: Steps,
    canny: Canny,
}

/// Judges images by the filters of an operation.
#[derive(Debug)]
pub struct Judge {
    wanted: Wanted,
    limits: Limits,
    level: Level,
    gate: MemoryGate,
}

impl Judge {
    /// For `threads` threads that together may hold `memory` bytes for decoded images, and an
    /// encoded image of at most `encoded` bytes.
    pub fn new(spec: &ComputeFilters, memory: u64, encoded: u64, threads: usize) -> Self {
        let DecodeLimits {
            max_pixels,
            max_bytes,
            max_decode_millis,
        } = &spec.limits;
        let natural = |limit: i64| limit.max(0) as u64;
        let gate = MemoryGate::new(memory, threads);
        Self {
            wanted: Wanted::new(&spec.filters),
            limits: Limits {
                pixels: natural(*max_pixels),
                bytes: natural(*max_bytes).min(encoded),
                memory: gate.largest(),
                time: Duration::from_millis(natural(*max_decode_millis)),
            },
            level: simd::level(),
            gate,
        }
    }

    /// What an image may cost.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The same on a CPU that has no more than these instructions.
    pub fn at_level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Judges an image. A decoder that panics costs this image alone.
    pub fn judge(&self, bytes: Option<&[u8]>, scratch: &mut Scratch) -> Judged {
        let mut judged = Judged::default();
        let outcome = match bytes {
            None | Some([]) => Err(Reason::Empty),
            Some(bytes) => {
                let judging = || self.try_judge(bytes, scratch, &mut judged);
                caught(judging).unwrap_or(Err(Reason::DecoderPanic))
            }
        };
        judged.reason = outcome.err();
        if judged.reason.is_some() {
            // Half of a measurement is none.
            judged = Judged {
                exif_rotation: judged.exif_rotation,
                exif_metadata: judged.exif_metadata,
                reason: judged.reason,
                ..Judged::default()
            };
        }
        if scratch.samples.capacity() > KEPT {
            *scratch = Scratch::default();
        }
        judged
    }

    fn try_judge(
        &self,
        bytes: &[u8],
        scratch: &mut Scratch,
        judged: &mut Judged,
    ) -> Result<(), Reason> {
        let header = Header::read(bytes)?;
        if self.wanted.exif_rotation {
            judged.exif_rotation = Some(ExifRotation::new(&header.exif));
        }
        if self.wanted.exif_metadata {
            judged.exif_metadata = Some(header.exif.clone());
        }
        if !self.wanted.pixels() {
            return Ok(());
        }
        if bytes.len() as u64 > self.limits.bytes {
            return Err(Reason::TooLarge);
        }
        self.limits.check(&header)?;
        let _pass = self.gate.enter(self.limits.memory_of(&header));
        let Scratch { samples, planes } = scratch;
        let only_edges = self.wanted.only_edges();
        let layout = decode::decode(bytes, &header, only_edges, &self.limits, samples)?;
        let (width, height) = (header.width as usize, header.height as usize);
        let pixels = Pixels {
            samples: &samples[..width * height * layout.samples()],
            width,
            height,
            layout,
        };
        self.measure(pixels, planes, judged);
        if let Some(artifact) = &mut judged.jpeg_artifact {
            artifact.is_jpeg = header.format == Format::Jpeg;
            artifact.quality = header.quality;
        }
        Ok(())
    }

    /// Measures decoded pixels.
    pub fn measure_pixels(&self, pixels: Pixels<'_>, scratch: &mut Scratch) -> Judged {
        let mut judged = Judged::default();
        self.measure(pixels, &mut scratch.planes, &mut judged);
        judged
    }

    fn measure(&self, pixels: Pixels<'_>, planes: &mut Planes, judged: &mut Judged) {
        let (wanted, level) = (self.wanted, self.level);
        let Pixels {
            samples,
            width,
            height,
            layout,
        } = pixels;
        planes.clear(width, height, wanted);
        let is_luma = layout.samples() == 1;
        let wants_luma = wanted.luma || wanted.surroundings();
        if !is_luma && wants_luma && planes.luma.len() < width * height {
            planes.luma.resize(width * height, 0);
        }
        let rows_of_band = (BAND / width).max(1);
        let mut made = 0;
        let mut row = 0;
        while row < height {
            let band = row..(row + rows_of_band).min(height);
            let until = width * (band.end + ROWS_AHEAD).min(height);
            while made < until {
                let end = (made + RUN).min(until);
                let run = &samples[made * layout.samples()..end * layout.samples()];
                if wanted.colour() || wants_luma && !is_luma {
                    planes.run.split(level, run, layout);
                }
                if wanted.saturation {
                    planes.sums.add(level, &planes.run);
                }
                if wanted.color_entropy {
                    planes.bins.add(level, &planes.run);
                }
                if is_luma {
                    if wanted.luma {
                        planes.levels.add(run);
                    }
                } else if wants_luma {
                    let luma = &mut planes.luma[made..end];
                    planes.run.luma(level, luma);
                    if wanted.luma {
                        planes.levels.add(luma);
                    }
                }
                made = end;
            }
            if wanted.surroundings() {
                let luma = Luma {
                    samples: if is_luma {
                        samples
                    } else {
                        &planes.luma[..made]
                    },
                    width,
                    height,
                };
                if wanted.jpeg_artifact {
                    planes.steps.add(level, luma, band.clone());
                }
                if wanted.clarity {
                    planes.laplacian.add(level, luma, band.clone());
                }
                if wanted.texture {
                    planes.windows.add(level, luma, band.clone());
                }
                if wanted.edge_density {
                    planes.canny.add(level, luma, band.clone());
                }
            }
            row = band.end;
        }
        judged.saturation = wanted.saturation.then(|| planes.sums.finish());
        judged.jpeg_artifact = wanted.jpeg_artifact.then(|| JpegArtifact {
            is_jpeg: false,
            blockiness: planes.steps.finish(width, height),
            quality: None,
        });
        judged.clarity = wanted.clarity.then(|| planes.laplacian.finish());
        judged.texture = wanted.texture.then(|| planes.windows.finish());
        judged.luma = wanted.luma.then(|| planes.levels.finish());
        judged.color_entropy = wanted.color_entropy.then(|| planes.bins.finish());
        judged.edge_density = wanted
            .edge_density
            .then(|| planes.canny.finish(width, height));
    }
}

impl Planes {
    fn clear(&mut self, width: usize, height: usize, wanted: Wanted) {
        self.sums.clear();
        self.bins.clear();
        self.levels.clear();
        self.laplacian.clear();
        self.windows.clear();
        self.steps.clear();
        if wanted.edge_density {
            self.canny.start(width, height);
        }
    }
}
