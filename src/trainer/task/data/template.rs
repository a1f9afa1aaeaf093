//! The released data's instruction around a question (the `prompt` column of DAPO-Math-17k and AIME 2024).

const BEFORE: &str = "Solve the following math problem step by step. The last line of your \
    response should be of the form Answer: $Answer (without quotes) where $Answer is the answer \
    to the problem.\n\n";

const AFTER: &str = "\n\nRemember to put your answer on its own line after \"Answer:\".";

/// The question alone, or in the instruction.
pub fn asked(question: &str, instructs: bool) -> String {
    if instructs { wrap(question) } else { question.to_string() }
}

pub fn wrap(question: &str) -> String {
    format!("{BEFORE}{question}{AFTER}")
}

/// The question of a text that is exactly [`wrap`] of it.
pub fn unwrap(text: &str) -> Option<&str> {
    text.strip_prefix(BEFORE)?.strip_suffix(AFTER)
}
