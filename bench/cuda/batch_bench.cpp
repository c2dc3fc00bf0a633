// Measures products of a layer with 17 to 256 vectors. It compares every shape of blocks of the
// kernels for batches, int8 tiles, dequantization with cuBLASLt, and cuBLASLt with plain weights.
// Times are medians of graph replays over several copies of the weights.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/format.h"
#include "device_timing.h"
#include "kernels/cuda/gemm/batch_gemm.h"
#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/gemm/gemm.h"

namespace walsh::cuda {
namespace {

// This many bytes of weights are read before any comes again.
constexpr uint64_t kBytes = uint64_t{400} << 20;

Buffer random_bytes(uint64_t bytes, uint64_t seed) {
  Buffer buffer(bytes);
  Random random(seed);
  std::vector<uint64_t> host(std::min<uint64_t>(bytes, 1 << 20) / 8 + 1);
  for (uint64_t& word : host)
    word = random.next();
  for (uint64_t at = 0; at < bytes; at += 1 << 20) {
    const uint64_t piece = std::min<uint64_t>(1 << 20, bytes - at);
    copy_to_device(buffer.as<std::byte>() + at, host.data(), piece, nullptr);
  }
  synchronize(nullptr);
  return buffer;
}

void fill_halves(const Buffer& to) {
  if (to.empty()) return;
  std::vector<uint16_t> host(to.bytes() / 2);
  for (size_t i = 0; i < host.size(); ++i)
    host[i] = f32_to_f16(0.01f * (1.0f + 0.1f * static_cast<float>(i % 7)));
  copy_to_device(to.as(), host.data(), to.bytes(), nullptr);
  synchronize(nullptr);
}

struct Weights {
  const Format* format;
  int64_t rows, cols;
  std::vector<Matrix> copies;

  Weights(const char* name, int64_t n, int64_t k) : format(&get_format(name)), rows(n), cols(k) {
    uint64_t total = 0;
    for (uint64_t i = 0; total < kBytes || i < 2; ++i) {
      Matrix& m = copies.emplace_back(allocate_matrix(*format, 0, n, k));
      m.codes = random_bytes(m.codes.bytes(), i);
      fill_halves(m.scales);
      fill_halves(m.offsets);
      fill_halves(m.row_factors);
      total += m.bytes();
    }
  }
  Matmul product(int i, const Activations& x, const Buffer& y) const {
    Matmul p;
    p.pass[0] = &copies[static_cast<size_t>(i) % copies.size()];
    p.input[0] = &x;
    p.y = y.as<float>();
    p.ldy = rows;
    return p;
  }
  RowMatmul row_matmul(int i, const Buffer& y) const {
    RowMatmul p;
    p.pass[0] = &copies[static_cast<size_t>(i) % copies.size()];
    p.rotation[0].kind = RotationKind::hadamard;
    p.rotation[0].block = format->rotation_block;
    p.cols = cols;
    p.y = y.as<float>();
    p.ldy = rows;
    return p;
  }
};

Activations random_activations(int64_t m, int64_t cols) {
  Activations x(m, cols, 128, 1);
  x.q = random_bytes(x.q.bytes(), 1);
  x.scales = filled<float>(x.scales.bytes() / 4, [](uint64_t) { return 0.01f; });
  x.sums = filled<int32_t>(x.sums.bytes() / 4, [](uint64_t i) { return static_cast<int>(i % 99); });
  return x;
}

constexpr int64_t kShapes[][2] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
constexpr int64_t kVectors[] = {17, 32, 48, 64, 96, 128, 192, 256};

void bench(const char* name, bool others) {
  double layer[std::size(kVectors)] = {};
  for (const auto& shape : kShapes) {
    const int64_t rows = shape[0], cols = shape[1];
    const Weights w(name, rows, cols);
    DequantizedGemm library(DequantizedGemm::scratch_for(rows, cols));
    const int calls = 2 * static_cast<int>(w.copies.size());
    for (size_t v = 0; v < std::size(kVectors); ++v) {
      const int64_t m = kVectors[v];
      const Activations x = random_activations(m, cols);
      const Buffer y(static_cast<uint64_t>(m * rows * 4), true);
      const BatchSpace space(m, cols, 1);
      std::string line = fmt::format("{:8} {:5}x{:<5} {:3}:", name, rows, cols, m);
      for (const detail::BatchShape& block : detail::kBatchShapes) {
        const int64_t padded = (m + block.vectors - 1) / block.vectors * block.vectors;
        if (block.vectors > 32 && padded >= 2 * m) continue;
        const double us = 1e6 * seconds(calls, [&](int i, Stream stream) {
                            const Matmul p = w.product(i, x, y);
                            space.multiply({&p, 1}, m, block, stream);
                          });
        line += fmt::format(" {}x{} {:.1f}", block.vectors, block.groups, us);
      }
      const double chosen = 1e6 * seconds(calls, [&](int i, Stream stream) {
                              const Matmul p = w.product(i, x, y);
                              space.multiply({&p, 1}, m, stream);
                            });
      layer[v] += chosen;
      line += fmt::format(" | chosen {:.1f}, {:.0f} TFLOP/s", chosen,
                          2e-6 * static_cast<double>(rows * cols * m) / chosen);
      if (others) {
        const double tiles = 1e6 * seconds(calls, [&](int i, Stream stream) {
                               const Matmul p = w.product(i, x, y);
                               int8_gemm({&p, 1}, m, stream);
                             });
        const Buffer half = normal_halves(static_cast<uint64_t>(m * cols));
        const double dequantized =
            1e6 * seconds(calls, [&](int i, Stream stream) {
              const RowMatmul p = w.row_matmul(i, y);
              library.multiply({&p, 1}, {half.as(), cols, DType::f16, Basis::original}, m, stream);
            });
        line += fmt::format(" | tiles {:.1f} dequantized {:.1f}", tiles, dequantized);
      }
      fmt::print("{}\n", line);
      std::fflush(stdout);
    }
  }
  fmt::print("{:8} layer, us:", name);
  for (size_t v = 0; v < std::size(kVectors); ++v)
    fmt::print(" {}: {:.0f}", kVectors[v], layer[v]);
  fmt::print("\n");
}

// Makes a few launches of one shape.
void launch_one(char** argv) {
  const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
  const int64_t rows = number(1), cols = number(2), m = number(3);
  const detail::BatchShape block{static_cast<int>(number(4)), static_cast<int>(number(5))};
  const Weights w(argv[0], rows, cols);
  const Activations x = random_activations(m, cols);
  const Buffer y(static_cast<uint64_t>(m * rows * 4), true);
  const BatchSpace space(m, cols, 1);
  for (int i = 0; i < 4; ++i) {
    const Matmul p = w.product(i, x, y);
    space.multiply({&p, 1}, m, block, nullptr);
  }
  synchronize(nullptr);
}

void bench_plain() {
  double layer[std::size(kVectors)] = {};
  for (const auto& shape : kShapes) {
    const int64_t rows = shape[0], cols = shape[1];
    Blas blas;
    std::vector<Buffer> dense;
    for (int i = 0; i < 4; ++i)
      dense.push_back(normal_halves(static_cast<uint64_t>(rows * cols)));
    std::string line = fmt::format("f16      {:5}x{:<5}", rows, cols);
    for (size_t v = 0; v < std::size(kVectors); ++v) {
      const int64_t m = kVectors[v];
      const Buffer x = normal_halves(static_cast<uint64_t>(m * cols));
      const Buffer y(static_cast<uint64_t>(m * rows * 4), true);
      const double us = 1e6 * seconds(8, [&](int i, Stream stream) {
                          blas.multiply({.type = DType::f16,
                                         .w = dense[static_cast<size_t>(i) % dense.size()].as(),
                                         .rows = rows,
                                         .cols = cols,
                                         .x = x.as(),
                                         .m = m,
                                         .ldx = cols,
                                         .y = y.as<float>(),
                                         .ldy = rows},
                                        stream);
                        });
      layer[v] += us;
      line += fmt::format(" {}: {:.1f}", m, us);
    }
    fmt::print("{}\n", line);
  }
  fmt::print("f16      layer, us:");
  for (size_t v = 0; v < std::size(kVectors); ++v)
    fmt::print(" {}: {:.0f}", kVectors[v], layer[v]);
  fmt::print("\n");
}

}  // namespace
}  // namespace walsh::cuda

// The usage is bench_batch [others] [FORMAT..], or for profilers
// bench_batch one FORMAT ROWS COLUMNS VECTORS VECTORS_OF_BLOCK WARP_GROUPS
int main(int argc, char** argv) {
  using namespace walsh::cuda;
  if (devices().empty()) {
    fmt::print("no CUDA device: {}\n", unavailable_reason());
    return 1;
  }
  use_device(devices()[0].index);
  if (argc == 8 && std::strcmp(argv[1], "one") == 0) {
    launch_one(argv + 2);
    return 0;
  }
  std::vector<const char*> formats;
  bool others = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "others") == 0) {
      others = true;
    } else {
      formats.push_back(argv[i]);
    }
  }
  if (formats.empty()) formats = {"itq3_s", "tq2", "tq4", "tc3:h"};
  if (others) bench_plain();
  for (const char* name : formats)
    bench(name, others);
  return 0;
}
