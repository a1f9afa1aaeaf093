//! `dapo attest`: a statement about a run that others can check, signed or not.

use crate::commands::exit::Usage;
use crate::records::RunFolder;
use crate::report::attest::{self, key, statement};
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// State what a finished run is made of, signed with an ed25519 key if one is given.
///
/// Writes attestation.json into the run folder: an in-toto statement with SLSA provenance in a
/// DSSE envelope. It names every file with its SHA-256, the run's arm, seed, key and whole
/// experiment, and what it was made from. A run that its maker attests is SLSA Build L1 at most:
/// a signature shows who says so, not that the run took place.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dapo attest --new-key lab.pem\n  dapo attest runs/reproduce --key lab.pem --builder-id https://example.org/lab\n  openssl genpkey -algorithm ed25519 -out lab.pem\n      makes a key too\n\nExit codes:\n  3  the run has not ended, or a file or key cannot be used\n  4  a file of the run is not the one that outcome.json lists"
)]
pub struct Args {
    /// The run folder.
    #[arg(value_name = "RUN", required_unless_present = "new_key")]
    run: Option<PathBuf>,
    /// Sign with this private key (PKCS#8 PEM).
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Who vouches for the run, as a URI.
    #[arg(long, value_name = "URI", default_value = statement::SELF_ATTESTED)]
    builder_id: String,
    /// Make a key pair and nothing else: FILE, for its owner alone, and FILE.pub to give away.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "key", "builder_id"])]
    new_key: Option<PathBuf>,
}

/// Runs the verb.
///
/// # Errors
/// See [`attest::Error`].
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(path) = &args.new_key {
        let public = key::create(path)?;
        eprintln!("private key: {} (keep it to yourself)", path.display());
        eprintln!("key id: {}", key::id(&key::read_public(&public)?));
        println!("{}", public.display());
        return Ok(ExitCode::SUCCESS);
    }
    let Some(run) = &args.run else {
        return Err(Usage("which run? dapo attest RUN".to_string()).into());
    };
    let run = RunFolder::at(run);
    let key = args.key.as_deref().map(key::read_private).transpose()?;
    attest::write(&run, &args.builder_id, key.as_ref())?;
    match &key {
        Some(key) => eprintln!("signed with the key {}", key::id(&key.verifying_key())),
        None => eprintln!("not signed: anybody could have written it (--key signs it)"),
    }
    eprintln!(
        "builder {}: SLSA Build L1 at most, because the maker of the run made the statement",
        args.builder_id
    );
    println!("{}", run.path(attest::NAME).display());
    Ok(ExitCode::SUCCESS)
}
