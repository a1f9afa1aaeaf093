//! Many tensors as few flat ones: a device takes longer to begin an operation than for the numbers of a small tensor.

use tch::{Device, Kind, Tensor};

/// Numbers of a part at most. An operation's results are as large.
const PART: i64 = 1 << 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    tensor: usize,
    from: i64,
    count: i64,
}

/// The numbers of tensors, one tensor after another, cut into parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts(Vec<Vec<Slice>>);

impl Parts {
    /// Of tensors with these counts of numbers.
    pub fn of(counts: impl IntoIterator<Item = usize>) -> Self {
        Self::with(PART, counts)
    }

    fn with(most: i64, counts: impl IntoIterator<Item = usize>) -> Self {
        let (mut parts, mut room) = (Vec::<Vec<Slice>>::new(), 0);
        for (tensor, count) in counts.into_iter().enumerate() {
            let (mut from, end) = (0, count as i64);
            while from < end {
                if room == 0 {
                    parts.push(Vec::new());
                    room = most;
                }
                let count = room.min(end - from);
                parts.last_mut().expect("a part was begun").push(Slice { tensor, from, count });
                from += count;
                room -= count;
            }
        }
        Self(parts)
    }

    /// The parts, and the place of each one's first number among all.
    pub fn iter(&self) -> impl Iterator<Item = (Part<'_>, i64)> {
        let mut next = 0;
        self.0.iter().map(move |slices| {
            let (part, first) = (Part(slices), next);
            next += part.count();
            (part, first)
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Part<'a>(&'a [Slice]);

impl Part<'_> {
    pub fn count(self) -> i64 {
        self.0.iter().map(|slice| slice.count).sum()
    }

    /// The tensor that has the part's number at an index below [`Part::count`].
    pub fn tensor_of(self, index: usize) -> usize {
        let mut end = 0;
        let has_it = |slice: &&Slice| {
            end += slice.count;
            (index as i64) < end
        };
        self.0.iter().find(has_it).expect("an index of the part").tensor
    }

    /// A copy of its numbers in f32, `[count]`. A tensor that is not there counts as zeros.
    pub fn gathered<'t>(
        self,
        device: Device,
        tensor: impl Fn(usize) -> Option<&'t Tensor>,
    ) -> Tensor {
        let slice = |slice: &Slice| match tensor(slice.tensor) {
            Some(tensor) => tensor.detach().reshape([-1]).narrow(0, slice.from, slice.count),
            None => Tensor::zeros([slice.count], (Kind::Float, device)),
        };
        Tensor::cat(&self.0.iter().map(slice).collect::<Vec<_>>(), 0).to_kind(Kind::Float)
    }

    /// Puts numbers `[count]` into the tensors in place, which are contiguous.
    pub fn put<'t>(self, numbers: &Tensor, tensor: impl Fn(usize) -> &'t Tensor) {
        let mut at = 0;
        for &Slice { tensor: number, from, count } in self.0 {
            let mut place = tensor(number).detach().view([-1]).narrow(0, from, count);
            place.copy_(&numbers.narrow(0, at, count));
            at += count;
        }
    }
}

/// Σ z and Σ z² of f32 numbers `[count]`, at most 2³² of them.
fn fold(numbers: &Tensor) -> Tensor {
    let logical_shift = |z: &Tensor, by: i64| {
        let shifted = z.bitwise_right_shift_tensor_scalar(by);
        // The shift of LibTorch repeats the sign.
        shifted.bitwise_and((1i64 << (64 - by)) - 1)
    };
    let indices = Tensor::arange(numbers.numel() as i64, (Kind::Int64, numbers.device()));
    let bits = numbers.contiguous().view_dtype(Kind::Int).to_kind(Kind::Int64);
    let mut z = indices * (1i64 << 32) + bits.bitwise_and(0xffff_ffff_i64);
    z += 0x9e37_79b9_7f4a_7c15_u64 as i64;
    for (by, factor) in [(30, 0xbf58_476d_1ce4_e5b9_u64), (27, 0x94d0_49bb_1331_11eb)] {
        z = z.bitwise_xor_tensor(&logical_shift(&z, by)) * factor as i64;
    }
    z = z.bitwise_xor_tensor(&logical_shift(&z, 31));
    let sums = [z.sum(Kind::Int64), z.square().sum(Kind::Int64)];
    Tensor::stack(&sums, 0)
}

/// Two sums over each part of some tensors, one part after another, computed where the numbers are: Σ z and Σ z² modulo
/// 2⁶⁴ of z = mix(2³² · index + bits), where mix is the last step of SplitMix64, index counts within the part and bits
/// are those of the number in f32. Sums of integers do not depend on their order, so every device has the same. They
/// tell apart what differs by chance, as a computation that went another way. They do not withstand somebody who looks
/// for numbers with given sums.
pub fn sums(tensors: &[&Tensor]) -> Vec<u64> {
    let device = tensors.first().map_or(Device::Cpu, |tensor| tensor.device());
    let parts = Parts::of(tensors.iter().map(|tensor| tensor.numel()));
    let fold =
        |(part, _): (Part, i64)| fold(&part.gathered(device, |tensor| Some(tensors[tensor])));
    let sums: Vec<Tensor> = parts.iter().map(fold).collect();
    if sums.is_empty() {
        return Vec::new();
    }
    let sums: Vec<i64> = Vec::try_from(Tensor::cat(&sums, 0)).expect("dense sums");
    sums.into_iter().map(|sum| sum as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// [`fold`], number by number.
    fn plain(numbers: &[f32]) -> [i64; 2] {
        let mut sums = [0u64; 2];
        for (index, number) in numbers.iter().enumerate() {
            let mut z = ((index as u64) << 32) + u64::from(number.to_bits());
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            sums[0] = sums[0].wrapping_add(z);
            sums[1] = sums[1].wrapping_add(z.wrapping_mul(z));
        }
        sums.map(|sum| sum as i64)
    }

    fn folded(numbers: &[f32]) -> [i64; 2] {
        let sums: Vec<i64> = Vec::try_from(fold(&Tensor::from_slice(numbers))).unwrap();
        sums.try_into().unwrap()
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_bits_and_a_changed_bit_or_a_swap_changes_them(
            bits in proptest::collection::vec(any::<u32>(), 2..70), at in any::<usize>(), bit in 0u32..32,
        ) {
            let numbers: Vec<f32> = bits.iter().copied().map(f32::from_bits).collect();
            let sums = folded(&numbers);
            prop_assert_eq!(sums, plain(&numbers));
            let at = at % (numbers.len() - 1);
            let mut other = numbers.clone();
            other[at] = f32::from_bits(other[at].to_bits() ^ (1 << bit));
            prop_assert_ne!(sums, folded(&other));
            let mut other = numbers.clone();
            other.swap(at, at + 1);
            prop_assert_eq!(bits[at] == bits[at + 1], sums == folded(&other));
        }

        #[test]
        fn parts_have_every_number_once_and_in_order(
            counts in proptest::collection::vec(0usize..9, 0..9), most in 1i64..9,
        ) {
            let mut next = 0.0;
            let tensor = |&count: &usize| {
                let numbers: Vec<f32> = (0..count).map(|at| next + at as f32).collect();
                next += count as f32;
                Tensor::from_slice(&numbers)
            };
            let tensors: Vec<Tensor> = counts.iter().map(tensor).collect();
            let parts = Parts::with(most, counts.clone());
            let mut seen: Vec<f32> = Vec::new();
            for (part, first) in parts.iter() {
                prop_assert!(part.count() <= most && first == seen.len() as i64);
                let numbers = part.gathered(Device::Cpu, |tensor| Some(&tensors[tensor]));
                let values = Vec::<f32>::try_from(&numbers).unwrap();
                for (index, value) in values.iter().enumerate() {
                    let owner = &tensors[part.tensor_of(index)];
                    prop_assert!(Vec::<f32>::try_from(owner).unwrap().contains(value));
                }
                seen.extend(values);
                part.put(&-numbers, |tensor| &tensors[tensor]);
            }
            let all: f32 = counts.iter().sum::<usize>() as f32;
            prop_assert_eq!(&seen, &(0..all as usize).map(|at| at as f32).collect::<Vec<_>>());
            let put: f64 = tensors.iter().map(|tensor| tensor.sum(Kind::Double).double_value(&[])).sum();
            prop_assert_eq!(put, -f64::from(all * (all - 1.0) / 2.0));
        }
    }

    #[test]
    fn a_tensor_that_is_not_there_is_zeros_and_narrow_numbers_are_widened() {
        let narrow = Tensor::from_slice(&[1.5f32, -2.0]).to_kind(Kind::BFloat16);
        let parts = Parts::of([2, 3]);
        let (part, _) = parts.iter().next().unwrap();
        let numbers = part.gathered(Device::Cpu, |tensor| (tensor == 0).then_some(&narrow));
        assert_eq!(Vec::<f32>::try_from(numbers).unwrap(), [1.5, -2.0, 0.0, 0.0, 0.0]);
    }
}
