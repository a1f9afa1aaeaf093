use crate::task::data::problem_file;
use crate::task::{
    Audit, Copies, FindingKind, Indices, Reading, audit::AuditFinding, audit::AuditOptions,
};
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
    let (count, rows) = (audit.conflicts.problems, audit.conflicts.rows);
    findings.warn(
        count,
        &format!(
            "questions stand in the file with several answers ({rows} rows). Training refuses the file; `dapo data \
             prepare` leaves these questions out, all their rows."
        ),
    );
    if !audit.for_program {
        by_rules(audit, &mut findings);
    }
    answers(audit, &mut findings);
    prompts(audit, &mut findings);
    names(audit, &mut findings);
    findings.0
}

struct AuditFindings(Vec<AuditFinding>);

impl AuditFindings {
    fn add(&mut self, kind: FindingKind, text: String) {
        self.0.push(AuditFinding { kind, text });
    }

    /// A sentence that begins with the count, where there is any.
    fn note(&mut self, count: u64, text: &str) {
        if count > 0 {
            self.add(FindingKind::Note, format!("{count} {text}"));
        }
    }

    fn warn(&mut self, count: u64, text: &str) {
        if count > 0 {
            self.add(FindingKind::Warning, format!("{count} {text}"));
        }
    }
}

fn repetition(audit: &Audit, options: &AuditOptions, findings: &mut AuditFindings) {
    let Audit { rows, problems, copies: Copies { fewest, most, mean }, .. } = audit;
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
    let text = format!("rows are {problems} problems");
    if fewest == most {
        let note = format!(
            "{text} × {most} copies. For evaluation the copies are the samples: take one response a row, or each \
             problem once.{epochs}"
        );
        findings.note(*rows, &note);
    } else {
        let warning = format!(
            "{text}: each stands there {fewest} to {most} times, {mean:.1} on average.{epochs} A step over the rows \
             may hold a problem several times, as groups of their own. `dapo data prepare` writes each problem once."
        );
        findings.warn(*rows, &warning);
    }
}

fn by_rules(audit: &Audit, findings: &mut AuditFindings) {
    let answers = &audit.answers;
    let listed = on_one_line(&answers.other_listed);
    let text = format!(
        "answers are no integers ({listed}). The paper's are, \"to minimise errors\" (§3.5)."
    );
    findings.warn(answers.other, &text);
    findings.note(
        answers.padded,
        "integers have a leading zero or a plus sign. The verifier compares strings: 045 is not 45, which matters \
         where responses write the other one.",
    );
    let listed = on_one_line(&answers.unverifiable_listed);
    let text = format!(
        "answers are graded wrong even when a response states them as `Answer: …` ({listed})."
    );
    findings.warn(answers.unverifiable, &text);
    for (form, (count, first)) in &answers.unverifiable_otherwise {
        let text =
            format!("answers are graded wrong when a response states them as `{form}` ({first}).");
        findings.warn(*count, &text);
    }
}

fn on_one_line(answers: &[String]) -> String {
    answers.join(", ").replace('\n', "\\n")
}

fn answers(audit: &Audit, findings: &mut AuditFindings) {
    let answers = &audit.answers;
    for (reading, told) in problem_file::told(&audit.readings) {
        let advice = if reading == Reading::LostComma {
            " The grade stays the released one: write a decimal with a point, or leave the row out."
        } else if reading.is_of_row() || reading == Reading::Prose || audit.for_program {
            ""
        } else {
            " As it stands a response that states what is read may not match it, and verl compares it as it stands: \
             `dapo data prepare` writes it as it is read."
        };
        let text = format!("{told}.{advice}");
        findings.add(FindingKind::Warning, text);
    }
    let blank = if audit.for_program { 0 } else { answers.blank };
    let rows = &audit.prompts.blank_answers;
    let text = format!("answers are empty (records from 0: {rows:?}). Training refuses the file.");
    findings.warn(blank, &text);
    if let Some((answer, problems)) = answers.shared_listed.first() {
        let text = format!(
            "Answers that several problems share: {}, such as {answer} ({problems} problems). Rows \
             must be grouped by their question, never by their answer.",
            answers.shared
        );
        findings.add(FindingKind::Note, text);
    }
}

fn prompts(audit: &Audit, findings: &mut AuditFindings) {
    let prompts = &audit.prompts;
    findings.warn(
        prompts.not_one_user_message,
        &format!(
            "prompts are not one message of the user, behind one system message or none (from 0, {}). Training refuses \
             the file.",
            prompts.first_refused.as_deref().unwrap_or_default()
        ),
    );
    let mixed = prompts.systems > 1
        || !matches!(prompts.with_system, rows if rows == 0 || rows == audit.rows);
    findings.warn(
        if mixed { prompts.with_system } else { 0 },
        "prompts have a system message that other rows do not have. Training takes one of all rows: make a file of each.",
    );
    findings.note(
        if mixed { 0 } else { prompts.with_system },
        "prompts have one system message. [prompt] of the experiment must state it (`system`); `dapo init` does.",
    );
    let rows = &prompts.blank_rows;
    let text = format!(
        "rows have an empty question (records from 0: {rows:?}). Training refuses the file."
    );
    findings.warn(prompts.blank, &text);
    let other_template = "prompts are not in the released template, which asks for the `Answer:` line that the \
                          verifier reads. With `prompt.template = \"dapo\"` the harness puts it around the question; \
                          verl takes the prompt as it stands.";
    // Questions alone: what a file of one's own holds.
    match prompts.other_template {
        _ if audit.for_program => {}
        all if all == audit.problems => findings.note(all, other_template),
        some => findings.warn(some, other_template),
    }
    if prompts.raw_problem_differs > 0 {
        let text = format!(
            "In {} rows `extra_info.raw_problem` is another text than the question in the prompt. \
             The harness takes `raw_problem`, verl the prompt.",
            prompts.raw_problem_differs
        );
        findings.add(FindingKind::Warning, text);
    }
    for told in problem_file::told_unseen(&audit.unseen) {
        findings.add(FindingKind::Warning, format!("{told}."));
    }
    let limit = prompts.lengths.limit_tokens;
    let text = format!(
        "problems have prompts of more than {limit} tokens. A run with that limit refuses them; verl drops or cuts \
         them, by `data.filter_overlong_prompts` and `data.truncation`."
    );
    findings.warn(prompts.lengths.over_limit.unwrap_or(0), &text);
    let text = "problems stand in the file with different spacing; they count once.";
    findings.note(prompts.spaced_differently, text);
}

fn names(audit: &Audit, findings: &mut AuditFindings) {
    let unrouted: Vec<&String> =
        audit.data_sources.keys().filter(|name| !is_routed(name)).collect();
    let rows: u64 = unrouted.iter().map(|name| audit.data_sources[*name]).sum();
    if rows > 0 && !audit.for_program {
        let shown = |name: &&String| match name.as_str() {
            "" => "none".to_string(),
            name => format!("`{name}`"),
        };
        let shown: Vec<String> = unrouted.iter().map(shown).collect();
        let text = format!(
            "The `data_source` of {rows} rows is {}: verl would not grade them by the rules for \
             `math_dapo`. The harness always does.",
            shown.join(", ")
        );
        findings.add(FindingKind::Note, text);
    }
    let Indices { of_several_problems, doubled_ids, several_listed, .. } = &audit.indices;
    let first = several_listed.join(", ");
    let text = format!(
        "ids stand beside several problems (first {first}). Training refuses two problems of one id: give each its own, \
         or leave out the key `id`."
    );
    findings.warn(*doubled_ids, &text);
    let text = format!(
        "values of `extra_info.index` stand beside several problems (first {first}): grouping by index would merge them."
    );
    findings.warn(of_several_problems - doubled_ids, &text);
}
