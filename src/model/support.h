// What a device can compute with, asked before anything is loaded or allocated: every combination
// of device, format, rotation and options runs, or is refused by name.
#pragma once

#include <string>

#include "arch/config.h"
#include "formats/weight_source.h"
#include "model/model.h"

namespace walsh {

// Rotation blocks of matrices that are rotated back while they are loaded (--rotate weights), in
// columns; theirs are codes of up to so many bits.
inline constexpr int kMostWeightSideBlock = 256;
inline constexpr int kMostWeightSideBits = 4;
// Experts of a layer and values of a head of a delta net that GPUs have room for.
inline constexpr int64_t kMostGpuExperts = 800, kMostGpuDeltaDim = 256;
// Values of a head of attention that their kernels have: so many at most, a multiple of the unit.
inline constexpr int64_t kMostGpuHeadDim = 256, kGpuHeadUnit = 8;

// Whether a matrix that is stored so is rotated.
bool is_rotated(const StoredForm& form);

// Why the device cannot compute layers of this kind; empty if it can.
std::string why_not(const ModelConfig& config, const Device& device);
// Why options.device cannot multiply with a matrix that is stored so; empty if it can.
std::string why_not(const StoredForm& form, const LoadOptions& options);
// Why it cannot look up rows of an embedding that is stored so.
std::string why_not_embedding(const StoredForm& form, const Device& device);
// Why coded weights cannot be multiplied as the options say, whatever their format.
std::string why_not(const LoadOptions& options);

// Throws usage naming tensor and reason, or the option, where one of these says no to a tensor of
// the model. Tensors that are missing are left to the loader.
void refuse_unsupported(const WeightSource& source, const ModelConfig& config,
                        const LoadOptions& options);

// The input that pass `pass` of a coded matrix reads: cols and int8 planes, 0 of which are float
// rows. `folded`: of a source whose activations are rotated already.
BufferShape prepared_shape(const StoredForm& form, int pass, int64_t cols, bool folded,
                           const LoadOptions& options);

}  // namespace walsh
