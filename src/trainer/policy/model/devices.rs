use crate::experiment::place;
use crate::policy::PolicyError;
use crate::records::environment;
use tch::Device;

/// LibTorch's name of a device that is there.
pub fn device(asked: place::Device) -> Result<Device, PolicyError> {
    let place::Device::Cuda(card) = asked else { return Ok(Device::Cpu) };
    // Whether it was built with CUDA; `has_cuda` asks for a card that the driver sees.
    if !tch::utils::has_cudart() {
        return Err(PolicyError::NoCuda { device: asked, folder: environment::libtorch_folder() });
    }
    let cards = if tch::Cuda::is_available() { tch::Cuda::device_count() } else { 0 };
    if i64::from(card) < cards {
        return Ok(Device::Cuda(card as usize));
    }
    Err(PolicyError::NoCard { device: asked, cards })
}
