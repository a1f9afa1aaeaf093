//! The ledger's digests of a policy on a card: the card sums up the numbers, and the sums are hashed.

use crate::numerics::flat;
use crate::records::ledger::{self, Summed};
use tch::Tensor;

type Named<'a> = [(&'a String, &'a Tensor)];

/// Of weights, or of an update's gradients.
pub fn digest(named: &Named) -> String {
    summed(named, ledger::on_a_card)
}

pub fn moments_digest(updates: u64, [first, second]: [&Named; 2]) -> String {
    summed(first, |first| {
        summed(second, |second| ledger::moments_on_a_card(updates, [first, second]))
    })
}

fn summed(named: &Named, digest: impl FnOnce(Summed) -> String) -> String {
    let counts: Vec<(&String, usize)> =
        named.iter().map(|(name, tensor)| (*name, tensor.numel())).collect();
    let tensors: Vec<&Tensor> = named.iter().map(|(_, tensor)| *tensor).collect();
    digest(Summed { counts: &counts, sums: &flat::sums(&tensors) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_a_card_sums_depends_on_names_on_the_cut_into_tensors_and_on_every_number() {
        let both = |tensors: &[(&str, &[f32])]| {
            let named: Vec<(String, Tensor)> = tensors
                .iter()
                .map(|(name, values)| (name.to_string(), Tensor::from_slice(values)))
                .collect();
            let named: Vec<_> = named.iter().map(|(name, tensor)| (name, tensor)).collect();
            [digest(&named), moments_digest(3, [&named, &named])]
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
