use super::*;

fn tiny() -> Config {
    Config {
        vocab_size: 11,
        hidden_size: 8,
        intermediate_size: 12,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 4,
        max_position_embeddings: 16,
        rope_theta: 10000.0,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
    }
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
    save_model(copy.path(), &model, base.path()).unwrap();
    for name in ["config.json", "model.safetensors"] {
        let read = |folder: &tempfile::TempDir| files::read(&folder.path().join(name)).unwrap();
        assert_eq!(read(&base), read(&copy), "{name}");
    }
}

fn progress() -> Progress {
    let moments = |value: f32| {
        let model = values(&Qwen2::initialise(tiny(), 3));
        model.into_iter().map(|(name, (_, v))| (name, vec![value; v.len()])).collect()
    };
    Progress {
        counters: Counters { generation_rounds: 5, rollout_steps: 2, updates: 7 },
        prompts_drawn: 40,
        optimizer: optimizer::State {
            updates: 7,
            first_moments: moments(0.25),
            second_moments: moments(0.5),
        },
        carried: Vec::new(),
    }
}

#[test]
fn a_saved_checkpoint_loads_as_what_was_saved() {
    let base = folder_with(&tiny());
    let model = load_model(base.path()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    for (name, progress) in [("a", progress()), ("b", Progress::default())] {
        let folder = scratch.path().join(name);
        save(&folder, &model, base.path(), &progress).unwrap();
        let (loaded, found) = load(&folder).unwrap();
        assert_eq!(found, progress);
        assert_eq!(values(&loaded), values(&model));
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
        save(&folder, &model, base.path(), &progress()).unwrap();
        let path = folder.join(name);
        let mut bytes = files::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        files::write_atomic(&path, &bytes).unwrap();
        let error = load(&folder).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        files::remove_file(&path).unwrap();
        assert!(load(&folder).unwrap_err().to_string().contains(name));
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
        assert!(matches!(error, Error::Safetensors { .. }), "{error}");
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
