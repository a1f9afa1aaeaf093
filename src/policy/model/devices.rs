//! Devices that LibTorch finds on this machine.

use crate::experiment::place;
use crate::records::environment;
use std::path::PathBuf;
use tch::Device;

/// A device that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    #[error(
        "{device} was asked for, and the LibTorch in {} was built without CUDA. Set LD_LIBRARY_PATH \
         to the lib folder of LibTorch 2.11 for CUDA; torch/lib of the Python package torch 2.11 is \
         one",
        folder.display()
    )]
    NoCuda { device: place::Device, folder: PathBuf },
    #[error(
        "{device} was asked for, and LibTorch finds {cards} CUDA devices, numbered from 0; \
         `nvidia-smi` says which ones the driver sees"
    )]
    NoCard { device: place::Device, cards: i64 },
}

/// LibTorch's name of a device that is there.
pub fn device(asked: place::Device) -> Result<Device, PlaceError> {
    let place::Device::Cuda(card) = asked else { return Ok(Device::Cpu) };
    if !tch::utils::has_cuda() {
        return Err(PlaceError::NoCuda { device: asked, folder: environment::libtorch_folder() });
    }
    let cards = if tch::Cuda::is_available() { tch::Cuda::device_count() } else { 0 };
    match i64::from(card) < cards {
        true => Ok(Device::Cuda(card as usize)),
        false => Err(PlaceError::NoCard { device: asked, cards }),
    }
}
