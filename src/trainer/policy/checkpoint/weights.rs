//! Reading safetensors files that may be anybody's: a header is checked against the file's size before a tensor is
//! asked for, and files are mapped into memory, so that a tensor is held once, in the form in which it is used. A
//! policy's weights are one file, or several with an index that says which tensor is in which (Qwen2.5 from 3B on).

use crate::base::files::{self, foreign};
use crate::policy::PolicyError;
use safetensors::{Dtype, tensor::Metadata};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor};

/// Bytes of a header. That of a policy of 80 layers has 120 kB; the format allows 100 MB.
const MOST_HEADER_BYTES: u64 = 16 << 20;

/// Longest side of a tensor. safetensors accepts any sides whose product is 0.
const MOST_ELEMENTS_OF_A_SIDE: usize = 1 << 31;

/// Files of one policy. Qwen2.5-72B has 37.
const MOST_FILES: usize = 1024;

pub const SINGLE: &str = "model.safetensors";

pub const INDEX: &str = "model.safetensors.index.json";

#[derive(Debug, Clone)]
pub struct WeightFileEntry {
    file: usize,
    pub kind: Kind,
    pub shape: Vec<i64>,
    /// First byte in the file, and the one after the last.
    bytes: (u64, u64),
}

#[derive(Debug)]
struct WeightFileSource {
    path: PathBuf,
    file: OwnedFd,
    size: u64,
}

/// Files whose headers were read.
#[derive(Debug, Default)]
pub struct Weights {
    sources: Vec<WeightFileSource>,
    pub entries: BTreeMap<String, WeightFileEntry>,
}

#[derive(Deserialize)]
struct WeightFileIndex {
    weight_map: BTreeMap<String, String>,
}

/// The names of the files that hold the weights of a folder, the index first where there is one.
pub fn names(folder: &Path) -> Result<Vec<String>, PolicyError> {
    let Some((_, files)) = indexed(folder)? else { return Ok(vec![SINGLE.to_string()]) };
    Ok(std::iter::once(INDEX.to_string()).chain(files.into_keys()).collect())
}

type Files = BTreeMap<String, BTreeSet<String>>;

/// File → its tensors, where a folder has an index and no single file, which is preferred as in transformers.
fn indexed(folder: &Path) -> Result<Option<(PathBuf, Files)>, PolicyError> {
    let path = folder.join(INDEX);
    if folder.join(SINGLE).exists() || !path.exists() {
        return Ok(None);
    }
    let index: WeightFileIndex = files::read_json(&path)?;
    let mut files = Files::new();
    for (tensor, file) in index.weight_map {
        files.entry(file).or_default().insert(tensor);
    }
    let refuse = |reason: String| PolicyError::Invalid { path: path.clone(), reason };
    if files.is_empty() || files.len() > MOST_FILES {
        return Err(refuse(format!("it names {} files", files.len())));
    }
    for name in files.keys() {
        if name.contains('/') || !name.ends_with(".safetensors") {
            return Err(refuse(format!("{name:?} is no safetensors file of its folder")));
        }
    }
    Ok(Some((path, files)))
}

/// Opens a policy's weights and reads their headers.
pub fn open_folder(folder: &Path) -> Result<Weights, PolicyError> {
    let Some((path, files)) = indexed(folder)? else {
        let single = folder.join(SINGLE);
        let names = if single.exists() { Vec::new() } else { files::list(folder)? };
        let is_pickle = |name: &&String| {
            name.starts_with("pytorch_model") && name.contains(".bin") || name.ends_with(".pth")
        };
        if let Some(name) = names.iter().find(is_pickle) {
            return Err(PolicyError::Pickled { path: folder.join(name) });
        }
        return open(&single);
    };
    let mut weights = Weights::default();
    for (name, tensors) in &files {
        let entries = header(&folder.join(name), &mut weights.sources)?;
        let refuse = |reason: String| Err(PolicyError::Invalid { path: path.clone(), reason });
        if let Some(absent) = tensors.iter().find(|tensor| !entries.contains_key(*tensor)) {
            return refuse(format!("tensor {absent} is not in {name}"));
        }
        if let Some(other) = entries.keys().find(|tensor| !tensors.contains(*tensor)) {
            let lies = format!("tensor {other} of {name}");
            let stated = files.iter().find(|(_, tensors)| tensors.contains(other));
            return refuse(match stated {
                None => format!("{lies} is not in the index"),
                Some((stated, _)) => format!(
                    "{lies} is in {stated} by the index: fetch index and files again, all from one place, or correct the \
                     index where one file alone has the tensor"
                ),
            });
        }
        weights.entries.extend(entries);
    }
    weights.fits_into_memory(folder)?;
    Ok(weights)
}

/// Opens a safetensors file and reads its header. Errors: a header that is none or longer than the file; a name twice;
/// tensors that overlap, leave gaps, end elsewhere than the file, have a wrong size, or exceed this machine's memory.
pub fn open(path: &Path) -> Result<Weights, PolicyError> {
    let mut weights = Weights::default();
    weights.entries = header(path, &mut weights.sources)?;
    weights.fits_into_memory(path)?;
    Ok(weights)
}

/// The tensors of one file, which is added to the open ones.
fn header(
    path: &Path,
    sources: &mut Vec<WeightFileSource>,
) -> Result<BTreeMap<String, WeightFileEntry>, PolicyError> {
    let invalid = |reason: String| PolicyError::Safetensors { path: path.to_path_buf(), reason };
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
        // The product of the others beside a side of 0 is not bounded by the file.
        let others = info.shape.iter().map(|&side| side.max(1) as u64);
        let product = others.fold(1, u64::saturating_mul);
        if info.shape.len() > 8 || info.shape.iter().any(absurd) || product > i64::MAX as u64 {
            let (path, shape) = (path.to_path_buf(), info.shape.clone());
            return Err(PolicyError::Size { path, name, shape });
        }
        let shape = info.shape.iter().map(|&side| side as i64).collect();
        let (from, to) = info.data_offsets;
        let bytes = (start + from as u64, start + to as u64);
        entries.insert(name, WeightFileEntry { file: sources.len(), kind, shape, bytes });
    }
    sources.push(WeightFileSource { path: path.to_path_buf(), file: source.into(), size });
    Ok(entries)
}

fn kind(path: &Path, name: &str, dtype: Dtype) -> Result<Kind, PolicyError> {
    match dtype {
        Dtype::F32 => Ok(Kind::Float),
        Dtype::BF16 => Ok(Kind::BFloat16),
        Dtype::F16 => Ok(Kind::Half),
        other => {
            let (path, dtype) = (path.to_path_buf(), format!("{other:?}"));
            Err(PolicyError::Dtype { path, name: name.to_string(), dtype })
        }
    }
}

impl Weights {
    /// A file with holes can claim more bytes than its disk holds: the machine's memory decides, not the file.
    fn fits_into_memory(&self, path: &Path) -> Result<(), PolicyError> {
        let elements = |entry: &WeightFileEntry| entry.shape.iter().product::<i64>() as u64;
        let needed = self.entries.values().map(|entry| elements(entry) * 4).sum::<u64>();
        let facts = rustix::system::sysinfo();
        let present = (facts.totalram as u64).saturating_mul(u64::from(facts.mem_unit));
        if needed <= present {
            return Ok(());
        }
        let reason = format!("its tensors need {needed} bytes, this machine has {present}");
        Err(PolicyError::Safetensors { path: path.to_path_buf(), reason })
    }

    pub fn shape(&self, name: &str) -> Option<&[i64]> {
        self.entries.get(name).map(|entry| &entry.shape[..])
    }

    pub fn path_of(&self, name: &str) -> &Path {
        let file = self.entries.get(name).map_or(0, |entry| entry.file);
        &self.sources[file].path
    }

    /// Every tensor, as f32. Files are mapped: only the result is held, and no tensor of it shares memory with a file.
    pub fn read(&self) -> Result<BTreeMap<String, Tensor>, PolicyError> {
        let maps: Vec<Tensor> = self.sources.iter().map(map).collect::<Result<_, _>>()?;
        let read = |(name, entry): (&String, &WeightFileEntry)| {
            let stored = stored(&maps[entry.file], entry);
            (name.clone(), stored.totype(Kind::Float).copy())
        };
        Ok(self.entries.iter().map(read).collect())
    }
}

/// The bytes of a file as a tensor. The open file is mapped, not what its name stands for now.
fn map(source: &WeightFileSource) -> Result<Tensor, PolicyError> {
    let name = format!("/proc/self/fd/{}", source.file.as_raw_fd());
    let options = (Kind::Uint8, Device::Cpu);
    Tensor::f_from_file(&name, false, source.size as i64, options).map_err(|error| {
        let text = error.to_string();
        let reason = if Path::new("/proc/self/fd").exists() {
            text.lines().next().unwrap_or_default()
        } else {
            "/proc is not mounted"
        };
        let (path, source) = (source.path.clone(), io::Error::other(reason));
        PolicyError::File(files::FileError::Io { action: "map", path, source })
    })
}

/// A tensor as it lies in its mapped file.
fn stored(map: &Tensor, entry: &WeightFileEntry) -> Tensor {
    let (from, to) = entry.bytes;
    if from == to {
        return Tensor::zeros(entry.shape.as_slice(), (entry.kind, Device::Cpu));
    }
    let bytes = map.narrow(0, from as i64, (to - from) as i64);
    let width = entry.kind.elt_size_in_bytes() as u64;
    // Elements may lie anywhere in a file; in memory they are aligned.
    let aligned = if from % width == 0 { bytes } else { bytes.copy() };
    aligned.view_dtype(entry.kind).view(entry.shape.as_slice())
}
