// Tells which of this build's device code runs on a GPU.
#pragma once

namespace walsh::cuda::detail {

// Returns DeviceInfo::code of the current device; 0 if this build has no code for it.
int device_code();

}  // namespace walsh::cuda::detail
