//! A folder of one case's own, with what makes good input to be spoilt.

use crate::{golden_data, run_fixture};
use dapo::base::files;
use dapo::policy::checkpoint;
use dapo::records::RunFolder;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tensors by name: shape and values.
pub type Tensors = BTreeMap<String, (Vec<i64>, Vec<f32>)>;

/// The folder; it is removed at the end.
pub struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        files::write_atomic(&self.at(name), content.as_ref()).unwrap();
    }

    /// A file that claims a size and has holes in place of bytes.
    pub fn holes(&self, path: &Path, bytes: u64) {
        #[expect(clippy::disallowed_types, reason = "no function of ours makes holes")]
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(bytes).unwrap();
    }

    /// `arm.toml`, an arm of the smoke experiment.
    pub fn arm(&self, text: &str) {
        let smoke = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/smoke.toml");
        self.write("arm.toml", format!("extends = {:?}\n{text}", smoke.display()));
    }

    /// `model/`, a copy of the base policy, and an arm that starts from it.
    pub fn model(&self) {
        let base = golden_data::folder("mini-aime/base");
        for name in files::list(&base).unwrap() {
            self.write(&format!("model/{name}"), files::read(&base.join(&name)).unwrap());
        }
        self.arm("[inputs]\nmodel = \"model\"");
    }

    /// As [`Scratch::model`], with a file spoilt.
    pub fn model_with(&self, name: &str, spoil: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        self.model();
        let name = format!("model/{name}");
        let bytes = files::read(&self.at(&name)).unwrap();
        self.write(&name, spoil(bytes));
    }

    /// As [`Scratch::model`], with a text replaced in a file.
    pub fn model_with_text(&self, name: &str, from: &str, to: &str) {
        self.model_with(name, |bytes| {
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.contains(from), "{name} has no {from}");
            text.replacen(from, to, 1).into_bytes()
        });
    }

    /// As [`Scratch::model`], with other tensors.
    pub fn model_with_tensors(&self, spoil: impl FnOnce(&mut Tensors)) {
        self.model();
        let path = self.at("model/model.safetensors");
        let model = checkpoint::load_model(&self.at("model")).unwrap();
        let mut tensors = checkpoint::values(&model);
        spoil(&mut tensors);
        checkpoint::write_tensors(&path, &tensors).unwrap();
    }

    /// An arm on files: `train.jsonl`, `dev.jsonl` and `test.jsonl`, one problem each.
    pub fn data(&self) {
        for (name, question) in [("train", "100+100?"), ("dev", "200+200?"), ("test", "300+300?")] {
            let line = format!("{{\"question\": \"{question}\", \"answer\": 200}}\n");
            self.write(&format!("{name}.jsonl"), line);
        }
        self.arm(
            "[evaluation]\nsamples = { dev = 1, test = 1 }\n[inputs.data]\nkind = \"files\"\n\
             train = \"train.jsonl\"\ndev = \"dev.jsonl\"\ntest = [\"test.jsonl\"]",
        );
    }

    /// As [`Scratch::data`], with other training problems.
    pub fn data_with(&self, train: impl AsRef<[u8]>) {
        self.data();
        self.write("train.jsonl", train);
    }

    /// `run/`, a finished run.
    pub fn run(&self) -> RunFolder {
        run_fixture::finished(&self.at("run"))
    }

    /// As [`Scratch::run`], with a file spoilt.
    pub fn run_with(&self, name: &str, spoil: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        let run = self.run();
        let path = run.path(name);
        let bytes = spoil(files::read(&path).unwrap());
        files::write_atomic(&path, &bytes).unwrap();
    }

    /// As [`Scratch::run`], without a file.
    pub fn run_without(&self, name: &str) {
        let run = self.run();
        files::remove_file(&run.path(name)).unwrap();
    }
}

/// The first half.
pub fn half(bytes: Vec<u8>) -> Vec<u8> {
    bytes[..bytes.len() / 2].to_vec()
}

/// Nothing of what it was.
pub fn garbage(_bytes: Vec<u8>) -> Vec<u8> {
    b"\x00\x1b]52;c;aGk=\x07 not what it should be \xff\xfe".to_vec()
}
