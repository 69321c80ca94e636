//! True pictures, small and quick to make.

use crate::scatter::mix;

/// A true picture, 24 pixels wide: a gradient with some noise, stored without compression.
pub fn png(seed: u64) -> Vec<u8> {
    const WIDTH: u32 = 24;
    let height = 20 + (seed % 21) as u32;
    let mut pixels = Vec::new();
    for y in 0..height {
        pixels.push(0); // this line's filter: none
        for x in 0..WIDTH {
            let noise = mix(u64::from(y * WIDTH + x), seed);
            let base = [seed as u8, (seed >> 8) as u8, (seed >> 16) as u8];
            for (channel, start) in base.into_iter().enumerate() {
                let slope = (x + y) as u8;
                pixels.push(
                    start
                        .wrapping_add(slope)
                        .wrapping_add((noise >> (8 * channel)) as u8 & 15),
                );
            }
        }
    }
    // zlib: a header, one stored block, the checksum.
    let length = pixels.len() as u16;
    let mut stored = vec![0x78, 0x01, 0x01];
    stored.extend_from_slice(&length.to_le_bytes());
    stored.extend_from_slice(&(!length).to_le_bytes());
    stored.extend_from_slice(&pixels);
    let (mut low, mut high) = (1_u32, 0_u32);
    for &byte in &pixels {
        low = (low + u32::from(byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    stored.extend_from_slice(&(high << 16 | low).to_be_bytes());

    let mut header = [WIDTH.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend_from_slice(&[8, 2, 0, 0, 0]); // 8 bits, RGB
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, body) in [(b"IHDR", header), (b"IDAT", stored), (b"IEND", Vec::new())] {
        file.extend_from_slice(&(body.len() as u32).to_be_bytes());
        let start = file.len();
        file.extend_from_slice(name);
        file.extend_from_slice(&body);
        let sum = crc32(&file[start..]);
        file.extend_from_slice(&sum.to_be_bytes());
    }
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}
