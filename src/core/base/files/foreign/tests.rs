use super::*;
use base64::prelude::{BASE64_STANDARD, Engine};

fn reason(result: Result<PathBuf, FileError>) -> String {
    match result {
        Err(FileError::Outside { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_becomes_a_path_only_inside_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    files::write_atomic(&root.join("rollouts/a"), b"a").unwrap();
    files::write_atomic(&folder.path().join("outside"), b"o").unwrap();
    assert_eq!(inside(&root, "rollouts/a").unwrap(), root.join("rollouts/a"));
    // What is not there yet may be made.
    assert_eq!(inside(&root, "rollouts/b").unwrap(), root.join("rollouts/b"));
    for name in ["../outside", "/etc/passwd", "rollouts/../../outside", "a//b", "./a", "a/.", ".."]
    {
        assert_eq!(reason(inside(&root, name)), "it is not a plain relative path", "{name}");
    }
    assert_eq!(reason(inside(&root, "")), "it has 0 bytes");
    assert_eq!(reason(inside(&root, "a\0b")), "it has a control character");
    assert_eq!(reason(inside(&root, &"a".repeat(2000))), "it has 2000 bytes");
    assert_eq!(reason(inside(&root, "rollouts/a/b")), "a is a file");
}

#[test]
fn a_link_on_the_way_is_refused_and_so_is_a_folder_that_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    files::write_atomic(&root.join("rollouts/a"), b"a").unwrap();
    refuse_links(&root).unwrap();
    std::os::unix::fs::symlink("rollouts", root.join("evaluations")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", root.join("rollouts/zero")).unwrap();
    assert_eq!(reason(inside(&root, "evaluations/a")), "evaluations is a link, or no regular file");
    assert_eq!(reason(inside(&root, "rollouts/zero")), "zero is a link, or no regular file");
    let error = refuse_links(&root).unwrap_err().to_string();
    assert!(error.ends_with("it is a link, or no regular file"), "{error}");
}

#[test]
fn nothing_is_read_beyond_a_limit() {
    let zero = Path::new("/dev/zero");
    let error = read_up_to(zero, 1 << 20).unwrap_err().to_string();
    assert_eq!(error, "cannot read /dev/zero: it is no regular file");
    assert!(open_regular(zero).unwrap_err().to_string().contains("no regular file"));
    // A file with holes: of a size that no disk has, and no memory either.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holes.json");
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    for error in [
        files::read(&path).map(drop).unwrap_err(),
        files::read_json::<u64>(&path).map(drop).unwrap_err(),
        files::read_lines::<u64>(&path).map(drop).unwrap_err(),
        files::complete_lines::<u64>(&path).map(drop).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("arger than ") || text.contains("more than "), "{text}");
    }
}

#[test]
fn a_file_is_hashed_when_it_lies_on_a_disk_and_is_more_than_holes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holes");
    let refused = |path: &Path| files::sha256_file(path).unwrap_err().to_string();
    for size in [1 << 20, 1 << 36] {
        let mut file = fs::File::create(&path).unwrap();
        file.set_len(size).unwrap();
        assert!(refused(&path).ends_with(&format!("of its {size} bytes almost all are holes")));
        // Data somewhere in it, before and behind holes.
        file.seek(io::SeekFrom::Start(size / 2)).unwrap();
        io::Write::write_all(&mut file, &[1; 4096]).unwrap();
        assert!(refused(&path).contains("almost all are holes"));
    }
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(refused(&path).ends_with("larger than 274877906944 bytes"), "{}", refused(&path));
    // What the kernel makes up has no size, or one that is none.
    for made_up in ["/proc/self/pagemap", "/proc/self/maps", "/sys/kernel/uevent_seqnum"] {
        assert!(refused(Path::new(made_up)).ends_with("it is no file on a disk"), "{made_up}");
    }
    for device in ["/dev/zero", "/dev/null"] {
        assert!(refused(Path::new(device)).ends_with("it is no regular file"), "{device}");
    }
    // Some holes in real data are honest, and so are few bytes and none.
    let mut file = fs::File::create(&path).unwrap();
    io::Write::write_all(&mut file, &vec![7; 1 << 18]).unwrap();
    file.set_len(1 << 20).unwrap();
    let mut whole = vec![7; 1 << 18];
    whole.resize(1 << 20, 0);
    assert_eq!(files::sha256_file(&path).unwrap(), files::sha256(&whole));
    for bytes in [&b""[..], &b"x"[..], &[0; 60_000][..]] {
        files::write_atomic(&path, bytes).unwrap();
        assert_eq!(files::sha256_file(&path).unwrap(), files::sha256(bytes));
    }
}

#[test]
fn lines_have_a_length_a_number_and_a_sum() {
    let limits = ForeignLimits { bytes: 20, line_bytes: 8, lines: 4 };
    let read = |text: &str| {
        let mut lines = Vec::new();
        let end = each_line(Path::new("f"), text.as_bytes(), limits, |number, line| {
            lines.push((number, String::from_utf8(line.to_vec()).unwrap()));
            Ok::<(), FileError>(())
        });
        end.map(|()| lines).map_err(|error| error.to_string())
    };
    let lines = vec![(1, "12345678".to_string()), (2, String::new()), (3, "x".to_string())];
    assert_eq!(read("12345678\n\nx"), Ok(lines));
    assert_eq!(read("1\n123456789\n").unwrap_err(), "f:2: a line of more than 8 bytes");
    assert_eq!(
        read("1234567\n1234567\n1234567\n").unwrap_err(),
        "f:3: the file has more than 20 bytes"
    );
    assert_eq!(read("\n\n\n\n\n").unwrap_err(), "f:5: the file has more than 4 lines");
}

#[test]
fn a_key_that_stands_twice_is_refused_wherever_it_stands() {
    let refused = |text: &str| refuse_repeated_keys(text).unwrap_err().to_string();
    refuse_repeated_keys(r#"{"a": [{"b": 1}, {"b": 2}], "b": {"a": null}}"#).unwrap();
    assert!(refused(r#"{"a": 1, "a": 2}"#).starts_with("duplicate field `a`"));
    assert!(refused(r#"[{"x": {"a": 1, "\u0061": 2}}]"#).starts_with("duplicate field `a`"));
    let deep = "[".repeat(100_000);
    assert!(refused(&deep).starts_with("recursion limit exceeded"));
}

#[test]
fn a_compressed_file_is_whole_small_and_nothing_else() {
    // Made by Python's lzma: two lines; nothing; 100,000 bytes of 0; two bytes that ask for a dictionary of 1 GiB.
    const TWO_LINES: &str = "/Td6WFoAAATm1rRGAgAhARYAAAB0L+WjAQAPeyJhIjoxfQp7ImIiOjJ9CgBe9yeUmIiAbgABKBDlC2xgH7bzfQEAAAAABFla";
    const NOTHING: &str = "/Td6WFoAAATm1rRGAAAAABzfRCEftvN9AQAAAAAEWVo=";
    const ZEROS: &str = "/Td6WFoAAATm1rRGAgAhARYAAAB0L+Wj4YafAFNdAABv/f//o7f/Rz5IFXI5YVG4kijmo4YH+e7kHoLTL8U6PAFLsX7JiopNL6MN2X+m44wjEVPgWRjFdYrid/i2lH8MasDedElk4ulcU7IE1rH1lwAAAACPxpSiGONw8QABb6CNBgAAkORuUbHEZ/sCAAAAAARZWg==";
    const LARGE_DICTIONARY: &str =
        "/Td6WFoAAATm1rRGAgAhASQAAABeH8f5AQABeAoAAAA3SlHcM6LKsAABGgLcLqV+H7bzfQEAAAAABFla";
    let compressed = |text: &str| BASE64_STANDARD.decode(text).unwrap();
    let limits = ForeignLimits { bytes: 60_000, line_bytes: 50_000, lines: 10 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl.xz");
    let read = |bytes: &[u8]| {
        crate::base::files::write_atomic(&path, bytes).unwrap();
        let mut lines = Vec::new();
        each_line_of_xz(&path, limits, |_, line| {
            lines.push(String::from_utf8_lossy(line).into_owned());
            Ok::<(), FileError>(())
        })
        .map(|()| lines)
        .map_err(|error| error.to_string())
    };
    let whole = compressed(TWO_LINES);
    assert_eq!(read(&whole).unwrap(), [r#"{"a":1}"#, r#"{"b":2}"#]);
    assert_eq!(read(&whole.repeat(2)).unwrap().len(), 4);
    for (bytes, words) in [
        (whole[..whole.len() - 3].to_vec(), "not a whole xz file"),
        (Vec::new(), "not a whole xz file"),
        (b"{}".to_vec(), "not a whole xz file"),
        ([&whole[..], b"x"].concat(), "not a whole xz file"),
        // The line is refused before the file's end is looked at.
        ([compressed(ZEROS), b"x".to_vec()].concat(), "a line of more than 50000 bytes"),
        (compressed(NOTHING).repeat(10_000), "far more compressed bytes than text"),
        (compressed(LARGE_DICTIONARY), "needed memory too big"),
    ] {
        let refused = read(&bytes).unwrap_err();
        assert!(refused.contains("records.jsonl.xz") && refused.contains(words), "{refused}");
    }
}

#[test]
fn integers_beyond_64_bits_are_found_outside_of_texts_alone() {
    for (json, expected) in [
        (r#"{"a": 18446744073709551616, "b": 1}"#, Some("18446744073709551616")),
        (r#"[-9223372036854775809]"#, Some("-9223372036854775809")),
        (
            r#"{"a\"": "123456789012345678901", "b": [1e30, 18446744073709551615, 1.23456789012345678901]}"#,
            None,
        ),
        ("123456789012345678901", Some("123456789012345678901")),
        (r#"{"cut": "12345678901234567890123"#, None),
    ] {
        assert_eq!(inexact_integer(json.as_bytes()), expected, "{json}");
    }
}
