// Compiles the GPU's tile search and error feedback for the host: kernels run as fibers, device
// memory is the host's, and streams have always finished.
#include "kernels/emulated/device.h"
//
#include "base/cuda/counted_memory.h"
#include "codec/trellis/cuda/feedback_kernels.cuh"
#include "codec/trellis/cuda/gpu_tiles.cpp"
#include "codec/trellis/cuda/tile_products.cuh"
#include "codec/trellis/cuda/tile_search_plan.cpp"

namespace walsh::cuda {
namespace {

uint64_t allocated = 0;

std::shared_ptr<void> host_memory(uint64_t bytes, int fill) {
  const std::align_val_t alignment{256};
  std::shared_ptr<void> memory(::operator new(bytes, alignment),
                               [=](void* p) { ::operator delete(p, alignment); });
  std::memset(memory.get(), fill, bytes);
  return memory;
}

}  // namespace

uint64_t allocated_bytes() {
  return allocated;
}

Buffer::Buffer(uint64_t bytes, bool zeroed) : bytes_(bytes) {
  const std::shared_ptr<void> memory = host_memory(bytes, zeroed ? 0 : 0xee);
  allocated += bytes;
  data_ = std::shared_ptr<void>(memory.get(), [memory, bytes](void*) { allocated -= bytes; });
}
PinnedBuffer::PinnedBuffer(uint64_t bytes) : data_(host_memory(bytes, 0xee)), bytes_(bytes) {}
OwnedStream::OwnedStream() = default;
StreamEvent::StreamEvent() = default;
void StreamEvent::record(Stream) const {}
void StreamEvent::wait() const {}
void StreamEvent::hold_back(Stream) const {}
void copy_to_device(void* device, const void* host, uint64_t bytes, Stream) {
  std::memcpy(device, host, bytes);
}
void copy_to_host(void* host, const void* device, uint64_t bytes, Stream) {
  std::memcpy(host, device, bytes);
}
void fill_zero(void* device, uint64_t bytes, Stream) {
  std::memset(device, 0, bytes);
}
void synchronize(Stream) {}

namespace encoding {
namespace {

void run_blocks(dim3 grid, int threads, size_t shared, const std::function<void()>& kernel) {
  gridDim = grid;
  blockDim = dim3(static_cast<unsigned>(threads));
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
      emulated::Block(threads, shared, kernel).run();
  }
}

unsigned pieces(int64_t count, int64_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

template <class Search>
void search(const TileSearchPlan& plan, const TileSearchArgs& args) {
  run_blocks(dim3(static_cast<unsigned>(plan.blocks)), kSearchThreads, plan.shared_bytes,
             [&] { Search(args, static_cast<unsigned char*>(emulated::block().shared())).run(); });
}

}  // namespace

void launch_tile_search(const TrellisCode& code, const TileSearchPlan& plan,
                        const TileSearchArgs& args, Stream stream) {
  if (plan.products) return launch_tile_products(code, plan, args, stream);
  if (plan.group == 2) return search<TileSearchBlock<2>>(plan, args);
  if (plan.group == 4) return search<TileSearchBlock<4>>(plan, args);
  search<TileSearchBlock<8>>(plan, args);
}

void launch_tile_products(const TrellisCode& code, const TileSearchPlan& plan,
                          const TileSearchArgs& args, Stream) {
  if (code.step_bits == 5) return search<TileProductsBlock<5>>(plan, args);
  if (code.step_bits == 6) return search<TileProductsBlock<6>>(plan, args);
  if (code.step_bits == 7) return search<TileProductsBlock<7>>(plan, args);
  search<TileProductsBlock<8>>(plan, args);
}

void launch_targets(const FeedbackArgs& args, const TileColumn& column, Stream) {
  const int64_t rows = tile_rows(args.rows) * kTileRows;
  run_blocks(dim3(pieces(rows, kTargetThreads)), kTargetThreads, 0,
             [&] { set_targets(args, column); });
}

void launch_set(const FeedbackArgs& args, const TileColumn& column, const LevelTable& table,
                Stream) {
  float errors[kTileCols];
  run_blocks(dim3(static_cast<unsigned>(args.rows)), kSetThreads, 0,
             [&] { set_row(args, column, table, errors); });
}

void launch_product(const FeedbackArgs& args, const FactorProduct& product, Stream) {
  ProductMemory memory;
  run_blocks(dim3(pieces(args.size - product.first, kProductTile), pieces(args.rows, kProductTile)),
             kProductThreads, 0, [&] { add_product(args, product, memory); });
}

void launch_row_factors(const FeedbackArgs& args, double* factors, Stream) {
  double terms[2 * kFactorThreads];
  run_blocks(dim3(static_cast<unsigned>(args.rows)), kFactorThreads, 0,
             [&] { row_factor(args, factors, terms); });
}

}  // namespace encoding
}  // namespace walsh::cuda
