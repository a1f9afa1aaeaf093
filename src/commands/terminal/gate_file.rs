//! What a gate says to a CI: a JUnit file, and annotations of GitHub Actions.

use crate::base::files::{self, FileError};
use crate::base::visible;
use crate::commands::output;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::ffi::OsString;
use std::path::{self, Path, PathBuf};

/// Of verbs whose exit code is a gate.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct GateFile {
    /// Also write the verdicts to this file, in JUnit's XML: one test case a check. In GitHub Actions what
    /// failed is an annotation too, with or without the file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateOutcome {
    Passed,
    Failed,
    /// Nothing could be decided, which is no success.
    Undecided,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateCheck {
    pub name: String,
    pub outcome: GateOutcome,
    /// What was seen; foreign text is made visible here.
    pub text: String,
}

impl GateFile {
    pub fn of_line(line: &[OsString]) -> Self {
        let of_word = |word: &OsString| word.to_str()?.strip_prefix("--junit=").map(PathBuf::from);
        let of_pair = |pair: &[OsString]| (pair[0] == "--junit").then(|| PathBuf::from(&pair[1]));
        let of_pairs = || line.windows(2).find_map(of_pair);
        Self { junit: line.iter().find_map(of_word).or_else(of_pairs) }
    }

    pub fn is_given(&self) -> bool {
        self.junit.is_some()
    }

    pub fn is_given_as(&self, path: &Path) -> bool {
        let junit = self.junit.as_deref();
        junit.is_some_and(|junit| path::absolute(junit).ok() == path::absolute(path).ok())
    }

    /// Removes the file of an earlier call, whose verdict a call that fails would otherwise leave.
    /// Errors: a file of another kind, which is not replaced.
    pub fn begin(&self) -> Result<(), FileError> {
        let Some(path) = &self.junit else { return Ok(()) };
        files::may_write(path, HEAD)?;
        files::remove_output(path)
    }

    /// `verb` names the suite. Errors: a file that cannot be written.
    pub fn publish(&self, verb: &str, checks: &[GateCheck]) -> Result<(), FileError> {
        if std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true") {
            let annotations = checks.iter().filter_map(|check| annotation(verb, check));
            annotations.for_each(|line| output::tell_lines(&(line + "\n")));
        }
        self.junit.as_ref().map_or(Ok(()), |path| write(path, verb, checks))
    }
}

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"dapo\"";

fn write(path: &Path, verb: &str, checks: &[GateCheck]) -> Result<(), FileError> {
    let mut suite = TestSuite::new(verb);
    for check in checks {
        let text = visible::message(&check.text);
        let problem = match check.outcome {
            GateOutcome::Passed => None,
            GateOutcome::Failed => Some((NonSuccessKind::Failure, "failed")),
            GateOutcome::Undecided => Some((NonSuccessKind::Error, "inconclusive")),
        };
        let mut case = TestCase::new(visible::visible(&check.name), TestCaseStatus::success());
        case.set_classname(verb);
        if let Some((kind, word)) = problem {
            case.status = TestCaseStatus::non_success(kind);
            let first_line = text.trim_start().lines().next().unwrap_or_default().to_string();
            case.status.set_type(word).set_message(first_line).set_description(text);
        } else {
            case.set_system_out(text);
        }
        suite.add_test_case(case);
    }
    let mut report = Report::new("dapo");
    report.add_test_suite(suite);
    let mut bytes = Vec::new();
    report.serialize(&mut bytes).expect("a document in memory can be written");
    files::write_output(path, &bytes)
}

/// A workflow command. `%` and the ends of lines are escaped, and what ends a property in its title.
fn annotation(verb: &str, check: &GateCheck) -> Option<String> {
    let level = match check.outcome {
        GateOutcome::Passed => return None,
        GateOutcome::Failed => "error",
        GateOutcome::Undecided => "warning",
    };
    let escaped = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let title = escaped(&visible::visible(&format!("{verb}: {}", check.name)));
    let title = title.replace(':', "%3A").replace(',', "%2C");
    Some(format!("::{level} title={title}::{}", escaped(&visible::message(check.text.trim()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(outcome: GateOutcome, text: &str) -> GateCheck {
        GateCheck { name: "records".to_string(), outcome, text: text.to_string() }
    }

    #[test]
    fn an_annotation_has_one_line_and_no_command_of_foreign_text() {
        assert_eq!(annotation("dapo verify", &check(GateOutcome::Passed, "all")), None);
        let failed =
            annotation("dapo verify", &check(GateOutcome::Failed, "99 %\n::stop-commands::x"));
        let expected = "::error title=dapo verify%3A records::99 %25%0A::stop-commands::x";
        assert_eq!(failed.as_deref(), Some(expected));
    }

    #[test]
    fn a_junit_file_counts_failures_and_what_could_not_be_decided() {
        let folder = tempfile::tempdir().unwrap();
        let file = GateFile { junit: Some(folder.path().join("gate.xml")) };
        let checks = [
            check(GateOutcome::Passed, "304 records"),
            check(GateOutcome::Failed, "a < b & \u{1b}[31m"),
            check(GateOutcome::Undecided, "too few runs"),
        ];
        file.publish("dapo verify", &checks).unwrap();
        let text = files::read_text(file.junit.as_deref().unwrap()).unwrap();
        assert!(text.contains("tests=\"3\"") && text.contains("failures=\"1\""), "{text}");
        assert!(text.contains("errors=\"1\""), "{text}");
        assert!(text.contains("a &lt; b &amp; \\u{1b}[31m"), "{text}");
        // The next call removes it, and no file of another program.
        let path = file.junit.as_deref().unwrap();
        file.begin().unwrap();
        assert_eq!(files::kind(path).unwrap(), None);
        files::write_atomic(path, b"<?xml version=\"1.0\"?>\n<project/>").unwrap();
        assert!(file.begin().unwrap_err().to_string().contains("another file is there"));
    }
}
