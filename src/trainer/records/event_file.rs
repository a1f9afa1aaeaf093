//! TensorBoard's event files, scalars only: TFRecord framing around protobuf messages of
//! `tensorboard/compat/proto/event.proto`, `summary.proto` and `tensor.proto`.

use prost::Message;

const SESSION_LOG_START: i32 = 1;

const DT_FLOAT: i32 = 1;
const DT_DOUBLE: i32 = 2;

#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    /// The part before the first `/` groups curves.
    pub tag: String,
    pub step: u64,
    /// The format stores f32.
    pub value: f64,
}

#[derive(Message)]
struct Event {
    #[prost(double, optional, tag = "1")]
    wall_time: Option<f64>,
    #[prost(int64, optional, tag = "2")]
    step: Option<i64>,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session: Option<Session>,
}

#[derive(Message)]
struct Session {
    #[prost(int32, tag = "1")]
    status: i32,
}

#[derive(Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<SummaryValue>,
}

#[derive(Message)]
struct SummaryValue {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
    #[prost(message, optional, tag = "8")]
    tensor: Option<Tensor>,
}

#[derive(Message)]
struct Tensor {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
    #[prost(bytes = "vec", tag = "4")]
    content: Vec<u8>,
    #[prost(float, repeated, tag = "5")]
    floats: Vec<f32>,
    #[prost(double, repeated, tag = "6")]
    doubles: Vec<f64>,
}

#[derive(Message)]
struct Shape {
    #[prost(message, repeated, tag = "2")]
    dimensions: Vec<Dimension>,
}

#[derive(Message)]
struct Dimension {
    #[prost(int64, tag = "1")]
    size: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Logged {
    Scalar(Scalar, f64),
    NoScalar(String),
    Restart(u64),
}

/// The step replaces the time, which records do not have.
pub fn events(scalars: &[Scalar]) -> Vec<u8> {
    let file_version = Some("brain.Event:2".to_string());
    let version = Event { wall_time: Some(0.0), file_version, ..Event::default() };
    let event = |scalar: &Scalar| {
        let simple_value = Some(scalar.value as f32);
        let value = SummaryValue { tag: scalar.tag.clone(), simple_value, tensor: None };
        Event {
            wall_time: Some(scalar.step as f64),
            step: Some(scalar.step as i64),
            summary: Some(Summary { values: vec![value] }),
            ..Event::default()
        }
    };
    [version].into_iter().chain(scalars.iter().map(event)).flat_map(|it| record(&it)).collect()
}

/// TFRecord: length, checksum, data, checksum; little-endian.
fn record(event: &Event) -> Vec<u8> {
    let data = event.encode_to_vec();
    let length = (data.len() as u64).to_le_bytes();
    let [of_length, of_data] = [&length[..], &data].map(masked);
    [&length[..], &of_length, &data, &of_data].concat()
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// What was logged in the file's order, scalars with seconds since 1970, and whether the file ends in the middle of a
/// record, as while its process still writes. Errors: the byte of a record whose checksum or message is wrong.
pub fn read(bytes: &[u8]) -> Result<(Vec<Logged>, bool), usize> {
    let (mut logged, mut rest) = (Vec::new(), bytes);
    while let Some((length, after)) = rest.split_first_chunk::<8>() {
        let at = bytes.len() - rest.len();
        let data = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| at)?;
        let Some((checksum, after)) = after.split_first_chunk::<4>() else { break };
        if masked(length) != *checksum {
            return Err(at);
        }
        let Some((data, after)) = after.split_at_checked(data) else { break };
        let Some((checksum, after)) = after.split_first_chunk::<4>() else { break };
        let event = Event::decode(data).ok().filter(|_| masked(data) == *checksum).ok_or(at)?;
        let (step, seconds) = (event.step().max(0) as u64, event.wall_time());
        let restarts = event.session.is_some_and(|session| session.status == SESSION_LOG_START);
        logged.extend(restarts.then_some(Logged::Restart(step)));
        for SummaryValue { tag, simple_value, tensor } in event.summary.unwrap_or_default().values {
            let number = tensor.as_ref().and_then(Tensor::number);
            if let Some(value) = simple_value.map(f64::from).or(number) {
                logged.push(Logged::Scalar(Scalar { tag, step, value }, seconds));
            } else if tensor.is_some() {
                logged.push(Logged::NoScalar(tag));
            }
        }
        rest = after;
    }
    Ok((logged, !rest.is_empty()))
}

pub fn is_event_file(bytes: &[u8]) -> bool {
    bytes.get(8..12).is_some_and(|checksum| masked(&bytes[..8]) == checksum)
}

impl Tensor {
    fn number(&self) -> Option<f64> {
        let mut dimensions = self.shape.iter().flat_map(|shape| &shape.dimensions);
        let is_one = dimensions.all(|dimension| dimension.size == 1);
        match (self.kind, &self.content[..], &self.floats[..], &self.doubles[..]) {
            _ if !is_one => None,
            (DT_FLOAT, [], [number], _) => Some(f64::from(*number)),
            (DT_DOUBLE, [], _, [number]) => Some(*number),
            (DT_FLOAT, content, ..) => {
                Some(f64::from(f32::from_le_bytes(content.try_into().ok()?)))
            }
            (DT_DOUBLE, content, ..) => Some(f64::from_le_bytes(content.try_into().ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_file_has_the_bytes_of_the_format() {
        // The first record is the one that every event file of TensorFlow begins with, but for
        // its time.
        let version = events(&[]);
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

    #[test]
    fn a_tensor_is_a_scalar_by_its_type_and_shape_and_a_session_is_no_value() {
        let half = 0.5f32.to_le_bytes().to_vec();
        let twice = [half.clone(), half.clone()].concat();
        for (kind, sizes, content, floats, expected) in [
            (DT_FLOAT, vec![], half.clone(), vec![], Some(0.5)),
            (DT_FLOAT, vec![1], vec![], vec![0.5], Some(0.5)),
            (DT_DOUBLE, vec![], 0.25f64.to_le_bytes().to_vec(), vec![], Some(0.25)),
            (DT_FLOAT, vec![2], twice.clone(), vec![], None),
            (DT_FLOAT, vec![3], vec![], vec![0.5], None),
            (9, vec![], twice, vec![], None),
            (19, vec![2], half, vec![], None),
            (DT_FLOAT, vec![], vec![], vec![], None),
        ] {
            let dimensions = sizes.into_iter().map(|size| Dimension { size }).collect();
            let shape = Some(Shape { dimensions });
            let tensor = Some(Tensor { kind, shape, content, floats, doubles: vec![] });
            let value = SummaryValue { tag: "acc".into(), simple_value: None, tensor };
            let summary = Some(Summary { values: vec![value] });
            let read = read(&record(&Event { summary, ..Event::default() })).unwrap().0;
            let scalar = |value| Scalar { tag: "acc".into(), step: 0, value };
            let expected = expected.map(|value| Logged::Scalar(scalar(value), 0.0));
            assert_eq!(read, [expected.unwrap_or_else(|| Logged::NoScalar("acc".into()))]);
        }
        for (status, expected) in [(SESSION_LOG_START, vec![Logged::Restart(12)]), (2, vec![])] {
            let session = Some(Session { status });
            let bytes = record(&Event { step: Some(12), session, ..Event::default() });
            assert_eq!(read(&bytes), Ok((expected, false)));
        }
    }
}
