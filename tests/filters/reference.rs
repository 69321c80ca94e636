//! Every formula again, as plainly as it can be said: pixel by pixel, in wide integers, without a
//! thought for speed.

use std::collections::BTreeMap;

/// A decoded image; gray has three equal planes.
#[derive(Debug, Clone)]
pub struct Image {
    pub width: usize,
    pub height: usize,
    /// Red, green, blue.
    pub pixels: Vec<[u8; 3]>,
}

/// Values by `filter.field`; truth is 1.
pub type Values = BTreeMap<&'static str, f64>;

fn mirror(at: isize, length: usize) -> usize {
    let mut at = at;
    let last = length as isize - 1;
    if last == 0 {
        return 0;
    }
    while at < 0 || at > last {
        at = if at < 0 { -at } else { 2 * last - at };
    }
    at as usize
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / count).sqrt())
}

fn share(count: usize, image: &Image) -> f64 {
    count as f64 / image.pixels.len() as f64
}

impl Image {
    pub fn luma(&self) -> Vec<i64> {
        let weigh = |[red, green, blue]: &[u8; 3]| {
            let (red, green, blue) = (i64::from(*red), i64::from(*green), i64::from(*blue));
            (9798 * red + 19235 * green + 3735 * blue + 16384) >> 15
        };
        self.pixels.iter().map(weigh).collect()
    }

    /// All pixel filters.
    pub fn values(&self) -> Values {
        let mut values = Values::new();
        self.saturation(&mut values);
        self.color_entropy(&mut values);
        let luma = self.luma();
        self.luma_spread(&luma, &mut values);
        self.clarity(&luma, &mut values);
        self.texture(&luma, &mut values);
        values.insert("jpeg_artifact.blockiness", self.blockiness(&luma));
        let edges = self.edges(&luma);
        values.insert("edge_density.edge_pixels", edges as f64);
        values.insert("edge_density.density", share(edges, self));
        values
    }

    fn saturation(&self, values: &mut Values) {
        let of = |pixel: &[u8; 3]| {
            let value = i64::from(*pixel.iter().max().unwrap());
            let range = value - i64::from(*pixel.iter().min().unwrap());
            let table = match value {
                0 => 0,
                _ => (255.0 * 4096.0 / value as f64).round_ties_even() as i64,
            };
            (range * table + 2048) >> 12
        };
        let all: Vec<i64> = self.pixels.iter().map(of).collect();
        let shares: Vec<f64> = all.iter().map(|value| *value as f64 / 255.0).collect();
        let (mean, std) = mean_and_deviation(&shares);
        values.insert("saturation.mean", mean);
        values.insert("saturation.std", std);
        let low = all.iter().filter(|value| **value <= 25).count();
        values.insert("saturation.low_ratio", share(low, self));
    }

    fn color_entropy(&self, values: &mut Values) {
        let mut bins: BTreeMap<[u8; 3], usize> = BTreeMap::new();
        for pixel in &self.pixels {
            *bins.entry(pixel.map(|sample| sample >> 5)).or_default() += 1;
        }
        let parts = bins.values().map(|count| share(*count, self));
        let entropy: f64 = parts.map(|part| -part * part.log2()).sum();
        values.insert("color_entropy.entropy", entropy.max(0.0));
        values.insert("color_entropy.colors", bins.len() as f64);
    }

    fn luma_spread(&self, luma: &[i64], values: &mut Values) {
        let all: Vec<f64> = luma.iter().map(|value| *value as f64).collect();
        let (mean, std) = mean_and_deviation(&all);
        values.insert("luma.mean", mean);
        values.insert("luma.std", std);
        let mut sorted = luma.to_vec();
        sorted.sort_unstable();
        for (name, percent) in [("luma.p05", 5), ("luma.p50", 50), ("luma.p95", 95)] {
            let at = (percent * sorted.len()).div_ceil(100) - 1;
            values.insert(name, sorted[at] as f64);
        }
        let count = |wanted: fn(i64) -> bool| luma.iter().filter(|value| wanted(**value)).count();
        values.insert("luma.dark_ratio", share(count(|value| value < 16), self));
        values.insert("luma.bright_ratio", share(count(|value| value > 239), self));
    }

    fn at(&self, luma: &[i64], row: isize, column: isize) -> i64 {
        luma[mirror(row, self.height) * self.width + mirror(column, self.width)]
    }

    fn places(&self) -> impl Iterator<Item = (isize, isize)> + use<> {
        let (width, height) = (self.width as isize, self.height as isize);
        (0..height).flat_map(move |row| (0..width).map(move |column| (row, column)))
    }

    fn clarity(&self, luma: &[i64], values: &mut Values) {
        let of = |(row, column)| {
            let sides = [(-1, 0), (1, 0), (0, -1), (0, 1)];
            let around: i64 = sides
                .iter()
                .map(|(down, across)| self.at(luma, row + down, column + across))
                .sum();
            (around - 4 * self.at(luma, row, column)) as f64
        };
        let all: Vec<f64> = self.places().map(of).collect();
        let variance = mean_and_deviation(&all).1.powi(2);
        values.insert("clarity.laplacian_var", variance);
    }

    fn texture(&self, luma: &[i64], values: &mut Values) {
        let of = |(row, column)| {
            let (mut sum, mut squares) = (0, 0);
            for down in -2..=2 {
                for across in -2..=2 {
                    let value = self.at(luma, row + down, column + across);
                    sum += value;
                    squares += value * value;
                }
            }
            25 * squares - sum * sum
        };
        let all: Vec<i64> = self.places().map(of).collect();
        let roots: f64 = all.iter().map(|value| (*value as f64).sqrt()).sum();
        values.insert("texture.local_std", roots / 25.0 / all.len() as f64);
        let flat = all.iter().filter(|value| **value < 2500).count();
        values.insert("texture.flat_ratio", share(flat, self));
    }

    fn blockiness(&self, luma: &[i64]) -> f64 {
        let (mut grid, mut inside) = (1.0, 1.0);
        let transposed: Vec<i64> = (0..self.width)
            .flat_map(|column| (0..self.height).map(move |row| luma[row * self.width + column]))
            .collect();
        for (length, lines) in [(self.width, luma), (self.height, &transposed)] {
            if length < 9 {
                continue;
            }
            let mut steps = [Vec::new(), Vec::new()];
            for line in lines.chunks(length) {
                for (at, pair) in line.windows(2).enumerate() {
                    let step = (pair[1] - pair[0]).abs() as f64;
                    steps[usize::from(at % 8 == 7)].push(step);
                }
            }
            let [off, on] = steps.map(|steps| steps.iter().sum::<f64>() / steps.len() as f64);
            grid += on;
            inside += off;
        }
        grid / inside
    }

    fn edges(&self, luma: &[i64]) -> usize {
        let (width, height) = (self.width as isize, self.height as isize);
        let repeated = |row: isize, column: isize| {
            let (row, column) = (row.clamp(0, height - 1), column.clamp(0, width - 1));
            luma[(row * width + column) as usize]
        };
        let gradient = |(row, column): (isize, isize)| {
            let (mut dx, mut dy) = (0, 0);
            for (offset, weight) in [(-1, 1), (0, 2), (1, 1)] {
                dx += weight
                    * (repeated(row + offset, column + 1) - repeated(row + offset, column - 1));
                dy += weight
                    * (repeated(row + 1, column + offset) - repeated(row - 1, column + offset));
            }
            (dx, dy)
        };
        let gradients: Vec<(i64, i64)> = self.places().map(gradient).collect();
        let magnitude = |row: isize, column: isize| {
            if row < 0 || row >= height || column < 0 || column >= width {
                return 0;
            }
            let (dx, dy) = gradients[(row * width + column) as usize];
            dx.abs() + dy.abs()
        };
        let is_candidate = |(row, column): (isize, isize)| {
            let (dx, dy) = gradients[(row * width + column) as usize];
            let here = magnitude(row, column);
            let (ax, ay) = (dx.abs(), dy.abs() << 15);
            let t = 13573 * ax;
            let near = |down: isize, across: isize| magnitude(row + down, column + across);
            let is_ridge = if ay < t {
                here > near(0, -1) && here >= near(0, 1)
            } else if ay > t + (ax << 16) {
                here > near(-1, 0) && here >= near(1, 0)
            } else if (dx ^ dy) < 0 {
                here > near(-1, 1) && here > near(1, -1)
            } else {
                here > near(-1, -1) && here > near(1, 1)
            };
            here > 100 && is_ridge
        };
        let candidates: Vec<bool> = self.places().map(is_candidate).collect();
        let mut edges = vec![false; candidates.len()];
        let mut open: Vec<(isize, isize)> = Vec::new();
        for (row, column) in self.places() {
            let at = (row * width + column) as usize;
            if candidates[at] && magnitude(row, column) > 200 {
                edges[at] = true;
                open.push((row, column));
            }
        }
        while let Some((row, column)) = open.pop() {
            for (down, across) in
                (-1..=1).flat_map(|down| (-1..=1).map(move |across| (down, across)))
            {
                let (row, column) = (row + down, column + across);
                if row < 0 || row >= height || column < 0 || column >= width {
                    continue;
                }
                let at = (row * width + column) as usize;
                if candidates[at] && !edges[at] {
                    edges[at] = true;
                    open.push((row, column));
                }
            }
        }
        edges.iter().filter(|edge| **edge).count()
    }
}
