use super::*;

#[test]
fn canonical_json_does_not_depend_on_the_order_of_keys() {
    let one: serde_json::Value = serde_json::from_str(r#"{"b": [1.5, 2], "a": null}"#).unwrap();
    let two: serde_json::Value = serde_json::from_str(r#"{"a": null, "b": [1.5, 2]}"#).unwrap();
    assert_eq!(canonical_json_line(&one), r#"{"a":null,"b":[1.5,2]}"#);
    assert_eq!(canonical_json(&one), canonical_json(&two));
}

#[test]
fn sha256_agrees_with_the_published_vector_of_abc() {
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(sha256(b"abc"), digest);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("abc");
    write_atomic(&path, b"abc").unwrap();
    assert_eq!(sha256_file(&path).unwrap(), digest);
    assert_eq!(sha256_file_once(&path).unwrap(), digest);
    write_atomic(&path, b"abd").unwrap();
    assert_eq!(sha256_file_once(&path).unwrap(), sha256(b"abd"));
    std::fs::write(&path, b"abe").unwrap();
    assert_eq!(sha256_file_once(&path).unwrap(), sha256(b"abe"));
}

#[test]
fn written_files_have_the_rights_that_the_umask_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let [usual, whole, program] = ["usual", "whole", "program"].map(|it| folder.path().join(it));
    append(&usual, b"").unwrap();
    write_atomic(&whole, b"").unwrap();
    write_program(&program, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&whole), mode(&usual));
    assert_eq!(mode(&program), mode(&usual) | (mode(&usual) & 0o444) >> 2);
    let private = folder.path().join("private");
    private_folder(&private).unwrap();
    private_folder(&private).unwrap();
    assert_eq!(mode(&private), 0o700);
    fs::set_permissions(&private, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(private_folder(&private).unwrap_err().to_string().contains("nobody else can open"));
}

#[test]
fn a_bad_line_is_named_by_its_number() {
    let text = b"{\"x\": 1}\n\n{\"x\": }\n";
    let error = parse_lines::<serde_json::Value>(Path::new("f.jsonl"), text).unwrap_err();
    assert!(error.to_string().starts_with("f.jsonl:3: "), "{error}");
    let text = b"{\"x\": \"\\ud83d?\"}\n";
    let error = parse_lines::<serde_json::Value>(Path::new("f.jsonl"), text).unwrap_err();
    assert!(error.to_string().contains("stands without its pair at column"), "{error}");
    let text = b"{\"x\": 1} trailing\n";
    let error = parse_lines::<serde_json::Value>(Path::new("f.jsonl"), text).unwrap_err();
    assert!(error.to_string().starts_with("f.jsonl:1: "), "{error}");
}

#[test]
fn a_failed_write_leaves_the_old_file_and_no_leftover() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("value.json");
    write_atomic(&path, b"old").unwrap();
    let failed = write_atomic_with(&path, |file| {
        file.write_all(b"ne")?;
        Err(io::Error::other("the disk is full"))
    });
    assert!(failed.unwrap_err().to_string().contains("the disk is full"));
    assert_eq!(read(&path).unwrap(), b"old");
    assert_eq!(list(folder.path()).unwrap(), ["value.json"]);
}

#[test]
fn what_stands_in_the_way_of_a_folder_has_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink("gone", at("link")).unwrap();
    fs::write(at("file"), "mine").unwrap();
    let reason = |name: &str| create_folder(&at(name)).unwrap_err().to_string();
    for name in ["link", "link/a", "file", "file/a/b"] {
        let what = if name.starts_with("link") {
            "link is a link to something that is not there"
        } else {
            "file is a file"
        };
        assert!(
            reason(name).ends_with(&format!("{what}; choose another name")),
            "{}",
            reason(name)
        );
    }
    assert!(list(&at("link")).unwrap_err().to_string().ends_with("not there"));
    assert!(list(&at("gone")).unwrap_err().is_missing());
}

#[test]
fn an_output_goes_behind_links_and_into_pipes_and_replaces_neither() {
    use io::Read;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, at(name)).unwrap();
    fs::create_dir(at("pages")).unwrap();
    link("pages/gate.xml", "new.xml");
    link("new.xml", "second.xml");
    for text in ["<a>1", "<a>2"] {
        may_write(&at("second.xml"), "<a>").unwrap();
        write_output(&at("second.xml"), text.as_bytes()).unwrap();
        assert_eq!(read_text(&at("pages/gate.xml")).unwrap(), text);
    }
    let refusal = |name: &str| may_write(&at(name), "<b>").unwrap_err().to_string();
    assert!(refusal("second.xml").ends_with("another file is there: choose another name"));
    assert!(refusal("pages").ends_with("a folder is there: name a file"));
    remove_output(&at("second.xml")).unwrap();
    assert_eq!(kind(&at("pages/gate.xml")).unwrap(), None);

    link("round", "round");
    assert!(refusal("round").ends_with("its links have no end"));
    let pipe = at("pipe");
    let (kind_of_pipe, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind_of_pipe, mode, 0).unwrap();
    let mut reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    link("pipe", "to-pipe");
    for name in ["pipe", "to-pipe"] {
        may_write(&at(name), "<a>").unwrap();
        remove_output(&at(name)).unwrap();
        write_output(&at(name), b"<a>").unwrap();
        let mut bytes = [0; 3];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"<a>");
    }
    for name in ["new.xml", "second.xml", "pipe", "to-pipe"] {
        assert_eq!(kind(&at(name)).unwrap(), Some(FileKind::Other), "{name}");
    }
}

#[test]
fn a_line_that_was_cut_off_is_dropped_and_the_lines_before_it_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.jsonl");
    assert_eq!(complete_lines::<u64>(&path).unwrap(), Vec::<u64>::new());
    write_atomic(&path, b"1\n2\n3").unwrap();
    assert_eq!(complete_lines::<u64>(&path).unwrap(), [1, 2]);
    write_atomic(&path, b"1\n{\"x\n3\n").unwrap();
    assert_eq!(complete_lines::<u64>(&path).unwrap(), [1]);
    write_lines(&path, &[4u64, 5]).unwrap();
    append_line(&path, &6u64).unwrap();
    assert_eq!(read(&path).unwrap(), b"4\n5\n6\n");
}

#[test]
fn a_lock_is_held_once_and_given_back_when_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.lock");
    assert!(!locks::is_locked(&path).unwrap());
    let held = locks::lock(&path).unwrap();
    assert!(held.is_some() && locks::is_locked(&path).unwrap());
    assert!(locks::lock(&path).unwrap().is_none());
    drop(held);
    assert!(!locks::is_locked(&path).unwrap() && locks::lock(&path).unwrap().is_some());
}

#[test]
fn leftovers_of_a_killed_write_are_removed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_atomic(&at("step-000001/model"), b"whole").unwrap();
    write_atomic(&leftovers::partial_folder(&at("step-000002")).join("model"), b"half").unwrap();
    write_atomic(&at(".partial-xyz"), b"half").unwrap();
    leftovers::remove_partial(folder.path()).unwrap();
    assert_eq!(list(folder.path()).unwrap(), ["step-000001"]);
    leftovers::remove_partial(&at("nowhere")).unwrap();
}

#[test]
fn a_write_removes_the_leftovers_of_killed_ones_and_no_file_that_is_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let others = [".partial-abcd", ".partial-mine.txt"];
    for name in [".partial-aB3dE6", others[0], others[1]] {
        fs::write(at(name), "half").unwrap();
    }
    fs::create_dir(at(".partial-folder")).unwrap();
    write_atomic_with(&at("a"), |_| {
        write_atomic(&at("b"), b"").unwrap();
        assert_eq!(list(folder.path()).unwrap().len(), 5);
        Ok(())
    })
    .unwrap();
    let left = [others[0], ".partial-folder", others[1], "a", "b"];
    assert_eq!(list(folder.path()).unwrap(), left);
}

#[test]
fn sizes_are_summed_below_a_folder_and_free_space_is_known_where_nothing_is_yet() {
    let folder = tempfile::tempdir().unwrap();
    write_atomic(&folder.path().join("a"), &[0; 10]).unwrap();
    write_atomic(&folder.path().join("b/c"), &[0; 5]).unwrap();
    assert_eq!(size_bytes(folder.path()).unwrap(), 15);
    let link = folder.path().join("b/link");
    std::os::unix::fs::symlink(folder.path().join("a"), &link).unwrap();
    assert_eq!(file_bytes(&link).unwrap(), 10);
    let later = folder.path().join("not/yet");
    assert_eq!(nearest_folder(&later), folder.path());
    assert_eq!(nearest_folder(Path::new("not-yet")), Path::new("."));
    assert!(free_bytes(&later).unwrap() > 0);
}

#[test]
fn a_scratch_folder_ends_with_its_value_or_with_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let others = [".dapo-scratch-abcd", ".partial-aB3dE6", ".scratch-aB3dE6"];
    for name in [".dapo-scratch-aB3dE6", others[0], others[1], others[2]] {
        fs::create_dir_all(at(name).join("a")).unwrap();
    }
    let first = leftovers::scratch_folder(Some(folder.path())).unwrap();
    fs::write(first.path().join("file"), "").unwrap();
    let second = leftovers::scratch_folder(Some(folder.path())).unwrap();
    assert!(first.path().join("file").exists() && second.path().exists());
    assert!(second.path().to_string_lossy().contains("/.dapo-scratch-"));
    drop((first, second));
    assert_eq!(list(folder.path()).unwrap(), others);
    let error = leftovers::scratch_folder(Some(&at("nowhere"))).unwrap_err().to_string();
    assert!(error.ends_with("nowhere: No such file or directory"), "{error}");
}

#[test]
fn errors_of_a_write_have_no_path_of_a_library() {
    let error = write_atomic(Path::new("/proc/sys/file"), b"").unwrap_err().to_string();
    assert!(error.starts_with("cannot write /proc/sys/file: "), "{error}");
    assert!(!error.contains("partial"), "{error}");
}

#[test]
fn a_copy_of_hard_links_has_lines_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let [first, copy] = ["first", "copy"].map(|name| folder.path().join(name));
    append_line(&first, &1u64).unwrap();
    fs::hard_link(&first, &copy).unwrap();
    append_line(&copy, &2u64).unwrap();
    append_line(&copy, &3u64).unwrap();
    assert_eq!(
        (read(&first).unwrap(), read(&copy).unwrap()),
        (b"1\n".to_vec(), b"1\n2\n3\n".to_vec())
    );
}

#[test]
fn a_file_that_is_as_it_should_be_is_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page");
    renew(&path, "one").unwrap();
    let first = state(&path).unwrap();
    renew(&path, "one").unwrap();
    assert_eq!(state(&path).unwrap(), first);
    renew(&path, "two").unwrap();
    assert_eq!(read(&path).unwrap(), b"two");
}

#[test]
fn a_lock_is_held_as_long_as_its_path_names_the_file_that_was_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.lock");
    let first = locks::lock(&path).unwrap().unwrap();
    assert!(first.is_held().unwrap());
    assert!(locks::lock(&path).unwrap().is_none());
    remove_file(&path).unwrap();
    assert!(!first.is_held().unwrap());
    let second = locks::lock(&path).unwrap().unwrap();
    assert!(second.is_held().unwrap() && !first.is_held().unwrap());
    // The folder was moved away with the lock in it.
    let moved = folder.path().with_extension("moved");
    fs::rename(folder.path(), &moved).unwrap();
    assert!(!second.is_held().unwrap());
    fs::rename(&moved, folder.path()).unwrap();
    assert!(second.is_held().unwrap());
}

#[test]
fn a_missing_file_is_named() {
    let error = read(Path::new("/no/such/file")).unwrap_err();
    assert!(error.to_string().starts_with("cannot read /no/such/file: "), "{error}");
}

#[test]
fn what_is_no_file_is_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (kind_of_pipe, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), kind_of_pipe, mode, 0).unwrap();
    std::os::unix::fs::symlink("elsewhere", at("link")).unwrap();
    for path in [at("pipe"), at("link"), folder.path().to_path_buf()] {
        let refused = locks::lock(&path).unwrap_err().to_string();
        assert!(refused.ends_with(": it is no regular file"), "{refused}");
    }
    assert_eq!(kind(&at("elsewhere")).unwrap(), None);
}

#[test]
fn a_folder_moves_to_a_free_name_or_into_a_folder_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = |text: &str| write_atomic(&at("made/model/a"), text.as_bytes()).unwrap();
    made("first");
    move_folder(&at("made"), &at("new")).unwrap();
    assert_eq!(list(folder.path()).unwrap(), ["new"]);
    made("second");
    move_folder(&at("made"), &at("new")).unwrap_err();
    assert_eq!(read_text(&at("new/model/a")).unwrap(), "first");
    create_folder(&at("empty")).unwrap();
    std::os::unix::fs::symlink("empty", at("link")).unwrap();
    move_folder(&at("made"), &at("link")).unwrap();
    assert_eq!(read_text(&at("empty/model/a")).unwrap(), "second");
}

#[test]
fn a_failing_disk_a_stale_handle_and_a_permission_say_nothing_about_a_files_content() {
    let of = |code: i32| {
        is_unread(&io_error("read", Path::new("a"))(io::Error::from_raw_os_error(code)))
    };
    let [io, access, stale, too_many] = [5, 13, 116, 24];
    assert!([io, access, stale, too_many].into_iter().all(of));
    let [missing, folder, below_a_file, looped] = [2, 21, 20, 40];
    assert!(![missing, folder, below_a_file, looped].into_iter().any(of));
    assert!(!is_unread(&invalid("read", Path::new("a"), "not UTF-8".to_string())));
    let json = FileError::Json { path: "a".into(), reason: "no JSON".to_string() };
    assert!(!is_unread(&json));
}
