use crate::base::{files, program};
use crate::records::{model_folder, tables};
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error("{}: {reason}", path.display())]
    Program { path: PathBuf, reason: String },
    #[error("{}: the problem {id} is in another set, too; ids must differ where a program grades", path.display())]
    IdOfTwoSets { path: PathBuf, id: String },
    #[error("{}: chat_template must be a text, or a list of {{name, template}} with the name `default`", path.display())]
    Form { path: PathBuf },
    #[error("{}: chat template: {reason}", path.display())]
    Template { path: PathBuf, reason: String },
    #[error(transparent)]
    Table(#[from] tables::TableError),
    #[error("there is no task {name:?}; {known}")]
    Kind { name: String, known: String },
    #[error("a recipe must state either a task or a file of solutions")]
    Solutions,
    #[error("{}: expected one file named *.parquet, *.jsonl, *.json, *.csv or *.tsv; parts of a data set are joined before: pandas.concat(map(pandas.read_parquet, PARTS)).to_parquet(\"all.parquet\")", path.display())]
    Format { path: PathBuf },
    #[error("{}: no problems in it: it has no row", path.display())]
    Empty { path: PathBuf },
    #[error("{}: contradicting rows, --without and --hold-out leave none of its problems", path.display())]
    NoneLeft { path: PathBuf },
    #[error("{}{place}: the {field} is empty; leave the row out", path.display())]
    Blank { path: PathBuf, place: String, field: &'static str },
    #[error("{}: none of its {rows} rows has a ground truth: they are worked solutions with neither a line behind `####` nor \\boxed; name the key of the answer with --answer-key", path.display())]
    Unmarked { path: PathBuf, rows: usize },
    #[error(
        "an example of prompt.examples is a problem of the evaluation set {set}: {start:?} ({id}); take another example, so that no response is shown the answer"
    )]
    ShownExample { set: String, start: String, id: String },
    #[error("{}:{line}: its solution states no answer that the verifier reads", path.display())]
    Unstated { path: PathBuf, line: usize },
    #[error("{}:{line}: its solution answers {answer:?}, an earlier one of the same question {earlier:?}", path.display())]
    OtherAnswer { path: PathBuf, line: usize, answer: String, earlier: String },
    #[error("{}: it has {questions} questions, and {count} are to be held out for evaluation, so none is left to learn from; lower evaluation.problems", path.display())]
    TooFewQuestions { path: PathBuf, questions: usize, count: usize },
    #[error("{}:{line}: its solution has {tokens} tokens, max_response_tokens is {limit}", path.display())]
    LongSolution { path: PathBuf, line: usize, tokens: usize, limit: u64 },
    /// `of_response` says what the response's tokens are.
    #[error("{}:{line}: {prompt} tokens of its prompt and {response} of {of_response} are more than the model's {positions} positions; shorten it or leave it out", path.display())]
    LongRow {
        path: PathBuf,
        line: usize,
        prompt: usize,
        response: u64,
        of_response: &'static str,
        positions: i64,
    },
    #[error("{}: the chat template ends a turn with {token}, which stops no response; add it to eos_token_id of generation_config.json", folder.display())]
    Unstopped { folder: PathBuf, token: String },
    #[error("{}{place}: no response can be graded right for the ground truth {value:?}: `Answer: {value}` is graded wrong; leave the row out, or name the key of the answer with `dapo data prepare --answer-key`", path.display())]
    Unearned { path: PathBuf, place: String, value: String },
    #[error("{}{place}: expected one message of a `user`, behind one of `system` or none, its prompt has {roles}", path.display())]
    Messages { path: PathBuf, place: String, roles: String },
    #[error("{}{place}: its prompt has another system message than the rows before it, or none; a run has one: make a file of each", path.display())]
    OtherSystem { path: PathBuf, place: String },
    #[error("{}: its prompts have a system message ({start:?} …), and none is stated: state it as `system` of [prompt] (`dapo init` does) or with --system, or another text that counts in its place", path.display())]
    SystemUnstated { path: PathBuf, start: String },
    #[error("{}: record {record} (from 0): {reason}", path.display())]
    Tokens { path: PathBuf, record: usize, reason: String },
    #[error("{}: its distinct problems have more than {most} bytes", path.display())]
    TooMuch { path: PathBuf, most: usize },
    #[error("{}: {count} questions have conflicting answers: {listed}; `dapo data prepare` leaves them out", path.display())]
    Conflicts { path: PathBuf, count: usize, listed: String },
    #[error("{}: two problems have the id `{id}`: {first:?} and {second:?}; give each its own, or leave out the key `id`", path.display())]
    DuplicateId { path: PathBuf, id: String, first: String, second: String },
    #[error(
        "{count} problems of {} also stand in the training file {}: {listed}; leave them out with `dapo data prepare {} --without {} --out DIR`",
        evaluated.display(), train.display(), program::path_word(train), program::path_word(evaluated)
    )]
    Overlap { train: PathBuf, evaluated: PathBuf, count: usize, listed: String },
    #[error(
        "all problems of the training file {} are also in {}, and training on what is evaluated says nothing: name \
         another file, or hold problems out with `dapo data prepare {} --hold-out COUNT --out DIR`",
        train.display(), evaluated.display(), program::path_word(train)
    )]
    AllEvaluated { train: PathBuf, evaluated: PathBuf },
    #[error("{}: another evaluation set is also named `{name}` (a set is named after its file)", path.display())]
    DuplicateSet { path: PathBuf, name: String },
    #[error("{}: no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json", folder.display())]
    NoChatTemplate { folder: PathBuf },
    #[error(
        "{}: it has no token {token:?}, and {file} beside it adds one; \
         AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers writes a whole tokenizer.json",
        path.display()
    )]
    LacksToken { path: PathBuf, token: String, file: &'static str },
    #[error("{}: no usable tokenizer: {reason}", path.display())]
    Tokenizer { path: PathBuf, reason: String },
    #[error("{}: {what}", folder.display())]
    OtherFolder { folder: PathBuf, what: model_folder::OtherFolder },
    #[error("{}: no eos_token_id in generation_config.json or config.json", folder.display())]
    NoStopToken { folder: PathBuf },
    #[error("{}: eos_token_id must be a token id below {vocabulary_size} or a list of them, got {value}", path.display())]
    StopToken { path: PathBuf, vocabulary_size: usize, value: String },
    #[error("{}: token {token:?} has id {id}, the model's vocabulary has only {vocabulary} rows", path.display())]
    Vocabulary { path: PathBuf, token: String, id: u32, vocabulary: i64 },
    #[error("cannot tokenize {text:?}: {reason}")]
    Encode { text: String, reason: String },
    #[error(
        "the stop string {text:?} has the special token {token:?}, which has no text in a response: name it in eos_token_id of generation_config.json"
    )]
    SpecialStop { text: String, token: String },
    #[error("{key}: {source}")]
    Stop { key: &'static str, source: Box<TaskError> },
    #[error("problem {id}: {source}")]
    Problem { id: String, source: Box<TaskError> },
    #[error("problem {id}: its prompt has {tokens} tokens, max_prompt_tokens is {limit}")]
    TooLong { id: String, tokens: usize, limit: u64 },
    /// A text so long that tokenizing it would take minutes to say the same.
    #[error("problem {id}: its prompt has {bytes} bytes, max_prompt_tokens is {limit}")]
    TooLongText { id: String, bytes: usize, limit: u64 },
    /// Of a set; `what` counts the prompts and names the longest one, `setting` takes another limit.
    #[error("{what}; {setting} takes longer ones, or leave those rows out")]
    LongPrompts { what: String, setting: String },
    #[error("problem {id}: its prompt is empty")]
    EmptyPrompt { id: String },
}
