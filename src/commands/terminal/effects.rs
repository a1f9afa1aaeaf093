//! What each technique did in a run: one line a technique, and clearly visible warnings.

use crate::commands::output;
use crate::report::page::{Table, row};
use crate::report::{terminal, text};
use crate::study::{Effects, effect_checks::EffectFinding};

/// Uses standard error; `verbose` adds evidence. Only terminals get colour; a non-empty `NO_COLOR`
/// turns it off.
pub fn print_effects(effects: &Effects, verbose: bool) {
    output::tell_lines(&lines(effects, output::colour(), verbose));
}

fn lines(effects: &Effects, colour: bool, verbose: bool) -> String {
    let steps = text::counted(effects.steps, "rollout step", "rollout steps");
    let rows = effects.findings.iter().map(|finding| {
        let EffectFinding { technique, enabled, verdict, evidence, .. } = finding;
        let switch = if *enabled { "on" } else { "off" };
        row![*technique, switch, verdict.words(), if verbose { evidence.as_str() } else { "" }]
    });
    let evidence = if verbose { "evidence" } else { "" };
    let columns = format!("technique | switch | effect | {evidence}");
    let width = output::width(std::io::stderr());
    let table = terminal::table(&Table::new("", &columns, rows), width);
    let mut text = format!("what each technique did in {steps}:\n{table}");
    for warning in effects.warnings() {
        let shown = terminal::prose(&format!("warning: {warning}"), width);
        text +=
            &if colour { format!("\u{1b}[1;33m{}\u{1b}[0m\n", shown.trim_end()) } else { shown };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::NamedWarning;
    use crate::study::effect_checks::EffectVerdict;

    fn effects() -> Effects {
        let finding = |technique, enabled, verdict| EffectFinding {
            technique,
            enabled,
            verdict,
            evidence: "0 of 9 were".to_string(),
            dose: None,
        };
        Effects {
            steps: 3,
            findings: vec![
                finding("Clip-Higher", true, EffectVerdict::EnabledButDidNothing),
                finding("Dynamic Sampling", false, EffectVerdict::Off),
            ],
            named_warnings: vec![NamedWarning { name: "a-name", sentence: "says why".to_string() }],
        }
    }

    #[test]
    fn every_technique_has_a_line_and_every_warning_stands_out() {
        let plain = lines(&effects(), false, true);
        assert_eq!(
            plain.lines().collect::<Vec<_>>(),
            [
                "what each technique did in 3 rollout steps:",
                "  technique         switch  effect       evidence",
                "  Clip-Higher       on      did nothing  0 of 9 were",
                "  Dynamic Sampling  off     idle         0 of 9 were",
                "warning: Clip-Higher is on and did nothing: 0 of 9 were",
                "warning: a-name: says why",
            ]
        );
        let coloured = lines(&effects(), true, false);
        assert!(coloured.contains("idle\n"));
        assert_eq!(coloured.matches("\u{1b}[1;33mwarning: ").count(), 2);
        assert!(!plain.contains('\u{1b}'));
    }
}
