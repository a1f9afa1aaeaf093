//! What must not be in any committed text file.

use crate::repository::{self, Source};

#[test]
fn committed_files_name_no_machine_and_no_registry() {
    let sources = repository::tracked_text();
    assert!(sources.len() > 50, "only {} text files: the walk is broken", sources.len());
    let violations: Vec<String> = sources.iter().flat_map(violations).collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// Lines that name a folder of one machine, a package registry's host, or a merge conflict.
/// The words are put together here so that this file passes its own test.
fn violations(source: &Source) -> Vec<String> {
    let folders = ["work", "root", "home", "tmp/w"].map(|name| format!("/{name}/"));
    let hosts = [["pypi", "org"], ["pythonhosted", "org"], ["crates", "io"], ["npmjs", "com"]]
        .map(|[name, end]| format!("{name}.{end}"));
    let conflict = "<".repeat(7);
    let mut found = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let at = |what: &str| format!("{}:{}: {what}", source.path, index + 1);
        for folder in &folders {
            // `../work/` and `frame/work/` are no absolute paths.
            let absolute = line.match_indices(folder.as_str()).any(|(place, _)| {
                let before = line[..place].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-~}*/<>".contains(c))
            });
            if absolute {
                found.push(at(&format!("names {folder}, a folder of one machine")));
            }
        }
        // Cargo writes its registry into the lock file.
        if source.path != "Cargo.lock" {
            for host in hosts.iter().filter(|host| line.contains(host.as_str())) {
                found.push(at(&format!("names the package registry {host}")));
            }
        }
        if line.starts_with(&conflict) {
            found.push(at("is an unresolved merge conflict"));
        }
    }
    found
}

#[test]
fn planted_paths_hosts_and_conflicts_are_caught() {
    let cases = [
        ("let model = \"/WORK/main\";".replace("WORK", "work"), "a folder of one machine"),
        ("cache: /HOME/me/x".replace("HOME", "home"), "a folder of one machine"),
        ("index = https://pypi.ORG/simple".replace("ORG", "org"), "the package registry"),
        (format!("{} ours", "<".repeat(7)), "merge conflict"),
    ];
    for (line, expected) in cases {
        let found = violations(&Source::planted("a.txt", &format!("first\n{line}\n")));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].starts_with("a.txt:2: ") && found[0].contains(expected), "{found:?}");
    }
    let fine = Source::planted("a.txt", "../work/x frame/work/ https://host/home/ $HOME/home\n");
    assert_eq!(violations(&fine), Vec::<String>::new());
}
