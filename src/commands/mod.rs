//! One file for each verb: flags, one call, what is printed; nothing is computed. [`terminal`], [`flags`]: what verbs share.

pub mod terminal;
pub mod flags;
// verbs below a verb
pub mod audit;
pub mod cells;
pub mod gc;
pub mod generate;
pub mod pretrain;
pub mod score;
pub mod throughput;
pub mod tune;
// verbs; one uses those above it
pub mod report;
pub mod ablate;
pub mod bench;
pub mod compare;
pub mod completions;
pub mod config;
pub mod grade;
pub mod data;
pub mod diff;
pub mod doctor;
pub mod eval;
pub mod export;
pub mod figure;
pub mod init;
pub mod plan;
pub mod regress;
pub mod runs;
pub mod train;
pub mod cell;
pub mod engine;
pub mod verify;
// hidden
pub mod table_reader;

pub use crate::commands::flags::bounds;
pub use crate::commands::flags::experiment::{ExecutionArgs, OverrideArgs};
pub use crate::commands::flags::policy::{PlaceArgs, PolicyArgs};
pub use crate::commands::flags::prompt::PromptArgs;
pub use crate::commands::terminal::interrupt::Interrupt;
pub use crate::commands::terminal::progress::Progress;
pub use crate::commands::terminal::{exit, output};

use crate::base::files;
use crate::commands::terminal::gate_file::GateFile;
use crate::numerics::vectorised;
use crate::records::environment;
use crate::report::terminal as terminal_text;
use clap::{CommandFactory as _, FromArgMatches as _};
use std::ffi::OsString;
use std::panic;
use std::sync::Arc;

/// Reference harness for DAPO (arXiv 2503.14476): train, evaluate, report, check
#[derive(Debug, clap::Parser)]
#[command(version = environment::VERSION, max_term_width = WIDEST, after_help = include_str!("help/dapo.txt"))]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// Columns of a help text.
const WIDEST: usize = 100;

/// Verbs as the help lists them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Study", &["init", "ablate", "report", "compare", "figure"]),
    ("Run", &["train", "plan", "eval", "runs", "export"]),
    ("Check", &["verify", "diff", "regress"]),
    ("Other trainers", &["engine"]),
    ("Tools", &["config", "data", "model", "doctor", "bench"]),
];

/// The command line, whose help lists the verbs in groups.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let mut verbs = String::new();
    for (group, names) in GROUPS {
        verbs += &format!("{group}:\n");
        for name in names {
            let verb = command.find_subcommand(name);
            let about = verb.and_then(|verb| verb.get_about()).map(ToString::to_string);
            let (first, further) = (format!("  {name:<8}  "), " ".repeat(12));
            let about = about.unwrap_or_default();
            verbs += &terminal_text::wrapped(&about, Some(help_width()), [&first, &further]);
        }
        verbs.push('\n');
    }
    with_shaped_help(command).before_help(verbs.trim_end().to_string()).help_template(
        "{about}\n\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}",
    )
}

fn help_width() -> usize {
    output::width(std::io::stdout()).unwrap_or(WIDEST).min(WIDEST)
}

/// A line below the options: commands are kept whole, and further lines begin below the words of an item's second column.
fn help_line(line: &str) -> String {
    const COMMANDS: [&str; 4] = ["dapo ", "source ", "python3 ", "echo "];
    let (indent, words) = line.split_at(line.len() - line.trim_start().len());
    if COMMANDS.iter().any(|it| words.starts_with(it)) {
        return line.replace(' ', output::KEPT_SPACE) + "\n";
    }
    let text = words.split_once("  ").filter(|_| !indent.is_empty()).map_or(words, |it| it.1);
    let (first, text) = line.split_at(line.len() - text.trim_start().len());
    terminal_text::wrapped(text, Some(help_width()), [first, &" ".repeat(first.len())])
}

fn with_shaped_help(mut command: clap::Command) -> clap::Command {
    let shaped = |text: String| text.lines().map(help_line).collect::<String>();
    command = command.mut_args(|arg| {
        if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg }
    });
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(shaped(text));
    }
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        command = command.after_long_help(shaped(text));
    }
    let verbs: Vec<String> =
        command.get_subcommands().map(|verb| verb.get_name().to_string()).collect();
    verbs.into_iter().fold(command, |command, verb| command.mut_subcommand(verb, with_shaped_help))
}

/// Executes a command line, whose first word is the program's name, and ends the process with its
/// exit code.
pub fn main(line: impl IntoIterator<Item = OsString>) -> ! {
    output::end_with_the_reader();
    output::end(status(line))
}

fn status(line: impl IntoIterator<Item = OsString>) -> u8 {
    let line: Vec<OsString> = line.into_iter().collect();
    let gate = GateFile::of_line(&line);
    let parsed = command().try_get_matches_from(line);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(shown) => {
            if shown.use_stderr() {
                retract(&gate, &shown.to_string());
            }
            return output::help_or_usage(&shown);
        }
    };
    // A panic was printed by its hook; it is a bug, and has a bug's exit code.
    match panic::catch_unwind(|| run(&cli)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) if output::reader_left(&error) => exit::SUCCESS,
        Ok(Err(error)) => {
            let refusal = exit::message(&error);
            retract(&gate, &refusal);
            output::tell(format!("error: {refusal}"));
            exit::code(&error)
        }
        Err(_panic) => exit::BUG,
    }
}

/// Removes the gate's file of an earlier call, or tells why it is still there where the refusal does not.
fn retract(gate: &GateFile, refusal: &str) {
    if let Err(kept) = gate.begin() {
        let kept = files::without_code(&kept.to_string());
        if !refusal.contains(&kept) {
            output::tell(format!("warning: the file of --junit is not of this call: {kept}"));
        }
    }
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Init(init::InitArgs),
    Train(train::TrainArgs),
    Ablate(ablate::AblateArgs),
    #[command(subcommand, hide = true)]
    Cell(cell::CellVerb),
    #[command(subcommand)]
    Engine(engine::EngineVerb),
    Export(export::ExportArgs),
    Plan(plan::PlanArgs),
    Eval(eval::EvalArgs),
    Report(report::ReportArgs),
    Figure(figure::FigureArgs),
    Verify(verify::VerifyArgs),
    Diff(diff::DiffArgs),
    Compare(compare::CompareArgs),
    Regress(regress::RegressArgs),
    #[command(subcommand)]
    Data(data::DataVerb),
    #[command(subcommand)]
    Config(config::ConfigVerb),
    #[command(hide = true)]
    Grade(grade::GradeArgs),
    /// Make or tune a base policy, sample from a checkpoint, or score responses with one
    #[command(subcommand)]
    Model(ModelVerb),
    Doctor(doctor::DoctorArgs),
    Bench(bench::BenchArgs),
    Runs(runs::RunsArgs),
    #[command(hide = true)]
    Completions(completions::CompletionsArgs),
    #[command(name = table_reader::VERB, hide = true)]
    TableReader(table_reader::TableReaderArgs),
}

/// What is done with a checkpoint outside of a run.
#[derive(Debug, clap::Subcommand)]
enum ModelVerb {
    Pretrain(pretrain::PretrainArgs),
    Tune(tune::TuneArgs),
    Generate(Box<generate::GenerateArgs>),
    Score(score::ScoreArgs),
}

/// Errors: the verb's error, with its file or run.
fn run(cli: &Cli) -> anyhow::Result<u8> {
    terminal::logs::start();
    // A file beyond `ulimit -f` is then an error that names it.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    table_reader::register();
    vectorised::check()?;
    match &cli.verb {
        Verb::Init(args) => init::run(args),
        Verb::Train(args) => train::run(args),
        Verb::Ablate(args) => ablate::run(args),
        Verb::Cell(verb) => cell::run(verb),
        Verb::Engine(verb) => engine::run(verb),
        Verb::Export(args) => export::run(args),
        Verb::Plan(args) => plan::run(args),
        Verb::Eval(args) => eval::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Figure(args) => figure::run(args),
        Verb::Verify(args) => verify::run(args),
        Verb::Diff(args) => diff::run(args),
        Verb::Compare(args) => compare::run(args),
        Verb::Regress(args) => regress::run(args),
        Verb::Data(verb) => data::run(verb),
        Verb::Config(verb) => config::run(verb),
        Verb::Grade(args) => grade::run(args),
        Verb::Model(ModelVerb::Pretrain(args)) => pretrain::run(args),
        Verb::Model(ModelVerb::Tune(args)) => tune::run(args),
        Verb::Model(ModelVerb::Generate(args)) => generate::run(args),
        Verb::Model(ModelVerb::Score(args)) => score::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::Runs(args) => runs::run(args),
        Verb::Completions(args) => completions::run(args),
        Verb::TableReader(args) => table_reader::run(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_verb_of_users() {
        let command = command();
        let help = command.clone().render_long_help().to_string();
        for verb in command.get_subcommands().map(clap::Command::get_name) {
            let is_named = help.contains(&format!("\n  {verb} "));
            assert_eq!(is_named, !["grade", table_reader::VERB].contains(&verb), "{verb}: {help}");
        }
    }
}
