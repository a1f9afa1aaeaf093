//! TensorBoard's event files, scalars only: TFRecord framing around protobuf messages of
//! `tensorboard/compat/proto/event.proto` and `summary.proto`.

#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    /// The part before the first `/` groups curves.
    pub tag: String,
    pub step: u64,
    /// The format stores f32.
    pub value: f64,
}

/// The step replaces the time, which records do not have.
pub fn events(scalars: &[Scalar]) -> Vec<u8> {
    let mut bytes = record(&[&double(1, 0.0)[..], &text(3, "brain.Event:2")].concat());
    for scalar in scalars {
        let value = [text(1, &scalar.tag), float(2, scalar.value as f32)].concat();
        let summary = message(1, &value);
        let event =
            [double(1, scalar.step as f64), integer(2, scalar.step), message(5, &summary)].concat();
        bytes.extend(record(&event));
    }
    bytes
}

/// TFRecord: length, checksum, data, checksum; little-endian.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let [of_length, of_data] = [&length[..], data].map(|bytes| masked(bytes).to_le_bytes());
    [&length[..], &of_length, data, &of_data].concat()
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: the files are small.
fn crc32c(bytes: &[u8]) -> u32 {
    const REFLECTED: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (REFLECTED & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Protobuf field number and wire type.
fn key(field: u64, kind: u64) -> Vec<u8> {
    varint(field << 3 | kind)
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn integer(field: u64, value: u64) -> Vec<u8> {
    [key(field, 0), varint(value)].concat()
}

fn double(field: u64, value: f64) -> Vec<u8> {
    [key(field, 1), value.to_le_bytes().to_vec()].concat()
}

fn float(field: u64, value: f32) -> Vec<u8> {
    [key(field, 5), value.to_le_bytes().to_vec()].concat()
}

fn message(field: u64, bytes: &[u8]) -> Vec<u8> {
    [key(field, 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn text(field: u64, text: &str) -> Vec<u8> {
    message(field, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        // RFC 3720, B.4: 32 bytes of zeros, of ones, and ascending.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn an_event_file_has_the_bytes_of_the_format() {
        // The first record is the one that every event file of TensorFlow begins with, but for
        // its time.
        let version = record(&[&double(1, 0.0)[..], &text(3, "brain.Event:2")].concat());
        let file = events(&[Scalar { tag: "a/b".into(), step: 300, value: 0.5 }]);
        assert_eq!(version.len(), 8 + 4 + 24 + 4);
        assert_eq!(file[..version.len()], version);
        let event = &file[version.len() + 12..file.len() - 4];
        let step = 300f64.to_le_bytes();
        let expected = [
            &[0x09][..],
            &step,
            &[0x10, 0xac, 0x02, 0x2a, 0x0c, 0x0a, 0x0a, 0x0a, 0x03],
            b"a/b",
            &[0x15, 0x00, 0x00, 0x00, 0x3f],
        ]
        .concat();
        assert_eq!(event, expected);
    }
}
