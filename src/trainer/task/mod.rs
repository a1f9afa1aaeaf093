//! Data sets, templates, tokenizer, verifiers, audit. In: problem files or a generator's seed, and responses. Out:
//! prompts as tokens, and what Eq. 7 says of a response. Never: a policy.

pub mod error;
pub mod chat_template;
pub mod reward;
pub mod data;
pub mod audit;
pub mod prompt;
pub mod response_text;
pub mod grader;
pub mod earned;
pub mod responses;

pub use crate::task::audit::{
    Answers, Audit, AuditContent, AuditPrompts, ConflictListed, Conflicts, Copies, FindingKind,
    Indices, Lengths, TokenCount,
};
pub use crate::task::chat_template::ChatTemplate;
pub use crate::task::data::DataSets;
pub use crate::task::data::embedded::{Embedded, Shares, Solutions, Written};
pub use crate::task::data::schema::truth::{Reading, Truth};
pub use crate::task::data::schema::{ReadRow, RowKeys};
pub use crate::task::data::source::SourceRow;
pub use crate::task::earned::EarnedTruths;
pub use crate::task::error::TaskError;
pub use crate::task::grader::{Grader, Tally, Twice, UngradedBatch};
pub use crate::task::prompt::Tokenizer;
pub use crate::task::response_text::ResponseText;
pub use crate::task::reward::{Explanation, Reason};
