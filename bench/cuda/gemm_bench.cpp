// Measures products with many vectors by dequantization, cuBLASLt, int8 tiles and the weight-side
// kernels. Times are medians of graph replays over several copies of the weights.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "codec/format.h"
#include "device_timing.h"
#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/int8_tile.h"
#include "kernels/cuda/weight_side/weight_side.h"
#include "kernels/cuda/weights/dequantize.h"

namespace walsh::cuda {
namespace {

constexpr double kCopyBandwidth = 4.26e12;

Buffer random_bytes(uint64_t bytes, uint64_t seed) {
  Buffer buffer(bytes);
  Random random(seed);
  std::vector<uint64_t> host(std::min<uint64_t>(bytes, 8 << 20) / 8 + 1);
  for (uint64_t& word : host)
    word = random.next();
  for (uint64_t at = 0; at < bytes; at += 8 << 20) {
    const uint64_t piece = std::min<uint64_t>(8 << 20, bytes - at);
    check(cudaMemcpy(buffer.as<std::byte>() + at, host.data(), piece, cudaMemcpyHostToDevice),
          "copy");
  }
  return buffer;
}

// Returns a pass with random codes in the GPU layout.
Matrix random_matrix(const ScalarCode& code, int64_t rows, int64_t cols, uint64_t seed) {
  Matrix m;
  m.code = matrix_code(code);
  m.rows = rows;
  m.cols = cols;
  m.group = code.sub_group != 0 ? code.sub_group : code.group != 0 ? code.group : cols;
  m.codes = random_bytes(static_cast<uint64_t>(m.tiles() * 16 * cols * code.bits / 8), seed);
  const auto halves = [&](int64_t group, float size) {
    const auto count = static_cast<uint64_t>(m.tiles() * 16 * ((cols + group - 1) / group));
    return filled<uint16_t>(count, [&](uint64_t i) {
      return f32_to_f16(size * (1.0f + 0.1f * static_cast<float>(i % 7)));
    });
  };
  m.scales = halves(m.group, 0.01f);
  if (code.has_offset) {
    m.offset_group = code.group;
    m.offsets = halves(m.offset_group, 0.0005f);
  }
  return m;
}

// Holds copies of one random tensor's passes, enough for `bytes`.
struct Weights {
  const Format* format;
  int64_t rows, cols;
  std::vector<Matrix> pass[2];

  Weights(const char* name, int64_t n, int64_t k, uint64_t bytes)
      : format(&get_format(name)), rows(n), cols(k) {
    uint64_t total = 0;
    for (uint64_t i = 0; total < bytes || i < 2; ++i) {
      for (int p = 0; p < format->passes; ++p) {
        pass[p].push_back(random_matrix(format->code[p], n, k, i));
        total += pass[p].back().bytes();
      }
    }
  }

  size_t copies() const { return pass[0].size(); }
  uint64_t bytes() const {
    return pass[0][0].bytes() + (format->passes > 1 ? pass[1][0].bytes() : 0);
  }
  RowMatmul row_matmul(size_t i, float* y) const {
    RowMatmul p;
    for (int k = 0; k < format->passes; ++k) {
      p.pass[k] = &pass[k][i];
      p.rotation[k].kind =
          format->rotation_block != 0 ? RotationKind::hadamard : RotationKind::none;
      p.rotation[k].block = format->rotation_block;
    }
    p.cols = cols;
    p.y = y;
    p.ldy = rows;
    return p;
  }
  Matmul product(size_t i, const Activations& x, float* y) const {
    Matmul p;
    for (int k = 0; k < format->passes; ++k) {
      p.pass[k] = &pass[k][i];
      p.input[k] = &x;
    }
    p.y = y;
    p.ldy = rows;
    return p;
  }
};

// Returns the microseconds per call of `body(i)`, i = 0 .. calls - 1, in a graph.
double time_us(size_t calls, const std::function<void(size_t, Stream)>& body) {
  OwnedStream stream;
  body(0, stream.get());
  stream.synchronize();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
  for (size_t i = 0; i < calls; ++i)
    body(i, stream.get());
  check(cudaStreamEndCapture(stream.get(), &graph), "capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "graph");
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int replay = 0; replay < 7; ++replay) {
    check(cudaEventRecord(begin, stream.get()), "event");
    check(cudaGraphLaunch(executable, stream.get()), "graph");
    check(cudaEventRecord(end, stream.get()), "event");
    check(cudaEventSynchronize(end), "graph");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (replay > 1) times.push_back(ms);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times.begin(), times.begin() + 2, times.end());
  return times[2] * 1e3 / static_cast<double>(calls);
}

double tera_flops(int64_t rows, int64_t cols, int64_t m, double us) {
  return 2.0 * static_cast<double>(rows * cols * m) / us * 1e-6;
}

// Returns int8 inputs of m random vectors.
Activations random_activations(int64_t m, int64_t cols, const Format& format) {
  Activations x(m, cols, format.rotation_block != 0 ? 128 : 32, format.activation_planes);
  x.q = random_bytes(x.q.bytes(), 1);
  x.scales = filled<float>(x.scales.bytes() / 4, [](uint64_t) { return 0.01f; });
  x.sums = filled<int32_t>(x.sums.bytes() / 4, [](uint64_t i) { return static_cast<int>(i % 99); });
  return x;
}

Buffer random_rows(int64_t m, int64_t cols, DType type) {
  Random random(3);
  if (type == DType::f32) {
    return filled<float>(static_cast<uint64_t>(m * cols),
                         [&](uint64_t) { return static_cast<float>(random.uniform() - 0.5); });
  }
  return filled<uint16_t>(static_cast<uint64_t>(m * cols), [&](uint64_t) {
    const auto v = static_cast<float>(random.uniform() - 0.5);
    return type == DType::bf16 ? f32_to_bf16(v) : f32_to_f16(v);
  });
}

void bench_dequantize() {
  fmt::print("dequantize to bf16: us, GB/s read + written, share of {:.2f} TB/s\n",
             kCopyBandwidth * 1e-12);
  const int64_t shapes[][2] = {{4096, 4096}, {14336, 4096}, {28672, 8192}};
  for (const char* name : {"itq3_s", "tq2", "tq4", "tq3:full", "q8_0", "tq4+2"}) {
    for (const auto& shape : shapes) {
      if (std::string(name) != "itq3_s" && shape[0] != 14336) continue;
      const Weights w(name, shape[0], shape[1], 1 << 20);
      const Buffer out(static_cast<uint64_t>(shape[0] * shape[1] * 2) * 4);
      for (Basis basis : {Basis::original, Basis::rotated}) {
        if (basis == Basis::rotated && (w.format->passes > 1 || w.format->rotation_block == 0))
          continue;
        const double us = time_us(12, [&](size_t i, Stream stream) {
          dequantize(w.row_matmul(i % w.copies(), nullptr), basis, DType::bf16, 0, shape[0],
                     out.as<uint16_t>() + static_cast<uint64_t>(shape[0] * shape[1]) * (i % 4),
                     stream);
        });
        const double bytes =
            static_cast<double>(w.bytes()) + 2.0 * static_cast<double>(shape[0] * shape[1]);
        fmt::print("{:9} {:5}x{:<5} {:8} {:8.1f} {:6.0f} {:4.0f} %\n", name, shape[0], shape[1],
                   basis == Basis::original ? "original" : "rotated", us, bytes / us * 1e-3,
                   bytes / us * 1e6 / kCopyBandwidth * 100);
      }
    }
  }
}

// Measures cuBLASLt alone, and with dequantization to scratch buffers of several sizes.
void bench_blas() {
  fmt::print(
      "\ncuBLASLt bf16 -> f32 alone and with dequantization of itq3_s (scratch MiB):\n"
      "shape, m: us (TFLOP/s); whole, 64, 32\n");
  const int64_t shapes[][2] = {{4096, 4096}, {14336, 4096}, {4096, 14336}, {28672, 8192}};
  for (const auto& shape : shapes) {
    const Weights w("itq3_s", shape[0], shape[1], 200 << 20);
    for (int64_t m : {64, 512, 4096}) {
      const Buffer x = random_rows(m, shape[1], DType::bf16);
      const Buffer y(static_cast<uint64_t>(m * shape[0] * 4), true);
      const Rows rows{x.as(), shape[1], DType::bf16, Basis::original};
      std::string line;
      {
        Blas blas;
        const Buffer dense[2] = {random_rows(shape[0], shape[1], DType::bf16),
                                 random_rows(shape[0], shape[1], DType::bf16)};
        const double us = time_us(8, [&](size_t i, Stream stream) {
          blas.multiply({.type = DType::bf16,
                         .w = dense[i % 2].as(),
                         .rows = shape[0],
                         .cols = shape[1],
                         .x = x.as(),
                         .m = m,
                         .ldx = shape[1],
                         .y = y.as<float>(),
                         .ldy = shape[0]},
                        stream);
        });
        line += fmt::format("{:8.1f} ({:3.0f})", us, tera_flops(shape[0], shape[1], m, us));
      }
      for (uint64_t scratch : {DequantizedGemm::scratch_for(shape[0], shape[1]), uint64_t{64} << 20,
                               uint64_t{32} << 20}) {
        DequantizedGemm products(scratch);
        const double us = time_us(8, [&](size_t i, Stream stream) {
          const RowMatmul p = w.row_matmul(i % w.copies(), y.as<float>());
          products.multiply({&p, 1}, rows, m, stream);
        });
        line += fmt::format(" {:8.1f} ({:3.0f})", us, tera_flops(shape[0], shape[1], m, us));
      }
      fmt::print("{:5}x{:<5} {:4}: {}\n", shape[0], shape[1], m, line);
    }
  }
}

void bench_tiles() {
  fmt::print(
      "\nint8 tiles: us of large, medium, small (best as TOP/s) | dequantization + cuBLASLt "
      "| slices of 16\n");
  struct Case {
    const char* name;
    int64_t rows, cols;
    std::vector<int64_t> m;
  };
  const Case cases[] = {{"itq3_s", 14336, 4096, {17, 32, 64, 128, 256, 512, 1024, 4096}},
                        {"tq3", 14336, 4096, {64, 512, 4096}},
                        {"itq3_s", 4096, 4096, {32, 64, 128, 256, 512, 4096}},
                        {"itq3_s", 1024, 4096, {32, 128, 512, 4096}},
                        {"itq3_s", 28672, 8192, {32, 512, 4096}},
                        {"tq4", 14336, 4096, {32, 512, 4096}},
                        {"tq2", 14336, 4096, {32, 512, 4096}},
                        {"q8_0", 14336, 4096, {512}},
                        {"itq3_s8", 14336, 4096, {512}},
                        {"tq4+2", 14336, 4096, {512}}};
  for (const Case& c : cases) {
    const Weights w(c.name, c.rows, c.cols, 300 << 20);
    DequantizedGemm products(DequantizedGemm::scratch_for(c.rows, c.cols));
    for (int64_t m : c.m) {
      const Activations x = random_activations(m, c.cols, *w.format);
      const Buffer rows = random_rows(m, c.cols, DType::bf16);
      const Buffer y(static_cast<uint64_t>(m * c.rows * 4), true);
      double best = 1e30;
      std::string line;
      for (auto shape :
           {detail::TileShape::large, detail::TileShape::medium, detail::TileShape::small}) {
        const double us = time_us(8, [&](size_t i, Stream stream) {
          const Matmul p = w.product(i % w.copies(), x, y.as<float>());
          detail::gemm_by_tiles({&p, 1}, m, shape, stream);
        });
        best = std::min(best, us);
        line += fmt::format("{:8.1f}", us);
      }
      const double blas = time_us(8, [&](size_t i, Stream stream) {
        const RowMatmul p = w.row_matmul(i % w.copies(), y.as<float>());
        products.multiply({&p, 1}, {rows.as(), c.cols, DType::bf16, Basis::original}, m, stream);
      });
      const double sixteen = time_us(8, [&](size_t i, Stream stream) {
        const Matmul p = w.product(i % w.copies(), x, y.as<float>());
        gemv({&p, 1}, 16, stream);
      });
      fmt::print("{:8} {:5}x{:<5} {:4}: {} ({:4.0f}) | {:8.1f} ({:3.0f}) | {:7.1f}\n", c.name,
                 c.rows, c.cols, m, line, tera_flops(c.rows, c.cols, m, best), blas,
                 tera_flops(c.rows, c.cols, m, blas), sixteen * static_cast<double>((m + 15) / 16));
    }
  }
}

// Shows where rows_from (gemm/dequantized_gemm.h) should be for every kind of format.
void bench_crossing() {
  fmt::print("\nint8 tiles / dequantization + cuBLASLt, us by number of vectors\n");
  const int64_t vectors[] = {24, 48, 96, 144, 192, 256};
  const int64_t shapes[][2] = {{14336, 4096}, {4096, 14336}, {6144, 4096}};
  for (const char* name :
       {"tq2", "tq3", "itq3_s", "tq4", "itq3_s8", "q4_0", "q8_0", "tq3+2", "tq4+4"}) {
    for (const auto& shape : shapes) {
      const Weights w(name, shape[0], shape[1], 300 << 20);
      DequantizedGemm products(DequantizedGemm::scratch_for(shape[0], shape[1]));
      std::string line;
      for (const int64_t m : vectors) {
        const Activations x = random_activations(m, shape[1], *w.format);
        const Buffer rows = random_rows(m, shape[1], DType::bf16);
        const Buffer y(static_cast<uint64_t>(m * shape[0] * 4), true);
        const double tiles = time_us(8, [&](size_t i, Stream stream) {
          const Matmul p = w.product(i % w.copies(), x, y.as<float>());
          int8_gemm({&p, 1}, m, stream);
        });
        const double library = time_us(8, [&](size_t i, Stream stream) {
          const RowMatmul p = w.row_matmul(i % w.copies(), y.as<float>());
          products.multiply({&p, 1}, {rows.as(), shape[1], DType::bf16, Basis::original}, m,
                            stream);
        });
        line += fmt::format(" {}: {:.0f}/{:.0f}", m, tiles, library);
      }
      fmt::print("{:8} {:5}x{:<5}{}\n", name, shape[0], shape[1], line);
    }
  }
}

void bench_sides() {
  fmt::print("\nweight side against activation side, us: vectors (share of {:.2f} TB/s)\n",
             kReadBandwidth * 1e-12);
  const int64_t shapes[][2] = {{14336, 4096}, {8192, 8192}, {28672, 8192}};
  for (const auto& shape : shapes) {
    const Weights w("itq3_s", shape[0], shape[1], kColdBytes);
    const Activations q = random_activations(16, shape[1], *w.format);
    const Buffer x = random_rows(8, shape[1], DType::f32);
    const Buffer y(static_cast<uint64_t>(16 * shape[0] * 4), true);
    for (int64_t m : {1, 8}) {
      const double weight = time_us(w.copies(), [&](size_t i, Stream stream) {
        const RowMatmul p = w.row_matmul(i, y.as<float>());
        multiply_weight_side({&p, 1}, {x.as(), shape[1], DType::f32, Basis::original}, m, stream);
      });
      const double activation = time_us(w.copies(), [&](size_t i, Stream stream) {
        const Matmul p = w.product(i, q, y.as<float>());
        gemv({&p, 1}, m, stream);
      });
      const auto share = [&](double us) {
        return static_cast<double>(w.bytes()) / us * 1e6 / kReadBandwidth * 100;
      };
      fmt::print("{:5}x{:<5} {:4}: weight {:8.1f} ({:2.0f} %)  activation {:8.1f} ({:2.0f} %)\n",
                 shape[0], shape[1], m, weight, share(weight), activation, share(activation));
    }
  }
  fmt::print("matrices (TFLOP/s); activation side: int8 tiles, dequantization + cuBLASLt\n");
  for (const auto& shape : shapes) {
    const Weights w("itq3_s", shape[0], shape[1], 200 << 20);
    DequantizedGemm products(DequantizedGemm::scratch_for(shape[0], shape[1]));
    for (int64_t m : {64, 512, 4096}) {
      const Activations q = random_activations(m, shape[1], *w.format);
      const Buffer x = random_rows(m, shape[1], DType::bf16);
      const Buffer y(static_cast<uint64_t>(m * shape[0] * 4), true);
      const Rows rows{x.as(), shape[1], DType::bf16, Basis::original};
      const auto run = [&](const std::function<void(size_t, Stream)>& body) {
        const double us = time_us(6, body);
        return fmt::format("{:8.1f} ({:3.0f})", us, tera_flops(shape[0], shape[1], m, us));
      };
      const std::string weight = run([&](size_t i, Stream stream) {
        const RowMatmul p = w.row_matmul(i % w.copies(), y.as<float>());
        multiply_weight_side({&p, 1}, rows, m, stream);
      });
      const std::string tiles = run([&](size_t i, Stream stream) {
        const Matmul p = w.product(i % w.copies(), q, y.as<float>());
        int8_gemm({&p, 1}, m, stream);
      });
      const std::string blas = run([&](size_t i, Stream stream) {
        const RowMatmul p = w.row_matmul(i % w.copies(), y.as<float>());
        products.multiply({&p, 1}, rows, m, stream);
      });
      fmt::print("{:5}x{:<5} {:4}: weight {}  activation {}, {}\n", shape[0], shape[1], m, weight,
                 tiles, blas);
    }
  }
}

}  // namespace
}  // namespace walsh::cuda

int main(int argc, char** argv) {
  using namespace walsh::cuda;
  if (devices().empty()) {
    fmt::print("no CUDA device: {}\n", unavailable_reason());
    return 1;
  }
  use_device(devices()[0].index);
  const std::string which = argc > 1 ? argv[1] : "rbtfs";  // each letter stands for a part
  const std::pair<char, void (*)()> parts[] = {{'r', bench_dequantize},
                                               {'b', bench_blas},
                                               {'t', bench_tiles},
                                               {'f', bench_crossing},
                                               {'s', bench_sides}};
  for (const auto& [letter, run] : parts) {
    if (which.find(letter) != std::string::npos) run();
  }
  return 0;
}
