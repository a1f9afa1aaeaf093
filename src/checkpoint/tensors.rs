//! Reading a safetensors file that may be anybody's: its header is checked against the file's
//! size before a tensor is asked for, and a tensor at a time is read.

use crate::checkpoint::Error;
use crate::files::foreign;
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::collections::BTreeMap;
use std::io;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::path::Path;
use tch::Kind;
use tch::Tensor;

/// Bytes of a header. That of a policy of 80 layers has 120 kB; the format allows 100 MB.
const MOST_HEADER_BYTES: u64 = 16 << 20;

/// Longest side of a tensor. safetensors accepts any sides whose product is 0.
const MOST_ELEMENTS_OF_A_SIDE: usize = 1 << 31;

/// Where a tensor lies.
#[derive(Debug)]
pub struct Entry {
    /// Its type in the file.
    kind: Kind,
    /// Its shape.
    pub shape: Vec<i64>,
    /// First byte in the file, and the one after the last.
    bytes: (u64, u64),
}

/// A file whose header was read.
#[derive(Debug)]
pub struct Weights<R> {
    source: R,
    /// By name.
    pub entries: BTreeMap<String, Entry>,
}

/// Opens a safetensors file and reads its header.
///
/// # Errors
/// A header that is longer than the file or no header; a name that stands twice; tensors that
/// overlap, leave a gap, do not end where the file ends, have another size than type and shape
/// say, or would not fit into this machine's memory.
pub fn open(path: &Path) -> Result<Weights<impl Read + Seek>, Error> {
    let invalid = |reason: String| Error::Safetensors { path: path.to_path_buf(), reason };
    let (mut source, size) = foreign::open_regular(path)?;
    let unreadable = |error: io::Error| invalid(error.to_string());
    let mut length = [0; 8];
    source.read_exact(&mut length).map_err(|_short| invalid("it has no header".to_string()))?;
    let length = u64::from_le_bytes(length);
    if length > size - 8 || length > MOST_HEADER_BYTES {
        let reason = format!(
            "its header claims {length} bytes, the file has {size} and a header at most \
             {MOST_HEADER_BYTES}"
        );
        return Err(invalid(reason));
    }
    let mut header = Vec::new();
    (&mut source).take(length).read_to_end(&mut header).map_err(unreadable)?;
    let header = String::from_utf8(header)
        .map_err(|error| invalid(format!("header: not UTF-8 ({})", error.utf8_error())))?;
    foreign::refuse_repeated_keys(&header).map_err(|error| invalid(format!("header: {error}")))?;
    let metadata: Metadata =
        serde_json::from_str(&header).map_err(|error| invalid(format!("header: {error}")))?;
    let start = 8 + length;
    let end = start.saturating_add(metadata.data_len() as u64);
    if end != size {
        return Err(invalid(format!("its tensors end at byte {end}, the file at {size}")));
    }
    let mut entries = BTreeMap::new();
    for name in metadata.offset_keys() {
        let info = metadata.info(&name).expect("a name of this header");
        let kind = kind(path, &name, info.dtype)?;
        let absurd = |side: &usize| *side > MOST_ELEMENTS_OF_A_SIDE;
        if info.shape.len() > 8 || info.shape.iter().any(absurd) {
            let (path, shape) = (path.to_path_buf(), info.shape.clone());
            return Err(Error::Size { path, name, shape });
        }
        let shape = info.shape.iter().map(|&side| side as i64).collect();
        let (from, to) = info.data_offsets;
        let bytes = (start + from as u64, start + to as u64);
        entries.insert(name, Entry { kind, shape, bytes });
    }
    let weights = Weights { source, entries };
    weights.fits_into_memory().map_err(invalid)?;
    Ok(weights)
}

fn kind(path: &Path, name: &str, dtype: Dtype) -> Result<Kind, Error> {
    match dtype {
        Dtype::F32 => Ok(Kind::Float),
        Dtype::BF16 => Ok(Kind::BFloat16),
        Dtype::F16 => Ok(Kind::Half),
        other => {
            let (path, dtype) = (path.to_path_buf(), format!("{other:?}"));
            Err(Error::Dtype { path, name: name.to_string(), dtype })
        }
    }
}

impl<R: Read + Seek> Weights<R> {
    /// A file with holes has a size that its disk has not: what is asked for is compared with
    /// the machine, not with the file.
    fn fits_into_memory(&self) -> Result<(), String> {
        let elements = |entry: &Entry| entry.shape.iter().product::<i64>() as u64;
        let needed = self.entries.values().map(|entry| elements(entry) * 4).sum::<u64>();
        let facts = rustix::system::sysinfo();
        let present = (facts.totalram as u64).saturating_mul(u64::from(facts.mem_unit));
        match needed > present {
            true => Err(format!("its tensors need {needed} bytes, this machine has {present}")),
            false => Ok(()),
        }
    }

    /// Every tensor, as f32.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(mut self, path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
        let mut tensors = BTreeMap::new();
        for (name, Entry { kind, shape, bytes: (from, to) }) in self.entries {
            let mut read = || -> io::Result<Vec<u8>> {
                let mut data = Vec::new();
                self.source.seek(SeekFrom::Start(from))?;
                (&mut self.source).take(to - from).read_to_end(&mut data)?;
                Ok(data)
            };
            let invalid = |reason| Error::Safetensors { path: path.to_path_buf(), reason };
            let data = read().map_err(|error| invalid(error.to_string()))?;
            if data.len() as u64 != to - from {
                return Err(invalid("it became shorter while it was read".to_string()));
            }
            let tensor = Tensor::from_data_size(&data, &shape, kind).to_kind(Kind::Float);
            tensors.insert(name, tensor);
        }
        Ok(tensors)
    }
}
