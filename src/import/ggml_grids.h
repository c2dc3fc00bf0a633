// Unpacks the grids of 4 or 8 magnitudes that ggml's IQ types index. Its authors found them on
// weights of models; they follow from no formula.
#pragma once

#include <cstdint>
#include <span>

namespace walsh {

enum class GgmlGrid : uint8_t { iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq1 };

// Returns the grid's points one after the other. A point has 8 values, or 4 in the grids of IQ3.
std::span<const int8_t> ggml_grid(GgmlGrid grid);

}  // namespace walsh
