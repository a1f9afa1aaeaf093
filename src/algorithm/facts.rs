//! What is known of a key: its meaning, its unit, and what a publication and its code state. The table
//! itself is `experiment::sources`; a method has the facts of its own keys in its file.

/// What one source says about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stated {
    /// The value as a JSON literal in this harness's terms; `None` where the source states
    /// none, or none that this key could take.
    pub value: Option<&'static str>,
    /// What the source says beyond the value; may be empty.
    pub remark: &'static str,
    /// Section, equation, or file with line; empty where nothing is said.
    pub place: &'static str,
}

impl Stated {
    /// In one line: value, remark and place, or `absent`.
    pub fn sentence(&self) -> String {
        let said: Vec<&str> = self.value.into_iter().chain([self.remark]).collect();
        let said: Vec<&str> = said.into_iter().filter(|part| !part.is_empty()).collect();
        match (said.is_empty(), self.place) {
            (true, _) => "absent".to_string(),
            (false, "") => said.join("; "),
            (false, place) => format!("{} ({place})", said.join("; ")),
        }
    }
}

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its path; `*` stands for any one name.
    pub path: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Unit of its value; empty for names and pure numbers.
    pub unit: &'static str,
    /// What the paper says.
    pub paper: Stated,
    /// What the released code does.
    pub released_code: Stated,
}

/// Nothing is said.
pub const SILENT: Stated = Stated { value: None, remark: "", place: "" };

/// A value, and where it stands.
pub const fn is(value: &'static str, place: &'static str) -> Stated {
    Stated { value: Some(value), remark: "", place }
}

/// A remark without a value, and where it stands.
pub const fn says(remark: &'static str, place: &'static str) -> Stated {
    Stated { value: None, remark, place }
}

/// A value with a remark, and where they stand.
pub const fn is_and_says(value: &'static str, remark: &'static str, place: &'static str) -> Stated {
    Stated { value: Some(value), remark, place }
}

/// A key of which neither source says anything yet.
pub const fn key(path: &'static str, unit: &'static str, meaning: &'static str) -> Key {
    Key { path, meaning, unit, paper: SILENT, released_code: SILENT }
}

impl Key {
    /// With what the paper says.
    pub const fn paper(self, paper: Stated) -> Self {
        Self { paper, ..self }
    }

    /// With what the released code does.
    pub const fn released(self, released_code: Stated) -> Self {
        Self { released_code, ..self }
    }

    /// Whether this is the key of a path such as `evaluation.samples.dev`.
    pub fn matches(&self, path: &str) -> bool {
        let (own, other) = (self.path.split('.'), path.split('.'));
        own.clone().count() == other.clone().count()
            && own.zip(other).all(|(own, other)| own == "*" || own == other)
    }
}
