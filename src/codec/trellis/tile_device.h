// Declares the interface through which encoders of trellis tensors use a GPU: a device that
// searches many tiles of trellis codes at once, with the same bytes as TileSearch.
#pragma once

#include <cstdint>

#include "codec/feedback/error_feedback.h"
#include "codec/format.h"
#include "codec/trellis/trellis_kernels.h"

namespace walsh::detail {

// Holds rows that are encoded one tile column after the other, with the errors of earlier columns
// fed back (codec/feedback/feedback_strip.h).
struct FedBackRows {
  const ErrorFeedback& feedback;
  // It is a multiple of kTileRows, except for the last rows of a matrix.
  int64_t rows = 0;
  // Points to the rotated rows, [rows][feedback.size()], in the memory of TileDevice::rows(). It is
  // invalid after the call.
  const float* x = nullptr;
  // These factors, [rows][column_blocks], multiply the targets, and the levels that were chosen.
  const float* target_factors = nullptr;
  const float* level_factors = nullptr;
  // Gets FeedbackStrip::row_factors, [rows], as a result.
  double* row_factors = nullptr;
};

// Searches tiles for one caller at a time. All functions throw limit if memory runs out.
class TileDevice {
 public:
  virtual ~TileDevice() = default;

  virtual bool searches(const Format& format) const = 0;
  // Sets the code that the following calls work with, until the next prepare().
  virtual void prepare(const TrellisCode& code, const TrellisTable& table, int seam_weights) = 0;

  // Batches of about this many tiles run at full speed. Two can be in flight: while the device
  // works on one slot (0 or 1), the host fills the other.
  virtual int64_t batch_tiles() const = 0;
  // Returns memory for targets[tiles][kTileWeights], valid until the next call for the same slot.
  virtual float* targets(int slot, int64_t tiles) = 0;
  virtual void start(int slot, int64_t tiles) = 0;
  // Waits for the slot and returns states[tiles][kTileWeights]. The first 256 / V of each tile are
  // set.
  virtual const uint16_t* finish(int slot) = 0;

  // Returns how many rows of `cols` columns feed_back takes at most, a multiple of kTileRows.
  virtual int64_t fed_back_rows(int64_t cols) const = 0;
  // Returns memory for FedBackRows::x, valid until the next call.
  virtual float* rows(int64_t count, int64_t cols) = 0;
  // Encodes the rows and returns the states [tile columns][tile rows][kTileWeights], valid until
  // the next call.
  virtual const uint16_t* feed_back(const FedBackRows& rows) = 0;

  // Returns whether other searches use memory of the same device. If so, a lack of device memory is
  // not left to the CPU. It is an error (limit) of the encoding, which may succeed after the others
  // have ended.
  virtual bool shared() const { return false; }

  // Waits for pending work and frees the device's memory. A model that is encoded while loading
  // needs it for its weights. Call prepare() before the next search.
  virtual void release() = 0;
};

// Frees in its destructor what a device has allocated for a tensor, so that this also happens if
// encoding fails.
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
