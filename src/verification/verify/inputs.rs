//! Inputs of the run that exist here, each with the manifest's digest. Paths in `experiment.json` are never opened: the
//! sender would choose what is read. The base policy is this program's or in the reviewer's folder, where problem files
//! are too; the working folder may be the sender's.

use crate::base::files;
use crate::experiment::{
    Data, Grading, MATH_VERIFY, ProgramKind, PromptSettings, RewardProgram,
    compare::differing_keys, shipped,
};
use crate::policy::checkpoint::{self, weights};
use crate::records::{RunFolder, RunRecords, Tags, run_folder};
use crate::task::{DataSets, Grader, Tokenizer, data, data::Columns};
use crate::training::run::inputs;
use crate::verification::verify::{Check, Options, VerifyVerdict};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

#[derive(Debug, Default)]
pub struct Local {
    pub data: Option<DataSets>,
    pub source: Option<Data>,
    /// The base policy's, else a checkpoint's.
    pub tokenizer: Option<Tokenizer>,
    pub base: Option<PathBuf>,
    /// `None`: rewards are taken as they are recorded.
    pub grader: Option<Grader>,
    pub graders_of_sets: BTreeMap<String, Option<Grader>>,
    /// Which base policy, and from where.
    pub origin: String,
    /// Keeps the program's base policy as files.
    _program: Option<files::leftovers::ScratchFolder>,
}

impl Local {
    /// `None`: grades are taken as they are recorded.
    pub fn grader_of(&self, set: &str) -> Option<&Grader> {
        self.graders_of_sets.get(set).unwrap_or(&self.grader).as_ref()
    }

    /// Sets that a program of their own graded, which is not here.
    pub fn ungraded_sets(&self) -> Vec<String> {
        let ungraded = self.graders_of_sets.iter().filter(|(_, grader)| grader.is_none());
        ungraded.map(|(set, _)| set.clone()).collect()
    }
}

/// Of a file that the manifest binds. Links are allowed in the reviewer's folder (caches have them).
pub fn is_bound(records: &RunRecords, folder: &Path, name: &str) -> bool {
    sha256(folder, name).as_ref() == records.manifest.inputs.get(&format!("base/{name}"))
}

/// As [`is_bound`], of a checkpoint: its `config.json` may say float32 where the base policy's says another type.
pub fn is_kept(records: &RunRecords, folder: &Path, name: &str) -> bool {
    let is_restated = || {
        let base = records.manifest.inputs.get("base/config.json")?;
        let config = files::read_text(&folder.join(name)).ok()?;
        Some(checkpoint::is_restated(&config, base))
    };
    let is_config = name == checkpoint::CONFIG;
    is_bound(records, folder, name) || (is_config && is_restated() == Some(true))
}

fn sha256(folder: &Path, name: &str) -> Option<String> {
    // The name comes from the manifest.
    let path = (!name.contains('/')).then(|| folder.join(name))?;
    path.is_file().then(|| files::sha256_file(&path).ok())?
}

pub fn find(
    folder: &RunFolder,
    records: &RunRecords,
    options: &Options,
) -> Result<(Check, Local), files::FileError> {
    let mut check = Check::new("inputs");
    let bound = |name: &str| records.manifest.inputs.contains_key(&format!("base/{name}"));
    let weights = if bound(weights::INDEX) { weights::INDEX } else { weights::SINGLE };
    for name in ["config.json", "tokenizer.json", weights] {
        if !bound(name) {
            check.mismatch(format!("manifest.json, inputs.base/{name}"), "is missing");
        }
    }
    let source = source(&mut check, records, options.data.as_deref());
    let data = source.as_ref().and_then(|source| sets(&mut check, records, source));
    if let Some(data) = &data {
        let kept = if folder.path(TAGS).exists() { folder.tags() } else { Ok(Tags::new()) };
        if check.read(TAGS, kept).is_some_and(|kept| kept != data.tags) {
            let is_generated = records.experiment.inputs.data.is_generated();
            let verdict =
                if is_generated { VerifyVerdict::Mismatch } else { VerifyVerdict::Inconclusive };
            check.find(verdict, TAGS, "is not what the problems that are here are called");
        }
    }
    let program = options.base.is_none().then(written).transpose()?;
    let given = options.base.as_deref();
    let base = given.or(program.as_ref().map(|program| program.path()));
    let base = base.filter(|base| is_base(&mut check, records, base, given.is_some()));
    let base = base.map(Path::to_path_buf);
    let origin = match (&base, given) {
        (None, _) => "base policy: not here".to_string(),
        (Some(_), None) => "base policy: the embedded benchmark's, of this program".to_string(),
        (Some(_), Some(folder)) => origin(folder, weights),
    };
    let tokenizer = tokenizer(&mut check, folder, records, base.as_deref());
    let here = [data.is_some(), base.is_some(), tokenizer.is_some()];
    let [problems, policy, text] = here.map(|is_here| if is_here { "here" } else { "not here" });
    let columns = data.as_ref().map(|data| &data.columns);
    let mut graders = graders(&mut check, records, options, columns);
    let grader = graders.remove(&None).flatten();
    let started: String = graders.values().flatten().chain(&grader).map(started).collect();
    let graders_of_sets = graders.into_iter().filter_map(|(set, it)| Some((set?, it))).collect();
    let compared = format!("problems {problems}, base policy {policy}, tokenizer {text}{started}");
    let local =
        Local { data, source, tokenizer, base, grader, graders_of_sets, origin, _program: program };
    Ok((check.compared(compared), local))
}

fn graders(
    check: &mut Check,
    records: &RunRecords,
    options: &Options,
    columns: Option<&Columns>,
) -> BTreeMap<Option<String>, Option<Grader>> {
    let (mut graders, mut lacks, mut used) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for (set, grading) in records.experiment.gradings() {
        let prefix = set.map_or_else(String::new, |set| run_folder::input_of_set(set, ""));
        let inputs = records.manifest.inputs.iter();
        let own = inputs.filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?, value)));
        let own = own.map(|(name, value)| (name.to_string(), value.clone())).collect();
        let grader = match grading {
            Grading::Rule(rule) => Some(Grader::Rule(*rule)),
            Grading::Program(program) => {
                options.rewards.iter().find(|file| is_copy(program, &own, file)).and_then(|file| {
                    used.insert(file);
                    let is_own = program.kind == ProgramKind::MathVerify;
                    let bare = Columns::new();
                    let Some(columns) = columns.or(is_own.then_some(&bare)) else {
                        lacks.insert(file.display().to_string());
                        return None;
                    };
                    let told = (&records.experiment.prompt, columns);
                    copy_of(check, (program, &own), file, told)
                })
            }
        };
        graders.insert(set.map(str::to_string), grader);
    }
    if !lacks.is_empty() {
        let what = format!(
            "{}: not started, because a program gets the columns of the problem files, and these are not here; \
             rewards are taken as recorded (--data FOLDER says where the files are)",
            Vec::from_iter(lacks).join(", ")
        );
        check.inconclusive("reward", what);
    }
    for file in options.rewards.iter().filter(|file| !used.contains(file)) {
        let graded = "is not the file that graded the run: not started";
        let what = match files::sha256_file(file) {
            Err(error) if file != Path::new(MATH_VERIFY) => error.to_string(),
            _ => format!("{} {graded}", file.display()),
        };
        check.inconclusive("reward", what);
    }
    graders
}

/// The command of a program, where an interpreter starts it.
fn started(grader: &Grader) -> String {
    let Some(program) = grader.program().filter(|program| !program.command.is_empty()) else {
        return String::new();
    };
    let file = program.file.display().to_string();
    let line = program.command.join(" ").replace("{file}", &file);
    format!(", the reward program started as `{line}`")
}

/// Whether a file of the reviewer's is what graded, by the run's digests under the names of a grader's.
fn is_copy(recorded: &RewardProgram, inputs: &BTreeMap<String, String>, file: &Path) -> bool {
    if recorded.kind == ProgramKind::MathVerify || file == Path::new(MATH_VERIFY) {
        return file.to_str() == Some(&recorded.name());
    }
    let name = format!("reward/{}", file.file_name().unwrap_or_default().to_string_lossy());
    files::sha256_file(file).ok().as_ref() == inputs.get(&name)
}

/// Started. Of the sender's command only the name of a known interpreter is taken.
fn copy_of(
    check: &mut Check,
    (recorded, inputs): (&RewardProgram, &BTreeMap<String, String>),
    file: &Path,
    (prompt, columns): (&PromptSettings, &Columns),
) -> Option<Grader> {
    let here = Grading::Program(Box::new(of_reviewer(recorded, file)));
    let unused = unused_command(recorded, &here);
    let started = Grader::start(&here, prompt, columns.clone())
        .and_then(|grader| grader.inputs().map(|inputs| (grader, inputs)));
    let (grader, here) =
        started.map_err(|error| check.inconclusive("reward", format!("{error}{unused}"))).ok()?;
    let of_program = |name: &String| name.starts_with("reward/") || name.starts_with("package/");
    let mut there = inputs.clone();
    there.retain(|name, _| of_program(name));
    for name in differing_keys(&here, &there) {
        let [here, there] =
            [&here, &there].map(|all| all.get(name.as_str()).map_or("absent", String::as_str));
        check.inconclusive(name, format!("is {here} here, and was {there}"));
    }
    Some(grader)
}

fn of_reviewer(program: &RewardProgram, file: &Path) -> RewardProgram {
    if file == Path::new(MATH_VERIFY) {
        return RewardProgram::math_verify();
    }
    let command = match &program.command[..] {
        [name, file] if file == "{file}" && INTERPRETERS.contains(&name.as_str()) => {
            program.command.clone()
        }
        _ => Vec::new(),
    };
    let (file, python) = (file.to_path_buf(), None);
    RewardProgram { file, python, command, ..program.clone() }
}

/// Looked up in the reviewer's PATH. They only execute the given file: other programs or an option could do more.
const INTERPRETERS: [&str; 12] = [
    "node", "bun", "python3", "python", "ruby", "perl", "php", "lua", "julia", "Rscript", "bash",
    "sh",
];

/// Behind a message: that the recorded command had no part in it.
fn unused_command(recorded: &RewardProgram, here: &Grading) -> String {
    let is_used = here.program().is_some_and(|here| here.command == recorded.command);
    if is_used || recorded.command.len() < 2 {
        return String::new();
    }
    format!(
        "; the recorded command `{}` is not executed, because it is more than the name of one of {} and the file: \
         make {} executable to verify its rewards",
        recorded.command.join(" "),
        INTERPRETERS.join(", "),
        here.program().map(RewardProgram::name).unwrap_or_default()
    )
}

const TAGS: &str = "tags.json";

fn written() -> Result<files::leftovers::ScratchFolder, files::FileError> {
    let folder = files::leftovers::scratch_folder(None)?;
    for (name, bytes) in shipped::MODEL {
        files::write_atomic(&folder.path().join(name), bytes)?;
    }
    Ok(folder)
}

fn origin(folder: &Path, weights: &str) -> String {
    let is_embedded =
        |(name, bytes): &(&str, &[u8])| sha256(folder, name) == Some(files::sha256(bytes));
    let place = folder.display();
    if shipped::MODEL.iter().all(is_embedded) {
        return format!("base policy: {place}, the embedded benchmark's");
    }
    let digest = sha256(folder, weights).unwrap_or_default();
    let digest = digest.get(..12).unwrap_or_default();
    format!("base policy: {place}, SHA-256 of {weights} {digest}, not the embedded benchmark's")
}

fn source(check: &mut Check, records: &RunRecords, folder: Option<&Path>) -> Option<Data> {
    let Data::Files { train, dev, test } = &records.experiment.inputs.data else {
        return Some(records.experiment.inputs.data.clone());
    };
    let mut found = |recorded: &PathBuf| {
        let here = folder.and_then(|folder| below(folder, recorded));
        if here.is_none() {
            let name = recorded.file_name().unwrap_or_default().to_string_lossy();
            let place = match folder {
                Some(folder) => format!("below {}", folder.display()),
                None => "known here".to_string(),
            };
            let what = format!(
                "problems cannot be compared: {name} is not {place}; --data FOLDER says where the \
                 problem files are"
            );
            check.inconclusive("data", what);
        }
        here
    };
    let (train, dev) = (found(train), found(dev));
    let test: Vec<Option<PathBuf>> = test.iter().map(found).collect();
    Some(Data::Files { train: train?, dev: dev?, test: test.into_iter().collect::<Option<_>>()? })
}

/// The file whose path shares the longest end with a recorded path. Links are allowed here.
fn below(folder: &Path, recorded: &Path) -> Option<PathBuf> {
    let plain = |part: &Component| matches!(part, Component::Normal(_));
    let parts: Vec<Component> = recorded.components().collect();
    let first = parts.iter().rposition(|part| !plain(part)).map_or(0, |last| last + 1);
    let ends = (first..parts.len()).map(|from| parts[from..].iter().collect::<PathBuf>());
    // A device is no file.
    ends.map(|end| folder.join(end)).find(|path| path.is_file())
}

fn sets(check: &mut Check, records: &RunRecords, source: &Data) -> Option<DataSets> {
    let sets = data::of_experiment(&records.experiment, source);
    let sets = sets.map_err(|error| check.inconclusive("data", error)).ok()?;
    let here = inputs::set_digests(&sets);
    let mut written = records.manifest.inputs.clone();
    written.retain(|name, _| name.starts_with("data/"));
    if here == written {
        return Some(sets);
    }
    let (verdict, problems) = if source.is_generated() {
        (VerifyVerdict::Mismatch, "the embedded benchmark's problems")
    } else {
        (VerifyVerdict::Inconclusive, "the problems that are here")
    };
    for name in differing_keys(&here, &written) {
        let place = format!("manifest.json, inputs.{name}");
        check.find(verdict, place, format!("is not the digest of {problems}"));
    }
    None
}

/// Requires exactly the files that the manifest binds. `given`: the reviewer named the folder.
fn is_base(check: &mut Check, records: &RunRecords, folder: &Path, given: bool) -> bool {
    let own = "the embedded benchmark's base policy".to_string();
    let place = if given { folder.display().to_string() } else { own };
    // Bound files, and those that would be read in their place.
    let bound = records.manifest.inputs.keys().filter_map(|name| name.strip_prefix("base/"));
    let names: BTreeSet<&str> = checkpoint::COMPANIONS.into_iter().chain(bound).collect();
    let names = names.into_iter().chain([weights::SINGLE, weights::INDEX]);
    let differing: Vec<&str> = names.filter(|name| !is_bound(records, folder, name)).collect();
    for name in &differing {
        let what = match sha256(folder, name) {
            None => format!("{place} does not have it"),
            Some(_) => format!("is not the file that {place} has"),
        };
        let what = what + "; --base FOLDER says where the run's base policy is";
        check.inconclusive(format!("manifest.json, inputs.base/{name}"), what);
    }
    differing.is_empty()
}

fn tokenizer(
    check: &mut Check,
    folder: &RunFolder,
    records: &RunRecords,
    base: Option<&Path>,
) -> Option<Tokenizer> {
    let agrees =
        |folder: &Path| checkpoint::COMPANIONS.iter().all(|name| is_kept(records, folder, name));
    let steps = folder.checkpoint_steps().unwrap_or_default();
    let kept = steps.into_iter().rev().map(|step| folder.checkpoint(step));
    let place = base.map(Path::to_path_buf).into_iter().chain(kept).find(|place| agrees(place));
    let Some(place) = place else {
        let what = "is neither here nor in a checkpoint: tokens cannot be decoded";
        check.inconclusive("tokenizer", what);
        return None;
    };
    Tokenizer::load(&place).map_err(|error| check.inconclusive("tokenizer", error)).ok()
}
