// A device that searches many tiles of trellis codes at once, with the bytes of TileSearch: what
// the encoders of trellis tensors need of a GPU, without knowing of one.
#pragma once

#include <cstdint>

#include "formats/format.h"
#include "quantize/feedback/error_feedback.h"
#include "quantize/trellis/trellis_kernels.h"

namespace walsh::detail {

// Rows that are encoded tile column by tile column, each with the errors of those before it fed
// back (quantize/feedback/feedback_strip.h).
struct FedBackRows {
  const ErrorFeedback& feedback;
  int64_t rows = 0;  // a multiple of kTileRows, but for the last ones of a matrix
  // From TileDevice::rows(), invalid after the call: [rows][feedback.size()], rotated.
  const float* x = nullptr;
  // [rows][column_blocks]: what targets, and what the levels that were chosen, are multiplied with.
  const float* target_factors = nullptr;
  const float* level_factors = nullptr;
  double* row_factors = nullptr;  // result: FeedbackStrip::row_factors, [rows]
};

// One caller at a time. Everything throws limit if memory runs out.
class TileDevice {
 public:
  virtual ~TileDevice() = default;

  virtual bool searches(const TrellisCode& code) const = 0;
  // What the calls behind this one work with, until the next one.
  virtual void prepare(const TrellisCode& code, const TrellisTable& table, int seam_weights) = 0;

  // Batches of about so many tiles are searched at full speed. Two can be under way: while the
  // device works on one slot (0 or 1), the host fills the other.
  virtual int64_t batch_tiles() const = 0;
  // Room for targets[tiles][kTileWeights], valid until the next call for the same slot.
  virtual float* targets(int slot, int64_t tiles) = 0;
  virtual void start(int slot, int64_t tiles) = 0;
  // Waits for it: states[tiles][kTileWeights], of which the first 256 / V of a tile are set.
  virtual const uint16_t* finish(int slot) = 0;

  // How many rows of so many columns feed_back takes at most, a multiple of kTileRows.
  virtual int64_t fed_back_rows(int64_t cols) const = 0;
  // Room for FedBackRows::x, valid until the next call.
  virtual float* rows(int64_t count, int64_t cols) = 0;
  // The states of [tile columns][tile rows][kTileWeights], valid until the next call.
  virtual const uint16_t* feed_back(const FedBackRows& rows) = 0;

  // Whether others beside it take memory of the same device. What it has none for is then an error
  // (limit) of the encoding, which may succeed when they have ended, and not left to the CPU.
  virtual bool shared() const { return false; }

  // Waits for what is under way and gives back the device's memory, which the weights of a model
  // need that is encoded while it is loaded. prepare() comes next.
  virtual void release() = 0;
};

// Gives back what a device has taken for a tensor, also if that fails.
class TileDeviceUse {
 public:
  explicit TileDeviceUse(TileDevice& device) : device_(device) {}
  ~TileDeviceUse() { device_.release(); }
  TileDeviceUse(const TileDeviceUse&) = delete;
  TileDeviceUse& operator=(const TileDeviceUse&) = delete;

 private:
  TileDevice& device_;
};

}  // namespace walsh::detail
