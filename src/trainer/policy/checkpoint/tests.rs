use super::*;
use crate::policy::{PolicyError, model::config};

fn tiny() -> Config {
    let tied = config::tests::tiny();
    Config { hidden_size: 8, num_hidden_layers: 1, tie_word_embeddings: false, ..tied }
}

fn folder_with(config: &Config) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files::write_json(&folder.path().join("config.json"), &config.to_json(1, 0)).unwrap();
    let model = Qwen2::initialise(config.clone(), 3);
    write_tensors(&folder.path().join("model.safetensors"), &values(&model)).unwrap();
    folder
}

#[test]
fn a_saved_policy_loads_with_the_same_bits_and_saves_to_the_same_bytes() {
    let base = folder_with(&tiny());
    let model = load_model(base.path()).unwrap();
    assert_eq!(values(&model), values(&Qwen2::initialise(tiny(), 3)));
    let copy = tempfile::tempdir().unwrap();
    save_model(copy.path(), model.parameters(), base.path()).unwrap();
    for name in ["config.json", "model.safetensors"] {
        let read = |folder: &tempfile::TempDir| files::read(&folder.path().join(name)).unwrap();
        assert_eq!(read(&base), read(&copy), "{name}");
    }
}

fn progress() -> CheckpointProgress {
    CheckpointProgress {
        counters: Counters { generation_rounds: 5, rollout_steps: 2, updates: 7 },
        prompts_drawn: 40,
        carried: Vec::new(),
    }
}

fn state() -> optimizer::OptimizerState {
    let moments = |value: f32| {
        let model = values(&Qwen2::initialise(tiny(), 3));
        model.into_iter().map(|(name, (_, v))| (name, vec![value; v.len()])).collect()
    };
    optimizer::OptimizerState {
        updates: 7,
        first_moments: moments(0.25),
        second_moments: moments(0.5),
    }
}

#[test]
fn a_saved_checkpoint_loads_as_what_was_saved() {
    let base = folder_with(&tiny());
    let model = load_model(base.path()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let cases = [
        ("a", state(), progress()),
        ("b", optimizer::OptimizerState::default(), CheckpointProgress::default()),
    ];
    for (name, state, progress) in cases {
        let folder = scratch.path().join(name);
        save(&folder, model.parameters(), Some(&state), base.path(), &progress).unwrap();
        let loaded = load(&folder).unwrap();
        assert_eq!((loaded.optimizer, loaded.progress), (state, progress));
        assert_eq!(values(&loaded.model), values(&model));
    }
    assert_eq!(files::list(scratch.path()).unwrap(), ["a", "b"]);
}

#[test]
fn one_flipped_bit_anywhere_in_a_checkpoint_is_refused_by_the_files_name() {
    let base = folder_with(&tiny());
    let model = load_model(base.path()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("checkpoint");
    for name in ["config.json", WEIGHTS, MOMENTS] {
        save(&folder, model.parameters(), Some(&state()), base.path(), &progress()).unwrap();
        let path = folder.join(name);
        let mut bytes = files::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        files::write_atomic(&path, &bytes).unwrap();
        let error = load(&folder).unwrap_err();
        assert!(matches!(error, PolicyError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        files::remove_file(&path).unwrap();
        assert!(load(&folder).unwrap_err().to_string().contains(name));
    }
}

#[test]
fn moments_that_no_update_leaves_are_refused_by_name() {
    let base = folder_with(&tiny());
    let model = load_model(base.path()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("checkpoint");
    for (first, second, words) in [
        (f32::NAN, 0.5, "tensor first.lm_head.weight holds NaN at element 0"),
        (0.5, f32::INFINITY, "tensor second.lm_head.weight holds inf at element 0"),
        (-0.5, -0.5, "tensor second.lm_head.weight holds -0.5 at element 0"),
    ] {
        let mut state = state();
        state.first_moments.get_mut("lm_head.weight").unwrap()[0] = first;
        state.second_moments.get_mut("lm_head.weight").unwrap()[0] = second;
        save(&folder, model.parameters(), Some(&state), base.path(), &progress()).unwrap();
        let error = load(&folder).unwrap_err().to_string();
        assert!(error.contains("optimizer.safetensors") && error.ends_with(words), "{error}");
    }
}

#[test]
fn words_in_the_header_of_a_file_of_tensors_are_none_that_were_written() {
    let base = folder_with(&tiny());
    let model = load_model(base.path()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("checkpoint");
    let none = optimizer::OptimizerState::default();
    for moments in [&none, &state()] {
        save(&folder, model.parameters(), Some(moments), base.path(), &progress()).unwrap();
        for name in TENSORS {
            let path = folder.join(name);
            assert!(has_written_header(&path).unwrap(), "{name}");
            let whole = files::read(&path).unwrap();
            let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
            let (header, tensors) = whole[8..].split_at(length);
            let header = std::str::from_utf8(header).unwrap();
            for (from, to) in [
                (r#""pt""#, r#""pt","claim":"99 %""#),
                (r#""__metadata__":{"format":"pt"}"#, r#""__metadata__":{}"#),
                (r#""dtype""#, r#""claim":"99 %","dtype""#),
                ("{", " {"),
                ("}", "} "),
            ] {
                if !header.contains(from) {
                    continue;
                }
                let other = header.replacen(from, to, 1);
                let length = (other.len() as u64).to_le_bytes();
                let other = [&length[..], other.as_bytes(), tensors].concat();
                files::write_atomic(&path, &other).unwrap();
                assert!(!has_written_header(&path).unwrap(), "{name}, {to}");
            }
        }
    }
}

#[test]
fn missing_unknown_and_misshapen_tensors_are_refused_by_name() {
    let base = folder_with(&tiny());
    let path = base.path().join("model.safetensors");
    let good = values(&Qwen2::initialise(tiny(), 3));
    let mut missing = good.clone();
    missing.remove("lm_head.weight");
    let mut unknown = good.clone();
    unknown.insert("model.layers.9.surprise".into(), (vec![1], vec![0.0]));
    let mut misshapen = good.clone();
    misshapen.insert("model.norm.weight".into(), (vec![4], vec![1.0; 4]));
    for (tensors, name) in [
        (missing, "lm_head.weight is missing"),
        (unknown, "model.layers.9.surprise is not part"),
        (misshapen, "model.norm.weight has shape [4], expected [8]"),
    ] {
        write_tensors(&path, &tensors).unwrap();
        let error = load_model(base.path()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("model.safetensors"), "{error}");
    }
}

#[test]
fn truncated_and_hostile_weights_are_errors_not_crashes() {
    let base = folder_with(&tiny());
    let path = base.path().join("model.safetensors");
    let good = files::read(&path).unwrap();
    for bad in [&good[..good.len() / 2], &good[..4], &[0xff; 64][..], &[][..]] {
        files::write_atomic(&path, bad).unwrap();
        let error = load_model(base.path()).unwrap_err();
        assert!(matches!(error, PolicyError::Safetensors { .. }), "{error}");
    }
}

#[test]
fn a_digest_of_a_file_elsewhere_and_counts_that_no_run_reaches_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    files::write_atomic(&scratch.path().join("outside"), b"x").unwrap();
    let folder = scratch.path().join("step-000001");
    let write = |name: &str, updates: u64| {
        let json = serde_json::json!({
            "counters": { "generation_rounds": 1, "rollout_steps": 1, "updates": updates },
            "prompts_drawn": 1,
            "optimizer_updates": 1,
            "sha256": { name: files::sha256(b"x") },
        });
        files::write_json(&folder.join("trainer.json"), &json).unwrap();
        load(&folder).unwrap_err().to_string()
    };
    for name in ["../outside", "/dev/zero", "a/../../outside"] {
        let refusal = write(name, 1);
        assert!(refusal.contains("names nothing inside this folder"), "{refusal}");
    }
    let refusal = write("config.json", u64::MAX);
    assert!(refusal.ends_with("counters.updates = 18446744073709551615, which no run counts to"));
}

/// The policy of [`folder_with`] in two files with an index.
fn sharded() -> tempfile::TempDir {
    let folder = folder_with(&tiny());
    let whole = values(&load_model(folder.path()).unwrap());
    files::remove_file(&folder.path().join(WEIGHTS)).unwrap();
    let mut map = BTreeMap::new();
    for (number, half) in [(1, true), (2, false)] {
        let file = format!("model-{number:05}-of-00002.safetensors");
        let chosen = |(name, _): &(&String, &(Vec<i64>, Vec<f32>))| name.contains("mlp") == half;
        let part: CheckpointValues = whole
            .iter()
            .filter(chosen)
            .map(|(name, tensor)| (name.clone(), tensor.clone()))
            .collect();
        map.extend(part.keys().map(|name| (name.clone(), file.clone())));
        write_tensors(&folder.path().join(file), &part).unwrap();
    }
    write_index(&folder, &map);
    folder
}

fn write_index(folder: &tempfile::TempDir, map: &BTreeMap<String, String>) {
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
    files::write_json(&folder.path().join(weights::INDEX), &index).unwrap();
}

#[test]
fn weights_in_several_files_are_those_of_one_file() {
    let folder = sharded();
    let model = load_model(folder.path()).unwrap();
    assert_eq!(values(&model), values(&Qwen2::initialise(tiny(), 3)));
    let names = weights::names(folder.path()).unwrap();
    let first = ["model.safetensors.index.json", "model-00001-of-00002.safetensors"];
    assert_eq!(names[..2], first);
    // What a run saves is one file.
    let copy = tempfile::tempdir().unwrap();
    save_model(copy.path(), model.parameters(), folder.path()).unwrap();
    assert_eq!(files::list(copy.path()).unwrap(), ["config.json", "model.safetensors"]);
    assert_eq!(weights::names(copy.path()).unwrap(), ["model.safetensors"]);
}

#[test]
fn a_dropout_that_training_does_not_apply_is_told() {
    let folder = folder_with(&tiny());
    let path = folder.path().join(CONFIG);
    let mut json: serde_json::Value = files::read_json(&path).unwrap();
    for (stated, is_told) in [("0.0", false), ("0", false), ("null", false), ("0.1", true)] {
        json["attention_dropout"] = serde_json::from_str(stated).unwrap();
        files::write_json(&path, &json).unwrap();
        let told = dropout(folder.path());
        assert_eq!(told.is_some(), is_told, "{told:?}");
        load_model(folder.path()).unwrap();
    }
}

#[test]
fn an_index_that_does_not_fit_its_files_is_refused() {
    let refusal = |folder: &tempfile::TempDir| load_model(folder.path()).unwrap_err().to_string();
    let of_index = |folder: &tempfile::TempDir| -> BTreeMap<String, String> {
        let index: serde_json::Value =
            files::read_json(&folder.path().join(weights::INDEX)).unwrap();
        serde_json::from_value(index["weight_map"].clone()).unwrap()
    };
    let changed = |change: &dyn Fn(&mut BTreeMap<String, String>)| {
        let folder = sharded();
        let mut map = of_index(&folder);
        change(&mut map);
        write_index(&folder, &map);
        refusal(&folder)
    };
    let text = changed(&|map| drop(map.remove("lm_head.weight")));
    assert!(text.contains("tensor lm_head.weight of model-00002-of-00002.safetensors is not in"));
    let moved = |map: &mut BTreeMap<String, String>| {
        let other = map["model.layers.0.mlp.up_proj.weight"].clone();
        map.insert("lm_head.weight".into(), other);
    };
    let text = changed(&moved);
    assert!(text.contains("tensor lm_head.weight is not in model-00001"), "{text}");
    let later = "model-00002-of-00002.safetensors";
    let moved = |map: &mut BTreeMap<String, String>| {
        let first = map.iter_mut().find(|(_, file)| **file != later).unwrap();
        *first.1 = later.into();
    };
    let text = changed(&moved);
    let told = format!(" of model-00001-of-00002.safetensors is in {later} by the index: fetch");
    assert!(text.contains(&told), "{text}");
    for name in ["../model.safetensors", "/etc/passwd", "model.bin"] {
        let elsewhere = |map: &mut BTreeMap<String, String>| {
            map.insert("lm_head.weight".into(), name.into());
        };
        let text = changed(&elsewhere);
        assert!(text.contains("is no safetensors file of its folder"), "{text}");
    }
    let folder = sharded();
    files::remove_file(&folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    assert!(refusal(&folder).contains("model-00002-of-00002.safetensors: No such file"));
    assert!(changed(&BTreeMap::clear).contains("it names 0 files"));
}

#[test]
fn a_pickle_is_named_and_not_read() {
    let folder = folder_with(&tiny());
    files::remove_file(&folder.path().join(WEIGHTS)).unwrap();
    files::write_atomic(&folder.path().join("pytorch_model.bin"), b"x").unwrap();
    let error = load_model(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("a pickle is a program and is not read; convert it to safetensors"));
}

/// Shape and values.
type Head = (Vec<i64>, Vec<f32>);

#[test]
fn a_head_of_a_tied_model_is_its_embedding_or_refused() {
    let config = Config { tie_word_embeddings: true, ..tiny() };
    let folder = folder_with(&config);
    let path = folder.path().join(WEIGHTS);
    let mut tensors = values(&load_model(folder.path()).unwrap());
    let mut write = |change: &dyn Fn(&mut Head)| {
        let mut head = tensors[EMBEDDING].clone();
        change(&mut head);
        tensors.insert(HEAD.into(), head);
        write_tensors(&path, &tensors).unwrap();
        load_model(folder.path()).map(|model| values(&model))
    };
    assert_eq!(write(&|_| ()).unwrap(), values(&Qwen2::initialise(config, 3)));
    let refusal = write(&|head| head.1[9] = 2.0).unwrap_err().to_string();
    assert!(refusal.contains("differ at element 9), and tie_word_embeddings of"), "{refusal}");
    let refusal = write(&|head| *head = (vec![1], vec![0.0])).unwrap_err().to_string();
    assert!(refusal.contains("lm_head.weight is not part"), "{refusal}");
}

#[test]
fn the_frequencies_of_old_checkpoints_are_passed_over() {
    let folder = folder_with(&tiny());
    let mut tensors = values(&load_model(folder.path()).unwrap());
    let name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    tensors.insert(name.into(), (vec![2], vec![7.0; 2]));
    write_tensors(&folder.path().join(WEIGHTS), &tensors).unwrap();
    let model = load_model(folder.path()).unwrap();
    assert_eq!(values(&model), values(&Qwen2::initialise(tiny(), 3)));
}

#[test]
fn a_configuration_of_other_numbers_says_float32_and_no_other_text_changes() {
    let base = folder_with(&tiny());
    let model = load_model(base.path()).unwrap();
    let same = "";
    for (text, expected) in [
        (r#"{ "b":1e-06,"dtype":"float32", "torch_dtype": "float32"}"#, same),
        (r#"{"b" :1, "dtype": null}"#, same),
        (r#"{"dtype" : "bfloat16", "a":1}"#, r#"{"dtype" : "float32", "a":1}"#),
        (r#"{"torch_dtype": "float16"}"#, r#"{"torch_dtype": "float32"}"#),
        (
            r#"{"dtype":"float32","torch_dtype":"half"}"#,
            r#"{"dtype":"float32","torch_dtype":"float32"}"#,
        ),
    ] {
        files::write_atomic(&base.path().join(CONFIG), text.as_bytes()).unwrap();
        let folder = base.path().join("step-000001");
        save(&folder, model.parameters(), None, base.path(), &CheckpointProgress::default())
            .unwrap();
        let written = files::read_text(&folder.join(CONFIG)).unwrap();
        assert_eq!(written, if expected == same { text } else { expected });
        let is_from = |text: &str| is_restated(&written, &files::sha256(text.as_bytes()));
        assert!(is_from(text) && !is_from(&text.replace('{', "{ ")), "{text}");
    }
}

#[test]
fn a_folder_that_is_no_model_is_named_with_what_helps() {
    for (removed, written, words) in [
        ("config.json", "adapter_config.json", "merge_and_unload and save_pretrained"),
        (WEIGHTS, "adapter_config.json", "merge_and_unload and save_pretrained"),
        (
            "config.json",
            "a.Q4_K_M.gguf",
            "a.Q4_K_M.gguf is a GGUF file, which is not read; convert it",
        ),
        ("none", "adapter_config.json", "merge_and_unload and save_pretrained"),
        (WEIGHTS, "pytorch_model.bin.index.json", "index.json: a pickle is a program"),
        (WEIGHTS, "pytorch_model-00001-of-00002.bin", "2.bin: a pickle is a program"),
        (WEIGHTS, "consolidated.safetensors", "it has consolidated.safetensors and no model.safe"),
        ("config.json", "README.md", "config.json: No such file"),
    ] {
        let folder = folder_with(&tiny());
        files::remove_file(&folder.path().join(removed)).unwrap();
        files::write_atomic(&folder.path().join(written), b"{}").unwrap();
        let error = load_model(folder.path()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_file_in_place_of_a_folder_and_tensors_of_other_names_are_named() {
    let folder = folder_with(&tiny());
    let path = folder.path().join(WEIGHTS);
    let error = load_model(&path).unwrap_err().to_string();
    assert!(error.contains("it is a file; name the folder that it lies in"), "{error}");
    let tensors = values(&load_model(folder.path()).unwrap());
    for (from, to) in [("model.", "_orig_mod.model."), ("model.", "")] {
        let renamed = tensors.iter().map(|(name, it)| (name.replace(from, to), it.clone()));
        write_tensors(&path, &renamed.collect()).unwrap();
        let error = load_model(folder.path()).unwrap_err().to_string();
        let words = format!("embed_tokens.weight is missing, and {to}embed_tokens.weight is there");
        assert!(error.contains(&words), "{error}");
    }
    let folder = sharded();
    let config = Config { num_hidden_layers: 2, ..tiny() }.to_json(1, 0);
    files::write_json(&folder.path().join(CONFIG), &config).unwrap();
    let error = load_model(folder.path()).unwrap_err().to_string();
    assert!(error.contains("model.safetensors.index.json: tensor model.layers.1."), "{error}");
}

#[test]
fn sides_whose_product_is_too_large_without_one_of_0_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.safetensors");
    let header =
        br#"{"x":{"dtype":"F32","shape":[2147483648,2147483648,2,0],"data_offsets":[0,0]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    files::write_atomic(&path, &bytes).unwrap();
    assert!(matches!(read_tensors(&path).unwrap_err(), PolicyError::Size { .. }));
}

#[test]
fn a_tensor_that_lies_unaligned_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.safetensors");
    let header = br#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    assert_eq!(header.len() % 4, 2);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend([1.5f32, -2.0].iter().flat_map(|value| value.to_le_bytes()));
    files::write_atomic(&path, &bytes).unwrap();
    assert_eq!(read_values(&path).unwrap()["x"], (vec![2], vec![1.5, -2.0]));
}
