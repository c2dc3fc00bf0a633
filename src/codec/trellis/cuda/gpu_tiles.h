// Searches tiles of trellis codes on a GPU (codec/trellis/tile_device.h).
#pragma once

#include "base/cuda/device.h"
#include "codec/trellis/cuda/feedback_kernels.h"
#include "codec/trellis/cuda/tile_search.h"
#include "codec/trellis/tile_device.h"

namespace walsh::cuda {

// Searches tiles on one device. It must be the current device of the calling thread in every call.
class GpuTiles : public walsh::detail::TileDevice {
 public:
  // A block of the grid searches this many tiles per batch, one after the other. The number must be
  // large, so that the end of a batch, when some blocks are idle, counts little. It must be small,
  // so that the host can work at the same time as the device.
  static constexpr int kBatchWaves = 16;

  // With `shared`, other searches use the device at the same time.
  explicit GpuTiles(const DeviceInfo& device, int batch_waves = kBatchWaves, bool shared = false)
      : device_(device), batch_waves_(batch_waves), shared_(shared) {}
  ~GpuTiles() override;
  GpuTiles(const GpuTiles&) = delete;
  GpuTiles& operator=(const GpuTiles&) = delete;

  bool searches(const Format& format) const override;
  void prepare(const TrellisCode& code, const detail::TrellisTable& table,
               int seam_weights) override;
  int64_t batch_tiles() const override;
  float* targets(int slot, int64_t tiles) override;
  void start(int slot, int64_t tiles) override;
  const uint16_t* finish(int slot) override;
  int64_t fed_back_rows(int64_t cols) const override;
  float* rows(int64_t count, int64_t cols) override;
  const uint16_t* feed_back(const detail::FedBackRows& rows) override;
  bool shared() const override { return shared_; }
  void release() override;

 private:
  struct Slot {
    PinnedBuffer host_targets, host_states;
    Buffer targets, states;
    StreamEvent sent, done;
  };
  struct Feedback {
    PinnedBuffer x;    // It receives the states afterwards.
    Buffer factor[2];  // They hold the factor's rows of two blocks of columns, in turn.
    StreamEvent sent;  // The factor has been sent.
    Buffer diagonal, inverse, scales[2], matrices, targets, states, row_factors;
  };

  void search(const float* targets, uint16_t* states, int64_t tiles);
  encoding::FeedbackArgs send(const detail::FedBackRows& rows);
  void send_factor(const ErrorFeedback& feedback, int64_t begin);
  void encode_columns(encoding::FeedbackArgs args, const ErrorFeedback& feedback);

  DeviceInfo device_;
  int batch_waves_;
  bool shared_;
  TrellisCode code_;
  int seam_ = 0;
  OwnedStream copy_, work_;
  encoding::TileSearchTables tables_;
  Buffer best_;
  Slot slots_[2];
  Feedback feedback_;
};

}  // namespace walsh::cuda
