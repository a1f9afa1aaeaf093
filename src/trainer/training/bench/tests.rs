use super::*;

#[test]
fn the_random_policy_has_the_stated_size_and_loads() {
    let folder = tempfile::tempdir().unwrap();
    write_random_policy(folder.path(), 1).unwrap();
    let model = checkpoint::load_model(folder.path()).unwrap();
    assert_eq!(model.config().parameters(), 795_264);
}

#[test]
fn operations_of_a_sequence_add_up_over_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    write_random_policy(folder.path(), 1).unwrap();
    let model = checkpoint::load_model(folder.path()).unwrap();
    let flops = |from, to, predicted| sequence_flops(model.config(), from, to, predicted);
    assert_eq!(flops(0, 9, 4) + flops(9, 30, 21), flops(0, 30, 25));
    // One token: two operations a weight of the linear layers, one key to attend to.
    let linear = 4 * (128 * 256 + 128 * 128 + 3 * 128 * 384) + 26 * 128;
    assert_eq!(flops(0, 1, 1), f64::from(2 * linear + 4 * 4 * 128));
    let group = |learns| BenchGroup { prompt: 9, responses: vec![5, 7], learns: Some(learns) };
    let groups = [group(true), group(false)];
    let plain =
        Fed { reads: 1.0, looks: 0.0, epochs: 1.0, penalised: false, shares_prompts: false };
    let of = |fed| step_flops(model.config(), &groups, fed);
    let one = of(plain);
    let all = of(Fed { reads: 2.0, looks: 1.0, epochs: 2.0, penalised: true, ..plain });
    assert_eq!(all["generation"], one["generation"]);
    assert_eq!(all["old_log_probs"], 2.0 * one["old_log_probs"]);
    assert_eq!(all["update"], 2.0 * (one["update"] + one["old_log_probs"]));
    let shared = Fed { shares_prompts: true, ..plain };
    let (idle, penalised) = (of(shared), of(Fed { penalised: true, ..shared }));
    assert_eq!(3.0 * idle["update"], 2.0 * penalised["update"]);
}

#[test]
fn a_spread_is_ordered() {
    let spread = spread(&[3.0, 1.0, 2.0]);
    assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.0, 3.0));
}
