// Says how many earlier rows a sequence keeps for a layer that convolves its rows (delta net, short
// convolution).
#pragma once

#include <cstdint>

#include "arch/layer.h"

namespace walsh {

struct ConvolvedRows {
  int64_t channels = 0, taps = 0;

  // Returns how many numbers a sequence keeps: the rows of its last taps - 1 positions.
  int64_t floats() const { return (taps - 1) * channels; }
};

// Call it only for a layer with a state, i.e. a delta net or a short convolution.
inline ConvolvedRows convolved_rows(const LayerDesc& layer) {
  const DeltaNetDesc& d = layer.delta_net;
  const ShortConvolutionDesc& c = layer.short_convolution;
  return d.present() ? ConvolvedRows{d.channels(), d.taps} : ConvolvedRows{c.channels, c.taps};
}

}  // namespace walsh
