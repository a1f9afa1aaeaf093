//! The ledger's digests of tensors: of their bytes, or on a card, which sums up the numbers, of the sums.

use crate::numerics::{fast, flat};
use crate::records::{
    TensorDigest,
    ledger::{self, Summed},
};
use std::collections::BTreeMap;
use tch::{Device, Tensor};

/// How a policy on this device has its digests made.
pub fn of_device(device: Device) -> TensorDigest {
    if device.is_cuda() { TensorDigest::OnACard } else { TensorDigest::Bytes }
}

/// Of weights, or of an update's gradients; one at a time comes to the processor.
pub fn tensors<'a>(
    named: impl ExactSizeIterator<Item = (&'a String, Tensor)>,
    how: TensorDigest,
) -> String {
    match how {
        TensorDigest::Bytes => ledger::tensors(named.map(values)),
        TensorDigest::OnACard => ledger::on_a_card(&summed(named)),
    }
}

/// Of first and second moments after so many updates, as [`tensors`].
pub fn moments<'a>(
    updates: u64,
    both: [impl ExactSizeIterator<Item = (&'a String, Tensor)>; 2],
    how: TensorDigest,
) -> String {
    match how {
        TensorDigest::Bytes => ledger::moments(updates, both.map(|named| named.map(values))),
        TensorDigest::OnACard => ledger::moments_on_a_card(updates, &both.map(summed)),
    }
}

/// Tensors by name, sharing their storage.
pub fn shared(
    tensors: &BTreeMap<String, Tensor>,
) -> impl ExactSizeIterator<Item = (&String, Tensor)> {
    tensors.iter().map(|(name, tensor)| (name, tensor.shallow_clone()))
}

fn values((name, tensor): (&String, Tensor)) -> (&String, Vec<f32>) {
    (name, fast::values(&tensor))
}

fn summed<'a>(named: impl Iterator<Item = (&'a String, Tensor)>) -> Summed<'a> {
    let named: Vec<(&String, Tensor)> = named.collect();
    let tensors: Vec<&Tensor> = named.iter().map(|(_, tensor)| tensor).collect();
    let counts = named.iter().map(|(name, tensor)| (*name, tensor.numel()));
    Summed { counts: counts.collect(), sums: flat::sums(&tensors) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_a_card_sums_depends_on_names_on_the_cut_into_tensors_and_on_every_number() {
        let both = |all: &[(&str, &[f32])]| {
            let named: BTreeMap<String, Tensor> = all
                .iter()
                .map(|(name, values)| (name.to_string(), Tensor::from_slice(values)))
                .collect();
            let how = TensorDigest::OnACard;
            let both = [shared(&named), shared(&named)];
            [tensors(shared(&named), how), moments(3, both, how)]
        };
        let all: Vec<[String; 2]> = [
            &[("a", &[1.0, 2.0][..]), ("b", &[3.0])][..],
            &[("a", &[1.0, 2.0]), ("c", &[3.0])],
            &[("a", &[1.0]), ("b", &[2.0, 3.0])],
            &[("a", &[2.0, 1.0]), ("b", &[3.0])],
            &[("a", &[1.0, 2.0]), ("b", &[-3.0])],
            &[("a", &[0.0, 2.0]), ("b", &[3.0])],
            &[("a", &[-0.0, 2.0]), ("b", &[3.0])],
            &[],
        ]
        .map(both)
        .into();
        let different: BTreeSet<&String> = all.iter().flatten().collect();
        assert_eq!(different.len(), 2 * all.len());
        let pinned = [
            "20c7ebb3541ce0b4b2287c676257a1240327c2a8aa82ab170d594dbd1c10a559",
            "edddfc12e3a873b50b035016505451a2d865c184e8185241107834c994662f39",
        ];
        assert_eq!(all[0], pinned);
    }
}
