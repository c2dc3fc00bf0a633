// Says what a sequence keeps of the rows that a recurrent layer convolves.
#pragma once

#include <cstdint>

#include "arch/layer.h"

namespace walsh {

struct ConvolvedRows {
  int64_t channels = 0, taps = 0;

  // Returns how many numbers the rows in front of the next one have.
  int64_t floats() const { return (taps - 1) * channels; }
};

// The layer has a state: it is a delta net or a short convolution.
inline ConvolvedRows convolved_rows(const LayerDesc& layer) {
  const DeltaNetDesc& d = layer.delta_net;
  const ShortConvolutionDesc& c = layer.short_convolution;
  return d.present() ? ConvolvedRows{d.channels(), d.taps} : ConvolvedRows{c.channels, c.taps};
}

}  // namespace walsh
