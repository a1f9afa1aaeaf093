use crate::task::data::problem_file;
use crate::task::{Audit, FindingKind, audit::AuditFinding, audit::AuditOptions};
use serde::Deserialize;

const KNOWN: &str = include_str!("../../golden/data/known.json");

#[derive(Deserialize)]
struct KnownFiles {
    name: String,
    sha256: String,
}

pub fn known_as(sha256: &str) -> Option<String> {
    let known: Vec<KnownFiles> =
        serde_json::from_str(KNOWN).expect("the list is part of the program");
    known.into_iter().find(|file| file.sha256 == sha256).map(|file| file.name)
}

/// Whether the released code grades such rows by its rules for DAPO (verl/utils/reward_score/__init__.py:59-62).
fn is_routed(data_source: &str) -> bool {
    matches!(data_source, "math_dapo" | "math" | "math_dapo_reasoning")
        || data_source.starts_with("aime")
}

pub fn of(audit: &Audit, options: &AuditOptions) -> Vec<AuditFinding> {
    let mut findings = AuditFindings(Vec::new());
    repetition(audit, options, &mut findings);
    contradictions(audit, &mut findings);
    answers(audit, &mut findings);
    prompts(audit, &mut findings);
    names(audit, &mut findings);
    findings.0
}

struct AuditFindings(Vec<AuditFinding>);

impl AuditFindings {
    fn note(&mut self, text: String) {
        self.0.push(AuditFinding { kind: FindingKind::Note, text });
    }

    fn warn(&mut self, count: u64, text: impl FnOnce() -> String) {
        if count > 0 {
            self.0.push(AuditFinding { kind: FindingKind::Warning, text: text() });
        }
    }
}

fn repetition(audit: &Audit, options: &AuditOptions, findings: &mut AuditFindings) {
    let Audit { rows, problems, copies, .. } = audit;
    if rows == problems {
        return;
    }
    let per_step = options.prompts_per_step;
    let epochs = match problems / per_step {
        0 => String::new(),
        steps => format!(
            " An epoch of rollout steps of {per_step} prompts has {} steps over the rows and \
             {steps} over the problems.",
            rows / per_step
        ),
    };
    if copies.fewest == copies.most {
        findings.note(format!(
            "{rows} rows are {problems} problems × {} copies. For evaluation the copies are the \
             samples: take one response a row, or each problem once.{epochs}",
            copies.most
        ));
        return;
    }
    findings.warn(rows - problems, || {
        format!(
            "{rows} rows are {problems} problems: each stands there {} to {} times, {:.1} on \
             average.{epochs} A step over the rows may hold a problem several times, as \
             groups of their own. `dapo data prepare` writes each problem once.",
            copies.fewest, copies.most, copies.mean
        )
    });
}

fn contradictions(audit: &Audit, findings: &mut AuditFindings) {
    let conflicts = &audit.conflicts;
    findings.warn(conflicts.problems, || {
        format!(
            "{} questions stand in the file with several answers ({} rows). Training refuses \
             the file; `dapo data prepare` leaves these questions out, all their rows.",
            conflicts.problems, conflicts.rows
        )
    });
}

fn answers(audit: &Audit, findings: &mut AuditFindings) {
    let answers = &audit.answers;
    findings.warn(answers.other, || {
        format!(
            "{} answers are no integers ({}). The paper's are, \"to minimise errors\" (§3.5).",
            answers.other,
            answers.other_listed.join(", ")
        )
    });
    if answers.padded > 0 {
        findings.note(format!(
            "{} integers have a leading zero or a plus sign. The verifier compares strings: 045 is \
             not 45, which matters where responses write the other one.",
            answers.padded
        ));
    }
    findings.warn(answers.unverifiable, || {
        format!(
            "{} answers are graded wrong even when a response states them as `Answer: …` ({}).",
            answers.unverifiable,
            answers.unverifiable_listed.join(", ")
        )
    });
    for (form, (count, first)) in &answers.unverifiable_otherwise {
        findings.warn(*count, || {
            format!("{count} answers are graded wrong when a response states them as `{form}` ({first}).")
        });
    }
    for told in problem_file::told(&audit.readings) {
        findings.warn(1, || {
            format!(
                "{told}. As it stands no response would match it, and verl compares it as it stands: \
                 `dapo data prepare` writes it as it is read."
            )
        });
    }
    findings.warn(answers.blank, || {
        format!("{} answers are empty. Training refuses the file.", answers.blank)
    });
    if answers.shared > 0 {
        let (answer, problems) = &answers.shared_listed[0];
        findings.note(format!(
            "Answers that several problems share: {}, such as {answer} ({problems} problems). Rows \
             must be grouped by their question, never by their answer.",
            answers.shared
        ));
    }
}

fn prompts(audit: &Audit, findings: &mut AuditFindings) {
    let prompts = &audit.prompts;
    findings.warn(prompts.not_one_user_message, || {
        format!(
            "{} prompts are not one message of the user. Training refuses the file.",
            prompts.not_one_user_message
        )
    });
    findings.warn(prompts.blank, || {
        format!("{} rows have an empty question. Training refuses the file.", prompts.blank)
    });
    let other_template = || {
        format!(
            "{} prompts are not in the released template, which asks for the `Answer:` line that \
             the verifier reads. With `prompt.template = \"dapo\"` the harness puts it around the \
             question; verl takes the prompt as it stands.",
            prompts.other_template
        )
    };
    // Questions alone: what a file of one's own holds.
    if prompts.other_template == audit.problems {
        findings.note(other_template());
    } else {
        findings.warn(prompts.other_template, other_template);
    }
    findings.warn(prompts.raw_problem_differs, || {
        format!(
            "In {} rows `extra_info.raw_problem` is another text than the question in the prompt. \
             The harness takes `raw_problem`, verl the prompt.",
            prompts.raw_problem_differs
        )
    });
    findings.warn(prompts.lengths.over_limit.unwrap_or(0), || {
        format!(
            "{} problems have prompts of more than {} tokens. A run with that limit refuses them; \
             verl drops or cuts them, by `data.filter_overlong_prompts` and `data.truncation`.",
            prompts.lengths.over_limit.unwrap_or(0),
            prompts.lengths.limit_tokens
        )
    });
    if prompts.spaced_differently > 0 {
        findings.note(format!(
            "{} problems stand in the file with different spacing; they count once.",
            prompts.spaced_differently
        ));
    }
}

fn names(audit: &Audit, findings: &mut AuditFindings) {
    let unrouted: Vec<&String> =
        audit.data_sources.keys().filter(|name| !is_routed(name)).collect();
    let rows: u64 = unrouted.iter().map(|name| audit.data_sources[*name]).sum();
    if rows > 0 {
        let shown = |name: &&String| match name.as_str() {
            "" => "none".to_string(),
            name => format!("`{name}`"),
        };
        let shown: Vec<String> = unrouted.iter().map(shown).collect();
        findings.note(format!(
            "The `data_source` of {rows} rows is {}: verl would not grade them by the rules for \
             `math_dapo`. The harness always does.",
            shown.join(", ")
        ));
    }
    let indices = &audit.indices;
    findings.warn(indices.of_several_problems, || {
        format!(
            "{} values of `extra_info.index` stand beside several problems: grouping by index \
             would merge them.",
            indices.of_several_problems
        )
    });
}
