use super::*;

fn weights() -> Tensors {
    let values = |start: f32| (0..50).map(|index| start + index as f32 / 7.0).collect();
    [("a".to_string(), values(0.5)), ("b".to_string(), values(-3.0))].into()
}

/// A genesis, three steps and an end; the weights of step 2 are given.
fn chain(second: &Tensors) -> Vec<LedgerEntry> {
    let one = |name: &str, digest: String| Components::from([(name.to_string(), digest)]);
    let mut entries =
        vec![LedgerEntry::after("", Kind::Genesis, 0, one("arm", files::sha256(b"arm")))];
    for step in 1..=3 {
        let weights = if step == 2 { tensors(second) } else { tensors(&weights()) };
        let head = entries[step - 1].head.clone();
        let components = one("weights", weights);
        entries.push(LedgerEntry::after(&head, Kind::RolloutStep, step as u64, components));
    }
    let head = entries[3].head.clone();
    entries.push(LedgerEntry::after(&head, Kind::End, 3, one("ending", files::sha256(b"done"))));
    entries
}

#[test]
fn one_flipped_bit_of_one_weight_changes_every_head_from_its_step_on() {
    let before = chain(&weights());
    for (name, element) in [("a", 0), ("b", 49)] {
        let mut flipped = weights();
        let value = &mut flipped.get_mut(name).unwrap()[element];
        *value = f32::from_bits(value.to_bits() ^ 1);
        let after = chain(&flipped);
        for (index, (old, new)) in before.iter().zip(&after).enumerate() {
            assert_eq!(old.head == new.head, index < 2, "line {index}");
        }
    }
}

#[test]
fn lines_that_are_moved_dropped_doubled_or_changed_break_the_chain() {
    let whole = chain(&weights());
    assert_eq!(check_chain(&whole), Ok(3));
    assert_eq!(check_chain(&whole[..3]), Ok(2));
    assert_eq!(check_chain(&[]), Err(Broken::Empty));
    let broken = |change: &dyn Fn(&mut Vec<LedgerEntry>), line: usize| {
        let mut entries = whole.clone();
        change(&mut entries);
        assert_eq!(check_chain(&entries), Err(Broken::Head { line }), "{entries:?}");
    };
    broken(&|entries| entries.swap(1, 2), 2);
    broken(&|entries| drop(entries.remove(2)), 3);
    broken(&|entries| entries.insert(2, entries[2].clone()), 4);
    broken(&|entries| entries[2].step = 7, 3);
    broken(&|entries| drop(entries.remove(0)), 1);
    broken(&|entries| entries[4].head = files::sha256(b"x"), 5);
    broken(
        &|entries| {
            entries[1].components.insert("weights".to_string(), files::sha256(b"x"));
        },
        2,
    );
}

#[test]
fn a_chain_whose_heads_were_made_again_still_needs_its_steps_in_order() {
    let again = |order: &[(Kind, u64)]| {
        let mut head = String::new();
        let entries: Vec<LedgerEntry> = order
            .iter()
            .map(|&(kind, step)| {
                let entry = LedgerEntry::after(&head, kind, step, Components::new());
                head = entry.head.clone();
                entry
            })
            .collect();
        check_chain(&entries)
    };
    use Kind::{End, Genesis, RolloutStep};
    assert_eq!(again(&[(Genesis, 0), (RolloutStep, 1), (End, 1)]), Ok(1));
    assert_eq!(again(&[(Genesis, 0), (End, 0)]), Ok(0));
    for (order, line) in [
        (&[(Genesis, 0), (RolloutStep, 2)][..], 2),
        (&[(RolloutStep, 1)][..], 1),
        (&[(Genesis, 0), (Genesis, 0)][..], 2),
        (&[(Genesis, 0), (End, 0), (RolloutStep, 2)][..], 2),
        (&[(Genesis, 0), (RolloutStep, 1), (End, 2)][..], 3),
    ] {
        let found = again(order).unwrap_err();
        assert!(matches!(found, Broken::Place { line: at, .. } if at == line), "{found:?}");
    }
}

#[test]
fn values_that_run_into_each_other_have_different_digests() {
    let single = vec![vec![1.0f32, 2.0], vec![3.0]];
    assert_ne!(log_probs(&single), log_probs(&[vec![1.0f32], vec![2.0, 3.0]]));
    // f32 and f64 of the same value are the same.
    assert_eq!(log_probs(&single), log_probs(&[vec![1.0f64, 2.0], vec![3.0]]));
    assert_ne!(log_probs(&[vec![0.0f64]]), log_probs(&[vec![-0.0f64]]));
    let mut renamed = weights();
    let moved = renamed.remove("b").unwrap();
    renamed.insert("c".to_string(), moved);
    assert_ne!(tensors(&weights()), tensors(&renamed));
    assert_ne!(moments(1, [&weights(), &renamed]), moments(1, [&renamed, &weights()]));
    assert_ne!(sequence(&["a".into(), "b".into()]), sequence(&["ab".into()]));
}

#[test]
fn the_form_of_a_line_is_pinned() {
    // A change here makes every ledger that was written before unreadable.
    insta::assert_snapshot!(files::canonical_json_line(&chain(&weights())[1]));
}
